//! Asks a CUDA driver whether it does what its double does: a line for each thing that is assumed, `seen` or `wrong` with what was seen.
//!
//! `trunnion-assumptions DRIVER` asks the driver in this file, each question in a process of its own, since some leave a context that is good
//! for nothing. `trunnion-assumptions DRIVER NAME` asks one. The exit code is 0 when all was seen, 1 when something is wrong, 2 for bad
//! arguments, and 3 where the driver has no device.

mod assumption;
mod captures;
mod device;
mod driver;
mod faults;
mod orders;
mod refusals;

use assumption::Assumption;
use core::time::Duration;
use device::Device;
use driver::Driver;
use std::io::{Write, stdout};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// A driver that has not answered by then hangs.
const LIMIT: Duration = Duration::from_secs(20);

const WRONG: u8 = 1;
const USAGE: u8 = 2;
const NO_DEVICE: u8 = 3;

fn assumptions() -> Vec<Assumption> {
    [faults::ALL, orders::ALL, captures::ALL, refusals::ALL].concat()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [driver] => ask_all(driver),
        [driver, name] => ask_one(driver, name),
        _ => {
            eprintln!("usage: trunnion-assumptions DRIVER [NAME]");
            ExitCode::from(USAGE)
        }
    }
}

/// Asks here, and prints what was seen instead if that is something else.
fn ask_one(path: &str, name: &str) -> ExitCode {
    let Some(assumption) = assumptions().into_iter().find(|assumption| assumption.name == name) else {
        eprintln!("there is no assumption `{name}`");
        return ExitCode::from(USAGE);
    };
    let opened = Driver::open(path).and_then(|driver| Device::first(driver.leak()));
    let device = match opened {
        Ok(device) => device,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(NO_DEVICE);
        }
    };
    match (assumption.ask)(&device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(seen) => {
            println!("{seen}");
            ExitCode::from(WRONG)
        }
    }
}

/// Asks everything, each in a process of its own.
fn ask_all(path: &str) -> ExitCode {
    let (mut seen, mut wrong) = (0, 0);
    for assumption in assumptions() {
        let line = match in_process(path, assumption.name) {
            Ok(Some(0)) => {
                seen += 1;
                "seen".to_string()
            }
            Ok(code) if code == Some(i32::from(NO_DEVICE)) => return ExitCode::from(NO_DEVICE),
            Ok(_) => {
                wrong += 1;
                "wrong (see above)".to_string()
            }
            Err(why) => {
                wrong += 1;
                format!("wrong: {why}")
            }
        };
        println!("{}: {line}", assumption.name);
        stdout().flush().ok();
    }
    println!("{seen} seen, {wrong} wrong");
    ExitCode::from(if wrong == 0 { 0 } else { WRONG })
}

/// The exit code of a process that asks one thing; it prints what it saw.
fn in_process(path: &str, name: &str) -> Result<Option<i32>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program).args([path, name]).spawn().map_err(|error| error.to_string())?;
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.code()),
            Ok(None) if start.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                child.kill().and_then(|()| child.wait().map(drop)).map_err(|error| error.to_string())?;
                return Err(format!("no answer within {LIMIT:?}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
