//! What a server is told when it starts.

use alloc::string::String;
use core::time::Duration;
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::pool_layout::PoolLayout;

/// What a [`DriverServer`](super::DriverServer) is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The most bytes of device memory to take; no limit but the driver's if `None`.
    pub memory_budget: Option<u64>,
    /// The folder in which compiled kernels are kept, made when the first is; nowhere if `None`, or without feature `std`.
    pub kernel_cache: Option<String>,
    /// How many operations that wait for the host are kept. One more fails with [`Error::Busy`](trunnion_runtime_core::error::Error).
    pub park_limit: usize,
    /// How many operations are encoded on a stream before they are submitted whatever the device does.
    pub batch_limit: usize,
    /// How long a reservation waits for work that will free memory.
    pub pressure_wait: Duration,
    /// How many idle streams are kept for their return.
    pub idle_streams: usize,
    /// How long a server that is dropped without [`shutdown`](trunnion_runtime_core::server::Server::shutdown) waits for the device.
    /// Pages of work that is unfinished then are never given back.
    pub drop_wait: Duration,
    /// The pools the server begins with.
    pub memory_pools: PoolLayout,
}

impl Default for ServerSettings {
    /// No budget, no disk cache, 4096 parked, batches of 64, 2 s under pressure, 16 idle streams, 5 s when dropped, adaptive pools.
    fn default() -> Self {
        Self {
            memory_budget: None,
            kernel_cache: None,
            park_limit: 4096,
            batch_limit: 64,
            pressure_wait: Duration::from_secs(2),
            idle_streams: 16,
            drop_wait: Duration::from_secs(5),
            memory_pools: PoolLayout::adaptive(),
        }
    }
}

impl From<&OpenSettings> for ServerSettings {
    fn from(settings: &OpenSettings) -> Self {
        Self {
            memory_budget: settings.memory_budget,
            memory_pools: settings.memory_pools.clone(),
            kernel_cache: settings.kernel_cache.clone(),
            ..Self::default()
        }
    }
}
