//! Arithmetic on `f32` and `f64`, in every rounding direction that has a row.

use super::{Row, rows};
use crate::ptx::number::{F32, Rounding, exact_sum, round};

/// Numbers too small to be normal become zero.
pub(super) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// Between 0 and 1; what is no number becomes 0.
pub(super) fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// `a * b + c`, rounded once.
fn fused(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    // A product of two f32 is exact in f64; what its sum leaves over decides the direction.
    let (sum, rest) = exact_sum(f64::from(a) * f64::from(b), f64::from(c));
    f32::from_bits(round(sum, rest, F32, rounding) as u32)
}

fn sum(a: f32, b: f32, rounding: Rounding) -> f32 {
    let (sum, rest) = exact_sum(f64::from(a), f64::from(b));
    f32::from_bits(round(sum, rest, F32, rounding) as u32)
}

fn product(a: f32, b: f32, rounding: Rounding) -> f32 {
    f32::from_bits(round(f64::from(a) * f64::from(b), 0.0, F32, rounding) as u32)
}

/// A quotient or root that `f64` holds with more than twice the digits of `f32`, and the sign of what is missing.
fn wide(value: f64, missing: f64, rounding: Rounding) -> f32 {
    f32::from_bits(round(value, missing, F32, rounding) as u32)
}

fn quotient(a: f32, b: f32, rounding: Rounding) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let q = a / b;
    let missing = if q.is_finite() { (-q).mul_add(b, a) / b } else { 0.0 };
    wide(q, missing, rounding)
}

fn root(a: f32, rounding: Rounding) -> f32 {
    let a = f64::from(a);
    let r = a.sqrt();
    wide(r, if r.is_finite() { (-r).mul_add(r, a) } else { 0.0 }, rounding)
}

/// What `f64` holds and what is left, rounded in a direction.
fn directed(held: f64, left: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Down if left < 0.0 => held.next_down(),
        Rounding::Up if left > 0.0 => held.next_up(),
        Rounding::Zero if left < 0.0 && held > 0.0 => held.next_down(),
        Rounding::Zero if left > 0.0 && held < 0.0 => held.next_up(),
        _ => held,
    }
}

fn sum_wide(a: f64, b: f64, rounding: Rounding) -> f64 {
    let (held, left) = exact_sum(a, b);
    directed(held, left, rounding)
}

fn product_wide(a: f64, b: f64, rounding: Rounding) -> f64 {
    let held = a * b;
    directed(held, if held.is_finite() { a.mul_add(b, -held) } else { 0.0 }, rounding)
}

macro_rules! extremes {
    ($lesser:ident, $greater:ident, $lesser_nan:ident, $greater_nan:ident, $kind:ty) => {
        /// The lesser; of a number and none, the number.
        fn $lesser(a: $kind, b: $kind) -> $kind {
            if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) }
        }
        /// The greater; of a number and none, the number.
        fn $greater(a: $kind, b: $kind) -> $kind {
            if a == b { if a.is_sign_negative() { b } else { a } } else { a.max(b) }
        }
        #[allow(dead_code, reason = "only one width has the forms that keep what is no number")]
        fn $lesser_nan(a: $kind, b: $kind) -> $kind {
            if a.is_nan() || b.is_nan() { <$kind>::NAN } else { $lesser(a, b) }
        }
        #[allow(dead_code, reason = "only one width has the forms that keep what is no number")]
        fn $greater_nan(a: $kind, b: $kind) -> $kind {
            if a.is_nan() || b.is_nan() { <$kind>::NAN } else { $greater(a, b) }
        }
    };
}
extremes!(lesser, greater, lesser_nan, greater_nan, f32);
extremes!(lesser_wide, greater_wide, lesser_wide_nan, greater_wide_nan, f64);

const NEAREST: &[Row] = rows![
    ("add.f32 add.rn.f32", a: f32, b: f32 => a + b),
    ("sub.f32 sub.rn.f32", a: f32, b: f32 => a - b),
    ("mul.f32 mul.rn.f32", a: f32, b: f32 => a * b),
    ("fma.rn.f32 mad.rn.f32", a: f32, b: f32, c: f32 => a.mul_add(b, c)),
    ("div.rn.f32 div.full.f32 div.approx.f32", a: f32, b: f32 => a / b),
    ("sqrt.rn.f32 sqrt.approx.f32", a: f32 => a.sqrt()),
    ("rcp.rn.f32 rcp.approx.f32", a: f32 => 1.0 / a),
    ("neg.f32", a: u32 => a ^ 0x8000_0000),
    ("abs.f32", a: u32 => a & 0x7FFF_FFFF),
    ("min.f32", a: f32, b: f32 => lesser(a, b)),
    ("max.f32", a: f32, b: f32 => greater(a, b)),
    ("min.NaN.f32", a: f32, b: f32 => lesser_nan(a, b)),
    ("max.NaN.f32", a: f32, b: f32 => greater_nan(a, b)),
    ("copysign.f32", sign: f32, value: f32 => value.copysign(sign)),
    ("testp.finite.f32", a: f32 => a.is_finite()),
    ("testp.infinite.f32", a: f32 => a.is_infinite()),
    ("testp.number.f32", a: f32 => !a.is_nan()),
    ("testp.notanumber.f32", a: f32 => a.is_nan()),
    ("testp.normal.f32", a: f32 => a.is_normal()),
    ("testp.subnormal.f32", a: f32 => a.is_subnormal()),
];

const SATURATING: &[Row] = rows![
    ("add.sat.f32 add.rn.sat.f32", a: f32, b: f32 => saturate(a + b)),
    ("sub.sat.f32 sub.rn.sat.f32", a: f32, b: f32 => saturate(a - b)),
    ("mul.sat.f32 mul.rn.sat.f32", a: f32, b: f32 => saturate(a * b)),
    ("fma.rn.sat.f32", a: f32, b: f32, c: f32 => saturate(a.mul_add(b, c))),
];

const FLUSHING: &[Row] = rows![
    ("add.ftz.f32 add.rn.ftz.f32", a: f32, b: f32 => flush(flush(a) + flush(b))),
    ("sub.ftz.f32 sub.rn.ftz.f32", a: f32, b: f32 => flush(flush(a) - flush(b))),
    ("mul.ftz.f32 mul.rn.ftz.f32", a: f32, b: f32 => flush(flush(a) * flush(b))),
    ("fma.rn.ftz.f32 mad.rn.ftz.f32", a: f32, b: f32, c: f32 => flush(flush(a).mul_add(flush(b), flush(c)))),
    ("add.ftz.sat.f32 add.rn.ftz.sat.f32", a: f32, b: f32 => saturate(flush(flush(a) + flush(b)))),
    ("mul.ftz.sat.f32 mul.rn.ftz.sat.f32", a: f32, b: f32 => saturate(flush(flush(a) * flush(b)))),
    ("fma.rn.ftz.sat.f32", a: f32, b: f32, c: f32 => saturate(flush(flush(a).mul_add(flush(b), flush(c))))),
    ("div.rn.ftz.f32 div.full.ftz.f32 div.approx.ftz.f32", a: f32, b: f32 => flush(flush(a) / flush(b))),
    ("sqrt.rn.ftz.f32 sqrt.approx.ftz.f32", a: f32 => flush(a).sqrt()),
    ("rcp.rn.ftz.f32 rcp.approx.ftz.f32", a: f32 => flush(1.0 / flush(a))),
    ("neg.ftz.f32", a: f32 => -flush(a)),
    ("abs.ftz.f32", a: f32 => flush(a).abs()),
    ("min.ftz.f32", a: f32, b: f32 => lesser(flush(a), flush(b))),
    ("max.ftz.f32", a: f32, b: f32 => greater(flush(a), flush(b))),
];

macro_rules! directions {
    ($name:literal, $rounding:expr) => {
        rows![
            (concat!("add.", $name, ".f32"), a: f32, b: f32 => sum(a, b, $rounding)),
            (concat!("sub.", $name, ".f32"), a: f32, b: f32 => sum(a, -b, $rounding)),
            (concat!("mul.", $name, ".f32"), a: f32, b: f32 => product(a, b, $rounding)),
            (concat!("fma.", $name, ".f32"), a: f32, b: f32, c: f32 => fused(a, b, c, $rounding)),
            (concat!("fma.", $name, ".ftz.f32"), a: f32, b: f32, c: f32 => flush(fused(flush(a), flush(b), flush(c), $rounding))),
            (concat!("div.", $name, ".f32"), a: f32, b: f32 => quotient(a, b, $rounding)),
            (concat!("rcp.", $name, ".f32"), a: f32 => quotient(1.0, a, $rounding)),
            (concat!("sqrt.", $name, ".f32"), a: f32 => root(a, $rounding)),
            (concat!("add.", $name, ".f64"), a: f64, b: f64 => sum_wide(a, b, $rounding)),
            (concat!("sub.", $name, ".f64"), a: f64, b: f64 => sum_wide(a, -b, $rounding)),
            (concat!("mul.", $name, ".f64"), a: f64, b: f64 => product_wide(a, b, $rounding)),
        ]
    };
}

const WIDE: &[Row] = rows![
    ("add.f64 add.rn.f64", a: f64, b: f64 => a + b),
    ("sub.f64 sub.rn.f64", a: f64, b: f64 => a - b),
    ("mul.f64 mul.rn.f64", a: f64, b: f64 => a * b),
    ("fma.rn.f64 mad.rn.f64", a: f64, b: f64, c: f64 => a.mul_add(b, c)),
    ("div.rn.f64", a: f64, b: f64 => a / b),
    ("sqrt.rn.f64", a: f64 => a.sqrt()),
    ("rcp.rn.f64", a: f64 => 1.0 / a),
    ("neg.f64", a: u64 => a ^ (1 << 63)),
    ("abs.f64", a: u64 => a & !(1 << 63)),
    ("min.f64", a: f64, b: f64 => lesser_wide(a, b)),
    ("max.f64", a: f64, b: f64 => greater_wide(a, b)),
    ("copysign.f64", sign: f64, value: f64 => value.copysign(sign)),
    ("testp.finite.f64", a: f64 => a.is_finite()),
    ("testp.infinite.f64", a: f64 => a.is_infinite()),
    ("testp.number.f64", a: f64 => !a.is_nan()),
    ("testp.notanumber.f64", a: f64 => a.is_nan()),
    ("testp.normal.f64", a: f64 => a.is_normal()),
    ("testp.subnormal.f64", a: f64 => a.is_subnormal()),
];

/// Every table of this file.
pub(super) const TABLES: &[&[Row]] = &[
    NEAREST,
    SATURATING,
    FLUSHING,
    WIDE,
    directions!("rz", Rounding::Zero),
    directions!("rm", Rounding::Down),
    directions!("rp", Rounding::Up),
];
