//! The workloads by name, and our side of those that `peers` measures too.

pub mod build;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "without_cuda.rs"]
mod cuda;
mod digits;
pub mod handle;
mod idle;
pub mod launch;
mod placers;
mod plans;
pub mod pools;
mod start;
pub mod submit;
pub mod taint;
mod transfer;
#[cfg(feature = "vulkan")]
pub mod vulkan;
#[cfg(not(feature = "vulkan"))]
#[path = "without_vulkan.rs"]
mod vulkan;

use crate::command_line::Workload;
use std::error::Error;

/// Every workload, in the order in which `--all` runs them.
pub const ALL: &[(&str, Workload)] = &[
    ("handle-1t", handle::one_thread),
    ("handle-4t", handle::four_threads),
    ("handle-latency", handle::latency),
    ("idle", idle::switches),
    ("submit-size", submit::sizes),
    ("launch", launch::launch),
    ("caller-pays", submit::caller_pays),
    ("taint-cycle", taint::cycle),
    ("pool-churn", placers::churn),
    ("pool-waste", placers::waste),
    ("start", start::first_result),
    ("pool-streams", pools::streams),
    ("plan-waste", plans::waste),
    ("transfer", transfer::transfer),
    ("dispatch", vulkan::dispatch),
    ("gpu-launch", cuda::launch),
    ("gpu-pool-hit", cuda::pool_hit),
    ("gpu-pinned-upload", cuda::pinned_upload),
    ("digits", digits::epoch),
    ("build", build::crates),
];

/// The part of a workload that runs under callgrind.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    launch::counted(case, count)
        .or_else(|| taint::counted(case, count))
        .or_else(|| pools::counted(case, count))
        .or_else(|| placers::counted(case, count))
}
