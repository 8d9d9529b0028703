//! Where a shim's entry is found: a table of functions, one for each shim there can be at a time.
//!
//! `vkGetInstanceProcAddr` and the functions one calls before there is an instance are given no handle that would tell whose they are.
//! So they are compiled once a slot, and a slot holds a shim's state while the shim is there.

use core::ffi::{CStr, c_char};
use std::sync::{Mutex, OnceLock};

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use ash::vk;

use crate::functions::{self, instance};
use crate::shim::ShimError;
use crate::state::{State, locked};

/// How many shims there can be at a time.
pub(crate) const SLOTS: usize = 64;

static STATES: [Mutex<Option<Arc<State>>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];

macro_rules! entries {
    ($($slot:literal)*) => { [$(get_instance_proc_addr::<$slot>),*] };
}

static ENTRIES: [vk::PFN_vkGetInstanceProcAddr; SLOTS] = entries!(
     0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);

/// The loader, which stays: drivers do not all bear being unloaded.
pub(crate) fn loader() -> Result<&'static ash::Entry, String> {
    static LOADER: OnceLock<Result<ash::Entry, String>> = OnceLock::new();
    // SAFETY: the system's Vulkan loader, which is never unloaded.
    LOADER
        .get_or_init(|| unsafe { ash::Entry::load() }.map_err(|error| error.to_string()))
        .as_ref()
        .map_err(Clone::clone)
}

/// Takes a slot.
pub(crate) fn take(state: &Arc<State>) -> Result<usize, ShimError> {
    for (slot, held) in STATES.iter().enumerate() {
        let mut held = locked(held);
        if held.is_none() {
            *held = Some(Arc::clone(state));
            return Ok(slot);
        }
    }
    Err(ShimError::Full { limit: SLOTS })
}

/// Gives a slot back.
pub(crate) fn give_back(slot: usize) {
    *locked(&STATES[slot]) = None;
}

/// The entry of a slot.
pub(crate) fn entry(slot: usize) -> ash::Entry {
    let get_instance_proc_addr = ENTRIES[slot];
    // SAFETY: it behaves as `vkGetInstanceProcAddr` does.
    unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr }) }
}

fn state(slot: usize) -> Option<Arc<State>> {
    locked(&STATES[slot]).clone()
}

unsafe extern "system" fn get_instance_proc_addr<const SLOT: usize>(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller gives a name that ends in a zero, as Vulkan has it.
    let name = unsafe { CStr::from_ptr(name) };
    let own = match name.to_str().ok()? {
        // SAFETY: functions with the signatures of these names.
        "vkGetInstanceProcAddr" => functions::pointer!(PFN_vkGetInstanceProcAddr, get_instance_proc_addr::<SLOT>),
        "vkCreateInstance" => functions::pointer!(PFN_vkCreateInstance, create_instance::<SLOT>),
        "vkEnumerateInstanceVersion" => {
            functions::pointer!(PFN_vkEnumerateInstanceVersion, enumerate_instance_version::<SLOT>)
        }
        "vkEnumerateInstanceExtensionProperties" => functions::pointer!(
            PFN_vkEnumerateInstanceExtensionProperties,
            enumerate_instance_extension_properties::<SLOT>
        ),
        "vkEnumerateInstanceLayerProperties" => {
            functions::pointer!(PFN_vkEnumerateInstanceLayerProperties, enumerate_instance_layer_properties::<SLOT>)
        }
        other => return functions::of_instance(instance, other, name),
    };
    let lacks = state(SLOT)?.plan.lacks(name.to_str().ok()?);
    if lacks { None } else { own }
}

unsafe extern "system" fn create_instance<const SLOT: usize>(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Instance,
) -> vk::Result {
    let Some(state) = state(SLOT) else { return vk::Result::ERROR_INITIALIZATION_FAILED };
    // SAFETY: the caller's arguments are those of `vkCreateInstance`. So below.
    unsafe { instance::create(&state, info, allocator, out) }
}

unsafe extern "system" fn enumerate_instance_version<const SLOT: usize>(out: *mut u32) -> vk::Result {
    let Some(state) = state(SLOT) else { return vk::Result::ERROR_OUT_OF_HOST_MEMORY };
    // SAFETY: as above.
    unsafe { instance::version(&state, out) }
}

unsafe extern "system" fn enumerate_instance_extension_properties<const SLOT: usize>(
    layer: *const c_char,
    count: *mut u32,
    out: *mut vk::ExtensionProperties,
) -> vk::Result {
    let Some(state) = state(SLOT) else { return vk::Result::ERROR_OUT_OF_HOST_MEMORY };
    // SAFETY: as above.
    unsafe { instance::extensions(&state, layer, count, out) }
}

unsafe extern "system" fn enumerate_instance_layer_properties<const SLOT: usize>(
    count: *mut u32,
    out: *mut vk::LayerProperties,
) -> vk::Result {
    let Some(state) = state(SLOT) else { return vk::Result::ERROR_OUT_OF_HOST_MEMORY };
    // SAFETY: as above.
    unsafe { instance::layers(&state, count, out) }
}
