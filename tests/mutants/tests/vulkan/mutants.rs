//! The mutants of the Vulkan driver, and the tests that must notice each.

use crate::bench::adapters;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Names the mutant that a process tests.
const MUTANT: &str = "VULKAN_MUTANT";

/// Longer than any of the tests takes.
const LIMIT: Duration = Duration::from_secs(60);

/// What is wrong with a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Barriers between operations of a stream are dropped.
    BarrierDropped,
    /// A barrier lies before every operation.
    BarrierAlways,
    /// Waits of one stream for another are dropped.
    WaitDropped,
    /// Of the waits between streams only the first is kept.
    SecondWaitDropped,
}

/// By name, with the tests of which each must fail.
const MUTANTS: [(&str, Fault, &[&str]); 4] = [
    (
        "barrier_dropped",
        Fault::BarrierDropped,
        &[
            "barriers::a_launch_that_reads_what_one_wrote_lies_behind_a_barrier",
            "barriers::a_launch_that_writes_what_one_read_or_wrote_lies_behind_a_barrier",
            "barriers::copies_and_fills_depend_as_launches_do",
            "barriers::a_write_of_bytes_that_are_in_use_lies_behind_a_barrier",
            "oracle::on_one_stream_what_depends_is_in_order_and_no_barrier_is_there_for_nothing",
        ],
    ),
    (
        "barrier_always",
        Fault::BarrierAlways,
        &[
            "barriers::launches_that_only_read_the_same_or_have_nothing_in_common_lie_side_by_side",
            "oracle::on_one_stream_what_depends_is_in_order_and_no_barrier_is_there_for_nothing",
        ],
    ),
    (
        "wait_dropped",
        Fault::WaitDropped,
        &[
            "barriers::what_another_stream_did_is_behind_a_barrier_on_the_same_queue",
            "queues::a_wait_between_queues_is_one_of_a_semaphore_and_needs_no_barrier",
            "oracle::on_several_streams_and_queues_what_depends_is_in_order",
        ],
    ),
    (
        "second_wait_dropped",
        Fault::SecondWaitDropped,
        &["oracle::on_several_streams_and_queues_what_depends_is_in_order"],
    ),
];

/// The fault of this process.
pub fn fault() -> Fault {
    let Ok(name) = std::env::var(MUTANT) else { return Fault::None };
    let known = MUTANTS.iter().find(|(known, ..)| *known == name);
    known.unwrap_or_else(|| panic!("{MUTANT}: there is no mutant `{name}`")).1
}

/// Why a test fails on a mutant, from a process of its own; `None` when it passes. A crash and a hang are no answers.
fn failure(mutant: &str, test: &str) -> Option<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MUTANT, mutant)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{mutant}: {test} has no end after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {
            assert!(said.contains("1 passed"), "{mutant}: there is no test `{test}`");
            None
        }
        Some(101) => Some(said),
        _ => panic!("{mutant}: {test} ended with {}: {said}", output.status),
    }
}

fn is_noticed(mutant: &str) {
    if adapters().is_empty() {
        return;
    }
    let (_, _, tests) = MUTANTS.iter().find(|(name, ..)| *name == mutant).unwrap();
    let survived: Vec<_> = tests.iter().filter(|test| failure(mutant, test).is_none()).collect();
    assert!(survived.is_empty(), "{mutant} survives {survived:?}");
}

#[test]
fn a_dropped_barrier_is_noticed() {
    is_noticed("barrier_dropped");
}

#[test]
fn a_barrier_for_nothing_is_noticed() {
    is_noticed("barrier_always");
}

#[test]
fn a_dropped_wait_between_streams_is_noticed() {
    is_noticed("wait_dropped");
}

#[test]
fn a_second_wait_that_is_dropped_is_noticed() {
    is_noticed("second_wait_dropped");
}
