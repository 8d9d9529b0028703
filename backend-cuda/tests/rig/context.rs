//! Contexts of devices, in which a test calls the driver itself, as a program of its own does.

use super::{done, raw};
use std::ptr;
use trunnion_cuda_double::Device;
use trunnion_cuda_raw::Handle;

/// A device's primary context, which is there as long as this.
pub struct Context {
    ordinal: i32,
    handle: Handle,
}

// SAFETY: a handle, which the double takes on any thread.
unsafe impl Send for Context {}

impl Context {
    pub fn of(device: &Device) -> Self {
        let (mut handle, ordinal) = (ptr::null_mut(), device.ordinal());
        // SAFETY: the place is for a handle.
        unsafe { done(raw().cuDevicePrimaryCtxRetain(&mut handle, ordinal)) };
        Self { ordinal, handle }
    }

    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Does something with the context.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        within(self.handle, work)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once.
        unsafe { done(raw().cuDevicePrimaryCtxRelease_v2(self.ordinal)) };
    }
}

/// Does something with a context that is there.
pub fn within<T>(context: Handle, work: impl FnOnce() -> T) -> T {
    // SAFETY: the context is there.
    unsafe { done(raw().cuCtxPushCurrent_v2(context)) };
    let made = work();
    let mut context = context;
    // SAFETY: the place is for a handle.
    unsafe { done(raw().cuCtxPopCurrent_v2(&mut context)) };
    made
}
