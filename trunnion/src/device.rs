//! Which device a program asks for, as text and as a value.

use crate::errors::ParseDeviceError;
use crate::id::DeviceId;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// Which device a program asks for.
///
/// In text: `host` is the best device of the backend `host`, `host:1` the one with index 1, `vulkan:llvmpipe` the first whose adapter's
/// name contains `llvmpipe`. Neither names of backends nor of adapters distinguish capitals.
///
/// ```
/// use trunnion::Device;
/// let device = Device::parse("host:1")?;
/// assert_eq!(device, Device::index("host", 1));
/// assert_eq!(device.to_string(), "host:1");
/// # Ok::<(), trunnion::ParseDeviceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    backend: String,
    which: Which,
}

/// Which of a backend's devices.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// The best: a discrete GPU before an integrated one, before a virtual one, before anything else, before a CPU.
    Best,
    /// The one with this index, from 0.
    Index(u32),
    /// The first whose adapter's name contains this.
    Named(String),
}

impl Device {
    /// The best device of a backend.
    pub fn best(backend: impl Into<String>) -> Self {
        Self { backend: backend.into(), which: Which::Best }
    }

    /// The device of a backend with this index, from 0.
    pub fn index(backend: impl Into<String>, index: u32) -> Self {
        Self { backend: backend.into(), which: Which::Index(index) }
    }

    /// The first device of a backend whose adapter's name contains `part`.
    pub fn named(backend: impl Into<String>, part: impl Into<String>) -> Self {
        Self { backend: backend.into(), which: Which::Named(part.into()) }
    }

    /// Reads `backend`, `backend:index` or `backend:part of the adapter's name`.
    ///
    /// # Errors
    /// [`ParseDeviceError`] when either part is empty, or an index is larger than `u32::MAX`.
    pub fn parse(text: &str) -> Result<Self, ParseDeviceError> {
        let refuse = || ParseDeviceError { text: text.to_string() };
        let (backend, which) = match text.split_once(':') {
            None => (text.trim(), Which::Best),
            Some((backend, which)) => match which.trim() {
                "" => return Err(refuse()),
                digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (backend.trim(), Which::Index(digits.parse().map_err(|_| refuse())?))
                }
                part => (backend.trim(), Which::Named(part.to_string())),
            },
        };
        if backend.is_empty() { Err(refuse()) } else { Ok(Self { backend: backend.to_string(), which }) }
    }

    /// The backend's name.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Which of its devices.
    pub fn which(&self) -> &Which {
        &self.which
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Which::Best => f.write_str(&self.backend),
            Which::Index(index) => write!(f, "{}:{index}", self.backend),
            Which::Named(part) => write!(f, "{}:{part}", self.backend),
        }
    }
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Device {
    type Error = ParseDeviceError;

    fn try_from(text: &str) -> Result<Self, ParseDeviceError> {
        Self::parse(text)
    }
}

impl TryFrom<&String> for Device {
    type Error = ParseDeviceError;

    fn try_from(text: &String) -> Result<Self, ParseDeviceError> {
        Self::parse(text)
    }
}

impl From<DeviceId> for Device {
    fn from(device: DeviceId) -> Self {
        Self::index(device.backend.as_str(), device.index)
    }
}

impl From<&Device> for Device {
    fn from(device: &Device) -> Self {
        device.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BackendName;

    #[test]
    fn a_device_is_a_backend_with_an_index_or_part_of_a_name() {
        for (text, device) in [
            ("host", Device::best("host")),
            (" host ", Device::best("host")),
            ("host:0", Device::index("host", 0)),
            ("host : 12", Device::index("host", 12)),
            ("host:4294967295", Device::index("host", u32::MAX)),
            ("vulkan:llvmpipe", Device::named("vulkan", "llvmpipe")),
            ("cuda:RTX 4090", Device::named("cuda", "RTX 4090")),
            ("cuda:4090x", Device::named("cuda", "4090x")),
            ("a:b:1", Device::named("a", "b:1")),
        ] {
            assert_eq!(Device::parse(text).unwrap(), device, "{text}");
            assert_eq!(Device::parse(&device.to_string()).unwrap(), device, "{text}");
        }
    }

    #[test]
    fn text_that_names_no_device_is_named_with_what_is_valid() {
        for text in ["", " ", ":", ":1", "host:", "host: ", "host:4294967296", "host:99999999999999999999"] {
            let error = Device::parse(text).unwrap_err();
            assert_eq!(error.text, text);
            assert!(error.to_string().contains("backend:index"), "{error}");
        }
    }

    #[test]
    fn an_id_of_the_registry_names_that_device() {
        let id = DeviceId { backend: BackendName::new("host").unwrap(), index: 3 };
        assert_eq!(Device::from(id), Device::parse(&id.to_string()).unwrap());
    }
}
