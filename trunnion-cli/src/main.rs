//! The program `trunnion`: what a run of Trunnion left behind, looked at without a device.
//!
//! Exit code 2 means bad arguments, 1 any other failure.

#![forbid(unsafe_code)]

mod layout;
mod trace;

use clap::{Parser, Subcommand};
use std::io::{Write, stderr};
use std::process::ExitCode;

/// What a run of Trunnion left behind, looked at without a device.
#[derive(Parser)]
#[command(name = "trunnion", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Trace(trace::Arguments),
}

fn main() -> ExitCode {
    let answer = match Arguments::parse().command {
        Command::Trace(arguments) => trace::run(&arguments),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(stderr(), "trunnion: {error}");
            ExitCode::FAILURE
        }
    }
}
