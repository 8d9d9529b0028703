//! The device's context as the one a thread uses: for as long as a call takes, so that other users of CUDA find theirs as it was.

use crate::device::Device;
use crate::failure::status;
use core::ptr;
use trunnion_runtime_core::error::{Error, Result};

/// The thread uses the device's context as long as this lives.
#[derive(Debug)]
pub(crate) struct Current<'a>(&'a Device);

impl Device {
    /// Makes the context current, in front of whichever the thread has.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] when somebody destroyed the context; what else the driver answers.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Current<'_>> {
        // SAFETY: the context is retained.
        match unsafe { (self.functions().cuCtxPushCurrent_v2)(self.context) } {
            status::SUCCESS => Ok(Current(self)),
            code => Err(self.not_entered(code)),
        }
    }

    #[cold]
    fn not_entered(&self, code: u32) -> Error {
        const INVALID_CONTEXT: u32 = 201;
        if code == INVALID_CONTEXT {
            let cause = alloc::format!(
                "cuCtxPushCurrent_v2: the device's primary context is gone: {}",
                self.functions().words(code)
            );
            return self.loss.note(Error::DeviceLost { cause });
        }
        self.failed("cuCtxPushCurrent_v2", code)
    }
}

impl Drop for Current<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: the place is for a handle; what was pushed last is this device's, since guards nest.
        let code = unsafe { (self.0.functions().cuCtxPopCurrent_v2)(&raw mut context) };
        self.0.note("cuCtxPopCurrent_v2", code);
    }
}
