//! The first device of a real driver, which the environment names: as it is, with limits lowered.

use super::{DRIVER, is_for_another};
use std::sync::OnceLock;
use trunnion_backend_cuda::{CudaBackend, CudaOptions};
use trunnion_conformance::{Refusal, Variant};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::server::Opened;

/// How the driver of a device that is no device is called.
const DOUBLE: &str = "double of";

/// A real device.
pub(super) struct OnGpu {
    backend: CudaBackend,
    found: OnceLock<Result<(), String>>,
}

impl OnGpu {
    /// Looks for nothing yet.
    pub(super) fn new() -> Self {
        Self { backend: CudaBackend::new(CudaOptions::default()), found: OnceLock::new() }
    }

    pub(super) fn available(&self) -> Result<(), String> {
        self.found.get_or_init(|| self.look()).clone()
    }

    fn look(&self) -> Result<(), String> {
        if !is_for_another() {
            return Err(format!("{DRIVER} names no other driver than the double"));
        }
        let devices = self.backend.enumerate().map_err(|error| error.to_string())?;
        match devices.first() {
            Some(device) if device.driver.starts_with(DOUBLE) => Err(format!("{DRIVER} names the double")),
            Some(_) => Ok(()),
            None => Err("the driver has no device".to_string()),
        }
    }

    pub(super) fn start(&self, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal> {
        self.available().map_err(Refusal::Unavailable)?;
        let Variant { delay, reorder, lose_after, refuse_allocation, refuse_pin, .. } = variant;
        let [lose, allocation, pin] = [lose_after, refuse_allocation, refuse_pin].map(Option::is_some);
        if delay.is_some() || reorder.is_some() || lose || allocation || pin {
            return Err(Refusal::Unavailable("only the double is late and fails when a test wants it".to_string()));
        }
        Ok(self.backend.open(0, settings)?)
    }
}
