//! Trunnion on a board: no operating system, no standard library, one thread, and two megabytes of heap.
//!
//! What a program on a board relies on, as a list of checks. `main.rs` runs them, `run.sh` runs that in an emulator.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

// What there is.
pub mod board;
pub mod check;
mod device;
mod kernels;

// What is checked.
mod ending;
mod failing;
mod launching;
mod memory;
mod moving;
mod opening;
mod ordering;
mod refusing;
mod waiting;

use check::Check;
pub use device::start;

/// Every check, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Check> {
    let groups = [
        opening::CHECKS,
        moving::CHECKS,
        launching::CHECKS,
        ordering::CHECKS,
        waiting::CHECKS,
        failing::CHECKS,
        refusing::CHECKS,
        memory::CHECKS,
        ending::CHECKS,
    ];
    groups.into_iter().flatten()
}
