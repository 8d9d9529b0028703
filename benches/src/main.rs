//! The workloads of BENCHMARKS.md, each beside its peer in one run: a JSON object a line and a case.
//!
//! `cargo run --release -p benches -- NAME… | --all [--quick]`

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "a program, with the standard library")]

mod alloc_count;
mod callgrind;
mod harness;
mod null_server;
mod workloads;

use harness::Run;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc_count::Counting = alloc_count::Counting;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, case, count] = args.as_slice()
        && flag == "--counted"
    {
        return workloads::counted(case, count);
    }
    let mut names = Vec::new();
    let (mut all, mut quick) = (false, false);
    for arg in &args {
        match arg.as_str() {
            "--all" => all = true,
            "--quick" => quick = true,
            name if workloads::ALL.iter().any(|(known, _)| *known == name) => names.push(name),
            unknown => return refuse(&format!("unknown argument `{unknown}`")),
        }
    }
    if all != names.is_empty() {
        return refuse("give names of workloads, or --all");
    }
    let mut run = Run::new(quick);
    for (name, workload) in workloads::ALL {
        if all || names.contains(name) {
            run.begin(name);
            if let Err(error) = workload(&mut run) {
                run.failed(&error.to_string());
            }
        }
    }
    run.finish()
}

fn refuse(why: &str) -> ExitCode {
    let names: Vec<_> = workloads::ALL.iter().map(|(name, _)| *name).collect();
    eprintln!("benches: {why}\nusage: benches NAME… | --all [--quick]\nworkloads: {}", names.join(", "));
    ExitCode::from(2)
}
