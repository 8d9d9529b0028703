//! Staging memory: what bytes are put into on their way to a device, page-locked where the driver has such memory, plain elsewhere.
//!
//! - [`StagingBuffer`]: memory to be filled, which becomes [`Bytes`] without a copy.
//! - `pool`: how much may be in use at once, who waits for room, and the counters.

mod pool;

pub use pool::StagingUsage;
pub(crate) use pool::{Found, StagingPool};

use crate::bytes::{Bytes, HostBuffer};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

/// Page-locked host memory of a driver's.
///
/// It goes back to the driver when it is dropped, on whichever thread: an implementation MUST keep alive what that takes, since
/// bytes may outlive the device they were made for.
///
/// Equivalent to: memory of `cuMemHostAlloc`; a mapped, host-visible `VkDeviceMemory`.
pub trait PinnedMemory: Send + Sync + 'static {
    /// The bytes: always as many as were asked for.
    fn as_slice(&self) -> &[u8];

    /// The bytes, to be written.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

enum Memory {
    Plain(HostBuffer),
    Pinned(Box<dyn PinnedMemory>),
    /// It has gone back to the pool.
    Gone,
}

/// Host memory of a fixed size that is counted as staging until the last view of its bytes is dropped. What is in it at first is
/// not defined.
///
/// Equivalent to: memory of `cudaMallocHost`; a staging buffer of Vulkan; a mapped buffer of `wgpu`.
pub struct StagingBuffer {
    memory: Memory,
    size: usize,
    pool: Arc<StagingPool>,
}

impl StagingBuffer {
    pub(crate) fn plain(buffer: HostBuffer, pool: &Arc<StagingPool>) -> Self {
        Self { size: buffer.len(), memory: Memory::Plain(buffer), pool: pool.clone() }
    }

    pub(crate) fn pinned(memory: Box<dyn PinnedMemory>, pool: &Arc<StagingPool>) -> Self {
        Self { size: memory.as_slice().len(), memory: Memory::Pinned(memory), pool: pool.clone() }
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Whether a device can read and write it directly.
    pub fn is_pinned(&self) -> bool {
        matches!(self.memory, Memory::Pinned(_))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Plain(buffer) => buffer.as_slice(),
            Memory::Pinned(memory) => memory.as_slice(),
            Memory::Gone => &[],
        }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Plain(buffer) => buffer.as_mut_slice(),
            Memory::Pinned(memory) => memory.as_mut_slice(),
            Memory::Gone => &mut [],
        }
    }

    /// The bytes, without a copy: [`Pinned`](crate::bytes::BytesProperty::Pinned) or [`Native`](crate::bytes::BytesProperty::Native).
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_staging(self)
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        let pinned = match core::mem::replace(&mut self.memory, Memory::Gone) {
            Memory::Pinned(memory) => Some(memory),
            _ => None,
        };
        self.pool.give_back(self.size as u64, pinned);
    }
}

impl fmt::Debug for StagingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagingBuffer")
            .field("len", &self.size)
            .field("pinned", &self.is_pinned())
            .finish_non_exhaustive()
    }
}
