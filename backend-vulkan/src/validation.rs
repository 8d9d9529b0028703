//! What the validation layer says: logged as it comes, errors kept for the process.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ash::vk;
use core::ffi::{CStr, c_void};
use std::panic;
use std::sync::{Mutex, PoisonError};

/// The layer's name.
pub(crate) const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// The most messages that are kept: a program that makes an error makes it again and again.
const MOST: usize = 1000;

static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the validation layer called an error since the process began, on any device opened with option `validation`: the first 1,000. A
/// correct program has none.
pub fn validation_messages() -> Vec<String> {
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// How a messenger is made that logs and keeps.
pub(crate) fn messenger() -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Kind};
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::ERROR | Severity::WARNING)
        .message_type(Kind::GENERAL | Kind::VALIDATION | Kind::PERFORMANCE)
        .pfn_user_callback(Some(receive))
}

/// Called by the layer, on the thread whose call it speaks of.
unsafe extern "system" fn receive(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer hands over a message that lives as long as this call.
    let message = unsafe { data.as_ref().and_then(|data| data.message_as_c_str()) };
    let message = message.map_or(Cow::Borrowed("no text"), CStr::to_string_lossy);
    // A logger of the program's may panic, which must not unwind into the layer.
    let _ = panic::catch_unwind(|| keep(severity, kind, &message));
    vk::FALSE
}

fn keep(severity: vk::DebugUtilsMessageSeverityFlagsEXT, kind: vk::DebugUtilsMessageTypeFlagsEXT, message: &str) {
    if !severity.contains(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR) {
        return log::warn!("vulkan: {message}");
    }
    // The loader reports drivers it cannot load as errors of kind general: no fault of the program.
    if kind.contains(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION) {
        let mut messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < MOST {
            messages.push(message.to_string());
        }
    }
    log::error!("vulkan: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::VulkanBackend;
    use crate::options::VulkanOptions;
    use crate::rig;
    use std::eprintln;

    #[test]
    fn a_deliberate_error_is_kept_with_what_the_layer_says_of_it() {
        if !rig::alone("validation::tests::a_deliberate_error_is_kept_with_what_the_layer_says_of_it") {
            return;
        }
        let options = VulkanOptions::default().validation(true);
        let device = match VulkanBackend::default().device(0, &options) {
            Ok(device) => device,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        assert_eq!(validation_messages(), [""; 0]);
        // A use, and no bytes.
        let info = vk::BufferCreateInfo::default().size(0).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
        // SAFETY: the description is wrong, which the layer says before the driver sees it; drivers give an empty buffer or an error.
        unsafe {
            if let Ok(buffer) = device.raw.create_buffer(&info, None) {
                device.raw.destroy_buffer(buffer, None);
            }
        }
        let messages = validation_messages();
        assert!(messages.iter().any(|message| message.contains("VUID-VkBufferCreateInfo-size-00912")), "{messages:?}");
    }

    #[test]
    fn only_what_the_layer_calls_an_error_of_the_program_is_kept() {
        if !rig::alone("validation::tests::only_what_the_layer_calls_an_error_of_the_program_is_kept") {
            return;
        }
        use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Kind};
        keep(Severity::WARNING, Kind::VALIDATION, "a warning");
        keep(Severity::ERROR, Kind::GENERAL, "a driver that is not there");
        (0..MOST + 5).for_each(|_| keep(Severity::ERROR, Kind::VALIDATION, "an error"));
        assert_eq!(validation_messages(), ["an error"; MOST]);
    }
}
