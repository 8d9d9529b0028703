//! Configuration: by builder, from `trunnion.toml`, from `TRUNNION_*`.
//!
//! - `environment`: the process's variables, and which file they name.
//! - `file`: what a TOML file says, with the lines it says it in.
//! - `keys`: the settings there are, and what their values can be.
//! - `value`: sizes and times as text.
//! - `suggest`: what a misspelt name was meant to be.

mod environment;
mod file;
mod keys;
mod suggest;
mod value;

use crate::device::Device;
use crate::error::Error;
use crate::errors::{ConfigError, OpenError, Origin};
use crate::executor::{self, Execution};
use crate::pool_layout::PoolLayout;
use crate::service::{BoundsPolicy, Settings};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use trunnion_server_layers::Layers;

/// Which device to open, and what it is started with.
///
/// What the builder says counts before the environment, that before the file, that before the defaults. Unknown settings and values that are
/// not valid are errors, which list what is.
///
/// | builder, key in `trunnion.toml` | variable | value | default | `0` |
/// |---|---|---|---|---|
/// | `backend` | `TRUNNION_BACKEND` | a [`Device`]: `host`, `host:1`, `vulkan:llvmpipe` | the best device | the best device |
/// | `memory_budget` | `TRUNNION_MEMORY_BUDGET` | a size | no budget | no budget |
/// | `memory_pools` | `TRUNNION_MEMORY_POOLS` | `adaptive`, `slabs`, `exclusive`, `fixed:SIZE`; the builder takes any [`PoolLayout`] | `adaptive` | `adaptive` |
/// | `dry_run` | `TRUNNION_DRY_RUN` | `true` | a real run | a real run |
/// | `staging_limit` | `TRUNNION_STAGING_LIMIT` | a size | `256MiB` | no limit |
/// | `memory_trace` | `TRUNNION_MEMORY_TRACE` | a file, to which [what is asked of the memory](crate::Client::record_memory_start) is written | none | none |
/// | `kernel_cache` | `TRUNNION_KERNEL_CACHE` | a directory | not kept | not kept |
/// | `wait_timeout` | `TRUNNION_WAIT_TIMEOUT` | a time | `30s` | not valid: every wait has an end |
/// | `drop_timeout` | `TRUNNION_DROP_TIMEOUT` | a time | `5s` | a drop does not wait |
/// | `bounds` | `TRUNNION_BOUNDS` | `auto`, `enforce`, `validate` | `auto` | `auto` |
/// | `execution` | `TRUNNION_EXECUTION` | `runner`, `inline` | `runner` | not valid |
/// | `layers` | `TRUNNION_LAYERS` | [`Layers`]: `validate`, `fault=launch:3:lost`, `delay=200us`, `reorder=7`, `record=run.trunnion`, several with commas | none | none |
/// | `ring` | `TRUNNION_RING` | a size from 4 KiB to 1 GiB | `256KiB` | not valid |
/// | `spin` | `TRUNNION_SPIN` | a time | `50us` | a runner sleeps at once |
/// | option `devices` of table `[host]` | `TRUNNION_HOST_DEVICES` | what the backend says | the backend's | what the backend says |
/// | option `queues` of table `[vulkan]` | `TRUNNION_VULKAN_QUEUES` | what the backend says | the backend's | what the backend says |
/// | option `vmm` of table `[cuda]` | `TRUNNION_CUDA_VMM` | what the backend says | the backend's | what the backend says |
///
/// A size is a number of bytes, or a whole number with `KiB`, `MiB`, `GiB` or `TiB`. A time is a whole number with `us`, `ms` or `s`. Where
/// `0` is off, `off` and `false` are too. An empty variable is as good as none. `TRUNNION_CONFIG` names the file, or is `0` for none;
/// without it `trunnion.toml` in the current directory is read, if there is one. Options of a backend are checked by the backend, when one of
/// its devices is opened, and the error says where they were read; a table of a backend that is not compiled in is unknown.
///
/// ```
/// use core::time::Duration;
/// use trunnion::{Config, Device};
/// let config = Config::new().backend(Device::best("host")).memory_budget(64 << 20).wait_timeout(Duration::from_secs(2));
/// let client = trunnion::open_with(&config)?;
/// # Ok::<(), trunnion::OpenError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Config {
    device: Option<Device>,
    layers: Layers,
    memory_trace: Option<String>,
    settings: Settings,
    options: BTreeMap<String, BTreeMap<String, String>>,
    /// Where options that were read stand, and as what: by backend and name.
    written: BTreeMap<(String, String), (Origin, String)>,
}

/// A setting as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    origin: Origin,
    /// What its author wrote: a variable's name, a key with its table.
    written: String,
    /// The backend whose option it is.
    backend: Option<String>,
    key: String,
    value: String,
}

impl Config {
    /// The defaults: neither the environment nor a file is looked at.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the file and the environment say.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load() -> Result<Self, ConfigError> {
        let variables = environment::of_process()?;
        let file = environment::file(&variables)?;
        Self::from_sources(file.as_ref().map(|(path, text)| (path.as_str(), text.as_str())), variables.into_iter())
    }

    /// What a file says, given as its path (for errors) and its text, and what variables say. Variables that do not begin with
    /// `TRUNNION_` are passed over; of two with the same name the later counts. Reads nothing but these, and the names of the backends that
    /// are known to the process.
    ///
    /// ```
    /// use trunnion::{Config, Device};
    /// let file = "backend = 'host'\nwait_timeout = '500ms'\n";
    /// let variables = [("TRUNNION_BACKEND".to_string(), "host:1".to_string())];
    /// let config = Config::from_sources(Some(("trunnion.toml", file)), variables.into_iter())?;
    /// assert_eq!(config.device(), Some(&Device::index("host", 1)));
    /// assert_eq!(config.settings("host").wait_timeout.as_millis(), 500);
    /// # Ok::<(), trunnion::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_sources(
        file_text: Option<(&str, &str)>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::merge(file_text, variables, &crate::backends::names())
    }

    fn merge(
        file_text: Option<(&str, &str)>,
        variables: impl Iterator<Item = (String, String)>,
        backends: &[String],
    ) -> Result<Self, ConfigError> {
        let in_file = file_text.map(|(path, text)| file::entries(path, text, backends)).unwrap_or_default();
        let in_environment = environment::entries(variables, backends);
        let mut config = Self::default();
        in_file.into_iter().chain(in_environment).try_for_each(|entry| config.take(entry?))?;
        Ok(config)
    }

    fn take(&mut self, entry: Entry) -> Result<(), ConfigError> {
        match entry.backend {
            Some(backend) => {
                self.written.insert((backend.clone(), entry.key.clone()), (entry.origin, entry.written));
                self.options.entry(backend).or_default().insert(entry.key, entry.value);
                Ok(())
            }
            None => keys::assign(self, &entry.key, &entry.value).map_err(|valid| ConfigError::BadValue {
                origin: entry.origin,
                key: entry.written,
                value: entry.value,
                valid: valid.into_owned(),
            }),
        }
    }

    // ---- the builder

    /// The device to open. Default: the best there is.
    pub fn backend(mut self, device: impl Into<Device>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// The most bytes of device memory to take. Default: what the device has.
    pub fn memory_budget(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.settings.open.memory_budget = bytes.into();
        self
    }

    /// The pools the device begins with. Default: [`PoolLayout::adaptive`].
    pub fn memory_pools(mut self, layout: PoolLayout) -> Self {
        self.settings.open.memory_pools = layout;
        self
    }

    /// Whether nothing is to run and no device memory to be taken, while kernels compile and memory is planned: the memory report then
    /// says what a real run needs. Reads give zeros. What the device has is no limit; a [`memory_budget`](Self::memory_budget) is. Default false.
    pub fn dry_run(mut self, dry: bool) -> Self {
        self.settings.open.dry_run = dry;
        self
    }

    /// The most bytes of staging memory in use at once. Default 256 MiB.
    pub fn staging_limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.settings.staging_limit = bytes.into();
        self
    }

    /// The file to which every request for the device's memory and every free is written from the start, as
    /// [`Client::record_memory_start`](crate::Client::record_memory_start) does. Of several devices that are opened with one
    /// file, the second has a file of its own, with `-2` behind the name. Default: none.
    pub fn memory_trace(mut self, file: impl Into<String>) -> Self {
        self.memory_trace = Some(file.into());
        self
    }

    /// The directory in which compiled kernels are kept. Default: none.
    pub fn kernel_cache(mut self, directory: impl Into<String>) -> Self {
        self.settings.open.kernel_cache = Some(directory.into());
        self
    }

    /// How long a blocking call waits without progress of the device. Default 30 s.
    pub fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.settings.wait_timeout = timeout;
        self
    }

    /// How long dropping the last client waits for work that is with the driver. Default 5 s.
    pub fn drop_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drop_timeout = timeout;
        self
    }

    /// What becomes of launches made without bounds checks. Default [`BoundsPolicy::Auto`].
    pub fn bounds(mut self, policy: BoundsPolicy) -> Self {
        self.settings.bounds = policy;
        self
    }

    /// Who runs queued work when nobody waits. Default [`Execution::Runner`].
    pub fn execution(mut self, execution: Execution) -> Self {
        self.settings.executor.execution = execution;
        self
    }

    /// The servers around the device's server. Default none.
    pub fn layers(mut self, layers: Layers) -> Self {
        self.layers = layers;
        self
    }

    /// Bytes of the device's queue, kept within 4 KiB and 1 GiB (256 MiB on 32-bit targets) and rounded up to a power of two. Default 256 KiB.
    pub fn ring(mut self, bytes: usize) -> Self {
        self.settings.executor.ring_bytes =
            bytes.clamp(executor::Config::MIN_RING_BYTES, executor::Config::MAX_RING_BYTES);
        self
    }

    /// How long the runner looks for work before it sleeps. Default 50 µs.
    pub fn spin(mut self, time: Duration) -> Self {
        self.settings.executor.spin = time;
        self
    }

    /// An option of a backend's own. The backend checks it when one of its devices is opened.
    pub fn option(mut self, backend: &str, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (backend, name) = (backend.to_lowercase(), name.into());
        self.written.remove(&(backend.clone(), name.clone()));
        self.options.entry(backend).or_default().insert(name, value.into());
        self
    }

    // ---- what it says

    /// The device that is asked for; `None` for the best there is.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// The servers around the device's server, which [`open_with`](crate::open_with) puts there.
    pub fn server_layers(&self) -> &Layers {
        &self.layers
    }

    /// The file to which what is asked of the device's memory is written, which [`open_with`](crate::open_with) makes.
    pub fn memory_trace_file(&self) -> Option<&str> {
        self.memory_trace.as_deref()
    }

    /// What a device of this backend is started with, its layers and its trace aside: for [`Client::load_with`](crate::Client::load_with).
    pub fn settings(&self, backend: &str) -> Settings {
        let mut settings = self.settings.clone();
        settings.open.options = self.options.get(&backend.to_lowercase()).cloned().unwrap_or_default();
        settings
    }
}

impl Config {
    /// The backend's refusal of an option, as that of the configuration it was read in; any other error as it is.
    pub(crate) fn located(&self, error: Error) -> OpenError {
        let (Error::UnknownOption { backend, option, .. } | Error::BadOption { backend, option, .. }) = &error else {
            return error.into();
        };
        let Some((origin, key)) = self.written.get(&(backend.as_str().to_lowercase(), option.clone())) else {
            return error.into();
        };
        let (origin, key) = (origin.clone(), key.clone());
        let refused = match error {
            Error::UnknownOption { option, known, .. } => {
                // As they would be written in the same place.
                let (before, _) = key.split_at(key.len().saturating_sub(option.len()));
                let at_place = |name: &String| match &origin {
                    Origin::Environment => format!("{before}{}", name.to_uppercase()),
                    Origin::File { .. } => format!("{before}{name}"),
                };
                let near = suggest::near(&option, &known).as_ref().map(at_place);
                ConfigError::UnknownKey { known: known.iter().map(at_place).collect(), origin, key, near }
            }
            Error::BadOption { value, valid, .. } => ConfigError::BadValue { origin, key, value, valid },
            other => return other.into(),
        };
        refused.into()
    }
}

/// The options the process's file and environment have for a backend, as far as they can be read: what is wrong with the rest,
/// [`Config::load`] says.
pub(crate) fn process_options(backend: &str) -> BTreeMap<String, String> {
    let variables = environment::of_process().unwrap_or_default();
    let file = environment::file(&variables).ok().flatten();
    let backends = [String::from(backend)];
    let in_file = file.map(|(path, text)| file::entries(&path, &text, &backends)).unwrap_or_default();
    let entries: Vec<_> =
        in_file.into_iter().chain(environment::entries(variables.into_iter(), &backends)).flatten().collect();
    entries.into_iter().filter(|entry| entry.backend.is_some()).map(|entry| (entry.key, entry.value)).collect()
}

#[cfg(test)]
mod tests;
