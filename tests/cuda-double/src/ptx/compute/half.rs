//! Arithmetic on `f16` and `bf16`, one or two in a register.

use super::{Register, Row, rows};
use crate::ptx::number::{BF16, F16, Rounding, exact_sum, from_bf16, from_f16, round};

/// A value that is rounded to 16 bits when it is written: what `f64` holds of it, and what is left.
#[derive(Clone, Copy)]
struct Exact(f64, f64);

impl Exact {
    fn product(a: f64, b: f64) -> Self {
        Self(a * b, 0.0)
    }

    fn sum(a: f64, b: f64) -> Self {
        let (held, left) = exact_sum(a, b);
        Self(held, left)
    }

    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let held = f(self.0);
        Self(held, if held == self.0 { self.1 } else { 0.0 })
    }

    /// Nothing below zero, and no NaN either.
    fn relu(self) -> Self {
        self.map(|value| if value.is_nan() { value } else { value.max(0.0) })
    }

    fn saturated(self) -> Self {
        self.map(|value| if value > 0.0 { value.min(1.0) } else { 0.0 })
    }
}

macro_rules! formats {
    ($($one:ident, $two:ident, $read:ident, $format:ident;)*) => { $(
        struct $one(Exact);
        impl Register for $one {
            fn read(bits: u64) -> Self {
                Self(Exact($read(bits as u16), 0.0))
            }
            fn write(self) -> u64 {
                round(self.0.0, self.0.1, $format, Rounding::Nearest)
            }
        }
        /// Two of them, the lower half first.
        struct $two([Exact; 2]);
        impl Register for $two {
            fn read(bits: u64) -> Self {
                Self([$one::read(bits).0, $one::read(bits >> 16).0])
            }
            fn write(self) -> u64 {
                let [low, high] = self.0;
                $one(low).write() | $one(high).write() << 16
            }
        }
        impl $two {
            fn each<const N: usize>(sources: [Self; N], f: impl Fn([f64; N]) -> Exact) -> Self {
                Self([0, 1].map(|lane| f(core::array::from_fn(|n| sources[n].0[lane].0))))
            }
        }
    )* };
}
formats! {
    Half, HalfPair, from_f16, F16;
    Brain, BrainPair, from_bf16, BF16;
}

fn lesser(a: f64, b: f64) -> Exact {
    Exact(if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) }, 0.0)
}

fn greater(a: f64, b: f64) -> Exact {
    Exact(if a == b { if a.is_sign_negative() { b } else { a } } else { a.max(b) }, 0.0)
}

fn or_nan(a: f64, b: f64, found: Exact) -> Exact {
    if a.is_nan() || b.is_nan() { Exact(f64::NAN, 0.0) } else { found }
}

fn fused(a: f64, b: f64, c: f64) -> Exact {
    Exact::sum(a * b, c)
}

macro_rules! arithmetic {
    ($one:ident, $two:ident, $name:literal) => {
        rows![
            (concat!("add.", $name, " add.rn.", $name), a: $one, b: $one => $one(Exact::sum(a.0.0, b.0.0))),
            (concat!("sub.", $name, " sub.rn.", $name), a: $one, b: $one => $one(Exact::sum(a.0.0, -b.0.0))),
            (concat!("mul.", $name, " mul.rn.", $name), a: $one, b: $one => $one(Exact::product(a.0.0, b.0.0))),
            (concat!("add.sat.", $name, " add.rn.sat.", $name), a: $one, b: $one => $one(Exact::sum(a.0.0, b.0.0).saturated())),
            (concat!("mul.sat.", $name, " mul.rn.sat.", $name), a: $one, b: $one => $one(Exact::product(a.0.0, b.0.0).saturated())),
            (concat!("fma.rn.", $name), a: $one, b: $one, c: $one => $one(fused(a.0.0, b.0.0, c.0.0))),
            (concat!("fma.rn.relu.", $name), a: $one, b: $one, c: $one => $one(fused(a.0.0, b.0.0, c.0.0).relu())),
            (concat!("fma.rn.sat.", $name), a: $one, b: $one, c: $one => $one(fused(a.0.0, b.0.0, c.0.0).saturated())),
            (concat!("neg.", $name), a: u16 => a ^ 0x8000),
            (concat!("abs.", $name), a: u16 => a & 0x7FFF),
            (concat!("min.", $name), a: $one, b: $one => $one(lesser(a.0.0, b.0.0))),
            (concat!("max.", $name), a: $one, b: $one => $one(greater(a.0.0, b.0.0))),
            (concat!("min.NaN.", $name), a: $one, b: $one => $one(or_nan(a.0.0, b.0.0, lesser(a.0.0, b.0.0)))),
            (concat!("max.NaN.", $name), a: $one, b: $one => $one(or_nan(a.0.0, b.0.0, greater(a.0.0, b.0.0)))),
            (concat!("add.", $name, "x2 add.rn.", $name, "x2"), a: $two, b: $two => $two::each([a, b], |[a, b]| Exact::sum(a, b))),
            (concat!("sub.", $name, "x2 sub.rn.", $name, "x2"), a: $two, b: $two => $two::each([a, b], |[a, b]| Exact::sum(a, -b))),
            (concat!("mul.", $name, "x2 mul.rn.", $name, "x2"), a: $two, b: $two => $two::each([a, b], |[a, b]| Exact::product(a, b))),
            (concat!("fma.rn.", $name, "x2"), a: $two, b: $two, c: $two => $two::each([a, b, c], |[a, b, c]| fused(a, b, c))),
            (concat!("fma.rn.relu.", $name, "x2"), a: $two, b: $two, c: $two => $two::each([a, b, c], |[a, b, c]| fused(a, b, c).relu())),
            (concat!("neg.", $name, "x2"), a: u32 => a ^ 0x8000_8000),
            (concat!("abs.", $name, "x2"), a: u32 => a & 0x7FFF_7FFF),
            (concat!("min.", $name, "x2"), a: $two, b: $two => $two::each([a, b], |[a, b]| lesser(a, b))),
            (concat!("max.", $name, "x2"), a: $two, b: $two => $two::each([a, b], |[a, b]| greater(a, b))),
            (concat!("cvt.rn.", $name, "x2.f32"), high: f32, low: f32 =>
                $two([Exact(f64::from(low), 0.0), Exact(f64::from(high), 0.0)])),
            (concat!("cvt.rn.relu.", $name, "x2.f32"), high: f32, low: f32 =>
                $two([Exact(f64::from(low), 0.0).relu(), Exact(f64::from(high), 0.0).relu()])),
            (concat!("ex2.approx.", $name, " ex2.approx.ftz.", $name), a: $one => $one(a.0.map(f64::exp2))),
            (concat!("tanh.approx.", $name), a: $one => $one(a.0.map(f64::tanh))),
        ]
    };
}

/// Every table of this file.
pub(super) const TABLES: &[&[Row]] = &[arithmetic!(Half, HalfPair, "f16"), arithmetic!(Brain, BrainPair, "bf16")];
