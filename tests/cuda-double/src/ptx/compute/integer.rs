//! Arithmetic on integers.

use super::{Row, rows};

macro_rules! arithmetic {
    ($unsigned:ty, $signed:ty, $bits:literal) => {
        rows![
            (concat!("add.u", $bits, " add.s", $bits), a: $unsigned, b: $unsigned => a.wrapping_add(b)),
            (concat!("sub.u", $bits, " sub.s", $bits), a: $unsigned, b: $unsigned => a.wrapping_sub(b)),
            (concat!("mul.lo.u", $bits, " mul.lo.s", $bits), a: $unsigned, b: $unsigned => a.wrapping_mul(b)),
            (concat!("mad.lo.u", $bits, " mad.lo.s", $bits), a: $unsigned, b: $unsigned, c: $unsigned =>
                a.wrapping_mul(b).wrapping_add(c)),
            (concat!("mul.hi.u", $bits), a: $unsigned, b: $unsigned => a.carrying_mul(b, 0).1),
            (concat!("mul.hi.s", $bits), a: $signed, b: $signed => high(i128::from(a) * i128::from(b), $bits) as $signed),
            (concat!("mad.hi.u", $bits), a: $unsigned, b: $unsigned, c: $unsigned => a.carrying_mul(b, 0).1.wrapping_add(c)),
            (concat!("mad.hi.s", $bits), a: $signed, b: $signed, c: $signed =>
                (high(i128::from(a) * i128::from(b), $bits) as $signed).wrapping_add(c)),
            // What division by zero gives is left open; hardware gives all ones, and the dividend as the rest.
            (concat!("div.u", $bits), a: $unsigned, b: $unsigned => a.checked_div(b).unwrap_or(<$unsigned>::MAX)),
            (concat!("div.s", $bits), a: $signed, b: $signed => if b == 0 { -1 } else { a.wrapping_div(b) }),
            (concat!("rem.u", $bits), a: $unsigned, b: $unsigned => a.checked_rem(b).unwrap_or(a)),
            (concat!("rem.s", $bits), a: $signed, b: $signed => if b == 0 { a } else { a.wrapping_rem(b) }),
            (concat!("min.u", $bits), a: $unsigned, b: $unsigned => a.min(b)),
            (concat!("max.u", $bits), a: $unsigned, b: $unsigned => a.max(b)),
            (concat!("min.s", $bits), a: $signed, b: $signed => a.min(b)),
            (concat!("max.s", $bits), a: $signed, b: $signed => a.max(b)),
            (concat!("abs.s", $bits), a: $signed => a.wrapping_abs()),
            (concat!("neg.s", $bits), a: $signed => a.wrapping_neg()),
        ]
    };
}

fn high(product: i128, bits: &str) -> i64 {
    match bits {
        "16" => (product >> 16) as i64,
        "32" => (product >> 32) as i64,
        _ => (product >> 64) as i64,
    }
}

fn quarters(word: u32) -> [u8; 4] {
    word.to_le_bytes()
}

fn dot(a: u32, b: u32, a_signed: bool, b_signed: bool, c: u32) -> u32 {
    let value = |byte: u8, signed: bool| if signed { i32::from(byte as i8) } else { i32::from(byte) };
    let products = quarters(a).into_iter().zip(quarters(b)).map(|(a, b)| value(a, a_signed) * value(b, b_signed));
    products.fold(c, |sum, product| sum.wrapping_add(product as u32))
}

const OTHERS: &[Row] = rows![
    ("mul.wide.u16", a: u16, b: u16 => u32::from(a) * u32::from(b)),
    ("mul.wide.s16", a: i16, b: i16 => i32::from(a) * i32::from(b)),
    ("mul.wide.u32", a: u32, b: u32 => u64::from(a) * u64::from(b)),
    ("mul.wide.s32", a: i32, b: i32 => i64::from(a) * i64::from(b)),
    ("mad.wide.u16", a: u16, b: u16, c: u32 => (u32::from(a) * u32::from(b)).wrapping_add(c)),
    ("mad.wide.s16", a: i16, b: i16, c: i32 => (i32::from(a) * i32::from(b)).wrapping_add(c)),
    ("mad.wide.u32", a: u32, b: u32, c: u64 => (u64::from(a) * u64::from(b)).wrapping_add(c)),
    ("mad.wide.s32", a: i32, b: i32, c: i64 => (i64::from(a) * i64::from(b)).wrapping_add(c)),
    ("add.sat.s32", a: i32, b: i32 => a.saturating_add(b)),
    ("sub.sat.s32", a: i32, b: i32 => a.saturating_sub(b)),
    ("mul24.lo.u32", a: u32, b: u32 => (a & 0xFF_FFFF).wrapping_mul(b & 0xFF_FFFF)),
    ("mul24.lo.s32", a: i32, b: i32 => ((a << 8) >> 8).wrapping_mul((b << 8) >> 8)),
    ("sad.u32", a: u32, b: u32, c: u32 => c.wrapping_add(a.abs_diff(b))),
    ("sad.s32", a: i32, b: i32, c: u32 => c.wrapping_add(a.abs_diff(b))),
    ("dp4a.s32.s32", a: u32, b: u32, c: u32 => dot(a, b, true, true, c)),
    ("dp4a.u32.u32", a: u32, b: u32, c: u32 => dot(a, b, false, false, c)),
    ("dp4a.s32.u32", a: u32, b: u32, c: u32 => dot(a, b, true, false, c)),
    ("dp4a.u32.s32", a: u32, b: u32, c: u32 => dot(a, b, false, true, c)),
];

/// Every table of this file.
pub(super) const TABLES: &[&[Row]] =
    &[arithmetic!(u16, i16, "16"), arithmetic!(u32, i32, "32"), arithmetic!(u64, i64, "64"), OTHERS];
