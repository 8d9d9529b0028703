//! What the driver's result codes are as errors.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use ash::vk;
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::error::{Error, OutOfMemory};

/// The error of a call that failed: a lost device is [`Error::DeviceLost`], memory that ran out [`Error::OutOfMemory`], where no size is known;
/// everything else is [`Error::Driver`]. Each names the call.
pub(crate) fn failed(call: &str, result: vk::Result) -> Error {
    match result {
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost { cause: format!("{call}: {result}") },
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            out_of_memory(0, format!("{call}: {result}"))
        }
        _ => Error::Driver { call: call.to_string(), code: i64::from(result.as_raw()), message: result.to_string() },
    }
}

fn out_of_memory(requested: u64, driver: String) -> Error {
    Error::OutOfMemory(Box::new(OutOfMemory { requested, driver: Some(driver), ..OutOfMemory::default() }))
}

/// The error of a refusal of `size` bytes.
pub(crate) fn refusal(size: u64, refused: DriverRefusal) -> Error {
    match refused.out_of_memory {
        true => out_of_memory(size, refused.message),
        false => Error::Driver { call: "allocate".to_string(), code: 0, message: refused.message },
    }
}

/// The refusal of a call that was to give memory of `size` bytes.
pub(crate) fn refused(call: &str, size: u64, result: vk::Result) -> DriverRefusal {
    let out_of_memory = matches!(
        result,
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            | vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_TOO_MANY_OBJECTS
            | vk::Result::ERROR_MEMORY_MAP_FAILED
    );
    let message = format!("{call}, {size} bytes: {result} ({})", result.as_raw());
    DriverRefusal { message, out_of_memory }
}
