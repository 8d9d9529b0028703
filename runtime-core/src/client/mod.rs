//! The client: what a program holds of a device.
//!
//! Calls that can be checked are checked on the caller's thread and answer `Err` on the spot, with nothing submitted. What fails later
//! lies on the bytes that were not written, and is named by whoever reads them.

mod budget;
mod compile;
mod foreign;
mod launch;
mod launch_mode;
mod memory;
mod recorder;
mod recording;
mod resource;
mod staging;
mod time;
mod transfer;

pub use launch::PreparedLaunch;
pub use launch_mode::LaunchScope;
pub use memory::AllocationWindow;
pub use recorder::LaunchRecorder;
pub use resource::Resource;
pub use time::ShutdownReport;
pub use transfer::TensorView;

use crate::backend;
use crate::error::{Error, Result};
use crate::handle::{Account, Handle};
use crate::id::{DeviceId, ServiceId, StreamId};
use crate::properties::{DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties};
use crate::server::Opened;
use crate::service::{self, Core, Service, Settings};
use crate::timeline::{Moment, Point};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// A device, as a program uses it. Cheap to clone; a clone keeps the pinned stream. The device ends when the last client is dropped.
///
/// ```no_run
/// use trunnion_runtime_core::client::Client;
/// # fn main() -> Result<(), trunnion_runtime_core::error::Error> {
/// let client = Client::open("host", 0)?;
/// let buffer = client.create_from_slice(&[1u8, 2, 3])?;
/// assert_eq!(client.read_one(&buffer)?.as_slice()?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) service: Arc<Service>,
    stream: Option<StreamId>,
    /// What this client and its clones hold, where that is limited.
    account: Option<Account>,
}

impl Client {
    fn of(service: Arc<Service>) -> Self {
        Self { service, stream: None, account: None }
    }

    /// The device's running server, started if there is none, with the process's settings. The device's backend must be known to the
    /// process: `trunnion::open` sees to that for those it is built with, [`backend::register`] for others.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`], [`Error::BackendUnavailable`] and [`Error::NoDevice`] name why it cannot start.
    pub fn load(device: DeviceId) -> Result<Self> {
        Self::load_with(device, &service::defaults())
    }

    /// The device's running server; if there is none, one is started with these settings. A device that runs keeps those it was started
    /// with, which [`settings`](Self::settings) tells.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_with(device: DeviceId, settings: &Settings) -> Result<Self> {
        service::load(device, settings).map(Self::of)
    }

    /// [`load`](Self::load) for programs that may not block, such as a page in a browser.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub async fn load_async(device: DeviceId) -> Result<Self> {
        Self::load(device)
    }

    /// [`load`](Self::load) by the backend's name and the device's index there.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn open(backend: &str, index: u32) -> Result<Self> {
        let backend = backend::backend(backend)?.name();
        Self::load(DeviceId { backend, index })
    }

    /// Starts a ready-made server on a device.
    ///
    /// # Errors
    /// [`Error::AlreadyRunning`] when the device has one; the given one is dropped.
    pub fn try_init(device: DeviceId, opened: Opened) -> Result<Self> {
        Self::try_init_with(device, opened, &service::defaults())
    }

    /// [`try_init`](Self::try_init) with settings of its own; what they tell a backend has no effect on a server that is ready.
    ///
    /// # Errors
    /// As for [`try_init`](Self::try_init).
    pub fn try_init_with(device: DeviceId, opened: Opened, settings: &Settings) -> Result<Self> {
        service::try_init(device, opened, settings).map(Self::of)
    }

    /// The device's running server; if there is none, the one `make` gives is started.
    ///
    /// # Errors
    /// What `make` answers.
    pub fn init(device: DeviceId, make: impl FnOnce() -> Result<Opened>) -> Result<Self> {
        Self::init_with(device, &service::defaults(), make)
    }

    /// [`init`](Self::init) with settings of its own; what they tell a backend is for `make` to heed. A device that runs keeps those it
    /// was started with, which [`settings`](Self::settings) tells.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn init_with(device: DeviceId, settings: &Settings, make: impl FnOnce() -> Result<Opened>) -> Result<Self> {
        service::init(device, make, settings).map(Self::of)
    }

    // ---- identity

    /// The device's name: adapter and place in the registry.
    pub fn name(&self) -> String {
        alloc::format!("{} ({})", self.service.properties.info.adapter, self.service.device)
    }

    /// The running server: what handles are stamped with.
    pub fn service_id(&self) -> ServiceId {
        self.service.id
    }

    /// The device's place in the registry.
    pub fn device_id(&self) -> DeviceId {
        self.service.device
    }

    /// What the device was started with, whoever opened it first.
    pub fn settings(&self) -> &Settings {
        &self.service.settings
    }

    /// Everything known about the device.
    pub fn properties(&self) -> &DeviceProperties {
        &self.service.properties
    }

    /// [`properties`](Self::properties), to be kept.
    pub fn properties_shared(&self) -> Arc<DeviceProperties> {
        self.service.properties.clone()
    }

    /// What the device can do.
    pub fn features(&self) -> &Features {
        &self.service.features
    }

    /// [`features`](Self::features), to be kept.
    pub fn features_shared(&self) -> Arc<Features> {
        self.service.features.clone()
    }

    /// How much of everything the device has.
    pub fn limits(&self) -> &Limits {
        &self.service.limits
    }

    /// [`limits`](Self::limits), to be kept.
    pub fn limits_shared(&self) -> Arc<Limits> {
        self.service.limits.clone()
    }

    /// What a compiler for the device needs to know.
    pub fn target_properties(&self) -> &TargetProperties {
        &self.service.target
    }

    /// [`target_properties`](Self::target_properties), to be kept.
    pub fn target_properties_shared(&self) -> Arc<TargetProperties> {
        self.service.target.clone()
    }

    /// The backend's own description of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.service.properties.info
    }

    /// Equal on equal hardware and driver, across runs.
    pub fn hardware_identity(&self) -> String {
        self.service.properties.hardware_identity()
    }

    /// The vector lengths, in elements of `elem_size` bytes, in which memory is best moved, widest first.
    pub fn io_optimized_vector_sizes(&self, elem_size: u64) -> impl Iterator<Item = u32> + Clone + use<> {
        self.service.target.io_optimized_vector_sizes(elem_size)
    }

    // ---- streams

    /// Pins this client, and clones made from now on, to a stream.
    pub fn set_stream(&mut self, stream: StreamId) {
        self.stream = Some(stream);
    }

    /// The stream of a call made here: the pinned one, else [`StreamId::current`].
    #[inline]
    pub fn stream(&self) -> StreamId {
        match self.stream {
            Some(stream) => stream,
            None => StreamId::current(),
        }
    }

    // ---- devices there are

    /// The devices of every backend, without starting any. A backend that has none here is left out.
    pub fn enumerate_all_devices() -> Vec<DeviceInfo> {
        backend::backends().iter().filter_map(|backend| backend.enumerate().ok()).flatten().collect()
    }

    /// The devices of this kind, of every backend.
    pub fn enumerate_devices(kind: DeviceKind) -> Vec<DeviceInfo> {
        let mut all = Self::enumerate_all_devices();
        all.retain(|device| device.kind == kind);
        all
    }

    /// [`enumerate_all_devices`](Self::enumerate_all_devices) for programs that may not block.
    pub async fn enumerate_async() -> Vec<DeviceInfo> {
        Self::enumerate_all_devices()
    }

    /// How many devices of this kind there are.
    pub fn device_count(kind: DeviceKind) -> usize {
        Self::enumerate_devices(kind).len()
    }

    /// How many devices there are.
    pub fn device_count_total() -> usize {
        Self::enumerate_all_devices().len()
    }

    // ---- what the other files build on

    #[inline(always)]
    fn enqueue(&self, entry: impl FnOnce(&mut Core, Moment) + Send + 'static) -> Result<Point> {
        self.service.enqueue(self.stream(), entry)
    }

    /// Carries out an operation of this client's stream here, after what is queued, if the device is to be had within moments.
    #[inline(always)]
    fn try_operate(&self, what: &'static str, run: impl FnOnce(&mut Core, Moment)) -> Option<Result<Point>> {
        self.service.try_operate(what, self.stream(), run)
    }

    /// A handle must be this device's.
    #[inline]
    fn local(&self, handle: &Handle) -> Result<()> {
        let owner = handle.service();
        if owner == self.service.id { Ok(()) } else { Err(Error::ForeignHandle { owner, service: self.service.id }) }
    }

    fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported { what: what.into(), backend: self.service.device.backend }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("device", &self.service.device.to_string())
            .field("service", &self.service.id.get())
            .field("stream", &self.stream)
            .finish()
    }
}
