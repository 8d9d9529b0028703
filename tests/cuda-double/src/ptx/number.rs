//! Rounding: from an exact value to the bits of a narrower floating-point format, in every direction.

/// How a value that does not fit is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

/// A binary floating-point format of at most 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
}

pub(crate) const F32: Format = Format { exponent_bits: 8, fraction_bits: 23 };
pub(crate) const F16: Format = Format { exponent_bits: 5, fraction_bits: 10 };
pub(crate) const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7 };
pub(crate) const TF32: Format = Format { exponent_bits: 8, fraction_bits: 10 };

/// Fraction bits that an `f64` is carried with here, below which one bit stands for everything that is smaller.
const CARRIED: u32 = 62;

/// The bits of `high + low` in `format`, where `low` is at most half a unit in the last place of `high`.
pub(crate) fn round(high: f64, low: f64, format: Format, rounding: Rounding) -> u64 {
    let Format { exponent_bits, fraction_bits } = format;
    let infinity = ((1u64 << exponent_bits) - 1) << fraction_bits;
    let sign = u64::from(high.is_sign_negative()) << (exponent_bits + fraction_bits);
    if high.is_nan() {
        // The one NaN that hardware makes: everything set but the sign.
        return infinity | ((1 << fraction_bits) - 1);
    }
    if high.is_infinite() {
        return sign | infinity;
    }
    if high == 0.0 {
        return sign;
    }
    let bits = high.abs().to_bits();
    let raw = bits & ((1 << 52) - 1);
    let (mut significand, mut exponent) = match (bits >> 52) as i32 {
        0 => (raw, -1022),
        biased => (raw | 1 << 52, biased - 1023),
    };
    let shift = significand.leading_zeros() - 1;
    significand <<= shift;
    exponent -= shift as i32 - 10;
    if low != 0.0 {
        // What lies below is never on a boundary of the target, so that its side is all that counts.
        significand = if (low < 0.0) == (high < 0.0) { significand | 1 } else { significand - 1 };
    }
    let bias = (1 << (exponent_bits - 1)) - 1;
    let least = 1 - bias;
    let dropped = CARRIED - fraction_bits + (least - exponent).max(0) as u32;
    let (kept, rest, half) = if dropped >= 64 {
        (0, 1, 2)
    } else {
        (significand >> dropped, significand & ((1 << dropped) - 1), 1u64 << (dropped - 1))
    };
    let up = match rounding {
        Rounding::Nearest => rest > half || (rest == half && kept & 1 == 1),
        Rounding::Zero => false,
        Rounding::Down => rest != 0 && sign != 0,
        Rounding::Up => rest != 0 && sign == 0,
    };
    let kept = kept + u64::from(up);
    let biased = if exponent >= least { ((exponent + bias) as u64).saturating_sub(1) << fraction_bits } else { 0 };
    // A carry out of the fraction, and a significand that is none yet below the least exponent, fall in place by adding.
    let found = biased + kept;
    if found < infinity {
        return sign | found;
    }
    let away = match rounding {
        Rounding::Nearest => true,
        Rounding::Zero => false,
        Rounding::Down => sign != 0,
        Rounding::Up => sign == 0,
    };
    sign | if away { infinity } else { infinity - 1 }
}

/// The value of `f16` bits.
pub(crate) fn from_f16(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3FF);
    let magnitude = match (bits >> 10) & 0x1F {
        0 => fraction * power(-24),
        31 if bits & 0x3FF != 0 => f64::NAN,
        31 => f64::INFINITY,
        biased => (fraction + 1024.0) * power(i32::from(biased) - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The value of `bf16` bits.
pub(crate) fn from_bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The exact sum of two numbers, as what `f64` holds of it and what is left.
pub(crate) fn exact_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_through_f64() {
        for bits in 0..=u16::MAX {
            let value = from_f16(bits);
            if !value.is_nan() {
                assert_eq!(round(value, 0.0, F16, Rounding::Nearest), u64::from(bits), "0x{bits:04x}");
            }
            let value = from_bf16(bits);
            if !value.is_nan() {
                assert_eq!(round(value, 0.0, BF16, Rounding::Nearest), u64::from(bits), "0x{bits:04x}");
            }
        }
    }

    #[test]
    fn rounding_to_f32_is_what_the_processor_does() {
        let mut seed = 1u64;
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Exponents around those of f32, so that subnormal and infinite results come too.
            let exponent = 1023 - 160 + (seed >> 33) % 300;
            let value = f64::from_bits((seed & 0x800F_FFFF_FFFF_FFFF) | exponent << 52);
            let expected = u64::from((value as f32).to_bits());
            assert_eq!(round(value, 0.0, F32, Rounding::Nearest), expected, "{value:e}");
        }
    }

    #[test]
    fn directed_rounding_encloses_the_exact_value() {
        let third = 1.0f64 / 3.0;
        let down = f32::from_bits(round(third, 0.0, F32, Rounding::Down) as u32);
        let up = f32::from_bits(round(third, 0.0, F32, Rounding::Up) as u32);
        assert!(f64::from(down) < third && third < f64::from(up));
        assert_eq!(up, down.next_up());
        // A residue below what f64 holds still decides the direction, also where the exponent changes.
        assert_eq!(round(1.0, -1e-20, F32, Rounding::Down) as u32, 1.0f32.next_down().to_bits());
        assert_eq!(round(1.0, 1e-20, F32, Rounding::Up) as u32, 1.0f32.next_up().to_bits());
        assert_eq!(round(-1.0, -1e-20, F32, Rounding::Zero) as u32, (-1.0f32).to_bits());
        assert_eq!(round(1e300, 0.0, F32, Rounding::Zero) as u32, f32::MAX.to_bits());
    }
}
