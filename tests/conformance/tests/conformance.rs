//! The suite as `cargo test` runs it: on every backend that is built in.

// But where a Vulkan loader or the address of memory is vouched for.
#![deny(unsafe_code)]

extern crate alloc;

#[path = "../src/builtin/mod.rs"]
mod builtin;

use std::process::ExitCode;

fn main() -> ExitCode {
    trunnion_conformance::run(std::env::args(), &builtin::factories(), builtin::tests())
}
