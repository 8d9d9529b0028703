//! Drives the double as programs drive CUDA: through `cudarc`, unchanged, which finds it where it looks for the driver.

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
