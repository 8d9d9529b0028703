//! The workloads of BENCHMARKS.md: what measures and prints, and our side of each. `peers`, a workspace of its own, measures the same
//! sides beside a peer that is heavy to build.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "a program, with the standard library")]

pub mod alloc_count;
pub mod callgrind;
pub mod command_line;
pub mod harness;
pub mod lifetimes;
mod null_server;
pub mod workloads;
