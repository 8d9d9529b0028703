#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

extern crate alloc;

mod arguments;
mod backends;
mod buffer;
mod choose;
mod config;
mod device;
mod discovery;
mod errors;
pub mod prelude;
mod replay;

// What this crate adds.
pub use backends::{backends, register, register_built_in};
pub use buffer::Buffer;
pub use choose::{default_client, open, open_with};
pub use config::Config;
pub use device::{Device, Which};
pub use discovery::{Discovery, devices, discover};
pub use errors::{ConfigError, OpenError, Origin, ParseDeviceError};
pub use replay::{ReadProgramError, read_program, replay};

// The modules of `trunnion-runtime-core`, under their own names.
pub use trunnion_runtime_core::{
    access, allocation, backend, budget, bytes, client, elem, error, executor, failure, foreign, grid, handle, id,
    kernel, layout, platform, pool_layout, pressure, promise, properties, report, server, service, sink, staging,
    stream, timeline,
};

/// Servers around a server: for [`Config::layers`], or around a server before [`Client::try_init`].
pub use trunnion_server_layers as layers;

/// A device's memory as pure host logic: [traces](memory_pools::trace) of it are replayed against any pools, and drawn.
pub use trunnion_memory_pools as memory_pools;

/// Tensors for other libraries of the process, and theirs for the host's devices, without a copy.
#[cfg(feature = "dlpack")]
pub use trunnion_dlpack as dlpack;

// What nearly every program names.
pub use access::Access;
pub use bytes::Bytes;
pub use client::Client;
pub use elem::ElemType;
pub use error::{Error, Result};
pub use grid::Grid;
pub use handle::Handle;
pub use id::{DeviceId, StreamId};
pub use kernel::{Args, Interface, Kernel, KernelHandle, Source, SourceKernel, Workgroup};
pub use timeline::Point;
