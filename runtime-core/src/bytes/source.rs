//! Where bytes come from, and how each kind is reached.

use super::HostBuffer;
#[cfg(feature = "std")]
use super::file::FileRange;
use super::lazy::Lazy;
use crate::error::Result;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytemuck::Pod;

/// What kind of memory [`Bytes`](super::Bytes) view: what a backend may do to transfer them fast, and whether the first
/// access does work.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BytesProperty {
    /// Ordinary host memory this crate allocated or was given as a vector.
    Native,
    /// A range of a file, read on first access.
    File,
    /// Page-locked host memory, which a device can read and write directly.
    ///
    /// Equivalent to: memory of `cudaMallocHost`.
    Pinned,
    /// Device memory, copied to the host on first access.
    DeviceLazy,
    /// Memory of the caller's, of an unknown kind.
    Other,
}

/// What keeps the memory, shared by all views of it.
pub(super) enum Source {
    /// Kept apart from other elements because it can be taken out again.
    Vec(Vec<u8>),
    Elems(Box<dyn AsRef<[u8]> + Send + Sync>),
    Buffer(HostBuffer),
    Pinned(Arc<dyn AsRef<[u8]> + Send + Sync>),
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>),
    Lazy(Lazy),
    #[cfg(feature = "std")]
    File(FileRange),
}

impl Source {
    pub(super) fn elems<T: Pod + Send + Sync>(elems: Vec<T>) -> Self {
        Self::Elems(Box::new(Elems(elems)))
    }

    pub(super) fn property(&self) -> BytesProperty {
        match self {
            Self::Vec(_) | Self::Elems(_) | Self::Buffer(_) => BytesProperty::Native,
            Self::Pinned(_) => BytesProperty::Pinned,
            Self::Shared(_) => BytesProperty::Other,
            Self::Lazy(_) => BytesProperty::DeviceLazy,
            #[cfg(feature = "std")]
            Self::File(_) => BytesProperty::File,
        }
    }

    /// How many bytes there are, without loading them.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Vec(bytes) => bytes.len(),
            Self::Elems(elems) => (**elems).as_ref().len(),
            Self::Buffer(buffer) => buffer.len(),
            Self::Pinned(shared) | Self::Shared(shared) => (**shared).as_ref().len(),
            Self::Lazy(lazy) => lazy.len(),
            #[cfg(feature = "std")]
            Self::File(file) => file.len(),
        }
    }

    /// All the bytes, loaded where they are not yet.
    pub(super) fn get(&self) -> Result<&[u8]> {
        match self {
            Self::Vec(bytes) => Ok(bytes),
            Self::Elems(elems) => Ok((**elems).as_ref()),
            Self::Buffer(buffer) => Ok(buffer.as_slice()),
            Self::Pinned(shared) | Self::Shared(shared) => Ok((**shared).as_ref()),
            Self::Lazy(lazy) => lazy.get(),
            #[cfg(feature = "std")]
            Self::File(file) => file.get(),
        }
    }
}

/// A vector seen as bytes, in its own allocation and so with its own alignment.
struct Elems<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Elems<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
