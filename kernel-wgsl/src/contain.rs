//! A panic inside the compiler is an error of the kernel, never the end of the caller's thread.

use trunnion_runtime_core::error::Result;

/// Runs `compile`; its panic becomes [`Error::Panicked`]. Without `std` panics cannot be caught.
#[cfg(feature = "std")]
pub(crate) fn contain<R>(kernel: &str, compile: impl FnOnce() -> Result<R>) -> Result<R> {
    use alloc::string::String;
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;
    use trunnion_runtime_core::error::Error;
    catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| String::from(*text));
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::Panicked { what: alloc::format!("the WGSL compiler, reading kernel `{kernel}`,"), message })
    })
}

/// Runs `compile`.
#[cfg(not(feature = "std"))]
pub(crate) fn contain<R>(_: &str, compile: impl FnOnce() -> Result<R>) -> Result<R> {
    compile()
}
