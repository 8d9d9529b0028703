//! The workloads of BENCHMARKS.md, each beside its peer in one run: a JSON object a line and a case.
//!
//! `cargo run --release -p benches -- NAME… | --all [--quick] [--traces DIR]`, with `--features vulkan` on Vulkan too, with `cuda` on a GPU.

use benches::{alloc_count, command_line, workloads};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc_count::Counting = alloc_count::Counting;

fn main() -> ExitCode {
    // SAFETY: nothing has started a thread.
    #[cfg(feature = "vulkan")]
    unsafe {
        workloads::vulkan::without_workers();
    }
    command_line::run("benches", workloads::ALL, workloads::counted).map_or_else(|refused| refused, |run| run.finish())
}
