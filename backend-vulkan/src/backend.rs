//! The backend: finds the devices of the system's loader, or of one that a program hands over.

use crate::NAME;
use crate::device::{Adapter, Device, adapters};
use crate::instance::{self, Instance};
use crate::options::VulkanOptions;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::Entry;
use std::sync::{Mutex, PoisonError};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::properties::DeviceInfo;

/// The devices of a Vulkan loader, as a backend named `vulkan`.
///
/// Nothing is loaded before devices are asked for. The loader, and an instance of it, then stay for as long as the backend does, so
/// that a device keeps its index; what failed is tried again the next time.
pub struct VulkanBackend {
    options: VulkanOptions,
    /// A program's own loader.
    entry: Option<Entry>,
    /// An instance without validation and one with it, each when it was first needed.
    instances: Mutex<[Option<Arc<Instance>>; 2]>,
}

impl VulkanBackend {
    /// A backend over the system's loader, whose devices are used so.
    pub fn new(options: VulkanOptions) -> Self {
        Self { options, entry: None, instances: Mutex::default() }
    }

    /// A backend over a loader of the program's own.
    ///
    /// # Safety
    /// The functions the loader gives behave as the specification says, for as long as anything of the backend is used.
    pub unsafe fn with_entry(entry: Entry, options: VulkanOptions) -> Self {
        Self { entry: Some(entry), ..Self::new(options) }
    }

    /// What its devices are told.
    pub fn options(&self) -> &VulkanOptions {
        &self.options
    }

    /// The devices there are, best first.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`].
    pub(crate) fn infos(&self) -> Result<Vec<DeviceInfo>> {
        let adapters = adapters(&self.instance(self.options.validation)?)?;
        Ok(adapters.iter().zip(0..).map(|(adapter, index)| adapter.info(index, &self.options)).collect())
    }

    /// Makes a logical device of the device `index`.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`], [`Error::NoDevice`]; what the driver answers.
    pub(crate) fn device(&self, index: u32, options: &VulkanOptions) -> Result<Arc<Device>> {
        let instance = self.instance(options.validation)?;
        let adapters: Vec<Adapter> = adapters(&instance)?;
        let adapter = adapters.get(index as usize).ok_or_else(|| Error::NoDevice {
            device: DeviceId { backend: NAME, index },
            count: adapters.len() as u32,
        })?;
        Device::open(&instance, adapter, index, options)
    }

    fn instance(&self, validation: bool) -> Result<Arc<Instance>> {
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut instances[usize::from(validation)];
        if let Some(instance) = place {
            return Ok(instance.clone());
        }
        let entry = match &self.entry {
            Some(entry) => entry.clone(),
            None => instance::load()?,
        };
        Ok(place.insert(Instance::new(entry, validation)?).clone())
    }
}

impl Default for VulkanBackend {
    fn default() -> Self {
        Self::new(VulkanOptions::default())
    }
}

impl core::fmt::Debug for VulkanBackend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("VulkanBackend").field("options", &self.options).finish_non_exhaustive()
    }
}
