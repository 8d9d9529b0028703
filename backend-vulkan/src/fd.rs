//! Memory by file descriptor: from one logical device to another, in this process or in another one.

use crate::device::Device;
use crate::failure::failed;
use crate::resource::VulkanResource;
use alloc::string::ToString;
use ash::vk;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use trunnion_runtime_core::error::{Error, Result};
use vk::ExternalMemoryHandleTypeFlags as Handles;

/// A range of a device's memory by file descriptor, with all that another device must know to use it. The memory stays as long as the
/// descriptor is open, wherever that is.
///
/// [`VulkanResource::export_fd`] makes one; [`VulkanImport::from_fd`](crate::VulkanImport::from_fd) takes one, which may have been made of
/// the parts of one in another process.
///
/// Equivalent to: an `OPAQUE_FD` of `VK_KHR_external_memory_fd` with the `VkMemoryAllocateInfo` it was exported from.
#[derive(Debug)]
pub struct VulkanFd {
    /// The descriptor.
    pub fd: OwnedFd,
    /// The device and the driver that the memory is of, as Vulkan identifies them: only the same can use it.
    pub device: [[u8; vk::UUID_SIZE]; 2],
    /// The bytes of the allocation.
    pub allocation: u64,
    /// Its memory type.
    pub memory_type: u32,
    /// Whether it is for one buffer alone.
    pub is_dedicated: bool,
    /// The bytes of the buffer over it.
    pub buffer: u64,
    /// Where the range begins in it.
    pub offset: u64,
    /// The bytes of the range.
    pub size: u64,
}

impl VulkanFd {
    /// Another one for the same memory.
    ///
    /// # Errors
    /// [`Error::Driver`] when the process has no more descriptors.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = self.fd.as_fd().try_clone_to_owned().map_err(|error| no_descriptor(&error))?;
        Ok(Self { fd, ..*self })
    }

    /// Imports the memory.
    ///
    /// # Safety
    /// As for [`External::allocate`](crate::external::External::allocate).
    pub(crate) unsafe fn allocate(
        &self,
        device: &Device,
        info: vk::MemoryAllocateInfo<'_>,
    ) -> Result<vk::DeviceMemory, vk::Result> {
        // The driver takes the descriptor it is given, and closes it when the memory is freed.
        let Ok(fd) = self.fd.try_clone() else { return Err(vk::Result::ERROR_TOO_MANY_OBJECTS) };
        let fd = fd.into_raw_fd();
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(Handles::OPAQUE_FD).fd(fd);
        // SAFETY: the caller's promise.
        let imported = unsafe { device.raw.allocate_memory(&info.push_next(&mut import), None) };
        if imported.is_err() {
            // SAFETY: the driver only takes the descriptor of memory that it imported.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        imported
    }
}

fn no_descriptor(error: &std::io::Error) -> Error {
    let code = i64::from(error.raw_os_error().unwrap_or(0));
    Error::Driver { call: "dup".to_string(), code, message: error.to_string() }
}

impl VulkanResource {
    /// The range by file descriptor, for another logical device of the same driver.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the device was not opened with option
    /// [`export_memory`](crate::VulkanOptions::export_memory) or has no `VK_KHR_external_memory_fd`, and for memory that was imported; what
    /// the driver answers.
    pub fn export_fd(&self) -> Result<VulkanFd> {
        let (device, allocation) = (self.logical(), self.allocation());
        let made_as = allocation.made_as();
        let refuse = |what: &'static str| Error::Unsupported { what: what.into(), backend: crate::NAME };
        let functions = device.external_memory_fd.as_ref().ok_or_else(|| refuse("VK_KHR_external_memory_fd"))?;
        if !made_as.is_exportable {
            return Err(refuse("export of memory made without option `export_memory`"));
        }
        let info = vk::MemoryGetFdInfoKHR::default().memory(allocation.memory()).handle_type(Handles::OPAQUE_FD);
        // SAFETY: the memory is this device's, and was allocated to be exported as this.
        let fd = unsafe { functions.get_memory_fd(&info) }.map_err(|result| failed("vkGetMemoryFdKHR", result))?;
        Ok(VulkanFd {
            // SAFETY: a descriptor that the driver just made for the caller.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            device: device.identity(),
            allocation: made_as.size,
            memory_type: made_as.memory_type,
            is_dedicated: made_as.is_dedicated,
            buffer: allocation.size(),
            offset: self.offset(),
            size: self.size(),
        })
    }
}
