#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

// What a device was asked, as a program.
pub mod program;

mod inside;

// What is named in texts.
mod layers;
mod operation;

// The layers.
mod faults;
mod record;
mod validate;

pub use faults::{Fault, FaultInjector, FaultKind, FaultPlan, FaultRecord, Fired};
pub use layers::{Layer, Layers, ParseLayersError};
pub use operation::Operation;
#[cfg(feature = "std")]
pub use record::FileSink;
pub use record::{Record, RecordOptions, Recording};
pub use validate::{Party, Validate, Violation, Violations};
