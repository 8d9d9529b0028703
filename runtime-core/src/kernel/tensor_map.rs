//! Tensor maps: a buffer as a tensor of which the device itself copies tiles.

use super::Interface;
use crate::elem::ElemType;
use crate::error::{Error, Result};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 5;

/// The most elements of a tile along a dimension.
const MOST_OF_TILE: u32 = 256;

/// What the distances between indices, and the innermost dimension of a tile, are multiples of, in bytes.
const STEP: u64 = 16;

/// The most elements of a tensor along a dimension.
const MOST_ELEMENTS: u64 = 1 << 32;

/// The distances between indices are below this, in bytes.
const FARTHEST: u64 = 1 << 40;

/// A buffer as a tensor of one to five dimensions: an argument of its own, beside the buffer itself, by which a kernel has the device copy
/// tiles to and from shared memory. Elements of a tile outside the tensor are read as zeros and not written.
///
/// What is the same for every launch stands here. The tensor's shape is in the launch's parameters, so that the kernel has it too: from
/// byte [`shape_at`](Self::shape_at) on, as `u64`, first the elements of each dimension, then the bytes from one index to the next of each
/// dimension but the innermost. The innermost dimension comes first everywhere, and its elements lie side by side.
///
/// ```
/// use trunnion_runtime_core::elem::ElemType;
/// use trunnion_runtime_core::kernel::{Interface, TensorMap};
/// // reads tiles of 64 by 32 numbers; the parameters are width, height and pitch
/// let tiles = TensorMap::new(0, ElemType::F32, [64, 32]);
/// let interface = Interface::new().read().overwrite(64 * 32 * 4).parameters(24).tensor_map(tiles);
/// ```
///
/// Equivalent to: a `CUtensorMap` as `cuTensorMapEncodeTiled` makes it, without interleaving and with element strides of one.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMap {
    /// Which of the kernel's buffers it is, from 0.
    pub buffer: usize,
    /// The type of its elements.
    pub elem: ElemType,
    /// Elements of a tile by dimension, the innermost first: at least 1 and at most 256 each.
    pub tile: Vec<u32>,
    /// How a tile lies in shared memory.
    pub swizzle: Swizzle,
    /// Where in the parameters the shape begins, in bytes.
    pub shape_at: u32,
}

/// How the 16-byte parts of a tile's rows are permuted in shared memory, so that columns are read without conflicts. The innermost
/// dimension of the tile has at most as many bytes.
///
/// Equivalent to: `CUtensorMapSwizzle`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// As they come.
    #[default]
    None,
    /// Within 32 bytes.
    Within32,
    /// Within 64 bytes.
    Within64,
    /// Within 128 bytes.
    Within128,
}

impl Swizzle {
    /// The bytes within which parts are permuted; `None` for as they come.
    pub const fn span(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Within32 => Some(32),
            Self::Within64 => Some(64),
            Self::Within128 => Some(128),
        }
    }
}

/// The shape of a tensor, as a launch's parameters say it; the innermost dimension first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorShape {
    rank: usize,
    sizes: [u64; MOST_DIMENSIONS],
    strides: [u64; MOST_DIMENSIONS - 1],
}

impl TensorShape {
    /// Elements of each dimension.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes[..self.rank]
    }

    /// Bytes from one index to the next, of each dimension but the innermost.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank.saturating_sub(1)]
    }

    /// The bytes from the first element to behind the last; `None` for more than 64 bits hold.
    pub fn bytes(&self, elem: ElemType) -> Option<u64> {
        let (inner, outer) = self.sizes().split_first()?;
        let last = |bytes: u64, (size, stride): (&u64, &u64)| bytes.checked_add((size - 1).checked_mul(*stride)?);
        outer.iter().zip(self.strides()).try_fold(inner.checked_mul(elem.size())?, last)
    }
}

impl TensorMap {
    /// The buffer `buffer`, of which tiles of so many elements are copied, the innermost dimension first. The shape is at the start of the
    /// parameters, and tiles lie in shared memory as they come.
    pub fn new(buffer: usize, elem: ElemType, tile: impl Into<Vec<u32>>) -> Self {
        Self { buffer, elem, tile: tile.into(), swizzle: Swizzle::None, shape_at: 0 }
    }

    /// How a tile lies in shared memory.
    pub fn swizzle(mut self, swizzle: Swizzle) -> Self {
        self.swizzle = swizzle;
        self
    }

    /// Where in the parameters the shape begins, in bytes.
    pub fn shape_at(mut self, offset: u32) -> Self {
        self.shape_at = offset;
        self
    }

    /// The shape that these parameters say, of a tensor in a buffer of `size` bytes.
    ///
    /// # Errors
    /// [`Error::BufferSize`] for a shape that the buffer, or any map, does not hold.
    pub fn shape(&self, kernel: &str, parameters: &[u8], size: u64) -> Result<TensorShape> {
        let refused = |why: String| Error::BufferSize { kernel: kernel.into(), index: self.buffer, got: size, why };
        let mut words = parameters.get(self.shape_at as usize..).unwrap_or_default().chunks_exact(8);
        let mut word = || {
            let bytes = words.next().and_then(|word| word.try_into().ok());
            bytes
                .map(u64::from_ne_bytes)
                .ok_or_else(|| refused("the shape of its tensor is not in the parameters".into()))
        };
        let rank = self.tile.len().min(MOST_DIMENSIONS);
        let mut shape = TensorShape { rank, sizes: [0; MOST_DIMENSIONS], strides: [0; MOST_DIMENSIONS - 1] };
        for (dimension, place) in shape.sizes[..rank].iter_mut().enumerate() {
            *place = word()?;
            if !(1..=MOST_ELEMENTS).contains(place) {
                let why =
                    format!("dimension {dimension} of its tensor has {place} elements, 1 to {MOST_ELEMENTS} are valid");
                return Err(refused(why));
            }
        }
        for (stride, place) in shape.strides[..rank.saturating_sub(1)].iter_mut().enumerate() {
            *place = word()?;
            if !place.is_multiple_of(STEP) || *place >= FARTHEST {
                return Err(refused(format!(
                    "stride {stride} of its tensor is {place} bytes, multiples of {STEP} below {FARTHEST} are valid"
                )));
            }
        }
        match shape.bytes(self.elem) {
            Some(bytes) if bytes <= size => Ok(shape),
            bytes => {
                let needed = bytes.map_or_else(|| "more than 64 bits count".into(), |bytes| format!("{bytes}"));
                let (sizes, strides) = (shape.sizes(), shape.strides());
                Err(refused(format!("its tensor of {sizes:?} elements with strides {strides:?} needs {needed}")))
            }
        }
    }

    /// Whether it fits the rest of an interface.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn check(&self, interface: &Interface) -> Result<(), String> {
        let (rank, inner) =
            (self.tile.len(), self.tile.first().map_or(0, |inner| u64::from(*inner) * self.elem.size()));
        if self.buffer >= interface.buffers.len() {
            return Err(format!("it is of buffer {}, there are {}", self.buffer, interface.buffers.len()));
        }
        if !(1..=MOST_DIMENSIONS).contains(&rank) {
            return Err(format!("its tiles have {rank} dimensions, 1 to {MOST_DIMENSIONS} are valid"));
        }
        if let Some(size) = self.tile.iter().find(|size| !(1..=MOST_OF_TILE).contains(*size)) {
            return Err(format!("its tiles have {size} elements along a dimension, 1 to {MOST_OF_TILE} are valid"));
        }
        if !inner.is_multiple_of(STEP) {
            return Err(format!(
                "the innermost dimension of its tiles has {inner} bytes, multiples of {STEP} are valid"
            ));
        }
        if let Some(span) = self.swizzle.span().filter(|span| inner > *span) {
            return Err(format!("the innermost dimension of its tiles has {inner} bytes, permuted within {span}"));
        }
        let end = u64::from(self.shape_at) + 8 * (2 * rank as u64 - 1);
        if end > u64::from(interface.parameters) {
            let (start, parameters) = (self.shape_at, interface.parameters);
            return Err(format!("its shape is bytes {start}..{end} of the parameters, which have {parameters}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_shape_is_read_from_the_parameters_and_must_fit_the_buffer() {
        let map = TensorMap::new(1, ElemType::F32, [8, 4]).shape_at(8);
        let shape = map.shape("k", &words(&[99, 20, 10, 96]), 9 * 96 + 80).unwrap();
        assert_eq!((shape.sizes(), shape.strides()), (&[20, 10][..], &[96][..]));
        for (parameters, size, why) in [
            (&[99, 20, 10, 96][..], 9 * 96 + 79, "needs 944"),
            (&[99, 0, 10, 96], 1 << 20, "dimension 0 of its tensor has 0 elements"),
            (&[99, 20, (1 << 32) + 1, 96], 1 << 20, "dimension 1 of its tensor has 4294967297 elements"),
            (&[99, 20, 10, 90], 1 << 20, "stride 0 of its tensor is 90 bytes"),
            (&[99, 20, 10, 1 << 40], u64::MAX, "stride 0 of its tensor is 1099511627776 bytes"),
            (&[99, 20, 10], 1 << 20, "not in the parameters"),
        ] {
            match map.shape("k", &words(parameters), size) {
                Err(Error::BufferSize { kernel, index: 1, got, why: said }) => {
                    assert!(kernel == "k" && got == size && said.contains(why), "{said}");
                }
                other => panic!("{other:?}"),
            }
        }
        // The largest there can be is counted without an overflow.
        let map = TensorMap::new(0, ElemType::F64, [2, 1, 1, 1, 1]);
        let farthest = FARTHEST - STEP;
        let largest = words(&[[MOST_ELEMENTS; 5].as_slice(), &[farthest; 4]].concat());
        assert!(map.shape("k", &largest, u64::MAX).unwrap_err().to_string().contains("more than 64 bits"));
    }

    #[test]
    fn a_map_that_contradicts_its_interface_or_the_hardware_is_refused() {
        let interface = Interface::new().read().parameters(24);
        let map = |tile: &[u32]| TensorMap::new(0, ElemType::F16, tile);
        assert_eq!(map(&[8, 4]).check(&interface), Ok(()));
        for (map, why) in [
            (TensorMap::new(1, ElemType::F16, [8, 4]), "of buffer 1, there are 1"),
            (map(&[]), "0 dimensions"),
            (map(&[8; 6]), "6 dimensions"),
            (map(&[8, 0]), "0 elements"),
            (map(&[8, 257]), "257 elements"),
            (map(&[4, 4]), "has 8 bytes, multiples of 16"),
            (map(&[24, 4]).swizzle(Swizzle::Within32), "48 bytes, permuted within 32"),
            (map(&[8, 4]).shape_at(8), "bytes 8..32 of the parameters, which have 24"),
        ] {
            let wrong = map.check(&interface).unwrap_err();
            assert!(wrong.contains(why), "{wrong}");
        }
    }
}
