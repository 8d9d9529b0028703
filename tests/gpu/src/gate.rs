//! A stream that stands still behind some work until it is let go on.

use crate::assumption::{Answer, is};
use crate::device::Device;
use alloc::sync::Arc;
use core::ffi::c_void;
use core::time::Duration;
use std::sync::{Condvar, Mutex, PoisonError};
use trunnion_cuda_raw::{Address, Driver, Handle};

/// The longest it stands still: what was kept by it goes on then, and is found to have been kept. Far longer than what is asked meanwhile takes
/// on a busy machine, and well within what a question may take.
const PATIENCE: Duration = Duration::from_secs(8);

type State = (Mutex<bool>, Condvar);

/// A stream that stands still.
pub(crate) struct Gate {
    driver: &'static Driver,
    stream: Handle,
    state: Arc<State>,
}

unsafe extern "C" fn stand(state: *mut c_void) {
    // SAFETY: what the stream was given, once.
    let state = unsafe { Arc::from_raw(state.cast_const().cast::<State>()) };
    let is_open = state.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(state.1.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open));
}

impl Gate {
    /// A stream that keeps a kernel on the word at an address busy for a while, and stands still behind it.
    pub(crate) fn behind_work(device: &Device, address: Address) -> Result<Self, String> {
        let (driver, stream, state) = (device.driver, device.stream(false)?, Arc::<State>::default());
        device.busy(stream, address)?;
        let given = Arc::into_raw(state.clone()).cast_mut().cast();
        // SAFETY: the function takes what it is given, and calls no function of the driver.
        device.must("cuLaunchHostFunc", unsafe { driver.cuLaunchHostFunc(stream, Some(stand), given) })?;
        Ok(Self { driver, stream, state })
    }

    /// That a call came back while the stream stood still.
    pub(crate) fn stands(&self, call: &str) -> Answer {
        // SAFETY: the stream was made above.
        is(
            &format!("{call} came back before other work ended"),
            unsafe { self.driver.cuStreamQuery(self.stream) } == 600,
        )
    }

    /// Lets the stream go on, and gives what it came to.
    pub(crate) fn end(self) -> u32 {
        self.open();
        // SAFETY: the stream was made above.
        unsafe { self.driver.cuStreamSynchronize(self.stream) }
    }

    /// Lets the stream go on.
    pub(crate) fn open(&self) {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
