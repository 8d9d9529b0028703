//! Drives the double as programs drive CUDA: through `cudarc`, unchanged, which finds it where it looks for the driver.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every call of a driver is unsafe, and what it asks for is plain to see in a test"
)]

extern crate alloc;

mod compiled;
mod faults;
mod gpu;
mod graphs;
mod kernels;
mod memory;
mod mistakes;
mod peers;
mod streams;
mod tensors;
