//! Memory that others have as well: how it is allocated so that it can be handed out, and how it is taken in.

use crate::device::Device;
#[cfg(unix)]
use crate::fd::VulkanFd;
use ash::vk;
use core::ffi::c_void;
use core::ptr::NonNull;
use vk::ExternalMemoryHandleTypeFlags as Handles;

/// What an allocation has to do with others.
pub(crate) enum External<'a> {
    /// Nothing.
    None,
    /// It can be handed out by file descriptor.
    Exportable,
    /// It is memory of another logical device.
    #[cfg(unix)]
    Fd(&'a VulkanFd),
    /// It is memory of the host.
    Host(&'a HostPages),
}

/// Whole pages of the host, as the device counts them.
pub(crate) struct HostPages {
    pub(crate) pointer: NonNull<c_void>,
    pub(crate) size: u64,
}

impl External<'_> {
    /// What names it outside of the device.
    pub(crate) fn handle_types(&self) -> Handles {
        match self {
            Self::None => Handles::empty(),
            Self::Exportable => Handles::OPAQUE_FD,
            #[cfg(unix)]
            Self::Fd(_) => Handles::OPAQUE_FD,
            Self::Host(..) => Handles::HOST_ALLOCATION_EXT,
        }
    }

    /// The size of the allocation, where it is not what the buffer needs.
    pub(crate) fn allocation_size(&self) -> Option<u64> {
        match self {
            Self::None | Self::Exportable => None,
            #[cfg(unix)]
            Self::Fd(fd) => Some(fd.allocation),
            Self::Host(pages) => Some(pages.size),
        }
    }

    /// Whether the allocation is for one buffer alone, where that is not this device's to choose.
    pub(crate) fn is_dedicated(&self) -> Option<bool> {
        match self {
            Self::None | Self::Exportable => None,
            #[cfg(unix)]
            Self::Fd(fd) => Some(fd.is_dedicated),
            Self::Host(..) => Some(false),
        }
    }

    /// Allocates, or imports.
    ///
    /// # Safety
    /// `info` is valid for this device but for what is added here, and what is imported is what it says.
    pub(crate) unsafe fn allocate(
        &self,
        device: &Device,
        info: vk::MemoryAllocateInfo<'_>,
    ) -> Result<vk::DeviceMemory, vk::Result> {
        match self {
            // SAFETY: the caller's promise. So below.
            Self::None => unsafe { device.raw.allocate_memory(&info, None) },
            Self::Exportable => {
                let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(self.handle_types());
                // SAFETY: as above; the device has the extension, or it would not say that it hands out memory.
                unsafe { device.raw.allocate_memory(&info.push_next(&mut export), None) }
            }
            #[cfg(unix)]
            // SAFETY: as above.
            Self::Fd(fd) => unsafe { fd.allocate(device, info) },
            Self::Host(pages) => {
                let mut import = vk::ImportMemoryHostPointerInfoEXT::default()
                    .handle_type(self.handle_types())
                    .host_pointer(pages.pointer.as_ptr());
                // SAFETY: as above; the device has the extension, or it would not have been asked about the address.
                unsafe { device.raw.allocate_memory(&info.push_next(&mut import), None) }
            }
        }
    }
}
