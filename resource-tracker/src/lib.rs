#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod interval;
mod log;
mod marks;
mod names;
mod streams;
mod tracker;
mod uses;

pub use names::Name;
pub use streams::Streams;
pub use tracker::{Resolved, Tracker, Verdict};
pub use uses::Use;
