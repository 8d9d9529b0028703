//! The backend: finds the devices of the process's driver.

use crate::NAME;
use crate::device::{self, Device, Survey};
use crate::driver::CudaDriver;
use crate::library::Library;
use crate::options::CudaOptions;
use alloc::sync::Arc;
use alloc::vec::Vec;
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::id::BackendName;
use trunnion_runtime_core::properties::DeviceInfo;
use trunnion_runtime_core::server::Opened;

/// The devices of NVIDIA's driver, as a backend named `cuda`. A device's index is the driver's own, which `CUDA_VISIBLE_DEVICES` decides.
///
/// Nothing is loaded before devices are asked for.
#[derive(Clone, Debug, Default)]
pub struct CudaBackend {
    options: CudaOptions,
}

impl CudaBackend {
    /// A backend whose devices are used so.
    pub fn new(options: CudaOptions) -> Self {
        Self { options }
    }

    /// What its devices are told.
    pub fn options(&self) -> &CudaOptions {
        &self.options
    }

    /// Drives the device `index`, for a server that is not the one [`open`](Backend::open) makes.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable),
    /// [`Error::NoDevice`](trunnion_runtime_core::error::Error::NoDevice); what the driver answers.
    pub fn driver(&self, index: u32, options: &CudaOptions) -> Result<CudaDriver> {
        CudaDriver::new(self.device(index, options)?)
    }

    /// Retains the device `index`.
    ///
    /// # Errors
    /// As for [`driver`](Self::driver).
    pub(crate) fn device(&self, index: u32, options: &CudaOptions) -> Result<Arc<Device>> {
        let library = Library::open(options.library.as_deref())?;
        Device::open(&Survey::of(&library, index)?, options)
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> BackendName {
        NAME
    }

    /// The devices there are, in the driver's order.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable): no driver, one that is too old or lacks a
    /// function, or no device.
    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        let _inside = Inside::new();
        device::survey(&Library::open(self.options.library.as_deref())?, &self.options)
    }

    /// Starts a server on a device. The options of the settings ([`CudaOptions::set`]) come on top of those the backend was made with.
    ///
    /// # Errors
    /// [`Error::UnknownOption`](trunnion_runtime_core::error::Error::UnknownOption),
    /// [`Error::BadOption`](trunnion_runtime_core::error::Error::BadOption),
    /// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable),
    /// [`Error::NoDevice`](trunnion_runtime_core::error::Error::NoDevice); what the driver answers.
    fn open(&self, index: u32, settings: &OpenSettings) -> Result<Opened> {
        let _inside = Inside::new();
        let options = self.options.clone().apply(&settings.options)?;
        Ok(trunnion_backend_core::open(self.driver(index, &options)?, settings))
    }
}
