//! How a tensor lies in a buffer.

use crate::elem::ElemType;
use crate::error::{Error, Result};
use crate::handle::Handle;
use alloc::vec::Vec;

/// A tensor to be laid out: its shape in elements, outermost dimension first, and the type of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDescriptor {
    /// Elements by dimension, outermost first. Without dimensions it is a scalar: one element.
    pub shape: Vec<u64>,
    /// The elements' type.
    pub elem: ElemType,
    /// Where the rows go.
    pub strategy: LayoutStrategy,
}

/// Where the rows of a tensor go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LayoutStrategy {
    /// One after another.
    #[default]
    Contiguous,
    /// The last dimension padded to the device's row pitch.
    ///
    /// Equivalent to: `cudaMallocPitch`; the `bytes_per_row` of a `wgpu` copy.
    Optimized,
}

/// Where a tensor lies: its memory and how far apart its elements are.
#[derive(Clone, Debug)]
pub struct MemoryLayout {
    /// The bytes.
    pub memory: Handle,
    /// The distance between neighbours, in elements, by dimension, outermost first.
    pub strides: Vec<u64>,
}

/// Rows of equal length at equal or nested distances: what a driver can copy at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Bytes in a row.
    pub row: u64,
    /// Where each row begins, in bytes from the start of the tensor: shape and stride by dimension, outermost first.
    pub outer: Vec<(u64, u64)>,
}

impl TensorDescriptor {
    /// A tensor whose rows lie one after another.
    pub fn contiguous(shape: impl Into<Vec<u64>>, elem: ElemType) -> Self {
        Self { shape: shape.into(), elem, strategy: LayoutStrategy::Contiguous }
    }

    /// A tensor whose rows are padded to the device's row pitch.
    pub fn optimized(shape: impl Into<Vec<u64>>, elem: ElemType) -> Self {
        Self { shape: shape.into(), elem, strategy: LayoutStrategy::Optimized }
    }

    /// The strides in elements and the bytes the tensor takes on a device with this row pitch.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`].
    pub fn place(&self, row_pitch: u64) -> Result<(Vec<u64>, u64)> {
        let overflow = || Error::SizeOverflow { what: "tensor".into() };
        let size = self.elem.size();
        let mut strides = alloc::vec![1; self.shape.len()];
        if self.shape.contains(&0) {
            // Without elements there is no distance between them.
            return Ok((strides, 0));
        }
        // Rows are only worth padding where there is more than one.
        let pitch = match self.strategy {
            LayoutStrategy::Optimized if self.shape.len() > 1 => row_pitch.max(size),
            _ => size,
        };
        let mut distance = 1u64;
        for (i, dimension) in self.shape.iter().enumerate().rev() {
            strides[i] = distance;
            distance = distance.checked_mul(*dimension).ok_or_else(overflow)?;
            if i + 1 == self.shape.len() && pitch > size {
                let bytes =
                    distance.checked_mul(size).and_then(|b| b.checked_next_multiple_of(pitch)).ok_or_else(overflow)?;
                distance = bytes.checked_next_multiple_of(size).ok_or_else(overflow)? / size;
            }
        }
        Ok((strides, distance.checked_mul(size).ok_or_else(overflow)?))
    }

    /// The bytes of the elements alone.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`].
    pub fn dense_size(&self) -> Result<u64> {
        dense_size(&self.shape, self.elem.size())
    }
}

/// The bytes of `shape` elements of `elem_size` bytes, without padding.
///
/// # Errors
/// [`Error::SizeOverflow`].
pub fn dense_size(shape: &[u64], elem_size: u64) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(elem_size, |size, dimension| size.checked_mul(*dimension))
        .ok_or_else(|| Error::SizeOverflow { what: "tensor".into() })
}

impl Rows {
    /// The rows of a tensor with these shape and strides (elements, outermost first) of elements of `elem_size` bytes, in `available`
    /// bytes. Neighbouring dimensions that lie densely become one.
    ///
    /// # Errors
    /// [`Error::UnsupportedStrides`] when shape and strides differ in length, elements overlap (a stride smaller than what lies inside
    /// it, other than for a single element), or the innermost dimension is not dense; [`Error::OutOfRange`] when the tensor leaves the bytes.
    pub fn new(shape: &[u64], strides: &[u64], elem_size: u64, available: u64) -> Result<Self> {
        let refuse = |why: &'static str| Error::UnsupportedStrides {
            shape: shape.into(),
            strides: strides.into(),
            why: why.into(),
        };
        if shape.len() != strides.len() {
            return Err(refuse("shape and strides differ in length"));
        }
        if shape.contains(&0) {
            return Ok(Self { row: 0, outer: Vec::new() });
        }
        let overflow = || Error::SizeOverflow { what: "tensor".into() };
        let mut row = elem_size;
        let mut outer: Vec<(u64, u64)> = Vec::new();
        let mut extent = elem_size;
        for (dimension, stride) in shape.iter().zip(strides).rev() {
            if *dimension == 1 {
                continue;
            }
            let stride = stride.checked_mul(elem_size).ok_or_else(overflow)?;
            if stride < extent {
                return Err(refuse("a stride is smaller than what lies inside it"));
            }
            if outer.is_empty() && stride == row {
                row = row.checked_mul(*dimension).ok_or_else(overflow)?;
            } else {
                match outer.last_mut() {
                    Some((inner, inner_stride)) if inner.checked_mul(*inner_stride) == Some(stride) => {
                        *inner *= dimension
                    }
                    _ => outer.push((*dimension, stride)),
                }
            }
            extent = stride.checked_mul(dimension - 1).and_then(|b| b.checked_add(extent)).ok_or_else(overflow)?;
        }
        if extent > available {
            return Err(Error::OutOfRange { what: "tensor".into(), range: 0..extent, size: available });
        }
        outer.reverse();
        Ok(Self { row, outer })
    }

    /// One row.
    pub const fn single(size: u64) -> Self {
        Self { row: size, outer: Vec::new() }
    }

    /// Bytes in all rows.
    pub fn size(&self) -> u64 {
        self.outer.iter().fold(self.row, |size, (count, _)| size * count)
    }

    /// From the first byte of the first row to the last byte of the last.
    pub fn extent(&self) -> u64 {
        if self.row == 0 {
            0
        } else {
            self.outer.iter().fold(self.row, |extent, (count, stride)| extent + (count - 1) * stride)
        }
    }

    /// Whether there are no gaps.
    pub fn is_dense(&self) -> bool {
        self.outer.is_empty()
    }

    /// Calls `row` with the offset of each row, in order.
    pub fn for_each(&self, mut row: impl FnMut(u64)) {
        fn walk(outer: &[(u64, u64)], offset: u64, row: &mut impl FnMut(u64)) {
            match outer {
                [] => row(offset),
                [(count, stride), inner @ ..] => (0..*count).for_each(|i| walk(inner, offset + i * stride, row)),
            }
        }
        if self.row > 0 {
            walk(&self.outer, 0, &mut row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimized_rows_begin_at_multiples_of_the_pitch() {
        let tensor = TensorDescriptor::optimized([3, 5, 7], ElemType::F32);
        assert_eq!(tensor.place(64).unwrap(), (alloc::vec![80, 16, 1], 3 * 5 * 64));
        let contiguous = TensorDescriptor::contiguous([3, 5, 7], ElemType::F32);
        assert_eq!(contiguous.place(64).unwrap(), (alloc::vec![35, 7, 1], 3 * 5 * 7 * 4));
        assert_eq!(TensorDescriptor::contiguous([], ElemType::F64).place(64).unwrap(), (alloc::vec![], 8));
        assert!(TensorDescriptor::contiguous([1 << 40, 1 << 40], ElemType::F64).place(1).is_err());
    }

    #[test]
    fn a_tensor_without_elements_takes_no_bytes_however_long_its_other_dimensions_are() {
        for shape in [[0, 1 << 40, 1 << 40], [1 << 40, 0, 1 << 40], [1 << 40, 1 << 40, 0]] {
            for tensor in
                [TensorDescriptor::contiguous(shape, ElemType::F64), TensorDescriptor::optimized(shape, ElemType::F64)]
            {
                let (strides, size) = tensor.place(256).unwrap();
                assert_eq!((size, tensor.dense_size()), (0, Ok(0)));
                assert_eq!(Rows::new(&shape, &strides, 8, 0).unwrap().size(), 0);
            }
        }
    }

    #[test]
    fn one_row_is_not_padded_to_the_pitch_of_many() {
        assert_eq!(TensorDescriptor::optimized([7], ElemType::F32).place(256).unwrap(), (alloc::vec![1], 28));
        let (strides, size) = TensorDescriptor::optimized([1, 7], ElemType::F32).place(256).unwrap();
        assert_eq!((&strides[..], size), (&[64, 1][..], 256));
        assert_eq!(Rows::new(&[1, 7], &strides, 4, size).unwrap(), Rows::single(28));
    }

    #[test]
    fn strides_whose_product_overflows_are_refused_and_not_computed() {
        let half = 1 << 63;
        assert!(Rows::new(&[2, 2], &[half + 1, half], 1, u64::MAX).is_err());
        assert!(Rows::new(&[2, 2, 2], &[u64::MAX, half, 1], 1, u64::MAX).is_err());
        assert!(Rows::new(&[2], &[u64::MAX], 2, u64::MAX).is_err());
        assert!(matches!(Rows::new(&[2], &[half], 1, half), Err(Error::OutOfRange { .. })));
    }

    #[test]
    fn dense_dimensions_become_one_row() {
        assert_eq!(Rows::new(&[2, 3, 4], &[12, 4, 1], 4, 96).unwrap(), Rows::single(96));
        let padded = Rows::new(&[2, 3, 4], &[24, 8, 1], 4, 192).unwrap();
        assert_eq!(padded, Rows { row: 16, outer: alloc::vec![(6, 32)] });
        assert_eq!((padded.size(), padded.extent()), (96, 176));
        let mut offsets = Vec::new();
        padded.for_each(|o| offsets.push(o));
        assert_eq!(offsets, [0, 32, 64, 96, 128, 160]);
    }

    #[test]
    fn what_overlaps_or_leaves_the_buffer_is_refused() {
        assert!(matches!(Rows::new(&[2, 3], &[2, 1], 4, 99), Err(Error::UnsupportedStrides { .. })));
        assert!(matches!(Rows::new(&[2], &[1, 1], 4, 99), Err(Error::UnsupportedStrides { .. })));
        assert!(matches!(Rows::new(&[2, 3], &[4, 1], 4, 27), Err(Error::OutOfRange { .. })));
        assert!(Rows::new(&[2, 3], &[4, 1], 4, 28).is_ok());
        assert_eq!(Rows::new(&[2, 0], &[4, 1], 4, 0).unwrap().size(), 0);
    }

    #[test]
    fn a_stride_between_single_elements_is_a_row_each() {
        let transposed = Rows::new(&[4], &[3], 4, 40).unwrap();
        assert_eq!(transposed, Rows { row: 4, outer: alloc::vec![(4, 12)] });
    }
}
