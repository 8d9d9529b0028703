//! The backend: finds the devices of the system's loader, or of one that a program hands over.

use crate::NAME;
use crate::device::{Adapter, Device, adapters};
use crate::driver::VulkanDriver;
use crate::instance::{self, Instance};
use crate::options::VulkanOptions;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::Entry;
use std::sync::{Mutex, PoisonError};
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::properties::DeviceInfo;
use trunnion_runtime_core::server::Opened;

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

    /// Drives a logical device of its own of the device `index`, for a server that is not the one [`open`](Backend::open) makes.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`], [`Error::NoDevice`]; what the driver answers.
    pub fn driver(&self, index: u32, options: &VulkanOptions) -> Result<VulkanDriver> {
        VulkanDriver::new(self.device(index, options)?)
    }

    /// Makes a logical device of the device `index`.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`], [`Error::NoDevice`]; what the driver answers.
    pub(crate) fn device(&self, index: u32, options: &VulkanOptions) -> Result<Arc<Device>> {
        let instance = self.instance(options.validation)?;
        let adapters: Vec<Adapter> = adapters(&instance)?;
        let none = Error::NoDevice { device: DeviceId { backend: NAME, index }, count: adapters.len() as u32 };
        let adapter = adapters.get(index as usize).ok_or(none)?;
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

impl Backend for VulkanBackend {
    fn name(&self) -> BackendName {
        NAME
    }

    /// The devices there are, best first: discrete GPUs, integrated ones, virtual ones, others, processors.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`]: no loader, no driver, or no device that can be used, with the reason for each.
    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        let _inside = Inside::new();
        let adapters = adapters(&self.instance(self.options.validation)?)?;
        Ok(adapters.iter().zip(0..).map(|(adapter, index)| adapter.info(index, &self.options)).collect())
    }

    /// Starts a server on a logical device of its own. The options of the settings ([`VulkanOptions::set`]) come on top of those the backend
    /// was made with.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::BadOption`], [`Error::BackendUnavailable`], [`Error::NoDevice`]; what the driver answers.
    fn open(&self, index: u32, settings: &OpenSettings) -> Result<Opened> {
        let _inside = Inside::new();
        let options = self.options.clone().apply(&settings.options)?;
        Ok(trunnion_backend_core::open(self.driver(index, &options)?, settings))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig;
    use alloc::string::ToString;
    use ash::{StaticFn, vk};
    use core::ffi::{CStr, c_char};
    use trunnion_runtime_core::properties::DeviceKind;

    /// A loader that has nothing.
    unsafe extern "system" fn nothing(_: vk::Instance, _: *const c_char) -> vk::PFN_vkVoidFunction {
        None
    }

    /// A loader whose instance cannot be made.
    unsafe extern "system" fn refuses(_: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
        unsafe extern "system" fn create(
            _: *const vk::InstanceCreateInfo<'_>,
            _: *const vk::AllocationCallbacks<'_>,
            _: *mut vk::Instance,
        ) -> vk::Result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER
        }
        unsafe extern "system" fn extensions(
            _: *const c_char,
            count: *mut u32,
            _: *mut vk::ExtensionProperties,
        ) -> vk::Result {
            // SAFETY: the caller's place for a count.
            unsafe { *count = 0 };
            vk::Result::SUCCESS
        }
        unsafe extern "system" fn layers(count: *mut u32, _: *mut vk::LayerProperties) -> vk::Result {
            // SAFETY: the caller's place for a count.
            unsafe { *count = 0 };
            vk::Result::SUCCESS
        }
        unsafe extern "system" fn version(version: *mut u32) -> vk::Result {
            // SAFETY: the caller's place for a version.
            unsafe { *version = vk::API_VERSION_1_3 };
            vk::Result::SUCCESS
        }
        // SAFETY: the caller's text, which ends in a zero.
        let name = unsafe { CStr::from_ptr(name) };
        let pointer = match name.to_bytes() {
            b"vkCreateInstance" => create as *const (),
            b"vkEnumerateInstanceExtensionProperties" => extensions as *const (),
            b"vkEnumerateInstanceLayerProperties" => layers as *const (),
            b"vkEnumerateInstanceVersion" => version as *const (),
            _ => return None,
        };
        // SAFETY: a function of the signature that its name has.
        Some(unsafe { core::mem::transmute::<*const (), unsafe extern "system" fn()>(pointer) })
    }

    /// A loader of version 1.0, which has no function that says so.
    unsafe extern "system" fn old(instance: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
        // SAFETY: the caller's text, which ends in a zero.
        match unsafe { CStr::from_ptr(name) }.to_bytes() {
            b"vkEnumerateInstanceVersion" => None,
            // SAFETY: as for this function.
            _ => unsafe { refuses(instance, name) },
        }
    }

    fn why(loader: vk::PFN_vkGetInstanceProcAddr, options: VulkanOptions) -> alloc::string::String {
        // SAFETY: the loader answers as far as it is asked.
        let entry = unsafe { Entry::from_static_fn(StaticFn { get_instance_proc_addr: loader }) };
        // SAFETY: as above.
        let backend = unsafe { VulkanBackend::with_entry(entry, options.clone()) };
        let errors = [backend.enumerate().unwrap_err(), backend.device(0, &options).unwrap_err()];
        assert_eq!(errors[0], errors[1]);
        rig::unavailable(&errors[0]).unwrap().to_string()
    }

    #[test]
    fn a_loader_that_cannot_be_used_says_why() {
        let plain = VulkanOptions::default();
        assert_eq!(why(nothing, plain.clone()), "the Vulkan loader has no vkCreateInstance");
        assert_eq!(why(old, plain.clone()), "the Vulkan loader has version 1.0.0, 1.2.0 is needed");
        let refused = why(refuses, plain.clone());
        assert!(refused.contains("vkCreateInstance: ") && refused.contains("mesa-vulkan-drivers"), "{refused}");
        let layer = why(refuses, plain.validation(true));
        assert!(layer.contains("VK_LAYER_KHRONOS_validation") && layer.contains("vulkan-validationlayers"), "{layer}");
    }

    #[test]
    fn devices_are_listed_best_first_and_stay_where_they_are() {
        let backend = VulkanBackend::default();
        let Ok(infos) = backend.enumerate() else { return rig::each(&VulkanOptions::default(), |_| ()) };
        let rank = |kind| match kind {
            DeviceKind::DiscreteGpu => 0,
            DeviceKind::IntegratedGpu => 1,
            DeviceKind::VirtualGpu => 2,
            DeviceKind::Cpu => 4,
            _ => 3,
        };
        assert!(infos.windows(2).all(|pair| rank(pair[0].kind) <= rank(pair[1].kind)), "{infos:?}");
        assert_eq!(backend.enumerate().unwrap(), infos);
        for (info, index) in infos.iter().zip(0..) {
            assert_eq!(info.device, DeviceId { backend: NAME, index });
            let device = backend.device(index, &VulkanOptions::default()).unwrap();
            assert_eq!(device.properties.info.adapter, info.adapter);
        }
        let count = infos.len() as u32;
        let error = backend.device(count, &VulkanOptions::default()).map(|_| ()).unwrap_err();
        assert_eq!(error, Error::NoDevice { device: DeviceId { backend: NAME, index: count }, count });
    }

    #[test]
    fn the_loader_can_be_opened_again_and_again() {
        if !rig::alone("backend::tests::the_loader_can_be_opened_again_and_again") {
            return;
        }
        let first = VulkanBackend::default().enumerate();
        for _ in 0..20 {
            assert_eq!(VulkanBackend::default().enumerate(), first);
        }
    }
}
