//! Comparisons, by relation and type.

#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is no number compares as the relation says")]

use super::float::flush;
use super::{Register, Row, rows};
use crate::ptx::inst::Compute;
use crate::ptx::number::{from_bf16, from_f16};

#[derive(Clone, Copy)]
struct Half(f64);

#[derive(Clone, Copy)]
struct Brain(f64);

impl Half {
    fn value(self) -> f64 {
        self.0
    }
}

impl Brain {
    fn value(self) -> f64 {
        self.0
    }
}

fn flushed(value: f32) -> f64 {
    f64::from(flush(value))
}

impl Register for Half {
    fn read(bits: u64) -> Self {
        Self(from_f16(bits as u16))
    }
    fn write(self) -> u64 {
        self.0.to_bits()
    }
}

impl Register for Brain {
    fn read(bits: u64) -> Self {
        Self(from_bf16(bits as u16))
    }
    fn write(self) -> u64 {
        self.0.to_bits()
    }
}

macro_rules! integers {
    ($unsigned:ty, $signed:ty, $bits:literal) => {
        rows![
            (concat!("eq.b", $bits, " eq.u", $bits, " eq.s", $bits), a: $unsigned, b: $unsigned => a == b),
            (concat!("ne.b", $bits, " ne.u", $bits, " ne.s", $bits), a: $unsigned, b: $unsigned => a != b),
            (concat!("lt.u", $bits, " lo.u", $bits), a: $unsigned, b: $unsigned => a < b),
            (concat!("le.u", $bits, " ls.u", $bits), a: $unsigned, b: $unsigned => a <= b),
            (concat!("gt.u", $bits, " hi.u", $bits), a: $unsigned, b: $unsigned => a > b),
            (concat!("ge.u", $bits, " hs.u", $bits), a: $unsigned, b: $unsigned => a >= b),
            (concat!("lt.s", $bits), a: $signed, b: $signed => a < b),
            (concat!("le.s", $bits), a: $signed, b: $signed => a <= b),
            (concat!("gt.s", $bits), a: $signed, b: $signed => a > b),
            (concat!("ge.s", $bits), a: $signed, b: $signed => a >= b),
        ]
    };
}

macro_rules! floats {
    ($kind:ty, $name:literal, $value:expr) => {
        rows![
            (concat!("eq.", $name), a: $kind, b: $kind => $value(a) == $value(b)),
            (concat!("ne.", $name), a: $kind, b: $kind => $value(a) < $value(b) || $value(a) > $value(b)),
            (concat!("lt.", $name), a: $kind, b: $kind => $value(a) < $value(b)),
            (concat!("le.", $name), a: $kind, b: $kind => $value(a) <= $value(b)),
            (concat!("gt.", $name), a: $kind, b: $kind => $value(a) > $value(b)),
            (concat!("ge.", $name), a: $kind, b: $kind => $value(a) >= $value(b)),
            (concat!("equ.", $name), a: $kind, b: $kind => !($value(a) < $value(b) || $value(a) > $value(b))),
            (concat!("neu.", $name), a: $kind, b: $kind => $value(a) != $value(b)),
            (concat!("ltu.", $name), a: $kind, b: $kind => !matches!($value(a).partial_cmp(&$value(b)), Some(o) if o.is_ge())),
            (concat!("leu.", $name), a: $kind, b: $kind => !matches!($value(a).partial_cmp(&$value(b)), Some(o) if o.is_gt())),
            (concat!("gtu.", $name), a: $kind, b: $kind => !matches!($value(a).partial_cmp(&$value(b)), Some(o) if o.is_le())),
            (concat!("geu.", $name), a: $kind, b: $kind => !matches!($value(a).partial_cmp(&$value(b)), Some(o) if o.is_lt())),
            (concat!("num.", $name), a: $kind, b: $kind => !$value(a).is_nan() && !$value(b).is_nan()),
            (concat!("nan.", $name), a: $kind, b: $kind => $value(a).is_nan() || $value(b).is_nan()),
        ]
    };
}

const TABLES: &[&[Row]] = &[
    integers!(u16, i16, "16"),
    integers!(u32, i32, "32"),
    integers!(u64, i64, "64"),
    floats!(f32, "f32", f64::from),
    floats!(f32, "ftz.f32", flushed),
    floats!(f64, "f64", f64::from),
    floats!(Half, "f16", Half::value),
    floats!(Brain, "bf16", Brain::value),
];

/// What a relation and a type compare, as `lt.s32`.
pub(crate) fn find(relation: &str) -> Option<Compute> {
    let mut rows = TABLES.iter().flat_map(|rows| rows.iter());
    rows.find(|(names, ..)| names.split(' ').any(|name| name == relation)).map(|row| row.2)
}
