//! What the executor promises, on real threads.

mod calls;
mod ending;
mod entries;
mod reserving;
mod running;
mod turns;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
#[cfg(feature = "std")]
use core::sync::atomic::AtomicU32;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
#[cfg(feature = "std")]
use std::sync::mpsc;
#[cfg(feature = "std")]
use std::thread;
#[cfg(feature = "std")]
use std::time::Instant;

use super::*;
use crate::platform::{Deadline, block_on};

#[derive(Default)]
struct Log {
    tickets: Vec<u64>,
    panics: Vec<(u64, String)>,
    progress: Arc<AtomicUsize>,
    entered: usize,
    closed: Arc<AtomicUsize>,
    wakers: Wakers,
    fail_progress: bool,
}

impl Resident for Log {
    fn enter(&mut self) {
        self.entered += 1;
    }
    fn progress(&mut self) {
        self.progress.fetch_add(1, Ordering::SeqCst);
        assert!(!self.fail_progress, "no progress");
    }
    fn leave(&mut self) -> Wakers {
        core::mem::take(&mut self.wakers)
    }
    fn panicked(&mut self, ticket: u64, message: &str) {
        self.panics.push((ticket, message.to_string()));
    }
    fn closing(&mut self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn config(execution: Execution) -> Config {
    Config { execution, ring_bytes: 4096, full_timeout: secs(5), ..Config::default() }
}

fn inline() -> Executor<Log> {
    Executor::new(Log::default(), config(Execution::Inline)).unwrap()
}

#[cfg(feature = "std")]
fn runner() -> Executor<Log> {
    Executor::new(Log::default(), config(Execution::Runner)).unwrap()
}

/// The executors there are: one with a runner where there are threads.
fn both() -> Vec<Executor<Log>> {
    alloc::vec![
        inline(),
        #[cfg(feature = "std")]
        runner(),
    ]
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn soon() -> Deadline {
    Deadline::after(secs(20))
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(feature = "std")]
fn eventually(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < secs(20), "never came true");
        thread::sleep(Duration::from_micros(100));
    }
}
