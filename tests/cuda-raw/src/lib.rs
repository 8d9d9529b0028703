//! The functions of a CUDA driver by their names, for tests and measurements that call it themselves.
//!
//! A result is a number: a status that a program does not know is one like any other. A function that the driver lacks answers
//! [`MISSING`], and nothing else suffers from it.

mod driver;
mod functions;
mod pieces;
mod structures;

pub use driver::Driver;
pub use pieces::Pieces;
pub use structures::{Access, Copy2D, Location, Placement};

/// The address of device memory. Equivalent to: `CUdeviceptr`.
pub type Address = u64;

/// A context, stream, event, module, function or graph, or memory that is not mapped.
pub type Handle = *mut core::ffi::c_void;

/// A function of the program's that a stream calls. Equivalent to: `CUhostFn`.
pub type HostFunction = unsafe extern "C" fn(*mut core::ffi::c_void);

/// What a function answers that the driver does not have. Equivalent to: `CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER`.
pub const MISSING: u32 = 36;
