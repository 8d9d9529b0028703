//! Asks a CUDA driver whether it does what its double does: a line for each thing that is assumed, `seen` or `wrong` with what was seen.
//!
//! `trunnion-assumptions DRIVER` asks the driver in this file, each question in a process of its own, since some leave a context that is good
//! for nothing. `trunnion-assumptions DRIVER NAME` asks one. The exit code is 0 when all was seen, 1 when something is wrong, also with how the
//! driver begins, 2 for bad arguments, and 3 where the driver says that it has no device.

extern crate alloc;

mod assumption;
mod captures;
mod device;
mod faults;
mod frees;
mod functions;
mod gate;
mod memory;
mod orders;
mod peers;
mod refusals;
mod seams;

use assumption::Assumption;
use core::time::Duration;
use device::Device;
use std::io::{Write, stdout};
use std::process::{Command, ExitCode};
use std::time::Instant;
use trunnion_cuda_raw::Driver;

/// A driver that has not answered by then hangs.
const LIMIT: Duration = Duration::from_secs(20);

const WRONG: u8 = 1;
const USAGE: u8 = 2;
const NO_DEVICE: u8 = 3;

fn assumptions() -> Vec<Assumption> {
    let devices = [faults::ALL, orders::ALL, memory::ALL, seams::ALL, frees::ALL, peers::ALL];
    devices.into_iter().chain([functions::ALL, captures::ALL, refusals::ALL]).flatten().copied().collect()
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
    let answer = Driver::open(path).and_then(Device::first).and_then(|device| (assumption.ask)(&device));
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(seen) => {
            println!("{seen}");
            ExitCode::from(WRONG)
        }
    }
}

/// How many devices a driver has.
fn count(path: &str) -> Result<i32, String> {
    /// Equivalent to: `CUDA_ERROR_NO_DEVICE`.
    const NONE: u32 = 100;
    let driver = Driver::open(path)?;
    let mut count = 0;
    // SAFETY: the place is for a number.
    let (begun, counted) = unsafe { (driver.cuInit(0), driver.cuDeviceGetCount(&raw mut count)) };
    match (begun, counted) {
        (NONE, _) | (0, NONE) => Ok(0),
        _ => driver.check("cuInit", begun).and(driver.check("cuDeviceGetCount", counted)).map(|()| count),
    }
}

/// Asks everything, each in a process of its own.
fn ask_all(path: &str) -> ExitCode {
    let devices = match count(path) {
        Ok(0) => {
            println!("the driver has no device");
            return ExitCode::from(NO_DEVICE);
        }
        Ok(devices) => devices,
        Err(why) => {
            println!("wrong: {why}");
            return ExitCode::from(WRONG);
        }
    };
    let (mut seen, mut wrong) = (0, 0);
    for assumption in assumptions() {
        // Which is no fault of the driver's.
        if assumption.devices > devices {
            println!("{}: not run: it takes {} devices, and there is {devices}", assumption.name, assumption.devices);
            continue;
        }
        let line = match in_process(path, assumption.name) {
            Ok(Some(0)) => {
                seen += 1;
                "seen".to_string()
            }
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
