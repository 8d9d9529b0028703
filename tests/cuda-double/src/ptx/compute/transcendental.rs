//! Functions that hardware approximates: here they are as exact as `f64` makes them.

use super::float::flush;
use super::{Row, rows};

fn through(value: f32, f: fn(f64) -> f64) -> f32 {
    f(f64::from(value)) as f32
}

/// The upper half of an `f64`, as the gross approximations give it.
fn upper(value: f64) -> f64 {
    let value = if value.is_subnormal() { 0f64.copysign(value) } else { value };
    if value.is_nan() { value } else { f64::from_bits(value.to_bits() & 0xFFFF_FFFF_0000_0000) }
}

const APPROXIMATE: &[Row] = rows![
    ("ex2.approx.f32", a: f32 => through(a, f64::exp2)),
    ("ex2.approx.ftz.f32", a: f32 => flush(through(flush(a), f64::exp2))),
    ("lg2.approx.f32", a: f32 => through(a, f64::log2)),
    ("lg2.approx.ftz.f32", a: f32 => flush(through(flush(a), f64::log2))),
    ("sin.approx.f32", a: f32 => through(a, f64::sin)),
    ("sin.approx.ftz.f32", a: f32 => flush(through(flush(a), f64::sin))),
    ("cos.approx.f32", a: f32 => through(a, f64::cos)),
    ("cos.approx.ftz.f32", a: f32 => flush(through(flush(a), f64::cos))),
    ("tanh.approx.f32", a: f32 => through(a, f64::tanh)),
    ("rsqrt.approx.f32", a: f32 => through(a, |a| 1.0 / a.sqrt())),
    ("rsqrt.approx.ftz.f32", a: f32 => flush(through(flush(a), |a| 1.0 / a.sqrt()))),
    ("rcp.approx.ftz.f64", a: f64 => upper(1.0 / upper(a))),
    ("rsqrt.approx.ftz.f64", a: f64 => upper(1.0 / upper(a).sqrt())),
    ("rsqrt.approx.f64", a: f64 => 1.0 / a.sqrt()),
];

/// Every table of this file.
pub(super) const TABLES: &[&[Row]] = &[APPROXIMATE];
