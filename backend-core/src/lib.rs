#![doc = include_str!("../README.md")]
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[allow(unsafe_code, reason = "the trait is unsafe to implement and to call")]
pub mod driver;
#[allow(unsafe_code, reason = "the trait is unsafe to implement; nothing is run")]
pub mod dry;
#[cfg(feature = "std")]
#[allow(unsafe_code, reason = "the C library is asked to call")]
pub mod exit;
pub mod limits;
#[cfg(feature = "std")]
pub mod loss;
mod open;
pub mod rows;
pub mod server;
pub mod shelf;
#[cfg(feature = "std")]
pub mod together;
#[cfg(feature = "std")]
pub mod waiter;

pub use dry::Dry;
pub use limits::LimitOptions;
pub use open::open;
pub use server::{DriverServer, ServerSettings};
