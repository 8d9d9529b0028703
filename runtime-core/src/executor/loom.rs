//! Every interleaving of the shipped files, as far as loom's bounds go: sleeping and waking, helping, giving up, taking a turn,
//! shutting down, reserving. A lost wake-up is a deadlock here, and a record, an answer or the resident touched by two is an error.
//!
//! `ci/loom.sh` runs these models, and shows with seeded bugs that they find some.

use ::loom::cell::Cell;
use ::loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ::loom::thread;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;
use std::io::Write as _;

use super::shared::Shared;
use super::*;
use crate::platform::Deadline;
use crate::sync::explore;

struct Counter {
    /// loom looks who touches this, and so at the lock around it.
    runs: Cell<usize>,
    last: u64,
    progress: Arc<AtomicUsize>,
}

impl Counter {
    /// Counts an entry, which is to come after all that were counted.
    fn count(&mut self, ticket: u64) {
        assert!(ticket > self.last, "{ticket} is run after {}", self.last);
        self.last = ticket;
        self.runs.set(self.runs.get() + 1);
    }
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
    Counter { runs: Cell::new(0), last: 0, progress: Arc::new(AtomicUsize::new(0)) }
}

/// A ring of four units, so that it wraps and fills.
fn executor(execution: Execution) -> Executor<Counter> {
    let config = Config { execution, ..Config::default() };
    Executor::start(Shared::with_ring(counter(), &config, 256).unwrap(), &config).unwrap()
}

/// How many entries were counted, asked by a call, which itself counts as none.
fn counted(executor: &Executor<Counter>) -> usize {
    executor.call(|counter, _| counter.runs.get(), &Deadline::never()).unwrap()
}

/// Something a thread waits for, asleep: unlike a call it helps nobody, so that what the runner overlooks is a deadlock.
struct Event {
    happened: AtomicBool,
    waiting: thread::Thread,
}

impl Event {
    fn new() -> Arc<Self> {
        Arc::new(Self { happened: AtomicBool::new(false), waiting: thread::current() })
    }

    fn happen(&self) {
        self.happened.store(true, Ordering::Release);
        self.waiting.unpark();
    }

    fn wait(&self) {
        while !self.happened.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

fn end(executor: &Executor<Counter>) {
    assert!(executor.shutdown(&Deadline::never()).ran_all);
}

#[test]
fn an_entry_submitted_while_the_runner_falls_asleep_is_run() {
    explore(2, || {
        let executor = executor(Execution::Runner);
        let ran = Event::new();
        let theirs = ran.clone();
        executor.submit(|counter, ticket| counter.count(ticket)).unwrap();
        executor.submit(move |_, _| theirs.happen()).unwrap();
        ran.wait();
        end(&executor);
    });
}

#[test]
fn a_shutdown_between_the_runners_look_and_its_sleep_is_seen() {
    explore(3, || {
        let executor = executor(Execution::Runner);
        end(&executor);
        end(&executor);
    });
}

#[test]
fn a_call_is_answered_whether_its_caller_or_the_runner_runs_it() {
    explore(2, || {
        let executor = executor(Execution::Runner);
        executor.submit(|counter, ticket| counter.count(ticket)).unwrap();
        assert_eq!(counted(&executor), 1);
        end(&executor);
    });
}

#[test]
fn two_callers_without_a_runner_are_both_answered() {
    explore(2, || {
        let executor = Arc::new(executor(Execution::Inline));
        let other = executor.clone();
        let second =
            thread::spawn(move || other.call(|counter, ticket| counter.count(ticket), &Deadline::never()).unwrap());
        executor.submit(|counter, ticket| counter.count(ticket)).unwrap();
        second.join().unwrap();
        assert_eq!(counted(&executor), 2);
    });
}

#[test]
fn an_entry_left_behind_a_held_lock_is_run_by_its_holder() {
    explore(2, || {
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
    explore(2, || {
        let executor = Arc::new(executor(Execution::Inline));
        let other = executor.clone();
        let second = thread::spawn(move || {
            // Passed already: gives up as soon as it does not get the lock.
            match other.call(|_, _| Box::new(7), &Deadline::after(Duration::ZERO)) {
                Ok(answer) => assert_eq!(*answer, 7),
                Err(error) => assert!(matches!(error, CallError::Timeout { .. } | CallError::Busy)),
            }
        });
        executor.submit(|counter, ticket| counter.count(ticket)).unwrap();
        second.join().unwrap();
        executor.drain();
        assert_eq!(counted(&executor), 1);
    });
}

#[test]
fn a_notification_reaches_a_runner_that_falls_asleep() {
    explore(2, || {
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
    explore(2, || {
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

#[test]
fn a_turn_and_an_entry_are_both_run_in_the_order_of_their_tickets_while_the_runner_falls_asleep() {
    explore(1, || {
        let executor = Arc::new(executor(Execution::Runner));
        let ran = Event::new();
        let (other, theirs) = (executor.clone(), ran.clone());
        let second = thread::spawn(move || {
            let entry = move |counter: &mut Counter, ticket| {
                counter.count(ticket);
                theirs.happen();
            };
            other.submit(entry).unwrap();
        });
        let tried = executor.try_run(|counter, ticket| counter.count(ticket)).is_some();
        ran.wait();
        second.join().unwrap();
        assert_eq!(counted(&executor), 1 + usize::from(tried));
        end(&executor);
    });
}

#[test]
fn a_runner_that_left_its_note_at_a_turn_is_woken_by_the_next_entry() {
    explore(3, || {
        let executor = executor(Execution::Runner);
        let ran = Event::new();
        let _ = executor.try_run(|counter, ticket| {
            thread::yield_now();
            counter.count(ticket);
        });
        let theirs = ran.clone();
        executor.submit(move |_, _| theirs.happen()).unwrap();
        ran.wait();
        end(&executor);
    });
}

#[test]
fn a_runner_that_left_its_note_at_a_turn_hears_a_notification() {
    explore(3, || {
        let executor = executor(Execution::Runner);
        let notifier = executor.notifier();
        let mut progress = None;
        let _ = executor.try_run(|counter, _| {
            notifier.notify();
            progress = Some(counter.progress.clone());
        });
        while progress.as_ref().is_some_and(|progress| progress.load(Ordering::Relaxed) == 0) {
            thread::yield_now();
        }
        end(&executor);
    });
}

#[test]
fn a_shutdown_during_a_turn_waits_for_it_and_ends_the_runner() {
    explore(2, || {
        let executor = Arc::new(executor(Execution::Runner));
        let other = executor.clone();
        let second = thread::spawn(move || end(&other));
        let over = AtomicBool::new(false);
        let tried = executor.try_run(|counter, ticket| {
            counter.count(ticket);
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(tried.is_some(), over.load(Ordering::Relaxed));
        second.join().unwrap();
    });
}

#[test]
fn a_shutdown_from_inside_a_turn_comes_after_it() {
    explore(3, || {
        let executor = executor(Execution::Runner);
        let _ = executor.try_run(|counter, ticket| {
            assert!(!executor.shutdown(&Deadline::never()).ran_all);
            counter.count(ticket);
        });
        end(&executor);
    });
}

#[test]
fn a_runner_that_left_its_note_at_a_drain_is_woken_by_the_next_entry() {
    explore(3, || {
        let executor = executor(Execution::Runner);
        let ran = Event::new();
        executor.drain();
        let theirs = ran.clone();
        executor.submit(move |_, _| theirs.happen()).unwrap();
        ran.wait();
        end(&executor);
    });
}

#[test]
fn a_call_is_answered_while_a_shutdown_drops_what_is_queued() {
    explore(1, || {
        let executor = Arc::new(executor(Execution::Runner));
        let other = executor.clone();
        let second = thread::spawn(move || other.call(|_, _| (), &Deadline::never()));
        executor.shutdown(&Deadline::after(Duration::ZERO));
        assert!(matches!(second.join().unwrap(), Ok(()) | Err(CallError::Closed)));
    });
}

#[test]
fn what_was_claimed_before_a_shutdown_and_comes_after_it_is_dropped() {
    explore(1, || {
        let executor = Arc::new(executor(Execution::Runner));
        let held = Arc::new(());
        let (other, theirs) = (executor.clone(), held.clone());
        let second = thread::spawn(move || {
            let _ = other.submit_with(|| {
                thread::yield_now();
                move |_: &mut Counter, _| drop(theirs)
            });
        });
        executor.shutdown(&Deadline::after(Duration::ZERO));
        second.join().unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    });
}

#[test]
fn a_call_during_a_turn_is_answered() {
    explore(0, || {
        let executor = Arc::new(executor(Execution::Runner));
        let other = executor.clone();
        let second = thread::spawn(move || other.call(|counter, ticket| counter.count(ticket), &Deadline::never()));
        let _ = executor.try_run(|counter, ticket| {
            thread::yield_now();
            counter.count(ticket);
        });
        second.join().unwrap().unwrap();
        end(&executor);
    });
}

#[test]
fn an_entry_submitted_without_a_runner_during_a_turn_is_run() {
    explore(4, || {
        let executor = Arc::new(executor(Execution::Inline));
        let ran = Arc::new(AtomicUsize::new(0));
        let (other, theirs) = (executor.clone(), ran.clone());
        let second = thread::spawn(move || {
            let entry = move |counter: &mut Counter, ticket| {
                counter.count(ticket);
                theirs.fetch_add(1, Ordering::Relaxed);
            };
            other.submit(entry).unwrap();
        });
        let _ = executor.try_run(|counter, ticket| counter.count(ticket));
        second.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn no_turn_is_taken_inside_a_reservation_of_another_thread() {
    explore(3, || {
        let executor = Arc::new(executor(Execution::Inline));
        let inside = Arc::new(AtomicBool::new(false));
        let (other, theirs) = (executor.clone(), inside.clone());
        let second = thread::spawn(move || {
            let _ = other.try_run(|_, _| assert!(!theirs.load(Ordering::Relaxed)));
        });
        let reservation = executor.reserve(&Deadline::never()).unwrap();
        inside.store(true, Ordering::Relaxed);
        let _ = executor.try_run(|counter, ticket| counter.count(ticket));
        inside.store(false, Ordering::Relaxed);
        drop(reservation);
        second.join().unwrap();
    });
}
