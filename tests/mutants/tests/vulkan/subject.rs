//! The device under test: the backend's driver inside one with the fault that this process was given.

use crate::driver::FaultyDriver;
use crate::mutants::fault;
use trunnion_backend_vulkan::VulkanBackend;
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::server::Opened;

/// Opens the backend's first device, with the fault.
pub fn open(backend: &VulkanBackend) -> Result<Opened> {
    let driver = FaultyDriver::new(backend.driver(0, backend.options())?, fault());
    Ok(trunnion_backend_core::open(driver, &OpenSettings::default()))
}
