//! The loader and the instance: opened when first asked for, with a reason where there is none.

use crate::NAME;
use crate::validation;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::{Entry, ext, khr, vk};
use core::ffi::CStr;
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::error::{Error, Result};

/// The oldest version of the API that is enough.
pub(crate) const NEEDED: u32 = vk::API_VERSION_1_2;

/// The newest version of the API whose parts are used where they are offered.
const KNOWN: u32 = vk::API_VERSION_1_3;

/// What is asked of a loader before there is an instance. The bindings put a function that ends the process in the place of one that is
/// missing, so each table is looked through before it is used.
const GLOBAL: [&CStr; 3] =
    [c"vkCreateInstance", c"vkEnumerateInstanceExtensionProperties", c"vkEnumerateInstanceLayerProperties"];

/// What is asked of an instance.
const OF_INSTANCE: [&CStr; 11] = [
    c"vkDestroyInstance",
    c"vkEnumeratePhysicalDevices",
    c"vkEnumerateDeviceExtensionProperties",
    c"vkGetPhysicalDeviceProperties",
    c"vkGetPhysicalDeviceProperties2",
    c"vkGetPhysicalDeviceFeatures2",
    c"vkGetPhysicalDeviceMemoryProperties",
    c"vkGetPhysicalDeviceMemoryProperties2",
    c"vkGetPhysicalDeviceQueueFamilyProperties",
    c"vkCreateDevice",
    c"vkGetDeviceProcAddr",
];

/// A `VkInstance` with the loader it came from, destroyed when nobody uses it any more.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    /// The version of the API that is used: what the loader has, at most what is known here.
    pub(crate) api: u32,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    // Held so that the library stays loaded; after the others, which call into it.
    pub(crate) entry: Entry,
}

/// The process's loader.
///
/// # Errors
/// [`Error::BackendUnavailable`] with what the system said.
pub(crate) fn load() -> Result<Entry> {
    // SAFETY: the library is the system's Vulkan loader, whose initialisation any program that uses Vulkan relies on; whoever calls a
    // function of it holds the entry.
    unsafe { Entry::load() }
        .map_err(|error| unavailable(format!("there is no Vulkan loader (Debian: libvulkan1): {error}")))
}

pub(crate) fn unavailable(why: String) -> Error {
    Error::BackendUnavailable { backend: NAME, why }
}

/// A version as it is written: `1.3.239`.
pub(crate) fn version(raw: u32) -> String {
    let (major, minor, patch) = (vk::api_version_major(raw), vk::api_version_minor(raw), vk::api_version_patch(raw));
    format!("{major}.{minor}.{patch}")
}

impl Instance {
    /// An instance of this loader, checked by the validation layer or not.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`]: the loader is too old, broken, or has no driver; the layer is not installed.
    pub(crate) fn new(entry: Entry, validation: bool) -> Result<Arc<Self>> {
        let missing = |name: &&CStr| !has(&entry, vk::Instance::null(), name);
        if let Some(name) = GLOBAL.iter().find(|name| missing(name)) {
            return Err(unavailable(format!("the Vulkan loader has no {}", name.to_string_lossy())));
        }
        // SAFETY: the function is looked up by the call itself.
        let offered = unsafe { entry.try_enumerate_instance_version() };
        let offered = offered.map_err(|result| unsuccessful("vkEnumerateInstanceVersion", result))?;
        // A loader without that function is of version 1.0.
        let offered = offered.unwrap_or(vk::API_VERSION_1_0);
        if offered < NEEDED {
            let (offered, needed) = (version(offered), version(NEEDED));
            return Err(unavailable(format!("the Vulkan loader has version {offered}, {needed} is needed")));
        }
        let api = offered.min(KNOWN);

        let extensions = Extensions::of(&entry, validation)?;
        let application = vk::ApplicationInfo::default().engine_name(c"trunnion").api_version(api);
        let layers = if validation { alloc::vec![validation::LAYER.as_ptr()] } else { Vec::new() };
        let names: Vec<_> = extensions.names.iter().map(|name| name.as_ptr()).collect();
        let mut info = vk::InstanceCreateInfo::default()
            .flags(extensions.flags)
            .application_info(&application)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&names);
        // Here too, so that what is wrong with the creation of the instance itself is told.
        let mut messenger = validation::messenger();
        if validation {
            info = info.push_next(&mut messenger);
        }
        // SAFETY: the description is valid, and the names are those that were offered.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|result| {
            let hint = match result {
                vk::Result::ERROR_INCOMPATIBLE_DRIVER => "; is a driver installed (Debian: mesa-vulkan-drivers)?",
                _ => "",
            };
            unavailable(format!("vkCreateInstance: {result} ({}){hint}", result.as_raw()))
        })?;
        if let Some(name) = OF_INSTANCE.iter().find(|name| !has(&entry, raw.handle(), name)) {
            if *name != OF_INSTANCE[0] {
                // SAFETY: the instance is new, and the function is there.
                unsafe { raw.destroy_instance(None) };
            }
            return Err(unavailable(format!("the Vulkan instance has no {}", name.to_string_lossy())));
        }
        let mut made = Self { raw, api, messenger: None, entry };
        if validation {
            made.listen()?;
        }
        Ok(Arc::new(made))
    }

    fn listen(&mut self) -> Result<()> {
        let debug = ext::debug_utils::Instance::new(&self.entry, &self.raw);
        // SAFETY: the extension is enabled, and the callback is a function of this crate that keeps no state in the instance.
        let messenger = unsafe { debug.create_debug_utils_messenger(&validation::messenger(), None) }
            .map_err(|result| unsuccessful("vkCreateDebugUtilsMessengerEXT", result))?;
        self.messenger = Some((debug, messenger));
        Ok(())
    }

    /// The physical devices, in the loader's order.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`].
    pub(crate) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>> {
        // SAFETY: the instance is alive.
        unsafe { self.raw.enumerate_physical_devices() }
            .map_err(|result| unsuccessful("vkEnumeratePhysicalDevices", result))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _inside = Inside::new();
        if let Some((debug, messenger)) = self.messenger.take() {
            // SAFETY: made by this instance, and used by nobody else.
            unsafe { debug.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: whatever was made from the instance holds it, so nothing is left of it.
        unsafe { self.raw.destroy_instance(None) };
    }
}

impl core::fmt::Debug for Instance {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Instance").field("api", &version(self.api)).finish_non_exhaustive()
    }
}

fn unsuccessful(call: &str, result: vk::Result) -> Error {
    unavailable(format!("{call}: {result} ({})", result.as_raw()))
}

/// Whether there is a function, of an instance or before there is one.
fn has(entry: &Entry, instance: vk::Instance, name: &CStr) -> bool {
    // SAFETY: the name ends in a zero, and the instance is none or alive.
    unsafe { (entry.static_fn().get_instance_proc_addr)(instance, name.as_ptr()) }.is_some()
}

/// The extensions an instance is made with.
struct Extensions {
    names: Vec<&'static CStr>,
    flags: vk::InstanceCreateFlags,
}

impl Extensions {
    fn of(entry: &Entry, validation: bool) -> Result<Self> {
        let mut offered = list(entry, None)?;
        if validation {
            // SAFETY: the function is there.
            let layers = unsafe { entry.enumerate_instance_layer_properties() }
                .map_err(|result| unsuccessful("vkEnumerateInstanceLayerProperties", result))?;
            if !layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(validation::LAYER)) {
                let layer = validation::LAYER.to_string_lossy();
                let why = format!("option `validation`: {layer} is not installed (Debian: vulkan-validationlayers)");
                return Err(unavailable(why));
            }
            offered.extend(list(entry, Some(validation::LAYER))?);
        }
        let has = |name: &CStr| offered.iter().any(|offered| offered.extension_name_as_c_str() == Ok(name));
        let mut chosen = Self { names: Vec::new(), flags: vk::InstanceCreateFlags::empty() };
        if validation {
            if !has(ext::debug_utils::NAME) {
                let name = ext::debug_utils::NAME.to_string_lossy();
                return Err(unavailable(format!("option `validation`: neither loader nor layer has {name}")));
            }
            chosen.names.push(ext::debug_utils::NAME);
        }
        // Without it the loader hides drivers that sit on another API, such as Metal.
        if has(khr::portability_enumeration::NAME) {
            chosen.names.push(khr::portability_enumeration::NAME);
            chosen.flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        Ok(chosen)
    }
}

fn list(entry: &Entry, layer: Option<&CStr>) -> Result<Vec<vk::ExtensionProperties>> {
    // SAFETY: the function is there.
    unsafe { entry.enumerate_instance_extension_properties(layer) }
        .map_err(|result| unsuccessful("vkEnumerateInstanceExtensionProperties", result))
}
