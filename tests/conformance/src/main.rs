//! Runs the conformance suite on the backends that are built in.

// But where a Vulkan loader or the address of memory is vouched for.
#![deny(unsafe_code)]

extern crate alloc;

mod builtin;

use std::process::ExitCode;

fn main() -> ExitCode {
    trunnion_conformance::run(std::env::args(), &builtin::factories(), builtin::tests())
}
