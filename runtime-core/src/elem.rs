//! Element types.

/// The type of a tensor's elements.
///
/// Equivalent to: `cudaDataType_t`, a WGSL scalar type.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ElemType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
}

impl ElemType {
    /// Every type, in declaration order.
    pub const ALL: [Self; 12] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U64,
        Self::U32,
        Self::U16,
        Self::U8,
    ];

    /// Bytes an element takes.
    pub const fn size(self) -> u64 {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }
}

/// Rust types that are element types.
pub trait Element: bytemuck::Pod {
    /// The element type.
    const ELEM: ElemType;
}

macro_rules! element {
    ($($rust:ty => $elem:ident),*) => { $(impl Element for $rust { const ELEM: ElemType = ElemType::$elem; })* };
}
element!(f64 => F64, f32 => F32, i64 => I64, i32 => I32, i16 => I16, i8 => I8, u64 => U64, u32 => U32, u16 => U16, u8 => U8);
