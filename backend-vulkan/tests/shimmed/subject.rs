//! The device under test: the backend's own.

use trunnion_backend_vulkan::VulkanBackend;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::server::Opened;

/// Opens the backend's first device.
pub fn open(backend: &VulkanBackend) -> Result<Opened> {
    backend.open(0, &OpenSettings::default())
}
