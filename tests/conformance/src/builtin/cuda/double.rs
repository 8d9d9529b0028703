//! The double: a device of its own for each that a test opens, made late and made to fail as the test wants it, and what it reports.

use super::{DRIVER, is_for_another};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use trunnion_backend_cuda::{CudaBackend, CudaOptions};
use trunnion_conformance::{Refusal, Variant};
use trunnion_cuda_double::compilers::Compilers;
use trunnion_cuda_double::{ControlError, Device, Double, ReportKind};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::server::Opened;

/// The seed of pauses that every device makes before some of its work.
const DELAYS: &str = "CONFORMANCE_DELAYS";

/// Equivalent to: `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// What a device is good for nothing after. Equivalent to: `CUDA_ERROR_LAUNCH_FAILED`.
const LAUNCH_FAILED: u32 = 719;

/// The double's devices.
pub(super) struct OnDouble {
    double: Result<&'static Double, String>,
    state: Mutex<State>,
    /// The device that programs find in the process's table of backends.
    registered: OnceLock<u32>,
}

#[derive(Default)]
struct State {
    /// Devices that were opened and may be in use.
    used: Vec<Used>,
    complaints: Vec<String>,
}

struct Used {
    device: Device,
    /// Nothing can be given back to a device that is lost.
    is_lost: bool,
}

impl OnDouble {
    /// Loads the double, unless the process is for another driver.
    pub(super) fn new() -> Self {
        let double = match is_for_another() {
            true => Err(format!("{DRIVER} names another driver, and a process has one")),
            false => load(),
        };
        Self { double, state: Mutex::default(), registered: OnceLock::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn available(&self) -> Result<(), String> {
        self.double.clone()?;
        Compilers::load().map(drop).map_err(ToString::to_string)
    }

    pub(super) fn registered(&self) -> u32 {
        *self.registered.get_or_init(|| {
            let claimed = self.double.as_ref().ok().and_then(|double| double.claim_device().ok());
            claimed.map_or(0, |device| device.ordinal().unsigned_abs())
        })
    }

    /// Opens a device that nobody else has.
    pub(super) fn start(&self, variant: &Variant, mut settings: OpenSettings) -> Result<Opened, Refusal> {
        let double = self.double.clone().map_err(Refusal::Unavailable)?;
        let compilers = Compilers::load().map_err(|error| Refusal::Unavailable(error.to_string()))?;
        self.state().look();
        let refused = |error: ControlError| Refusal::Unavailable(format!("no device of the double: {error}"));
        let device = double.claim_device().map_err(refused)?;
        delay(&device, variant).map_err(refused)?;
        if variant.refuse_allocation.is_some() {
            // A page is then one call.
            settings.options.insert("vmm".to_string(), "false".to_string());
        }
        // The driver that is found is the double, which is loaded.
        let backend = CudaBackend::new(CudaOptions::default().compiler(&compilers.root));
        let opened = backend.open(device.ordinal().unsigned_abs(), &settings);
        self.state().used.push(Used { device, is_lost: variant.lose_after.is_some() });
        let opened = opened?;
        provoke(&device, variant).map_err(refused)?;
        Ok(opened)
    }

    /// What was reported of every device so far.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut state = self.state();
        state.look();
        state.complaints.clone()
    }
}

fn load() -> Result<&'static Double, String> {
    Double::open().map_err(ToString::to_string)
}

impl State {
    /// Takes what was reported, and lets go of devices that nobody holds any more.
    fn look(&mut self) {
        let Self { used, complaints } = self;
        used.retain(|Used { device, is_lost }| {
            // First, so that what is reported until then is seen.
            let is_held = device.is_retained().unwrap_or(true);
            let name = format!("cuda:{}", device.ordinal());
            let reports = device.take_reports().unwrap_or_default();
            let told = reports.iter().filter(|report| report.kind != ReportKind::Printed);
            complaints.extend(told.map(|report| format!("{name}: {report}")));
            if is_held {
                return true;
            }
            match device.memory_used() {
                Ok(0) => drop(device.release()),
                // It stays claimed: whoever took it next would miss that memory.
                Ok(_) if *is_lost => {}
                Ok(bytes) => complaints.push(format!("{name}: {bytes} bytes were never given back")),
                Err(error) => complaints.push(format!("{name}: {error}")),
            }
            false
        });
    }
}

/// When work of the device is done, and in which order.
fn delay(device: &Device, variant: &Variant) -> Result<(), ControlError> {
    let everywhere = std::env::var(DELAYS).ok().and_then(|seed| seed.parse().ok());
    if let Some(seed) = variant.reorder.or(everywhere) {
        // The seed 0 stands for no pauses.
        device.set_delays(seed.max(1))?;
    }
    match (variant.delay, variant.reorder) {
        (Some(delay), _) => device.set_lateness(delay),
        (None, Some(_)) => device.set_lateness(Duration::from_micros(100)),
        (None, None) => Ok(()),
    }
}

/// What is to go wrong, counted from when the device is open: what that takes is the backend's affair.
fn provoke(device: &Device, variant: &Variant) -> Result<(), ControlError> {
    if let Some(batches) = variant.lose_after {
        device.fail("cuEventRecord", batches + 1, LAUNCH_FAILED)?;
    }
    if let Some(nth) = variant.refuse_allocation {
        device.fail("cuMemAlloc_v2", nth, OUT_OF_MEMORY)?;
    }
    if let Some(nth) = variant.refuse_pin {
        device.fail("cuMemHostAlloc", nth, OUT_OF_MEMORY)?;
    }
    Ok(())
}
