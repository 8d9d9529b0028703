//! Runs the suite on every mutant and on the unbroken twins.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trunnion_mutants::run(std::env::args())
}
