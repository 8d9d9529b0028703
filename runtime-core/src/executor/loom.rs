//! Every interleaving of the shipped files, as far as loom's bounds go: sleeping and waking, helping, giving up,
//! shutting down, reserving. A lost wake-up is a deadlock here, and a record or an answer touched by two is an error.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p trunnion-runtime-core --release --lib executor::loom`

use ::loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ::loom::thread;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;
use std::io::Write as _;

use super::shared::Shared;
use super::*;
use crate::platform::Deadline;

struct Counter {
    runs: usize,
    progress: Arc<AtomicUsize>,
}

impl Resident for Counter {
    fn progress(&mut self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    fn panicked(&mut self, ticket: u64, message: &str) {
        // The executor catches panics of entries, and loom's findings are panics: this one must not be caught again.
        let _ = writeln!(std::io::stderr(), "entry {ticket}: {message}");
        std::process::abort();
    }
}

fn counter() -> Counter {
    Counter { runs: 0, progress: Arc::new(AtomicUsize::new(0)) }
}

/// A ring of four units, so that it wraps and fills.
fn executor(execution: Execution) -> Executor<Counter> {
    let config = Config { execution, ..Config::default() };
    Executor::start(Shared::with_ring(counter(), &config, 256).unwrap(), &config).unwrap()
}

/// Explores with at most this many forced switches of thread.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

fn end(executor: &Executor<Counter>) {
    assert!(executor.shutdown(&Deadline::never()).ran_all);
}

#[test]
fn an_entry_submitted_while_the_runner_falls_asleep_is_run() {
    check(2, || {
        let executor = executor(Execution::Runner);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let ran = ran.clone();
            executor.submit(move |_, _| _ = ran.fetch_add(1, Ordering::Relaxed)).unwrap();
        }
        end(&executor);
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_shutdown_between_the_runners_look_and_its_sleep_is_seen() {
    check(3, || {
        let executor = executor(Execution::Runner);
        end(&executor);
        end(&executor);
    });
}

#[test]
fn a_call_is_answered_whether_its_caller_or_the_runner_runs_it() {
    check(2, || {
        let executor = executor(Execution::Runner);
        executor.submit(|counter, _| counter.runs += 1).unwrap();
        assert_eq!(executor.call(|counter, _| counter.runs, &Deadline::never()), Ok(1));
        end(&executor);
    });
}

#[test]
fn two_callers_without_a_runner_are_both_answered() {
    check(2, || {
        let executor = Arc::new(executor(Execution::Inline));
        let other = executor.clone();
        let second = thread::spawn(move || other.call(|counter, _| counter.runs += 1, &Deadline::never()).unwrap());
        executor.submit(|counter, _| counter.runs += 1).unwrap();
        second.join().unwrap();
        assert_eq!(executor.call(|counter, _| counter.runs, &Deadline::never()), Ok(2));
    });
}

#[test]
fn an_entry_left_behind_a_held_lock_is_run_by_its_holder() {
    check(2, || {
        let executor = Arc::new(executor(Execution::Inline));
        let ran = Arc::new(AtomicUsize::new(0));
        let (other, theirs) = (executor.clone(), ran.clone());
        let second = thread::spawn(move || {
            for _ in 0..2 {
                let theirs = theirs.clone();
                other.submit(move |_, _| _ = theirs.fetch_add(1, Ordering::Relaxed)).unwrap();
            }
        });
        for _ in 0..2 {
            let ran = ran.clone();
            executor.submit(move |_, _| _ = ran.fetch_add(1, Ordering::Relaxed)).unwrap();
        }
        second.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn a_caller_that_gives_up_leaves_nothing_dangling() {
    check(2, || {
        let executor = Arc::new(executor(Execution::Inline));
        let other = executor.clone();
        let second = thread::spawn(move || {
            // Passed already: gives up as soon as it does not get the lock.
            match other.call(|_, _| Box::new(7), &Deadline::after(Duration::ZERO)) {
                Ok(answer) => assert_eq!(*answer, 7),
                Err(error) => assert!(matches!(error, CallError::Timeout { .. } | CallError::Busy)),
            }
        });
        executor.submit(|counter, _| counter.runs += 1).unwrap();
        second.join().unwrap();
        executor.drain();
        assert_eq!(executor.call(|counter, _| counter.runs, &Deadline::never()), Ok(1));
    });
}

#[test]
fn a_notification_reaches_a_runner_that_falls_asleep() {
    check(2, || {
        let executor = executor(Execution::Runner);
        let progress = executor.call(|counter, _| counter.progress.clone(), &Deadline::never()).unwrap();
        let notifier = executor.notifier();
        notifier.notify();
        while progress.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        end(&executor);
    });
}

#[test]
fn nothing_of_another_thread_runs_inside_a_reservation() {
    check(2, || {
        let executor = Arc::new(executor(Execution::Inline));
        let inside = Arc::new(AtomicBool::new(false));
        let strayed = Arc::new(AtomicBool::new(false));
        let (other, theirs, stray) = (executor.clone(), inside.clone(), strayed.clone());
        let second = thread::spawn(move || {
            // In interrupt fashion: refused while reserved.
            let _ = other.try_submit(move |_, _| {
                if theirs.load(Ordering::Relaxed) {
                    stray.store(true, Ordering::Relaxed);
                }
            });
        });
        if let Ok(reservation) = executor.reserve(&Deadline::never()) {
            inside.store(true, Ordering::Relaxed);
            executor.drain();
            inside.store(false, Ordering::Relaxed);
            drop(reservation);
        }
        second.join().unwrap();
        executor.drain();
        assert!(!strayed.load(Ordering::Relaxed));
    });
}
