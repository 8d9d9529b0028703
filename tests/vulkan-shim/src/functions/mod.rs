//! The functions handed out in place of the loader's and the driver's.
//!
//! What they may assume is what Vulkan's valid usage gives them: pointers that are valid for what they point at, counts that are the
//! lengths of their arrays, chains of structures that end. Handles are looked up, and are the real ones of what is found; a handle that
//! is not found is answered without asking the driver. That is why their `unsafe` blocks are sound.

use core::ffi::{CStr, c_char, c_void};

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;

use crate::registry::{DEVICES, INSTANCES};
use crate::slots;
use crate::state::{DeviceState, State};

mod commands;
mod descriptors;
pub(crate) mod instance;
mod memory;
mod objects;
mod physical;
mod queues;
mod waits;

/// The address of a function, as `vkGetInstanceProcAddr` gives it; that it has the signature of its name is checked.
macro_rules! pointer {
    ($pfn:ident, $function:expr) => {{
        // SAFETY: only the type changes; who calls it casts it back to that of its name.
        Some(unsafe { core::mem::transmute::<ash::vk::$pfn, unsafe extern "system" fn()>($function) })
    }};
}
pub(crate) use pointer;

/// Functions of a device that are counted, fail as planned, and are handed on as they are.
macro_rules! hand_on {
    ($($name:literal $pfn:ident $table:ident $field:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        $(unsafe extern "system" fn $field(device: ash::vk::Device, $($arg: $type),*) $(-> $answer)? {
            match $crate::functions::enter(device, $name) {
                // SAFETY: the arguments are the caller's, the device is the one looked up.
                Ok(device) => unsafe { (device.raw.$table().$field)(device.handle(), $($arg),*) },
                Err(code) => $crate::functions::Answer::refused(code),
            }
        })*

        /// The functions of this module that are handed on as they are.
        fn handed_on(name: &str) -> ash::vk::PFN_vkVoidFunction {
            match name {
                $($name => $crate::functions::pointer!($pfn, $field),)*
                _ => None,
            }
        }
    };
}
pub(crate) use hand_on;

/// What a function answers that does nothing.
pub(crate) trait Answer {
    fn refused(code: vk::Result) -> Self;
}

impl Answer for vk::Result {
    fn refused(code: vk::Result) -> Self {
        code
    }
}

impl Answer for () {
    fn refused(_: vk::Result) -> Self {}
}

impl Answer for u64 {
    fn refused(_: vk::Result) -> Self {
        0
    }
}

/// The device behind a handle, and the call counted. `Err` is what the call answers instead.
fn enter(device: vk::Device, call: &'static str) -> Result<Arc<DeviceState>, vk::Result> {
    let device = DEVICES.find(device, call).ok_or(vk::Result::ERROR_UNKNOWN)?;
    device.enter(call)?;
    Ok(device)
}

/// The function of a name, if it is wrapped.
fn find(name: &str) -> vk::PFN_vkVoidFunction {
    instance::find(name)
        .or_else(|| physical::find(name))
        .or_else(|| memory::find(name))
        .or_else(|| objects::find(name))
        .or_else(|| descriptors::find(name))
        .or_else(|| commands::find(name))
        .or_else(|| queues::find(name))
        .or_else(|| waits::find(name))
}

/// Whether a function would go around the record. Such functions are not there.
fn goes_around(name: &str) -> bool {
    let name = name.trim_end_matches("KHR");
    matches!(
        name,
        "vkQueueSubmit2"
            | "vkCmdPipelineBarrier2"
            | "vkCmdCopyBuffer2"
            | "vkCmdWriteTimestamp2"
            | "vkCmdSetEvent2"
            | "vkCmdResetEvent2"
            | "vkCmdWaitEvents2"
            | "vkQueueBindSparse"
            | "vkMapMemory2"
            | "vkUnmapMemory2"
            | "vkGetDeviceBufferMemoryRequirements"
    )
}

/// What a name stands for, where the driver has `real` for it.
fn choose(state: &State, name: &str, real: vk::PFN_vkVoidFunction) -> vk::PFN_vkVoidFunction {
    let real = real?;
    if state.plan.lacks(name) || goes_around(name) {
        return None;
    }
    // A queue that the plan makes up must not reach the driver.
    let own_queues = state.plan.queues.is_some() && name.starts_with("vkQueue");
    find(name).or(if own_queues { None } else { Some(real) })
}

/// What `vkGetInstanceProcAddr` gives for a function that is not one of the five without a handle.
pub(crate) fn of_instance(instance: vk::Instance, name: &str, c_name: &CStr) -> vk::PFN_vkVoidFunction {
    let instance = INSTANCES.find(instance, "vkGetInstanceProcAddr")?;
    let loader = slots::loader().ok()?;
    // SAFETY: an instance that lives, and a name that ends in a zero.
    let real = unsafe { (loader.static_fn().get_instance_proc_addr)(instance.raw.handle(), c_name.as_ptr()) };
    choose(&instance.state, name, real)
}

/// `vkGetDeviceProcAddr`.
unsafe extern "system" fn get_device_proc_addr(device: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    let device = DEVICES.find(device, "vkGetDeviceProcAddr")?;
    // SAFETY: a device that lives, and a name that ends in a zero.
    let (real, name) = unsafe { ((device.get_proc_addr)(device.handle(), name), CStr::from_ptr(name)) };
    choose(&device.state, name.to_str().ok()?, real)
}

/// Answers a question that is asked twice, for the count and for the rows.
unsafe fn give<T: Copy>(rows: &[T], count: *mut u32, out: *mut T) -> vk::Result {
    // SAFETY: `out` is null or has `*count` places.
    unsafe {
        if out.is_null() {
            *count = rows.len() as u32;
            return vk::Result::SUCCESS;
        }
        let given = rows.len().min(*count as usize);
        out.copy_from_nonoverlapping(rows.as_ptr(), given);
        *count = given as u32;
        if given < rows.len() { vk::Result::INCOMPLETE } else { vk::Result::SUCCESS }
    }
}

/// An array that a caller gives as a pointer and a count.
unsafe fn array<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the function's caller promises.
    unsafe { core::slice::from_raw_parts(first, count as usize) }
}

/// Names that a caller gives as an array of C strings.
unsafe fn names(first: *const *const c_char, count: u32) -> Vec<String> {
    // SAFETY: as the function's caller promises.
    let names = unsafe { array(first, count) };
    // SAFETY: each ends in a zero.
    names.iter().map(|&name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()).collect()
}

/// Visits the structures of a chain.
unsafe fn each_in_chain(first: *const c_void, mut visit: impl FnMut(vk::StructureType, *mut c_void)) {
    let mut next = first.cast::<vk::BaseInStructure<'_>>();
    while !next.is_null() {
        // SAFETY: every structure in a chain begins with its type and the next one's address.
        let (kind, after) = unsafe { ((*next).s_type, (*next).p_next) };
        visit(kind, next.cast_mut().cast());
        next = after.cast();
    }
}

/// Finds a structure in a chain.
unsafe fn in_chain<T: vk::TaggedStructure>(first: *const c_void) -> Option<*const T> {
    let mut found = None;
    // SAFETY: as the function's caller promises.
    unsafe {
        each_in_chain(first, |kind, at| {
            if kind == T::STRUCTURE_TYPE && found.is_none() {
                found = Some(at.cast_const().cast());
            }
        });
    }
    found
}
