//! Where bytes come from, and how each kind is reached.

use super::HostBuffer;
#[cfg(feature = "std")]
use super::file::FileRange;
use super::lazy::Lazy;
use crate::error::Result;
use crate::staging::StagingBuffer;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytemuck::Pod;
use core::any::Any;

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
    /// Kept as any value, for the same reason.
    Elems(Box<dyn Elements>),
    Buffer(HostBuffer),
    Staging(StagingBuffer),
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
            Self::Staging(buffer) if !buffer.is_pinned() => BytesProperty::Native,
            Self::Pinned(_) | Self::Staging(_) => BytesProperty::Pinned,
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
            Self::Elems(elems) => elems.bytes().len(),
            Self::Buffer(buffer) => buffer.len(),
            Self::Staging(buffer) => buffer.len(),
            Self::Pinned(shared) | Self::Shared(shared) => (**shared).as_ref().len(),
            Self::Lazy(lazy) => lazy.len(),
            #[cfg(feature = "std")]
            Self::File(file) => file.len(),
        }
    }

    /// Copies the bytes from `start` on, as many as `into` holds, where they are not in memory and need not come to be. False where
    /// they are, or whoever has them can only load all: nothing was then done.
    #[cfg_attr(not(feature = "std"), allow(unused_variables, reason = "there are no files"))]
    pub(super) fn copy_unloaded(&self, start: usize, into: &mut [u8]) -> Result<bool> {
        match self {
            #[cfg(feature = "std")]
            Self::File(file) => file.copy_unloaded(start, into),
            _ => Ok(false),
        }
    }

    /// All the bytes, loaded where they are not yet.
    pub(super) fn get(&self) -> Result<&[u8]> {
        match self {
            Self::Vec(bytes) => Ok(bytes),
            Self::Elems(elems) => Ok(elems.bytes()),
            Self::Buffer(buffer) => Ok(buffer.as_slice()),
            Self::Staging(buffer) => Ok(buffer.as_slice()),
            Self::Pinned(shared) | Self::Shared(shared) => Ok((**shared).as_ref()),
            Self::Lazy(lazy) => lazy.get(),
            #[cfg(feature = "std")]
            Self::File(file) => file.get(),
        }
    }
}

/// The vector inside, where its elements are of this type.
pub(super) fn into_elems<T: Pod + Send + Sync>(elems: Box<dyn Elements>) -> Option<Vec<T>> {
    elems.into_any().downcast::<Elems<T>>().ok().map(|elems| elems.0)
}

/// A vector of some type, seen as bytes.
pub(super) trait Elements: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl dyn Elements {
    /// Whether the elements are of this type.
    pub(super) fn are<T: Pod>(&self) -> bool {
        self.as_any().is::<Elems<T>>()
    }
}

/// In its own allocation and so with its own alignment.
struct Elems<T>(Vec<T>);

impl<T: Pod + Send + Sync> Elements for Elems<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
