//! The workloads by name.

mod build;
mod digits;
mod handle;
mod idle;
mod launch;
mod start;
mod submit;
mod transfer;

use crate::harness::Run;
use std::error::Error;
use std::process::ExitCode;

type Workload = fn(&mut Run) -> Result<(), Box<dyn Error>>;

/// Every workload, in the order in which `--all` runs them.
pub const ALL: &[(&str, Workload)] = &[
    ("handle-1t", handle::one_thread),
    ("handle-4t", handle::four_threads),
    ("handle-latency", handle::latency),
    ("idle", idle::switches),
    ("submit-size", submit::sizes),
    ("launch", launch::launch),
    ("caller-pays", submit::caller_pays),
    ("start", start::first_result),
    ("transfer", transfer::transfer),
    ("digits", digits::epoch),
    ("build", build::crates),
];

/// The part of a workload that runs under callgrind: `case` repeated `count` times.
pub fn counted(case: &str, count: &str) -> ExitCode {
    let Ok(count) = count.parse() else { return ExitCode::from(2) };
    let done = match case {
        "launch-caller" => launch::counted_caller(count),
        "launch-both" => launch::counted_both(count),
        "launch-nothing" => launch::counted_nothing(count),
        _ => return ExitCode::from(2),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
