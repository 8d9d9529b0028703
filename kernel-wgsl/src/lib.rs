#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod capabilities;
mod constants;
mod contain;
mod depth;
mod explain;
mod local;
mod module;
mod reader;
mod reflect;
mod spirv;
mod verify;

pub use capabilities::Capabilities;
pub use module::Module;
pub use reader::Reader;
pub use spirv::{Parameters, SpirV, SpirVOptions};
