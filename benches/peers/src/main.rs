//! Our runtime beside CubeCL's, in one interleaved run: a JSON object a line and a case, then a table. `../run-peers.sh` runs it.
//!
//! Our side of every workload is the one of `benches`; the peer's does the same job through the interface its users have, in its default
//! configuration (no `cubecl.toml`, default features). Where the two sides differ in anything, the workload's file says in what.

mod beside;
mod null_server;
mod workloads;

use benches::{alloc_count, command_line};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc_count::Counting = alloc_count::Counting;

fn main() -> ExitCode {
    // SAFETY: nothing has started a thread.
    unsafe { benches::workloads::vulkan::without_workers() };
    match command_line::run("run-peers", workloads::ALL, workloads::counted) {
        Ok(run) => {
            run.table();
            run.finish()
        }
        Err(refused) => refused,
    }
}
