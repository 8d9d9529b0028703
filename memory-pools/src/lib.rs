#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod account;
mod general;
mod growth;
mod held;
mod imported;
mod ladder;
mod lanes;
mod layouts;
mod linear_pool;
mod pages;
pub mod placer;
pub mod planner;
mod policy;
mod pool;
mod pools;
mod pressure;
mod slab_pool;
mod storage;
mod streams;
pub mod trace;
mod whole;

pub use imported::ImportedPage;
pub use pages::PageId;
pub use policy::PoolsConfig;
pub use pools::{MemoryPools, Place, Request};
pub use pressure::Pressure;
pub use storage::{Storage, StorageError};
