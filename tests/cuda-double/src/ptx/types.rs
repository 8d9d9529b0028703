//! Types, state spaces and the windows that generic addresses see them through.

/// A type of PTX that fits a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    Predicate,
    Bits(u8),
    Unsigned(u8),
    Signed(u8),
    Float(u8),
    /// `bf16`.
    Brain,
    /// Two `f16` in 32 bits.
    HalfPair,
    /// Two `bf16` in 32 bits.
    BrainPair,
}

impl Type {
    /// Reads `u32`, `f16x2` and the like, without the dot.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pred" => Self::Predicate,
            "b8" => Self::Bits(1),
            "b16" => Self::Bits(2),
            "b32" => Self::Bits(4),
            "b64" => Self::Bits(8),
            "b128" => Self::Bits(16),
            "u8" => Self::Unsigned(1),
            "u16" => Self::Unsigned(2),
            "u32" => Self::Unsigned(4),
            "u64" => Self::Unsigned(8),
            "s8" => Self::Signed(1),
            "s16" => Self::Signed(2),
            "s32" => Self::Signed(4),
            "s64" => Self::Signed(8),
            "f16" => Self::Float(2),
            "f32" => Self::Float(4),
            "f64" => Self::Float(8),
            "bf16" => Self::Brain,
            "f16x2" => Self::HalfPair,
            "bf16x2" => Self::BrainPair,
            _ => return None,
        })
    }

    /// Bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Predicate => 1,
            Self::Bits(n) | Self::Unsigned(n) | Self::Signed(n) | Self::Float(n) => n as usize,
            Self::Brain => 2,
            Self::HalfPair | Self::BrainPair => 4,
        }
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::Signed(_))
    }
}

/// Where an access goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    /// Whatever the address says.
    Generic,
    /// Device memory; constants live there too.
    Global,
    Shared,
    Local,
    Param,
}

/// First address of shared memory among generic addresses. No window is where a program or a device has memory.
pub(crate) const SHARED_WINDOW: u64 = 0x0100_0000_0000_0000;
/// First address of a thread's local memory among generic addresses.
pub(crate) const LOCAL_WINDOW: u64 = 0x0200_0000_0000_0000;
/// First address of a kernel's parameters among generic addresses.
pub(crate) const PARAM_WINDOW: u64 = 0x0300_0000_0000_0000;
/// First address of the functions of a module.
pub(crate) const FUNCTION_WINDOW: u64 = 0x0400_0000_0000_0000;
/// Bytes of each window.
pub(crate) const WINDOW: u64 = 0x10_0000_0000;

/// The space that a generic address lies in, and the address there.
pub(crate) fn resolve(address: u64) -> (Space, u64) {
    match address & !(WINDOW - 1) {
        SHARED_WINDOW => (Space::Shared, address - SHARED_WINDOW),
        LOCAL_WINDOW => (Space::Local, address - LOCAL_WINDOW),
        PARAM_WINDOW => (Space::Param, address - PARAM_WINDOW),
        _ => (Space::Global, address),
    }
}
