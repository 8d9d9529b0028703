//! Which devices there are, best first, and why a backend has none.

use crate::backend::Backend;
use crate::backends::backends;
use crate::error::{Error, Result};
use crate::properties::{DeviceInfo, DeviceKind};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The devices of every backend, best first: discrete GPUs, then integrated ones, virtual ones, anything else, CPUs; among devices of a
/// kind in the order of the backends. Starts none. A backend that is not available here is left out; [`discover`] says why.
///
/// Equivalent to: `cuDeviceGetCount`, `vkEnumeratePhysicalDevices`, `enumerate_adapters`, for all of them at once.
pub fn devices() -> Vec<DeviceInfo> {
    discover().devices
}

/// The devices of every backend, best first, and the backends that are not available, with why. Starts none.
pub fn discover() -> Discovery {
    Discovery::of(&backends())
}

/// What [`discover`] found. `Display` prints it as a table.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Discovery {
    /// The devices, best first.
    pub devices: Vec<DeviceInfo>,
    /// For each backend that is not available, an [`Error::BackendUnavailable`] that says why.
    pub unavailable: Vec<Error>,
}

impl Discovery {
    pub(crate) fn of(backends: &[Arc<dyn Backend>]) -> Self {
        let mut found = Self::default();
        for backend in backends {
            match enumerate(&**backend) {
                Ok(devices) => found.devices.extend(devices),
                Err(why) => found.unavailable.push(why),
            }
        }
        found.devices.sort_by_key(|device| rank(device.kind));
        found
    }
}

/// A backend's devices. What keeps it from having any names the backend.
pub(crate) fn enumerate(backend: &dyn Backend) -> Result<Vec<DeviceInfo>> {
    backend.enumerate().map_err(|error| match error {
        Error::BackendUnavailable { .. } => error,
        other => Error::BackendUnavailable { backend: backend.name(), why: other.to_string() },
    })
}

/// Lower is better.
pub(crate) fn rank(kind: DeviceKind) -> u8 {
    match kind {
        DeviceKind::DiscreteGpu => 0,
        DeviceKind::IntegratedGpu => 1,
        DeviceKind::VirtualGpu => 2,
        DeviceKind::Cpu => 4,
        _ => 3,
    }
}

fn kind_name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::DiscreteGpu => "discrete GPU",
        DeviceKind::IntegratedGpu => "integrated GPU",
        DeviceKind::VirtualGpu => "virtual GPU",
        DeviceKind::Cpu => "CPU",
        _ => "other",
    }
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEAD: [&str; 6] = ["device", "kind", "adapter", "driver", "api", "details"];
        let mut rows = alloc::vec![HEAD.map(String::from)];
        for device in &self.devices {
            let details: Vec<_> = device.details.iter().map(|(name, value)| alloc::format!("{name} {value}")).collect();
            rows.push([
                device.device.to_string(),
                kind_name(device.kind).to_string(),
                device.adapter.clone(),
                device.driver.clone(),
                device.api.clone(),
                details.join(", "),
            ]);
        }
        let widths =
            core::array::from_fn::<_, 6, _>(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
        for row in rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line.push_str(&alloc::format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        self.unavailable.iter().try_for_each(|why| writeln!(f, "{why}"))
    }
}
