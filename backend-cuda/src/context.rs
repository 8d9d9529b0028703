//! The device's context as the one a thread uses: for as long as a call takes, so that other users of CUDA find theirs as it was.
//!
//! Somebody else may record streams into a graph meanwhile. While they do, the driver forbids every thread to take memory, give it back, wait
//! or ask, and spoils the recording of who is disturbed so, unless the thread says that it knows what it does. It does: nothing of ours depends
//! on what they record, nor the other way round. So a thread says so for as long as a call takes, and threads of streams and of
//! executors for good.

use crate::device::Device;
use crate::failure::status;
use core::cell::Cell;
use core::ffi::c_uint;
use core::ptr;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::is_runner;

std::thread_local! {
    /// Whether the thread has said for good that it knows what it does.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// The thread uses the device's context as long as this lives.
#[derive(Debug)]
pub(crate) struct Current<'a> {
    device: &'a Device,
    /// What the thread had said of recordings before, which is said again at the end.
    mode: Option<c_uint>,
}

impl Device {
    /// Makes the context current, in front of whichever the thread has. No recording of somebody else's forbids what is called then, or is
    /// disturbed by it.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] when somebody destroyed the context; what else the driver answers.
    pub(crate) fn enter(&self) -> Result<Current<'_>> {
        let mut current = self.enter_to_work()?;
        if !IS_OURS.get() {
            let mode = self.relax();
            match is_runner() {
                true => IS_OURS.set(mode.is_some()),
                false => current.mode = mode,
            }
        }
        Ok(current)
    }

    /// The same for calls that no recording forbids: handing work to streams that are not recorded, and recording events there.
    ///
    /// # Errors
    /// As for [`enter`](Self::enter).
    #[inline]
    pub(crate) fn enter_to_work(&self) -> Result<Current<'_>> {
        // SAFETY: the context is retained.
        match unsafe { (self.functions().cuCtxPushCurrent_v2)(self.context) } {
            status::SUCCESS => Ok(Current { device: self, mode: None }),
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
            return self.fault(Error::DeviceLost { cause });
        }
        self.failed("cuCtxPushCurrent_v2", code)
    }

    /// The thread is one of ours, and does nothing for anybody else: makes the context its current one for good.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn stay(&self) -> Result<()> {
        // SAFETY: the context is retained.
        let code = unsafe { (self.functions().cuCtxSetCurrent)(self.context) };
        self.check("cuCtxSetCurrent", code)?;
        IS_OURS.set(self.relax().is_some());
        Ok(())
    }

    /// Has recordings forbid nothing on this thread. What they did; `None` where that stays as it was.
    fn relax(&self) -> Option<c_uint> {
        const RELAXED: c_uint = 2;
        self.exchange_mode(RELAXED)
    }

    fn exchange_mode(&self, mut mode: c_uint) -> Option<c_uint> {
        let exchange = self.functions().cuThreadExchangeStreamCaptureMode?;
        // SAFETY: the place has a mode, and is for another.
        let code = unsafe { exchange(&raw mut mode) };
        self.note("cuThreadExchangeStreamCaptureMode", code);
        (code == status::SUCCESS).then_some(mode)
    }
}

impl Drop for Current<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            self.device.exchange_mode(mode);
        }
        let mut context = ptr::null_mut();
        // SAFETY: the place is for a handle; what was pushed last is this device's, since guards nest.
        let code = unsafe { (self.device.functions().cuCtxPopCurrent_v2)(&raw mut context) };
        self.device.note("cuCtxPopCurrent_v2", code);
    }
}
