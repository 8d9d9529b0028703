//! Panics end where they began: a kernel that panics is a failure of its launch, never the end of a thread of the pool.

use alloc::string::String;

/// Runs `f`; its panic's message when it panics. Without `std` panics cannot be caught.
#[cfg(feature = "std")]
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| String::from(*text));
        let message = text
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a value that is no text".into());
        // A payload may panic when it is dropped; then it is leaked.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            core::mem::forget(second);
        }
        message
    })
}

/// Runs `f`.
#[cfg(not(feature = "std"))]
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    Ok(f())
}
