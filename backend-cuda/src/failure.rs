//! What the driver's statuses are as errors.

use crate::NAME;
use crate::functions::Functions;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::error::{Error, OutOfMemory};

/// Statuses that mean something here. Equivalent to: `CUresult`.
pub(crate) mod status {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const DEINITIALIZED: u32 = 4;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_IMAGE: u32 = 200;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const JIT_COMPILER_NOT_FOUND: u32 = 221;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const JIT_COMPILATION_DISABLED: u32 = 223;
    pub(crate) const UNSUPPORTED_DEVSIDE_SYNC: u32 = 225;
    pub(crate) const INVALID_SOURCE: u32 = 300;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
}

/// Whether a status says that the context's work died, so that every call after it fails too, or that there is no context any more.
///
/// `CUDA_ERROR_ECC_UNCORRECTABLE`, `NVLINK_UNCORRECTABLE`, `ILLEGAL_ADDRESS`, `LAUNCH_TIMEOUT`, `LAUNCH_INCOMPATIBLE_TEXTURING`,
/// `CONTEXT_IS_DESTROYED`, `ASSERT`, `HARDWARE_STACK_ERROR` to `LAUNCH_FAILED`, and `DEINITIALIZED`.
pub(crate) const fn is_loss(status: u32) -> bool {
    matches!(status, status::DEINITIALIZED | 214 | 220 | 700 | 702 | 703 | 709 | 710 | 714..=719)
}

/// The error of a call that failed: work that died is [`Error::DeviceLost`], memory that ran out [`Error::OutOfMemory`], where no size is
/// known; everything else is [`Error::Driver`]. Each names the call.
pub(crate) fn failed(functions: &Functions, call: &str, status: u32) -> Error {
    let message = functions.words(status);
    match status {
        status if is_loss(status) => Error::DeviceLost { cause: format!("{call}: {message}") },
        status::OUT_OF_MEMORY => out_of_memory(0, format!("{call}: {message}")),
        _ => Error::Driver { call: call.to_string(), code: i64::from(status), message },
    }
}

fn out_of_memory(requested: u64, driver: String) -> Error {
    Error::OutOfMemory(Box::new(OutOfMemory { requested, driver: Some(driver), ..OutOfMemory::default() }))
}

/// The refusal of a call that was to give memory of `size` bytes, and failed with this error.
pub(crate) fn refused(size: u64, error: &Error) -> DriverRefusal {
    let out_of_memory = matches!(error, Error::OutOfMemory(_));
    let message = match error {
        Error::OutOfMemory(short) => format!("{size} bytes: {}", short.driver.as_deref().unwrap_or("out of memory")),
        _ => format!("{size} bytes: {error}"),
    };
    DriverRefusal { message, out_of_memory }
}

/// The error for a driver that cannot be used.
pub(crate) fn unavailable(why: impl Into<String>) -> Error {
    Error::BackendUnavailable { backend: NAME, why: why.into() }
}
