//! How backends are found: the [`Backend`] trait and the process's table of them.

use crate::error::{Error, Result};
use crate::id::BackendName;
use crate::pool_layout::PoolLayout;
use crate::properties::DeviceInfo;
use crate::server::Opened;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A way to devices: finds them without starting anything, and starts a server on one.
pub trait Backend: Send + Sync + 'static {
    /// What programs call it.
    fn name(&self) -> BackendName;

    /// The devices there are, best first. Starts no server.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] says why there can be none.
    fn enumerate(&self) -> Result<Vec<DeviceInfo>>;

    /// Starts a server on a device.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`], [`Error::NoDevice`]; [`Error::UnknownOption`] and [`Error::BadOption`] for what the settings tell it.
    fn open(&self, index: u32, settings: &OpenSettings) -> Result<Opened>;
}

/// What any server is told when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSettings {
    /// The most bytes of device memory to take.
    pub memory_budget: Option<u64>,
    /// The pools the device begins with.
    pub memory_pools: PoolLayout,
    /// Whether nothing is to run and no device memory to be taken, while kernels compile and memory is planned.
    pub dry_run: bool,
    /// Where compiled kernels are kept; nowhere if `None`.
    pub kernel_cache: Option<String>,
    /// Options of the backend's own, as name and value. One that is not valid is [`Error::UnknownOption`] or [`Error::BadOption`], which
    /// list what is.
    pub options: BTreeMap<String, String>,
}

static BACKENDS: spin::RwLock<Vec<Arc<dyn Backend>>> = spin::RwLock::new(Vec::new());

/// Makes a backend known to the process.
///
/// # Errors
/// [`Error::BackendUnavailable`] when one of that name is known already; the known one stays.
pub fn register(backend: Arc<dyn Backend>) -> Result<()> {
    let mut known = BACKENDS.write();
    let name = backend.name();
    if known.iter().any(|b| b.name() == name) {
        return Err(Error::BackendUnavailable {
            backend: name,
            why: "a backend of this name is registered already".into(),
        });
    }
    known.push(backend);
    Ok(())
}

/// The backends known to the process, in the order in which they were registered.
pub fn backends() -> Vec<Arc<dyn Backend>> {
    BACKENDS.read().clone()
}

/// The backend of this name.
///
/// # Errors
/// [`Error::UnknownBackend`] lists the names there are.
pub fn backend(name: &str) -> Result<Arc<dyn Backend>> {
    let known = BACKENDS.read();
    known.iter().find(|b| b.name().as_str() == name).cloned().ok_or_else(|| Error::UnknownBackend {
        name: name.to_string(),
        known: known.iter().map(|b| b.name().to_string()).collect(),
    })
}
