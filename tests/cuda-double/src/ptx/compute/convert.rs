//! Conversions between numbers: `cvt`.

use crate::ptx::number::{BF16, F16, F32, Rounding, TF32, from_bf16, from_f16, round};
use crate::ptx::types::Type;

/// How a conversion rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    /// No rounding is named: nothing can be lost.
    Exact,
    /// To a value of the target.
    Value(Rounding),
    /// To a whole number.
    Whole(Rounding),
    /// To the nearest value of the target, and away from zero between two.
    Away,
}

/// One conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conversion {
    to: Type,
    from: Type,
    direction: Direction,
    flush: bool,
    saturate: bool,
    relu: bool,
    /// The target is `tf32`, which a 32-bit register holds.
    tensor: bool,
}

impl Conversion {
    /// Reads the whole of `cvt.rni.sat.s32.f32`; what it does not know is none.
    pub(crate) fn parse(opcode: &str) -> Option<Self> {
        let mut parts = opcode.strip_prefix("cvt.")?.split('.').peekable();
        let mut take = |name: &str| parts.next_if(|part| *part == name).is_some();
        let mut direction = Direction::Exact;
        for (name, found) in [
            ("rn", Direction::Value(Rounding::Nearest)),
            ("rz", Direction::Value(Rounding::Zero)),
            ("rm", Direction::Value(Rounding::Down)),
            ("rp", Direction::Value(Rounding::Up)),
            ("rna", Direction::Away),
            ("rni", Direction::Whole(Rounding::Nearest)),
            ("rzi", Direction::Whole(Rounding::Zero)),
            ("rmi", Direction::Whole(Rounding::Down)),
            ("rpi", Direction::Whole(Rounding::Up)),
        ] {
            if take(name) {
                direction = found;
                break;
            }
        }
        let relu = take("relu");
        let flush = take("ftz");
        let saturate = take("sat");
        let (to, from) = (parts.next()?, parts.next()?);
        let tensor = to == "tf32";
        let to = if tensor { Type::Bits(4) } else { Type::parse(to)? };
        let conversion = Self { to, from: Type::parse(from)?, direction, flush, saturate, relu, tensor };
        (parts.next().is_none() && conversion.is_known()).then_some(conversion)
    }

    /// Whether the parts make sense together.
    fn is_known(&self) -> bool {
        let integer = |kind: Type| matches!(kind, Type::Unsigned(_) | Type::Signed(_));
        let float = |kind: Type| matches!(kind, Type::Float(_) | Type::Brain);
        let (to, from) = (self.to, self.from);
        if self.tensor {
            return from == Type::Float(4)
                && matches!(self.direction, Direction::Away | Direction::Value(Rounding::Nearest | Rounding::Zero));
        }
        let narrows = to.size() < from.size() || (to.size() == from.size() && to != from);
        let single = [to, from].contains(&Type::Float(4));
        (!self.flush || single)
            && (!self.relu || (matches!(to, Type::Float(2) | Type::Brain) && from == Type::Float(4)))
            && match self.direction {
                Direction::Exact if integer(to) => integer(from),
                Direction::Exact => float(to) && float(from) && !narrows,
                Direction::Value(_) => float(to) && (integer(from) || (float(from) && narrows)),
                Direction::Whole(_) if float(to) => to == from,
                Direction::Whole(_) => integer(to) && float(from),
                Direction::Away => false,
            }
    }

    /// The bits of the target, from those of the source.
    pub(crate) fn apply(&self, bits: u64) -> u64 {
        match self.from {
            Type::Unsigned(size) | Type::Signed(size) => self.integer_to(extend(bits, size, self.from.is_signed())),
            _ => self.float_to(self.value(bits)),
        }
    }

    fn value(&self, bits: u64) -> f64 {
        let value = match self.from {
            Type::Float(2) => from_f16(bits as u16),
            Type::Brain => from_bf16(bits as u16),
            Type::Float(4) => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        };
        let tiny = self.flush && self.from == Type::Float(4) && value.abs() < f64::from(f32::MIN_POSITIVE);
        if tiny { 0f64.copysign(value) } else { value }
    }

    fn integer_to(&self, value: i128) -> u64 {
        match self.to {
            Type::Unsigned(size) | Type::Signed(size) => {
                let value = if self.saturate { clamp(value, self.to) } else { value };
                value as u64 & mask(size)
            }
            _ => {
                let Direction::Value(rounding) = self.direction else { return 0 };
                // An integer of 64 bits may not fit f64: the rest of it goes along.
                let held = value as f64;
                let left = (value - held as i128) as f64;
                match self.to {
                    Type::Float(8) => directed(held, left, rounding).to_bits(),
                    Type::Float(4) => round(held, left, F32, rounding),
                    Type::Float(_) => round(held, left, F16, rounding),
                    _ => round(held, left, BF16, rounding),
                }
            }
        }
    }

    fn float_to(&self, value: f64) -> u64 {
        if self.tensor {
            return self.tensor(value);
        }
        let value = match self.direction {
            Direction::Whole(rounding) => whole(value, rounding),
            _ => value,
        };
        let value = if self.saturate && !is_integer(self.to) {
            if value > 0.0 { value.min(1.0) } else { 0.0 }
        } else if self.relu && value < 0.0 {
            0.0
        } else {
            value
        };
        let rounding = match self.direction {
            Direction::Value(rounding) => rounding,
            _ => Rounding::Nearest,
        };
        match self.to {
            Type::Float(8) => value.to_bits(),
            Type::Float(4) => {
                let bits = round(value, 0.0, F32, rounding);
                let tiny = self.flush && bits & 0x7F80_0000 == 0;
                if tiny { bits & 0x8000_0000 } else { bits }
            }
            Type::Float(_) => round(value, 0.0, F16, rounding),
            Type::Brain => round(value, 0.0, BF16, rounding),
            Type::Unsigned(size) | Type::Signed(size) => integer(value, self.to) as u64 & mask(size),
            _ => 0,
        }
    }

    fn tensor(&self, value: f64) -> u64 {
        let bits = match self.direction {
            Direction::Value(rounding) => round(value, 0.0, TF32, rounding),
            // Half a unit more, and the rest cut off.
            _ => (((value as f32).to_bits() + 0x1000) >> 13).into(),
        };
        bits << 13
    }
}

fn is_integer(kind: Type) -> bool {
    matches!(kind, Type::Unsigned(_) | Type::Signed(_))
}

fn mask(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (size * 8)) - 1 }
}

fn extend(bits: u64, size: u8, signed: bool) -> i128 {
    let shift = 64 - u32::from(size) * 8;
    if signed { i128::from(((bits << shift) as i64) >> shift) } else { i128::from((bits << shift) >> shift) }
}

fn limits(kind: Type) -> (i128, i128) {
    let bits = kind.size() * 8;
    if kind.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

fn clamp(value: i128, kind: Type) -> i128 {
    let (least, most) = limits(kind);
    value.clamp(least, most)
}

/// A whole number as an integer; out of range is the nearest there is, and what is no number is what hardware gives.
fn integer(value: f64, kind: Type) -> i128 {
    if value.is_nan() {
        return match kind.size() {
            8 => 1 << 63,
            _ => 0,
        };
    }
    clamp(value as i128, kind)
}

fn whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

fn directed(held: f64, left: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Down if left < 0.0 => held.next_down(),
        Rounding::Up if left > 0.0 => held.next_up(),
        Rounding::Zero if left != 0.0 && (left < 0.0) != (held < 0.0) => {
            if held > 0.0 {
                held.next_down()
            } else {
                held.next_up()
            }
        }
        _ => held,
    }
}

#[cfg(test)]
mod tests {
    use super::Conversion;

    fn run(opcode: &str, bits: u64) -> u64 {
        Conversion::parse(opcode).unwrap_or_else(|| panic!("{opcode} is not known")).apply(bits)
    }

    #[test]
    fn integers_are_extended_cut_and_clamped() {
        assert_eq!(run("cvt.s64.s32", 0xFFFF_FFFF), u64::MAX);
        assert_eq!(run("cvt.u64.u32", 0xFFFF_FFFF), 0xFFFF_FFFF);
        assert_eq!(run("cvt.u16.u32", 0x1_2345), 0x2345);
        assert_eq!(run("cvt.s32.s8", 0x80), 0xFFFF_FF80);
        assert_eq!(run("cvt.sat.u8.s32", 300), 255);
        assert_eq!(run("cvt.sat.s8.s32", (-300i32) as u32 as u64), 0x80);
    }

    #[test]
    fn floats_become_integers_in_the_direction_named() {
        let bits = |x: f32| u64::from(x.to_bits());
        assert_eq!(run("cvt.rni.s32.f32", bits(2.5)), 2);
        assert_eq!(run("cvt.rzi.s32.f32", bits(-2.9)), (-2i32) as u32 as u64);
        assert_eq!(run("cvt.rmi.s32.f32", bits(-2.1)), (-3i32) as u32 as u64);
        assert_eq!(run("cvt.rpi.u32.f32", bits(2.1)), 3);
        assert_eq!(run("cvt.rzi.u32.f32", bits(-7.0)), 0);
        assert_eq!(run("cvt.rzi.s32.f32", bits(1e20)), 0x7FFF_FFFF);
    }

    #[test]
    fn rounding_happens_once_even_from_64_bits() {
        // A little above half way between two f32, where f64 would already have rounded to half way.
        let value = (1u64 << 60) + (1 << 36) + 1;
        assert_eq!(run("cvt.rn.f32.u64", value), u64::from((value as f32).to_bits()));
        assert_eq!(run("cvt.rz.f32.f64", 0.1f64.to_bits()), u64::from(0.1f32.next_down().to_bits()));
    }

    #[test]
    fn what_makes_no_sense_is_not_known() {
        for opcode in
            ["cvt.f32.s32", "cvt.rn.s32.s64", "cvt.rni.f32.f64", "cvt.ftz.f64.s32", "cvt.s32", "cvt.rn.f32.s32.x"]
        {
            assert_eq!(Conversion::parse(opcode), None, "{opcode}");
        }
    }
}
