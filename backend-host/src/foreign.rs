//! Host memory of somebody else, to be used by a device in place.
//!
//! The invariant the unsafe code rests on: `size` bytes from `first` are there, initialized, and used by nobody in a way that conflicts, for as
//! long as `owner` is not dropped. Whoever makes a [`HostImport`] of an address vouches for that; one of an owner keeps it, since nobody else
//! reaches what it owns.

#![allow(unsafe_code)]

use alloc::sync::Arc;
use bytemuck::Pod;
use core::any::Any;
use core::fmt;
use spin::Mutex;
use trunnion_runtime_core::foreign::ForeignMemory;

/// Host memory that a device of this backend uses in place: given to [`Client::import`](trunnion_runtime_core::client::Client::import).
///
/// It begins at a multiple of the device's `binding_alignment`, 16 bytes; kernels that take a larger alignment of their elements are given
/// a failure that names it.
///
/// ```
/// # use trunnion_backend_host::{HostBackend, HostImport};
/// # use trunnion_runtime_core::{backend::Backend, client::Client, foreign::ForeignMemory, id::DeviceId};
/// # let backend = HostBackend::default();
/// # let device = DeviceId { backend: backend.name(), index: 0 };
/// # let client = Client::init(device, || backend.open(0, &Default::default()))?;
/// let words: Vec<u128> = vec![7; 256];
/// let buffer = client.import(HostImport::new(words))?;
/// client.fill(&buffer.slice(..16)?, &[0])?;
/// assert_eq!(client.read_one(&buffer)?.as_slice()?[15..17], [0, 7]);
/// // With the last handle gone, and the fill done, the vector is dropped.
/// drop(buffer);
/// # Ok::<(), trunnion_runtime_core::error::Error>(())
/// ```
pub struct HostImport {
    first: *mut u8,
    size: usize,
    /// Only dropped.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the bytes may be used from any thread (the module's invariant), and the owner is `Send`.
unsafe impl Send for HostImport {}
// SAFETY: as above; a shared one gives out nothing but the address.
unsafe impl Sync for HostImport {}

impl HostImport {
    /// The elements that an owner gives, a `Vec` or a boxed slice for example. The device alone has them until it gives them back, by
    /// dropping the owner.
    ///
    /// Elements that others can see, as those of an `Arc<[u8]>`, cannot be used in place, since the device may write them: they are copied,
    /// with `create`.
    pub fn new<T: Pod, B: AsMut<[T]> + Send + 'static>(owner: B) -> Self {
        let owner = Arc::new(Mutex::new(owner));
        let (first, size) = {
            let mut owner = owner.lock();
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(owner.as_mut());
            (bytes.as_mut_ptr(), bytes.len())
        };
        Self { first, size, _owner: owner }
    }

    /// `size` bytes at an address, which stay there until `owner` is dropped. What is to happen when the device needs them no more is
    /// what `owner` does when it is dropped.
    ///
    /// # Safety
    /// The bytes are initialized, and can be read and written on any thread, until `owner` is dropped. Nobody uses them meanwhile in a way
    /// that conflicts with what is issued on the imported memory; a kernel on the device may use them at any time between its launch and
    /// the moment it is done.
    pub unsafe fn from_raw<O: Send + 'static>(first: *mut u8, size: usize, owner: O) -> Self {
        Self { first, size, _owner: Arc::new(Mutex::new(owner)) }
    }

    pub(crate) fn first(&self) -> *mut u8 {
        self.first
    }
}

impl ForeignMemory for HostImport {
    fn size(&self) -> u64 {
        self.size as u64
    }
}

impl fmt::Debug for HostImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostImport").field("first", &self.first).field("size", &self.size).finish_non_exhaustive()
    }
}
