//! Memory of somebody else, to be used by a device in place.
//!
//! What the `unsafe` here rests on is what whoever made a [`VulkanImport`] vouched for: that what it names is there, of this device or for it,
//! and used by nobody in a way that conflicts, until its owner is dropped, which every page over it holds.

use crate::allocation::{Allocation, PAGE_USAGE, Request, Types};
use crate::device::Device;
use crate::external::{External, HostPages};
use crate::failure::{Refusal, failed};
#[cfg(unix)]
use crate::fd::VulkanFd;
use crate::storage::VulkanPage;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use ash::vk;
use core::any::Any;
use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Mutex;
use trunnion_backend_core::driver::Imported;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::{Foreign, ForeignMemory};

/// Memory that a Vulkan device uses in place: given to [`Client::import`](trunnion_runtime_core::client::Client::import).
///
/// What is to happen when the device needs it no more is what its owner does when it is dropped.
pub struct VulkanImport {
    source: Source,
    size: u64,
    /// Only dropped.
    _owner: Mutex<Box<dyn Any + Send>>,
}

enum Source {
    Buffer {
        buffer: vk::Buffer,
        memory: vk::DeviceMemory,
        offset: u64,
    },
    #[cfg(unix)]
    Fd(VulkanFd),
    Host(NonNull<c_void>),
}

// SAFETY: handles and an address, whose use from any thread is vouched for by whoever made it.
unsafe impl Send for VulkanImport {}
// SAFETY: as above; the owner is only reached to be dropped.
unsafe impl Sync for VulkanImport {}

impl VulkanImport {
    /// `size` bytes of a buffer of the same logical device, from `offset` on, a multiple of the device's `binding_alignment`.
    /// [`VulkanResource`](crate::VulkanResource) has the device, its handles and its queue family.
    ///
    /// # Safety
    /// The buffer is of the device that the memory is imported into, bound from its start to `memory` or a part of it, for storage, both ways
    /// of transfer and indirect dispatch, of the exclusive mode and owned by the family of the device's queues, or concurrent. It has so
    /// many bytes. Both stay, and nobody uses the bytes in a way that conflicts with what is issued on the imported memory, until `owner` is
    /// dropped.
    pub unsafe fn from_buffer<O: Send + 'static>(
        buffer: vk::Buffer,
        memory: vk::DeviceMemory,
        offset: u64,
        size: u64,
        owner: O,
    ) -> Self {
        Self::new(Source::Buffer { buffer, memory, offset }, size, owner)
    }

    /// Memory of another logical device of the same driver, in this process or another one. It stays by itself; the descriptor is closed when
    /// the device needs the memory no more.
    ///
    /// # Safety
    /// All fields are as they were exported. Nobody uses the bytes in a way that conflicts with what is issued on the imported memory, until
    /// the last handle is dropped and all of that is done.
    #[cfg(unix)]
    pub unsafe fn from_fd(fd: VulkanFd) -> Self {
        let size = fd.size;
        Self::new(Source::Fd(fd), size, ())
    }

    /// `size` bytes of host memory, which begin at a multiple of what the device demands, a page of 4 KiB as a rule
    /// (`VK_EXT_external_memory_host`).
    ///
    /// # Safety
    /// The memory is there, initialized, can be read and written, up to the next multiple of that alignment behind its end, and is not
    /// mapped from a file. It stays, and nobody uses it in a way that conflicts with what is issued on the imported memory, until
    /// `owner` is dropped.
    pub unsafe fn from_host<O: Send + 'static>(pointer: NonNull<u8>, size: u64, owner: O) -> Self {
        Self::new(Source::Host(pointer.cast()), size, owner)
    }

    fn new<O: Send + 'static>(source: Source, size: u64, owner: O) -> Self {
        Self { source, size, _owner: Mutex::new(Box::new(owner)) }
    }
}

impl ForeignMemory for VulkanImport {
    fn size(&self) -> u64 {
        self.size
    }
}

impl fmt::Debug for VulkanImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Buffer { .. } => "buffer",
            #[cfg(unix)]
            Source::Fd(_) => "file descriptor",
            Source::Host(_) => "host memory",
        };
        f.debug_struct("VulkanImport").field("source", &source).field("size", &self.size).finish_non_exhaustive()
    }
}

/// A page over the memory, which holds it.
///
/// # Errors
/// [`Error::ServiceMismatch`] unless it is a [`VulkanImport`]; [`Error::Misaligned`], [`Error::OutOfRange`]; [`Error::Unsupported`] for what the
/// device has no extension for; [`Error::Incompatible`] for memory of another device or of a type that pages cannot have; what the driver
/// answers.
pub(crate) fn import(device: &Arc<Device>, foreign: &Foreign) -> Result<Imported<VulkanPage>> {
    let memory: &VulkanImport = foreign.get()?;
    let size = memory.size;
    let (allocation, offset) = match &memory.source {
        Source::Buffer { buffer, memory, offset } => {
            let end = end_of(device, *offset, size)?;
            (Allocation::lent(device, *buffer, *memory, end, foreign), *offset)
        }
        #[cfg(unix)]
        Source::Fd(fd) => (from_fd(device, fd)?.holding(foreign), fd.offset),
        Source::Host(pointer) => (from_host(device, *pointer, size)?.holding(foreign), 0),
    };
    device.note_import();
    Ok(Imported { page: VulkanPage::imported(allocation), offset })
}

fn unsupported(what: &'static str) -> Error {
    Error::Unsupported { what: what.into(), backend: crate::NAME }
}

fn incompatible(why: String) -> Error {
    Error::Incompatible { what: "imported memory".into(), why }
}

/// Where a range ends that kernels can be bound to.
fn end_of(device: &Device, offset: u64, size: u64) -> Result<u64> {
    let alignment = device.properties.limits.binding_alignment;
    if !offset.is_multiple_of(alignment) {
        return Err(Error::Misaligned { what: "offset of imported memory".into(), value: offset, alignment });
    }
    offset.checked_add(size).ok_or_else(|| Error::SizeOverflow { what: "imported memory".into() })
}

#[cfg(unix)]
fn from_fd(device: &Arc<Device>, fd: &VulkanFd) -> Result<Allocation> {
    if device.external_memory_fd.is_none() || !device.takes(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD) {
        return Err(unsupported("import by file descriptor, which takes VK_KHR_external_memory_fd,"));
    }
    let own = device.identity();
    if fd.device != own {
        return Err(incompatible(format!("it is of device {:02x?}, this one is {own:02x?}", fd.device)));
    }
    let end = end_of(device, fd.offset, fd.size)?;
    if end > fd.buffer || fd.buffer > fd.allocation {
        let what = "imported memory".into();
        return Err(Error::OutOfRange { what, range: fd.offset..end, size: fd.buffer.min(fd.allocation) });
    }
    let kind = device.memory_type(fd.memory_type);
    let kind = kind.ok_or_else(|| incompatible(format!("the device has no memory type {}", fd.memory_type)))?;
    make(device, fd.buffer, Types::One(kind), External::Fd(fd))
}

fn from_host(device: &Arc<Device>, pointer: NonNull<c_void>, size: u64) -> Result<Allocation> {
    let handles = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
    // The extension alone says that it can be done: of buffers over such memory not every driver that has it says so.
    let functions = device.external_memory_host.as_ref();
    let functions =
        functions.ok_or_else(|| unsupported("import of host memory, which takes VK_EXT_external_memory_host,"))?;
    let alignment = device.host_pointer_alignment.max(1);
    let address = pointer.as_ptr().addr() as u64;
    if !address.is_multiple_of(alignment) {
        return Err(Error::Misaligned { what: "address of imported memory".into(), value: address, alignment });
    }
    let overflow = || Error::SizeOverflow { what: "imported memory".into() };
    let whole = size.checked_next_multiple_of(alignment).ok_or_else(overflow)?;
    let mut properties = vk::MemoryHostPointerPropertiesEXT::default();
    // SAFETY: the address is aligned, and there by the promise of whoever imports it.
    let asked = unsafe {
        (functions.fp().get_memory_host_pointer_properties_ext)(
            device.raw.handle(),
            handles,
            pointer.as_ptr(),
            &mut properties,
        )
    };
    asked.result().map_err(|result| failed("vkGetMemoryHostPointerPropertiesEXT", result))?;
    let pages = HostPages { pointer, size: whole };
    make(device, size, Types::AnyOf(properties.memory_type_bits), External::Host(&pages))
}

fn make(device: &Arc<Device>, size: u64, types: Types, external: External<'_>) -> Result<Allocation> {
    let maps = device.memory.host_visible;
    let request = Request { size, usage: PAGE_USAGE, types, maps, external, is_on_the_way: false };
    Allocation::new(device, &request).map_err(|refusal| match refusal {
        Refusal::Unfit(why) => incompatible(why),
        other => other.into_error(size),
    })
}
