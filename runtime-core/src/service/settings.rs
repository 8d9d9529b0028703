//! What a device is started with.

use crate::backend::OpenSettings;
use crate::executor::Config;
use core::time::Duration;

/// What a device is started with. The defaults of the process are [`defaults`].
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the backend is told.
    pub open: OpenSettings,
    /// How long a blocking call waits without progress of the device: 30 s.
    pub wait_timeout: Duration,
    /// How long dropping the last client waits for work that is with the driver: 5 s.
    pub drop_timeout: Duration,
    /// What becomes of launches made without bounds checks.
    pub bounds: BoundsPolicy,
    /// The most bytes of staging memory in use at once, page-locked memory that is kept for reuse included; no limit if `None`. 256 MiB.
    pub staging_limit: Option<u64>,
    /// How the device's executor is made; its thread's name is set to the device's, and nobody waits for its queue longer than
    /// [`wait_timeout`](Self::wait_timeout).
    pub executor: Config,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            open: OpenSettings::default(),
            wait_timeout: Duration::from_secs(30),
            drop_timeout: Duration::from_secs(5),
            bounds: BoundsPolicy::Auto,
            staging_limit: Some(256 << 20),
            executor: Config::default(),
        }
    }
}

/// What becomes of launches made without bounds checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BoundsPolicy {
    /// They run as they were made.
    #[default]
    Auto,
    /// They are checked like all others.
    Enforce,
    /// Every launch reports an access outside a buffer, where the device can.
    Validate,
}

static DEFAULTS: spin::RwLock<Option<Settings>> = spin::RwLock::new(None);

/// What devices of this process are started with unless told otherwise.
pub fn defaults() -> Settings {
    DEFAULTS.read().clone().unwrap_or_default()
}

/// Changes what devices of this process that are started from now on are started with.
pub fn set_defaults(settings: Settings) {
    *DEFAULTS.write() = Some(settings);
}
