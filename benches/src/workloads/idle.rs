//! An idle device costs nothing: context switches of all its threads.

use crate::harness::{Case, Run, Target};
use std::error::Error;
use std::fs;
use std::thread;
use std::time::Duration;

pub fn switches(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let client = super::start::open_host()?;
    super::start::once(&client)?;
    // What the work left behind comes to rest first.
    thread::sleep(Duration::from_millis(200));
    let main = std::process::id().to_string();
    let before = total(&main)?;
    thread::sleep(Duration::from_secs(if run.quick { 1 } else { 4 }));
    let switches = (total(&main)? - before) as f64;
    run.report(Case {
        case: "switches",
        ours: vec![switches],
        unit: "switches",
        peer: None,
        target: Some(Target::Value(4.0)),
    });
    Ok(())
}

/// Context switches so far of every thread but the main one, which measures.
fn total(main: &str) -> Result<u64, Box<dyn Error>> {
    let mut total = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        if task.file_name().to_str() == Some(main) {
            continue;
        }
        for line in fs::read_to_string(task.path().join("status"))?.lines() {
            if let Some((name, count)) = line.split_once(':')
                && name.ends_with("ctxt_switches")
            {
                total += count.trim().parse::<u64>()?;
            }
        }
    }
    Ok(total)
}
