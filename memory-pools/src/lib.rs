#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod account;
mod general;
mod ladder;
mod lanes;
mod pages;
pub mod placer;
mod policy;
mod pools;
mod pressure;
mod storage;
mod streams;
pub mod trace;
mod whole;

pub use pages::PageId;
pub use policy::PoolsConfig;
pub use pools::{MemoryPools, Place, Request};
pub use pressure::Pressure;
pub use storage::{Storage, StorageError};
