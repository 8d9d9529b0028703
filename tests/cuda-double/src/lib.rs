#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

extern crate alloc;

// What tests use: this half of the crate opens the shared library that is the other half.
pub mod compilers;
pub mod control;
mod report;

pub use control::{ControlError, Device, Double, OpenError};
pub use report::{Report, ReportKind};

// The driver's functions, and what they stand on.
mod api;
mod codes;
mod driver;
mod faults;
mod handles;

// Devices and what is asked of them.
mod capture;
mod context;
mod device;
mod event;
mod graph;
mod loaded;
mod occupancy;
mod pool;
mod stream;
mod work;

// Memory, and what happened before what.
mod clock;
mod host;
mod memory;
mod sync;

// Kernels.
mod execute;
mod ptx;
mod tensor;
