//! The workloads by name, each with the peer's side. `run-peers.sh` reads the names from the list below.

mod build;
mod dispatch;
mod handle;
mod launch;
mod pools;
mod submit;
mod taint;

use benches::command_line::Workload;
use std::error::Error;

/// Every workload, in the order in which `--all` runs them.
pub const ALL: &[(&str, Workload)] = &[
    ("handle-1t", handle::one_thread),
    ("handle-4t", handle::four_threads),
    ("handle-latency", handle::latency),
    ("submit-size", submit::sizes),
    ("launch", launch::launch),
    ("taint-cycle", taint::cycle),
    ("dispatch", dispatch::dispatch),
    ("build", build::crates),
    ("pool-live", pools::live),
    ("pool-fifo", pools::first_in_first_out),
    ("pool-mixed", pools::mixed),
];

/// The part of a workload that runs under callgrind: ours as in `benches`, and the peer's.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    benches::workloads::counted(case, count)
        .or_else(|| launch::counted(case, count))
        .or_else(|| taint::counted(case, count))
}
