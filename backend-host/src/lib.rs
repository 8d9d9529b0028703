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
mod kernel;
mod lock;
mod options;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod pool;
#[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
#[path = "single.rs"]
mod pool;
mod rows;
mod storage;
mod stream;
mod transfer;
mod unwind;

pub use device::{HostBackend, NAME};
pub use driver::HostDriver;
pub use kernel::HostCode;
pub use options::HostOptions;
pub use storage::{HostPage, HostResource};
pub use stream::HostStream;
