//! Threads of a backend's, and whether they sleep.

use alloc::collections::BTreeMap;
use core::time::Duration;
use std::fs;
use std::thread;
use std::time::Instant;

/// How often each of this process's threads with one of these names has gone to sleep, by its name and number.
fn sleeps(names: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        // A thread may have ended meanwhile.
        let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        let slept = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap_or_default();
        if names.contains(&name.trim()) {
            found.insert(format!("{} {}", name.trim(), task.file_name().display()), slept.to_owned());
        }
    }
    found
}

/// There are threads of each of these names, and all of them sleep on. One that looks now and then never does. One that comes late on a busy
/// machine, or belongs to another test's device, does so when that is over, within two minutes.
pub fn assert_quiet(names: &[&str], what: &str) {
    let begun = Instant::now();
    loop {
        let before = sleeps(names);
        thread::sleep(Duration::from_millis(300));
        let after = sleeps(names);
        let is_there = |name: &&str| after.keys().any(|thread| thread.starts_with(*name));
        assert!(names.iter().all(is_there), "{what}: {after:?}");
        if before == after {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}: {before:?}, then {after:?}");
    }
}
