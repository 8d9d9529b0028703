#![doc = include_str!("../README.md")]
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[allow(unsafe_code, reason = "the trait is unsafe to implement and to call")]
pub mod driver;
pub mod server;

pub use server::{DriverServer, ServerSettings};
