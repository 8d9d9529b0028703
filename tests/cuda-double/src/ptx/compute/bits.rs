//! Logic, shifts, bit fields, moves between windows and selections.

use super::{Row, rows};
use crate::ptx::types::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Space, resolve};

macro_rules! logic {
    ($unsigned:ty, $signed:ty, $bits:literal) => {
        rows![
            (concat!("and.b", $bits), a: $unsigned, b: $unsigned => a & b),
            (concat!("or.b", $bits), a: $unsigned, b: $unsigned => a | b),
            (concat!("xor.b", $bits), a: $unsigned, b: $unsigned => a ^ b),
            (concat!("not.b", $bits), a: $unsigned => !a),
            (concat!("cnot.b", $bits), a: $unsigned => <$unsigned>::from(a == 0)),
            (concat!("shl.b", $bits), a: $unsigned, n: u32 => a.checked_shl(n).unwrap_or(0)),
            (concat!("shr.u", $bits, " shr.b", $bits), a: $unsigned, n: u32 => a.checked_shr(n).unwrap_or(0)),
            (concat!("shr.s", $bits), a: $signed, n: u32 => a >> n.min(<$signed>::BITS - 1)),
            (concat!("selp.b", $bits, " selp.u", $bits, " selp.s", $bits), a: $unsigned, b: $unsigned, c: bool =>
                if c { a } else { b }),
            (concat!("slct.b", $bits, ".s32 slct.u", $bits, ".s32 slct.s", $bits, ".s32"), a: $unsigned, b: $unsigned, c: i32 =>
                if c >= 0 { a } else { b }),
        ]
    };
}

macro_rules! fields {
    ($unsigned:ty, $signed:ty, $bits:literal) => {
        rows![
            (concat!("popc.b", $bits), a: $unsigned => a.count_ones()),
            (concat!("clz.b", $bits), a: $unsigned => a.leading_zeros()),
            (concat!("brev.b", $bits), a: $unsigned => a.reverse_bits()),
            (concat!("bfind.u", $bits), a: $unsigned => (<$unsigned>::BITS - 1).wrapping_sub(a.leading_zeros())),
            (concat!("bfind.s", $bits), a: $signed => {
                let magnitude = if a < 0 { !a } else { a };
                (<$unsigned>::BITS - 1).wrapping_sub(magnitude.leading_zeros())
            }),
            (concat!("bfind.shiftamt.u", $bits), a: $unsigned => if a == 0 { u32::MAX } else { a.leading_zeros() }),
            (concat!("bfe.u", $bits), a: $unsigned, from: u8, length: u8 => {
                a.checked_shr(u32::from(from)).unwrap_or(0) & low(length) as $unsigned
            }),
            (concat!("bfe.s", $bits), a: $signed, from: u8, length: u8 => {
                // The sign is the field's last bit, or the number's where the field reaches beyond it.
                let (from, length) = (u32::from(from), u32::from(length));
                let last = (from + length).min(<$signed>::BITS).saturating_sub(1);
                let sign = length > 0 && (a >> last) & 1 == 1;
                let field = (a as $unsigned).checked_shr(from).unwrap_or(0);
                let mask = if from >= <$signed>::BITS { 0 } else { low(length.min(<$signed>::BITS - from) as u8) as $unsigned };
                if length == 0 { 0 } else { (field & mask) | if sign { !mask } else { 0 } }
            }),
            (concat!("bfi.b", $bits), a: $unsigned, b: $unsigned, to: u8, length: u8 => {
                let mask = (low(length) as $unsigned).checked_shl(u32::from(to)).unwrap_or(0);
                (b & !mask) | (a.checked_shl(u32::from(to)).unwrap_or(0) & mask)
            }),
        ]
    };
}

/// So many ones.
fn low(length: u8) -> u64 {
    if length >= 64 { u64::MAX } else { (1 << length) - 1 }
}

fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let pick = |lane: u32| {
        let choice = selector >> (4 * lane);
        let byte = bytes[(choice & 7) as usize];
        if choice & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

fn lookup(a: u32, b: u32, c: u32, table: u8) -> u32 {
    (0..8).filter(|row| table >> row & 1 == 1).fold(0, |found, row| {
        let of = |word: u32, bit: u32| if row >> bit & 1 == 1 { word } else { !word };
        found | (of(a, 2) & of(b, 1) & of(c, 0))
    })
}

fn funnel(low: u32, high: u32, count: u32, left: bool) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    if left { (both << count >> 32) as u32 } else { (both >> count) as u32 }
}

const OTHERS: &[Row] = rows![
    ("and.pred", a: bool, b: bool => a & b),
    ("or.pred", a: bool, b: bool => a | b),
    ("xor.pred", a: bool, b: bool => a ^ b),
    ("not.pred", a: bool => !a),
    ("selp.f32", a: u32, b: u32, c: bool => if c { a } else { b }),
    ("selp.f64", a: u64, b: u64, c: bool => if c { a } else { b }),
    ("slct.f32.s32", a: u32, b: u32, c: i32 => if c >= 0 { a } else { b }),
    ("prmt.b32", a: u32, b: u32, c: u32 => permute(a, b, c)),
    ("lop3.b32", a: u32, b: u32, c: u32, table: u8 => lookup(a, b, c, table)),
    ("shf.l.wrap.b32", a: u32, b: u32, n: u32 => funnel(a, b, n & 31, true)),
    ("shf.r.wrap.b32", a: u32, b: u32, n: u32 => funnel(a, b, n & 31, false)),
    ("shf.l.clamp.b32", a: u32, b: u32, n: u32 => funnel(a, b, n.min(32), true)),
    ("shf.r.clamp.b32", a: u32, b: u32, n: u32 => funnel(a, b, n.min(32), false)),
    ("bmsk.clamp.b32", a: u32, b: u32 => if a >= 32 { 0 } else { (low(b.min(32) as u8) as u32) << a }),
    ("bmsk.wrap.b32", a: u32, b: u32 => (low((b & 31) as u8) as u32) << (a & 31)),
    ("cvta.global.u64 cvta.to.global.u64 cvta.const.u64 cvta.to.const.u64", a: u64 => a),
    ("cvta.shared.u64 cvta.shared::cta.u64", a: u64 => a.wrapping_add(SHARED_WINDOW)),
    ("cvta.to.shared.u64 cvta.to.shared::cta.u64", a: u64 => a.wrapping_sub(SHARED_WINDOW)),
    ("cvta.local.u64", a: u64 => a.wrapping_add(LOCAL_WINDOW)),
    ("cvta.to.local.u64", a: u64 => a.wrapping_sub(LOCAL_WINDOW)),
    ("cvta.param.u64", a: u64 => a.wrapping_add(PARAM_WINDOW)),
    ("cvta.to.param.u64", a: u64 => a.wrapping_sub(PARAM_WINDOW)),
    ("isspacep.global", a: u64 => resolve(a).0 == Space::Global),
    ("isspacep.shared isspacep.shared::cta", a: u64 => resolve(a).0 == Space::Shared),
    ("isspacep.local", a: u64 => resolve(a).0 == Space::Local),
    ("isspacep.param", a: u64 => resolve(a).0 == Space::Param),
];

/// Every table of this file.
pub(super) const TABLES: &[&[Row]] = &[
    logic!(u16, i16, "16"),
    logic!(u32, i32, "32"),
    logic!(u64, i64, "64"),
    fields!(u32, i32, "32"),
    fields!(u64, i64, "64"),
    OTHERS,
];
