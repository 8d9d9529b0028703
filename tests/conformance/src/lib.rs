#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

extern crate alloc;

// What a test is made of.
pub mod check;
pub mod context;
pub mod factory;
pub mod kernels;
pub mod outside;
pub mod test;

// The tests, a file a group of rows.
pub mod rows;

// Random programs, and programs that were recorded.
pub mod program;
pub mod replay;

// How they are run.
pub mod arguments;
pub mod child;
pub mod runner;

pub use check::{Failure, Outcome};
pub use context::{Context, Gate};
pub use factory::{Factory, Refusal, Variant};
pub use outside::Outside;
pub use runner::run;
pub use test::Test;
