//! Tensor maps: what `cuTensorMapEncodeTiled` writes and tensor copies read.
//!
//! The 128 bytes of a map are opaque to programs; here they hold its fields one after the other.

use core::ops::Range;

/// How the map's bytes begin, so that anything else is recognised.
const MAGIC: u64 = 0x7472_756E_6E69_6F6E;

/// Most dimensions of a tensor.
pub(crate) const MOST_DIMENSIONS: usize = 5;

/// Most elements of a box along a dimension.
const MOST_BOX: u32 = 256;

/// How rows of a box are permuted in shared memory. Equivalent to: `CUtensorMapSwizzle`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Swizzle {
    None,
    /// 16-byte parts within so many bytes: 32, 64 or 128.
    Within(u64),
}

impl Swizzle {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Within(32),
            2 => Self::Within(64),
            3 => Self::Within(128),
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Within(32) => 1,
            Self::Within(64) => 2,
            Self::Within(_) => 3,
        }
    }

    /// Where the byte at an address of shared memory really goes.
    fn place(self, address: u64) -> u64 {
        match self {
            Self::None => address,
            // The number of the 16-byte part, with as many bits of the 128-byte line's number over it.
            Self::Within(span) => address ^ ((address >> 7) & (span / 16 - 1)) << 4,
        }
    }
}

/// What a tensor map says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TensorMap {
    pub(crate) address: u64,
    /// Bytes of an element.
    pub(crate) element: u64,
    /// Elements along each dimension, the innermost first.
    pub(crate) dimensions: Vec<u64>,
    /// Bytes from one index to the next, of every dimension but the innermost.
    pub(crate) strides: Vec<u64>,
    /// Elements that a copy takes along each dimension.
    pub(crate) sizes: Vec<u32>,
    pub(crate) swizzle: Swizzle,
    /// What is outside is filled with NaN rather than zero.
    pub(crate) fills_nan: bool,
}

/// A run of bytes that a copy moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Address in shared memory.
    pub(crate) shared: u64,
    /// Address in device memory; none outside the tensor.
    pub(crate) global: Option<u64>,
    pub(crate) bytes: usize,
}

impl TensorMap {
    /// Bytes of a map. Equivalent to: `CUtensorMap`.
    pub(crate) const BYTES: usize = 128;

    /// What is wrong with it, if something is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let rank = self.dimensions.len();
        if !(1..=MOST_DIMENSIONS).contains(&rank) {
            return Err(format!("{rank} dimensions: between 1 and {MOST_DIMENSIONS} are possible"));
        }
        if !self.address.is_multiple_of(16) {
            return Err(format!("the address 0x{:x} is no multiple of 16", self.address));
        }
        if let Some(size) = self.dimensions.iter().find(|size| !(1..=1 << 32).contains(*size)) {
            return Err(format!("a dimension of {size} elements: between 1 and 2^32 are possible"));
        }
        if let Some(stride) = self.strides.iter().find(|stride| *stride % 16 != 0 || **stride >= 1 << 40) {
            return Err(format!("a stride of {stride} bytes: a multiple of 16 below 2^40 is possible"));
        }
        if let Some(size) = self.sizes.iter().find(|size| !(1..=MOST_BOX).contains(*size)) {
            return Err(format!("a box of {size} elements along a dimension: between 1 and {MOST_BOX} are possible"));
        }
        let inner = u64::from(self.sizes[0]) * self.element;
        if !inner.is_multiple_of(16) {
            return Err(format!("the innermost dimension of the box has {inner} bytes, no multiple of 16"));
        }
        match self.swizzle {
            Swizzle::Within(span) if inner > span => {
                Err(format!("the innermost dimension of the box has {inner} bytes, and the swizzle spans {span}"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&self.address.to_le_bytes());
        let at = |list: &[u64], index: usize| list.get(index).copied().unwrap_or(0);
        for index in 0..MOST_DIMENSIONS {
            bytes.extend_from_slice(&at(&self.dimensions, index).to_le_bytes());
            bytes.extend_from_slice(&(self.sizes.get(index).copied().unwrap_or(0) as u16).to_le_bytes());
        }
        for index in 0..MOST_DIMENSIONS - 1 {
            bytes.extend_from_slice(&at(&self.strides, index).to_le_bytes());
        }
        let rank = self.dimensions.len() as u8;
        bytes.extend_from_slice(&[rank, self.element as u8, self.swizzle.number(), u8::from(self.fills_nan)]);
        bytes.resize(Self::BYTES, 0);
        core::array::from_fn(|index| bytes[index])
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word =
            |range: Range<usize>| bytes[range].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        if word(0..8) != MAGIC {
            return None;
        }
        let rank = usize::from(bytes[98]).min(MOST_DIMENSIONS);
        Some(Self {
            address: word(8..16),
            element: u64::from(bytes[99]),
            dimensions: (0..rank).map(|index| word(16 + index * 10..24 + index * 10)).collect(),
            sizes: (0..rank).map(|index| word(24 + index * 10..26 + index * 10) as u32).collect(),
            strides: (0..rank.saturating_sub(1)).map(|index| word(66 + index * 8..74 + index * 8)).collect(),
            swizzle: Swizzle::from_number(u32::from(bytes[100]))?,
            fills_nan: bytes[101] == 1,
        })
    }

    pub(crate) fn rank(&self) -> usize {
        self.dimensions.len()
    }

    /// What an address in shared memory must be a multiple of.
    pub(crate) fn alignment(&self) -> u64 {
        128
    }

    /// Bytes that a copy moves and a barrier object counts, what is outside among them.
    pub(crate) fn box_bytes(&self) -> u64 {
        self.sizes.iter().map(|size| u64::from(*size)).product::<u64>() * self.element
    }

    /// What is outside the tensor reads as this.
    pub(crate) fn fill(&self, bytes: usize) -> Vec<u8> {
        vec![if self.fills_nan { 0xFF } else { 0 }; bytes]
    }

    /// Every run of bytes of the box at these coordinates, whose first byte lies at `shared`.
    pub(crate) fn pieces(&self, coordinates: &[i32], shared: u64) -> Vec<Piece> {
        let inner = u64::from(self.sizes[0]);
        let rows: u64 = self.sizes[1..].iter().map(|size| u64::from(*size)).product();
        let mut pieces = Vec::new();
        for row in 0..rows {
            let start = self.row(coordinates, row);
            let mut at = 0;
            while at < inner {
                let inside = |index: u64| {
                    let index = i64::from(coordinates[0]) + index as i64;
                    start.is_some() && index >= 0 && (index as u64) < self.dimensions[0]
                };
                // A run ends with its 16 bytes, and where the tensor begins or ends.
                let part = 16 / self.element;
                let most = (part - at % part).min(inner - at);
                let count = (1..most).take_while(|more| inside(at + more) == inside(at)).count() as u64 + 1;
                let byte = i64::from(coordinates[0]) + at as i64;
                pieces.push(Piece {
                    shared: self.swizzle.place(shared + (row * inner + at) * self.element),
                    global: start
                        .filter(|_| inside(at))
                        .map(|start| start.wrapping_add_signed(byte * self.element as i64)),
                    bytes: (count * self.element) as usize,
                });
                at += count;
            }
        }
        pieces
    }

    /// Where a row of the box begins, were its first index zero; none outside the tensor.
    fn row(&self, coordinates: &[i32], mut row: u64) -> Option<u64> {
        let mut address = self.address;
        let outer = coordinates.iter().zip(&self.sizes).zip(&self.dimensions).skip(1);
        for (((coordinate, size), elements), stride) in outer.zip(&self.strides) {
            let size = u64::from(*size);
            let index = i64::from(*coordinate) + (row % size) as i64;
            row /= size;
            if index < 0 || index as u64 >= *elements {
                return None;
            }
            address += index as u64 * stride;
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::{Swizzle, TensorMap};

    fn map(swizzle: Swizzle) -> TensorMap {
        TensorMap {
            address: 0x1000,
            element: 4,
            dimensions: vec![10, 6],
            strides: vec![48],
            sizes: vec![8, 4],
            swizzle,
            fills_nan: false,
        }
    }

    #[test]
    fn a_map_survives_its_bytes() {
        for swizzle in [Swizzle::None, Swizzle::Within(32), Swizzle::Within(128)] {
            assert_eq!(TensorMap::decode(&map(swizzle).encode()), Some(map(swizzle)));
        }
        assert_eq!(TensorMap::decode(&[0; 128]), None);
    }

    #[test]
    fn what_hangs_over_is_outside() {
        let pieces = map(Swizzle::None).pieces(&[5, 4], 0);
        assert_eq!(pieces[0].global, Some(0x1000 + 4 * 48 + 5 * 4));
        let inside: usize = pieces.iter().filter(|piece| piece.global.is_some()).map(|piece| piece.bytes).sum();
        assert_eq!(inside, 2 * 5 * 4);
        assert_eq!(pieces.iter().map(|piece| piece.bytes).sum::<usize>() as u64, map(Swizzle::None).box_bytes());
    }

    #[test]
    fn a_swizzle_permutes_without_loss() {
        let mut seen: Vec<_> =
            map(Swizzle::Within(32)).pieces(&[0, 0], 1024).iter().map(|piece| piece.shared).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..8).map(|part| 1024 + part * 16).collect::<Vec<_>>());
        assert_eq!(Swizzle::Within(128).place(128), 128 + 16);
    }

    #[test]
    fn maps_that_hardware_refuses_are_refused() {
        let bad = TensorMap { strides: vec![40], ..map(Swizzle::None) };
        assert!(bad.check().unwrap_err().contains("stride of 40"));
        let bad = TensorMap { sizes: vec![16, 4], ..map(Swizzle::Within(32)) };
        assert!(bad.check().unwrap_err().contains("swizzle spans 32"));
        assert!(map(Swizzle::Within(32)).check().is_ok());
    }
}
