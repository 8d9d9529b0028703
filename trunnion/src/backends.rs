//! The backends of the process: the built-in ones, registered on first use, and those of third parties.

use crate::backend::{self, Backend};
use crate::config;
use crate::error::Result;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Once;

/// Options of a backend, as name and value.
type Options = BTreeMap<String, String>;

/// A backend that is compiled in.
struct BuiltIn {
    name: &'static str,
    /// Makes it with the options the process's configuration has for it, so that it lists the devices they ask for.
    make: fn(&Options) -> Result<Arc<dyn Backend>>,
}

/// Every backend that can be compiled in: of two devices of the same kind, the one listed first is the better. The host
/// comes first, so that it is chosen before a driver that does a GPU's work on the same processor; a GPU is better than
/// either for what it is, and one that CUDA and Vulkan have is CUDA's.
const BUILT_IN: &[BuiltIn] = &[
    #[cfg(feature = "host")]
    BuiltIn {
        name: "host",
        make: |options| {
            use trunnion_backend_host::{HostBackend, HostOptions};
            Ok(Arc::new(HostBackend::new(HostOptions::default().apply(options)?)))
        },
    },
    #[cfg(feature = "cuda")]
    BuiltIn {
        name: "cuda",
        make: |options| {
            use trunnion_backend_cuda::{CudaBackend, CudaOptions};
            Ok(Arc::new(CudaBackend::new(CudaOptions::default().apply(options)?)))
        },
    },
    #[cfg(feature = "vulkan")]
    BuiltIn {
        name: "vulkan",
        make: |options| {
            use trunnion_backend_vulkan::{VulkanBackend, VulkanOptions};
            Ok(Arc::new(VulkanBackend::new(VulkanOptions::default().apply(options)?)))
        },
    },
];

/// Makes the built-in backends known to the process, once.
///
/// Every function of this crate that needs them calls it. A program that goes straight to [`Client::load`](crate::Client::load) or
/// [`Client::enumerate_all_devices`](crate::Client::enumerate_all_devices) calls it first.
pub fn register_built_in() {
    static ONCE: Once = Once::new();
    ONCE.call_once_force(|_| {
        for built_in in BUILT_IN {
            let made = (built_in.make)(&config::process_options(built_in.name)).or_else(|error| {
                // Opening a device answers the same error; listing devices should not fail for it.
                log::warn!("the configuration's options for {} are ignored: {error}", built_in.name);
                (built_in.make)(&Options::new())
            });
            if let Err(error) = made.and_then(backend::register) {
                log::warn!("{error}");
            }
        }
    });
}

/// Makes a third party's backend known to the process, after the built-in ones. From then on it is listed, chosen and configured like
/// them.
///
/// # Errors
/// [`Error::BackendUnavailable`](crate::Error::BackendUnavailable) when one of that name is known already; the known one stays.
pub fn register(backend: Arc<dyn Backend>) -> Result<()> {
    register_built_in();
    backend::register(backend)
}

/// The backends known to the process: the built-in ones, then others in the order in which they were registered.
pub fn backends() -> Vec<Arc<dyn Backend>> {
    register_built_in();
    backend::backends()
}

/// The names under which options can be given, found without registering anything.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = BUILT_IN.iter().map(|built_in| built_in.name.to_string()).collect();
    for backend in backend::backends() {
        let name = backend.name().to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
