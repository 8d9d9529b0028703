//! What atomic operations leave behind, by operation and type.

use super::Register;
use crate::ptx::inst::Atomic;
use crate::ptx::number::{BF16, F16, Rounding, exact_sum, from_bf16, from_f16, round};

/// An operation, how many operands it has, and what it leaves.
type Row = (&'static str, usize, Atomic);

macro_rules! integers {
    ($unsigned:ty, $signed:ty, $bits:literal) => {
        &[
            (concat!("add.u", $bits, " add.s", $bits), 1, |old, b, _| {
                <$unsigned>::read(old).wrapping_add(<$unsigned>::read(b)).write()
            }),
            (concat!("exch.b", $bits), 1, |_, b, _| <$unsigned>::read(b).write()),
            (concat!("cas.b", $bits), 2, |old, b, c| {
                if <$unsigned>::read(old) == <$unsigned>::read(b) { <$unsigned>::read(c).write() } else { old }
            }),
            (concat!("and.b", $bits), 1, |old, b, _| (<$unsigned>::read(old) & <$unsigned>::read(b)).write()),
            (concat!("or.b", $bits), 1, |old, b, _| (<$unsigned>::read(old) | <$unsigned>::read(b)).write()),
            (concat!("xor.b", $bits), 1, |old, b, _| (<$unsigned>::read(old) ^ <$unsigned>::read(b)).write()),
            (concat!("min.u", $bits), 1, |old, b, _| <$unsigned>::read(old).min(<$unsigned>::read(b)).write()),
            (concat!("max.u", $bits), 1, |old, b, _| <$unsigned>::read(old).max(<$unsigned>::read(b)).write()),
            (concat!("min.s", $bits), 1, |old, b, _| <$signed>::read(old).min(<$signed>::read(b)).write()),
            (concat!("max.s", $bits), 1, |old, b, _| <$signed>::read(old).max(<$signed>::read(b)).write()),
        ]
    };
}

fn half(old: u64, b: u64) -> u64 {
    let (held, left) = exact_sum(from_f16(old as u16), from_f16(b as u16));
    round(held, left, F16, Rounding::Nearest)
}

fn brain(old: u64, b: u64) -> u64 {
    let (held, left) = exact_sum(from_bf16(old as u16), from_bf16(b as u16));
    round(held, left, BF16, Rounding::Nearest)
}

const OTHERS: &[Row] = &[
    ("inc.u32", 1, |old, b, _| if old as u32 >= b as u32 { 0 } else { old + 1 }),
    ("dec.u32", 1, |old, b, _| if old as u32 == 0 || old as u32 > b as u32 { u64::from(b as u32) } else { old - 1 }),
    ("cas.b16", 2, |old, b, c| if old as u16 == b as u16 { u64::from(c as u16) } else { old }),
    ("add.f32", 1, |old, b, _| (f32::read(old) + f32::read(b)).write()),
    ("add.f64", 1, |old, b, _| (f64::read(old) + f64::read(b)).write()),
    ("add.noftz.f16", 1, |old, b, _| half(old, b)),
    ("add.noftz.f16x2", 1, |old, b, _| half(old, b) | half(old >> 16, b >> 16) << 16),
    ("add.noftz.bf16", 1, |old, b, _| brain(old, b)),
    ("add.noftz.bf16x2", 1, |old, b, _| brain(old, b) | brain(old >> 16, b >> 16) << 16),
];

const TABLES: &[&[Row]] = &[integers!(u32, i32, "32"), integers!(u64, i64, "64"), OTHERS];

/// How many operands an operation like `add.u32` has, and what it leaves.
pub(crate) fn find(operation: &str) -> Option<(usize, Atomic)> {
    let mut rows = TABLES.iter().flat_map(|rows| rows.iter());
    rows.find(|(names, ..)| names.split(' ').any(|name| name == operation)).map(|row| (row.1, row.2))
}
