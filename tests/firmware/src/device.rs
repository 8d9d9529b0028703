//! The devices of the board: how checks open them, and the few calls they all make.

use crate::check::{Outcome, same};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytemuck::Pod;
use core::fmt::Debug;
use trunnion_backend_host::LimitOptions;
use trunnion_backend_host::{HostBackend, HostOptions, NAME};
use trunnion_runtime_core::backend;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{DeviceId, StreamId};
use trunnion_runtime_core::service::Settings;

/// How many devices the processor is.
pub(crate) const DEVICES: u32 = 3;
/// Bytes of memory a device has, unless a check asks for others.
pub(crate) const MEMORY: u64 = 640 << 10;

/// Makes the processor known to the runtime, as devices.
///
/// # Errors
/// It is known already.
pub fn start() -> Result<()> {
    let options = HostOptions::default()
        .devices(DEVICES)
        .limits(LimitOptions { memory: Some(MEMORY), ..LimitOptions::default() });
    backend::register(Arc::new(HostBackend::new(options)))
}

/// The device with this index.
pub(crate) const fn device(index: u32) -> DeviceId {
    DeviceId { backend: NAME, index }
}

/// The first device, as it comes.
pub(crate) fn open() -> Result<Client> {
    Client::load(device(0))
}

/// The first device, with options of the backend's.
pub(crate) fn open_with(options: &[(&str, &str)]) -> Result<Client> {
    let mut settings = Settings::default();
    settings.open.options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    Client::load_with(device(0), &settings)
}

/// The same device on a stream of its own.
pub(crate) fn on_new_stream(client: &Client) -> Client {
    let mut client = client.clone();
    client.set_stream(StreamId::new());
    client
}

/// Memory that holds these elements.
pub(crate) fn upload<T: Pod>(client: &Client, elements: &[T]) -> Result<Handle> {
    client.create_from_slice(bytemuck::cast_slice(elements))
}

/// The elements that the memory holds.
pub(crate) fn download<T: Pod>(client: &Client, handle: &Handle) -> Result<Vec<T>> {
    client.read_one(handle)?.to_vec()
}

/// The memory holds these elements.
#[track_caller]
pub(crate) fn holds_elements<T: Pod + PartialEq + Debug>(client: &Client, handle: &Handle, expected: &[T]) -> Outcome {
    match download::<T>(client, handle) {
        Ok(got) => same(got, expected),
        Err(error) => Err(error.into()),
    }
}
