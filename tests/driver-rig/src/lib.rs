//! A driver used directly, without a server, for the tests of backends; and the tests that every backend's driver passes.
//!
//! A backend's tests make a [`Rig`] of its driver. What is asked of any driver stands here, and is called with a rig and a backend's
//! kernels.

extern crate alloc;

pub mod clients;
pub mod launches;
pub mod program;
#[allow(unsafe_code, reason = "a driver trusts its caller")]
mod rig;
#[allow(unsafe_code, reason = "as above")]
pub mod streams;
#[cfg(target_os = "linux")]
pub mod threads;
#[allow(unsafe_code, reason = "as above")]
pub mod transfers;

pub use rig::{Bell, Compiled, PATIENCE, Rig, bytes_of, eventually, part};
