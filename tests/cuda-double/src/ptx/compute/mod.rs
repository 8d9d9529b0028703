//! What instructions compute: functions from registers' bits to a register's bits, found by the whole opcode.
//!
//! A row is read like the manual: names, sources with their types, value. Whatever has no row is unknown.

pub(crate) mod atomic;
mod bits;
pub(crate) mod carry;
pub(crate) mod compare;
pub(crate) mod convert;
mod float;
mod half;
mod integer;
mod transcendental;

use std::collections::HashMap;
use std::sync::OnceLock;

use super::inst::Compute;

/// Opcodes that compute the same, separated by spaces; how many sources they have; what they compute.
pub(crate) type Row = (&'static str, usize, Compute);

/// A Rust type that registers hold.
pub(crate) trait Register: Sized {
    fn read(bits: u64) -> Self;
    fn write(self) -> u64;
}

macro_rules! integers {
    ($($signed:ty, $unsigned:ty;)*) => { $(
        impl Register for $unsigned {
            #[inline(always)]
            fn read(bits: u64) -> Self {
                bits as Self
            }
            #[inline(always)]
            fn write(self) -> u64 {
                u64::from(self)
            }
        }
        impl Register for $signed {
            #[inline(always)]
            fn read(bits: u64) -> Self {
                bits as Self
            }
            #[inline(always)]
            fn write(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }
    )* };
}
integers! { i8, u8; i16, u16; i32, u32; i64, u64; }

impl Register for bool {
    #[inline(always)]
    fn read(bits: u64) -> Self {
        bits & 1 == 1
    }
    #[inline(always)]
    fn write(self) -> u64 {
        u64::from(self)
    }
}

impl Register for f32 {
    #[inline(always)]
    fn read(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
    #[inline(always)]
    fn write(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Register for f64 {
    #[inline(always)]
    fn read(bits: u64) -> Self {
        Self::from_bits(bits)
    }
    #[inline(always)]
    fn write(self) -> u64 {
        self.to_bits()
    }
}

/// Rows of a table: names, typed sources, and the value they give.
macro_rules! rows {
    ($(($names:expr, $($source:ident: $kind:ty),+ => $value:expr)),* $(,)?) => {
        &[$((
            $names,
            [$(stringify!($source)),+].len(),
            |bits: &[u64; 4]| {
                let [$($source,)+ ..] = *bits;
                $(let $source = <$kind as $crate::ptx::compute::Register>::read($source);)+
                $crate::ptx::compute::Register::write($value)
            },
        )),*]
    };
}
pub(crate) use rows;

/// What an opcode computes, and of how many sources.
pub(crate) fn find(opcode: &str) -> Option<(usize, Compute)> {
    static TABLE: OnceLock<HashMap<&'static str, (usize, Compute)>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let tables = integer::TABLES.iter().chain(bits::TABLES).chain(float::TABLES).chain(half::TABLES);
        let rows = tables.chain(transcendental::TABLES).flat_map(|rows| rows.iter());
        rows.flat_map(|(names, sources, f)| names.split(' ').map(move |name| (name, (*sources, *f)))).collect()
    });
    table.get(opcode).copied()
}

#[cfg(test)]
mod tests {
    use super::find;

    /// Runs one opcode on the bits given.
    fn run(opcode: &str, sources: &[u64]) -> u64 {
        let (count, f) = find(opcode).unwrap_or_else(|| panic!("{opcode} is not known"));
        assert_eq!(count, sources.len(), "{opcode}");
        let mut bits = [0; 4];
        bits[..count].copy_from_slice(sources);
        f(&bits)
    }

    #[test]
    fn integers_wrap_at_their_width() {
        assert_eq!(run("add.u32", &[u64::from(u32::MAX), 1]), 0);
        assert_eq!(run("add.s16", &[0x7FFF, 1]), 0x8000);
        assert_eq!(run("sub.s64", &[0, 1]), u64::MAX);
        assert_eq!(run("mul.hi.s32", &[0xFFFF_FFFF, 2]), 0xFFFF_FFFF);
        assert_eq!(run("mul.wide.s32", &[0xFFFF_FFFF, 4]), (-4i64) as u64);
        assert_eq!(run("mul.wide.u16", &[0xFFFF, 2]), 0x1FFFE);
        assert_eq!(run("add.sat.s32", &[0x7FFF_FFFF, 1]), 0x7FFF_FFFF);
        assert_eq!(run("abs.s32", &[0x8000_0000]), 0x8000_0000);
    }

    #[test]
    fn division_by_zero_gives_all_ones_and_never_panics() {
        assert_eq!(run("div.u32", &[7, 0]), 0xFFFF_FFFF);
        assert_eq!(run("div.s32", &[0x8000_0000, 0xFFFF_FFFF]), 0x8000_0000);
        assert_eq!(run("rem.s64", &[1 << 63, u64::MAX]), 0);
        assert_eq!(run("rem.u32", &[7, 0]), 7);
    }

    #[test]
    fn shifts_beyond_the_width_leave_nothing_but_the_sign() {
        assert_eq!(run("shl.b32", &[1, 32]), 0);
        assert_eq!(run("shr.u64", &[1, 64]), 0);
        assert_eq!(run("shr.s32", &[0x8000_0000, 40]), 0xFFFF_FFFF);
        assert_eq!(run("shr.s16", &[0x8000, 4]), 0xF800);
        assert_eq!(run("shf.l.wrap.b32", &[0x8000_0000, 1, 33]), 3);
    }

    #[test]
    fn bit_fields_follow_the_manual() {
        assert_eq!(run("bfe.u32", &[0xABCD, 4, 8]), 0xBC);
        assert_eq!(run("bfe.s32", &[0xF0, 4, 4]), 0xFFFF_FFFF);
        assert_eq!(run("bfi.b32", &[0xF, 0, 4, 4]), 0xF0);
        assert_eq!(run("prmt.b32", &[0x3322_1100, 0x7766_5544, 0x7531]), 0x7755_3311);
        assert_eq!(run("prmt.b32", &[0x80, 0, 0x8888]), 0xFFFF_FFFF);
        assert_eq!(run("lop3.b32", &[0b1100, 0b1010, 0b1111, 0x80]) & 0xF, 0b1000);
        assert_eq!(run("brev.b32", &[1]), 0x8000_0000);
        assert_eq!(run("bfind.u32", &[0]), 0xFFFF_FFFF);
        assert_eq!(run("dp4a.s32.s32", &[0xFF01_02FE, 0x0101_0101, 10]), 10);
    }

    #[test]
    fn floats_flush_saturate_and_round_when_told() {
        let bits = |x: f32| u64::from(x.to_bits());
        assert_eq!(run("add.rn.f32", &[bits(1.5), bits(2.25)]), bits(3.75));
        assert_eq!(run("add.ftz.f32", &[1, 0]), 0);
        assert_eq!(run("add.f32", &[1, 0]), 1);
        assert_eq!(run("mul.sat.f32", &[bits(3.0), bits(2.0)]), bits(1.0));
        assert_eq!(run("add.rz.f32", &[bits(1.0), bits(1e-10)]), bits(1.0));
        assert_eq!(run("add.rp.f32", &[bits(1.0), bits(1e-10)]), bits(1.0f32.next_up()));
        assert_eq!(run("fma.rm.f32", &[bits(1.0), bits(1.0), bits(-1e-10)]), bits(1.0f32.next_down()));
        assert_eq!(run("max.f32", &[bits(f32::NAN), bits(2.0)]), bits(2.0));
        assert_eq!(run("min.f32", &[bits(0.0), bits(-0.0)]), bits(-0.0));
        assert!(f32::from_bits(run("max.NaN.f32", &[bits(f32::NAN), bits(2.0)]) as u32).is_nan());
        assert_eq!(run("copysign.f32", &[bits(-1.0), bits(3.0)]), bits(-3.0));
    }

    #[test]
    fn halves_are_rounded_once() {
        // 2048 + 1 lies half way between two halves, and the even one is 2048.
        assert_eq!(run("add.f16", &[0x6800, 0x3C00]), 0x6800);
        assert_eq!(run("fma.rn.f16", &[0x3C00, 0x3C00, 0x6800]), 0x6800);
        assert_eq!(run("mul.f16x2", &[0x4000_3C00, 0x4200_4000]), 0x4600_4000);
        assert_eq!(run("add.rn.bf16", &[0x3F80, 0x3F80]), 0x4000);
        assert_eq!(run("cvt.rn.f16x2.f32", &[0x3F80_0000, 0x4000_0000]), 0x3C00_4000);
    }
}
