//! Panics end where they began: with `std` they are caught and become a message; without it there is nothing to catch.

use alloc::string::String;

/// What a panic left behind.
pub(crate) struct Panic {
    #[cfg(feature = "std")]
    payload: alloc::boxed::Box<dyn core::any::Any + Send>,
    #[cfg(not(feature = "std"))]
    never: core::convert::Infallible,
}

/// Runs `run`; a panic inside becomes an `Err`.
#[inline]
pub(crate) fn contain<R>(run: impl FnOnce() -> R) -> Result<R, Panic> {
    #[cfg(feature = "std")]
    {
        // What a panic leaves half done is the resident's to judge: it is told by `panicked`.
        std::panic::catch_unwind(core::panic::AssertUnwindSafe(run)).map_err(|payload| Panic { payload })
    }
    #[cfg(not(feature = "std"))]
    {
        Ok(run())
    }
}

/// Drops each of these, which are others' values: a panic in that is logged, and keeps nobody from what comes after.
pub(crate) fn let_go<T>(values: impl IntoIterator<Item = T>) {
    for value in values {
        if let Err(panic) = contain(move || drop(value)) {
            log::error!("something panicked as it was dropped: {}", panic.message());
            panic.discard();
        }
    }
}

impl Panic {
    pub(crate) fn message(&self) -> String {
        #[cfg(feature = "std")]
        {
            if let Some(text) = self.payload.downcast_ref::<&str>() {
                return String::from(*text);
            }
            if let Some(text) = self.payload.downcast_ref::<String>() {
                return text.clone();
            }
            String::from("a panic without a message")
        }
        #[cfg(not(feature = "std"))]
        match self.never {}
    }

    /// Goes on unwinding with the same payload.
    pub(super) fn resume(self) -> ! {
        #[cfg(feature = "std")]
        {
            std::panic::resume_unwind(self.payload)
        }
        #[cfg(not(feature = "std"))]
        match self.never {}
    }

    /// Drops the payload, whose own drop may panic again.
    pub(crate) fn discard(self) {
        #[cfg(feature = "std")]
        if let Err(again) = contain(move || drop(self.payload)) {
            core::mem::forget(again);
        }
    }
}
