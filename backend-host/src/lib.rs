#![doc = include_str!("../README.md")]
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod claims;
mod device;
mod driver;
mod finish;
mod foreign;
mod kernel;
mod lock;
mod options;
mod pinned;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod pool;
#[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
#[path = "single.rs"]
mod pool;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod sleeper;
mod storage;
mod stream;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod team;
mod transfer;
mod unwind;

pub use device::HostBackend;
pub use driver::HostDriver;
pub use foreign::HostImport;
pub use kernel::HostCode;
pub use options::HostOptions;
pub use storage::{HostPage, HostResource};
pub use stream::HostStream;
pub use trunnion_backend_core::LimitOptions;

use trunnion_runtime_core::id::BackendName;

/// The backend's name.
pub const NAME: BackendName = match BackendName::new("host") {
    Some(name) => name,
    None => panic!("four bytes are a name"),
};
