//! Which kernels are launched, and which of them had to be compiled.

use super::Client;
use crate::error::Result;
use crate::kernel::{LaunchRecord, LaunchedKernel};
use crate::server::CompileStatistics;
use crate::service::Service;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

impl Client {
    /// Records the launches of this device, by whichever client, stream and thread, until the recorder ends. Several may be open; while
    /// none is, launches cost nothing more.
    ///
    /// ```no_run
    /// use trunnion_runtime_core::client::Client;
    /// use trunnion_runtime_core::error::Result;
    ///
    /// /// Whether a step, once warm, compiles nothing any more.
    /// fn is_warm(client: &Client, step: impl Fn(&Client) -> Result<()>) -> Result<bool> {
    ///     step(client)?;
    ///     let recorder = client.record_launches()?;
    ///     step(client)?;
    ///     let record = recorder.finish()?;
    ///     for kernel in &record.kernels {
    ///         println!("{} launches of {}", kernel.launches, kernel.name);
    ///     }
    ///     Ok(record.compilation.compiled + record.compilation.from_disk == 0)
    /// }
    /// ```
    ///
    /// A launch that was refused, and one of an empty grid, is none.
    ///
    /// # Errors
    /// The device's fault.
    pub fn record_launches(&self) -> Result<LaunchRecorder> {
        let before = Arc::new(spin::Once::new());
        let told = before.clone();
        self.service.submit(move |core, _| {
            told.call_once(|| core.server.compile_statistics());
        })?;
        Ok(LaunchRecorder { number: self.service.launches.start_recording(), service: self.service.clone(), before })
    }
}

/// Records the launches of a device until it is finished or dropped.
#[must_use = "the recording ends when this is dropped"]
pub struct LaunchRecorder {
    service: Arc<Service>,
    number: u64,
    /// What the cache of compiled code had done when the recording began.
    before: Arc<spin::Once<CompileStatistics>>,
}

impl LaunchRecorder {
    /// The kernels launched so far, in the order of their first launches.
    pub fn kernels(&self) -> Vec<LaunchedKernel> {
        self.service.launches.recorded(self.number)
    }

    /// Ends the recording. Waits until the launches in it have had their turn, so that what was compiled for them is counted, not until
    /// they have run.
    ///
    /// # Errors
    /// The device's fault, [`Error::Timeout`](crate::error::Error::Timeout).
    pub fn finish(self) -> Result<LaunchRecord> {
        let kernels = self.service.launches.end_recording(self.number);
        let after = self.service.call("finish of a launch recorder", |core, _| core.server.compile_statistics())?;
        // It was told in its turn, before the call above had its own.
        let compilation = self.before.get().map(|before| after.since(before)).unwrap_or_default();
        Ok(LaunchRecord { kernels, compilation })
    }
}

impl Drop for LaunchRecorder {
    fn drop(&mut self) {
        self.service.launches.end_recording(self.number);
    }
}

impl fmt::Debug for LaunchRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchRecorder({} of {})", self.number, self.service.id)
    }
}
