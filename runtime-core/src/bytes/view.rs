//! The handle people hold: a view of bytes that something else keeps.

use super::source::{Source, into_elems};
use super::{BytesProperty, HostBuffer, LazySource};
use crate::error::{Error, Result};
use crate::staging::StagingBuffer;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytemuck::{Pod, PodCastError};
use core::any::type_name;
use core::fmt;
use core::ops::{Bound, RangeBounds};

/// Host bytes: cheap to clone, and sliced and split without a copy.
///
/// Views of a file or of device memory load on the first access to any of them, and load all that the first view was
/// made with; every view of the same source then sees that one copy. Bytes of a file or a device that are not accessed
/// cost no memory.
///
/// Equivalent to: a host pointer and a size, as given to `cudaMemcpyAsync`, with what keeps the memory alive.
///
/// ```
/// use trunnion_runtime_core::bytes::Bytes;
///
/// let bytes = Bytes::from_elems(vec![1.0_f32, 2.0, 3.0]);
/// let tail = bytes.slice(4..)?;
/// assert_eq!(tail.cast::<f32>()?, [2.0, 3.0]);
/// # Ok::<(), trunnion_runtime_core::error::Error>(())
/// ```
#[derive(Clone)]
pub struct Bytes {
    source: Arc<Source>,
    start: usize,
    len: usize,
}

impl Bytes {
    /// The bytes of a vector, without a copy.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::whole(Source::Vec(bytes))
    }

    /// The elements of a vector, without a copy and aligned as `T` is.
    pub fn from_elems<T: Pod + Send + Sync>(elems: Vec<T>) -> Self {
        Self::whole(Source::elems(elems))
    }

    /// A copy of a slice, aligned to 16 bytes.
    pub fn copy_from_slice<T: Pod>(elems: &[T]) -> Self {
        Self::from_buffer(HostBuffer::copy_from_slice(bytemuck::cast_slice(elems)))
    }

    /// Memory of the caller's, without a copy, kept for as long as a view of it is.
    ///
    /// `as_ref` should always give the same bytes; if it gives fewer later, accessing the missing ones is an error.
    pub fn from_shared(shared: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self::whole(Source::Shared(shared))
    }

    /// As [`from_shared`](Self::from_shared), for memory that is page-locked for the device it is used with.
    ///
    /// Equivalent to: memory of `cudaMallocHost`.
    pub fn from_pinned(pinned: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self::whole(Source::Pinned(pinned))
    }

    /// The bytes of a buffer, without a copy.
    pub fn from_buffer(buffer: HostBuffer) -> Self {
        Self::whole(Source::Buffer(buffer))
    }

    pub(crate) fn from_staging(buffer: StagingBuffer) -> Self {
        Self::whole(Source::Staging(buffer))
    }

    /// `len` bytes that `source` loads on first access.
    pub fn lazy(len: usize, source: Arc<dyn LazySource>) -> Self {
        Self::whole(Source::Lazy(super::lazy::Lazy::new(len, source)))
    }

    /// `len` bytes of a file, from byte `offset`, read on first access.
    ///
    /// The file is looked at now and opened again to be read, so it has to stay. What is read is what the file holds
    /// then. To read the parts of a large file separately, make one of these for each part.
    ///
    /// # Errors
    /// [`Error::File`] when the path is no regular file, can't be read, or is too short; [`Error::SizeOverflow`] when
    /// the range's end overflows.
    #[cfg(feature = "std")]
    pub fn from_file(path: impl AsRef<std::path::Path>, offset: u64, len: u64) -> Result<Self> {
        Ok(Self::whole(Source::File(super::file::FileRange::new(path.as_ref(), offset, len)?)))
    }

    fn whole(source: Source) -> Self {
        let len = source.len();
        Self { source: Arc::new(source), start: 0, len }
    }

    /// How many bytes there are. Loads nothing.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none. Loads nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The kind of memory this is a view of. It stays what it was when bytes are loaded.
    pub fn property(&self) -> BytesProperty {
        self.source.property()
    }

    /// The bytes, loaded where they are not yet.
    ///
    /// The first access to a file or to device memory may block. Threads that race on it may each load; all of them get
    /// the bytes of the one that finished first, and none waits for another. Memory that is resident never fails.
    ///
    /// # Errors
    /// Why loading failed: [`Error::File`] for a file, the device's error for device memory. The next access tries
    /// again.
    pub fn as_slice(&self) -> Result<&[u8]> {
        if self.len == 0 {
            return Ok(&[]);
        }
        let all = self.source.get()?;
        // The sum can't overflow: it was within the source's length when the view was made. Only memory of the caller's
        // can be shorter now.
        all.get(self.start..self.start + self.len).ok_or_else(|| Error::WrongLength {
            what: "shared memory that has shrunk".into(),
            got: all.len() as u64,
            expected: (self.start + self.len) as u64,
        })
    }

    /// The bytes as elements, without a copy.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when the length is no multiple of `T`'s size, [`Error::Misaligned`] when the memory is not
    /// aligned for `T` ([`to_vec`](Self::to_vec) copies at any alignment), and those of [`as_slice`](Self::as_slice).
    pub fn cast<T: Pod>(&self) -> Result<&[T]> {
        let bytes = self.elements_of::<T>()?;
        if bytes.is_empty() {
            // No bytes have an address, and so no alignment either.
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(bytes).map_err(|error| match error {
            PodCastError::TargetAlignmentGreaterAndInputNotAligned => Error::Misaligned {
                what: format!("address of bytes viewed as {}", type_name::<T>()).into(),
                value: bytes.as_ptr() as u64,
                alignment: align_of::<T>() as u64,
            },
            _ => wrong_length::<T>(bytes.len()),
        })
    }

    /// A copy of the bytes as elements, whatever their alignment.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when the length is no multiple of `T`'s size, and those of [`as_slice`](Self::as_slice).
    pub fn to_vec<T: Pod>(&self) -> Result<Vec<T>> {
        let bytes = self.elements_of::<T>()?;
        Ok(match bytemuck::try_cast_slice(bytes) {
            Ok(elems) => elems.to_vec(),
            // Not aligned for `T`. Types of no size never come here: they are aligned to anything bytes are, or have no
            // bytes to read.
            Err(_) => bytes.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned).collect(),
        })
    }

    /// The bytes, which are a whole number of `T`s.
    fn elements_of<T: Pod>(&self) -> Result<&[u8]> {
        let whole = match size_of::<T>() {
            0 => self.len == 0,
            size => self.len.is_multiple_of(size),
        };
        if whole { self.as_slice() } else { Err(wrong_length::<T>(self.len)) }
    }

    /// The vector these bytes were made from, without a copy.
    ///
    /// It succeeds for the only view of a vector given to [`from_vec`](Self::from_vec), when the view begins where the
    /// vector does. A view that ends earlier gives the vector truncated.
    ///
    /// # Errors
    /// The bytes themselves, when they are not that.
    pub fn try_into_vec(self) -> Result<Vec<u8>, Bytes> {
        if self.start != 0 || !matches!(*self.source, Source::Vec(_)) {
            return Err(self);
        }
        let Self { source, start, len } = self;
        match Arc::try_unwrap(source) {
            Ok(Source::Vec(mut bytes)) => {
                bytes.truncate(len);
                Ok(bytes)
            }
            Ok(other) => Err(Self { source: Arc::new(other), start, len }),
            Err(source) => Err(Self { source, start, len }),
        }
    }

    /// The vector of elements these bytes were made from, without a copy and with its alignment.
    ///
    /// It succeeds for the only view of a vector given to [`from_elems`](Self::from_elems) with the same type, when the view begins
    /// where the vector does and holds a whole number of elements. A view that ends earlier gives the vector truncated.
    ///
    /// # Errors
    /// The bytes themselves, when they are not that.
    pub fn try_into_elems<T: Pod + Send + Sync>(self) -> Result<Vec<T>, Bytes> {
        let of_type = matches!(&*self.source, Source::Elems(elems) if elems.are::<T>());
        let count = match size_of::<T>() {
            size if size > 0 && self.len.is_multiple_of(size) => self.len / size,
            _ => return Err(self),
        };
        if self.start != 0 || !of_type {
            return Err(self);
        }
        let Self { source, start, len } = self;
        match Arc::try_unwrap(source) {
            Ok(Source::Elems(elems)) => {
                // Of this type, as was just seen.
                let mut elems = into_elems::<T>(elems).unwrap_or_default();
                elems.truncate(count);
                Ok(elems)
            }
            Ok(other) => Err(Self { source: Arc::new(other), start, len }),
            Err(source) => Err(Self { source, start, len }),
        }
    }

    /// A view of a part of the bytes. Loads and copies nothing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the range leaves these bytes or ends before it begins.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Bytes> {
        let after = |at: usize| at.checked_add(1);
        let start = match range.start_bound() {
            Bound::Included(&at) => Some(at),
            Bound::Excluded(&at) => after(at),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => after(at),
            Bound::Excluded(&at) => Some(at),
            Bound::Unbounded => Some(self.len),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.len => {
                Ok(Self { source: self.source.clone(), start: self.start + start, len: end - start })
            }
            _ => Err(Error::OutOfRange {
                what: "slice of bytes".into(),
                range: start.unwrap_or(usize::MAX) as u64..end.unwrap_or(usize::MAX) as u64,
                size: self.len as u64,
            }),
        }
    }

    /// Views of the bytes before `mid` and of those from it on. Loads and copies nothing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when `mid` is beyond the end.
    pub fn split_at(&self, mid: usize) -> Result<(Bytes, Bytes)> {
        Ok((self.slice(..mid)?, self.slice(mid..)?))
    }

    /// Copies the bytes to `dst`. Bytes of a file that was not looked at are read straight into it, those of this view alone, and
    /// not kept.
    ///
    /// # Errors
    /// [`Error::WrongLength`] when `dst` has another length, and those of [`as_slice`](Self::as_slice). What is in `dst` then is not
    /// defined for a file, else `dst` is not changed.
    pub fn copy_into(&self, dst: &mut [u8]) -> Result<()> {
        if dst.len() != self.len {
            return Err(Error::WrongLength {
                what: "destination of copied bytes".into(),
                got: dst.len() as u64,
                expected: self.len as u64,
            });
        }
        if dst.is_empty() || self.source.copy_unloaded(self.start, dst)? {
            return Ok(());
        }
        dst.copy_from_slice(self.as_slice()?);
        Ok(())
    }
}

fn wrong_length<T>(len: usize) -> Error {
    let size = size_of::<T>();
    Error::WrongLength {
        what: format!("bytes viewed as {}, {size} bytes each", type_name::<T>()).into(),
        got: len as u64,
        // The nearest length below that fits.
        expected: len.checked_div(size).map_or(0, |count| count * size) as u64,
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::from_vec(Vec::new())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from_vec(bytes)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").field("property", &self.property()).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
