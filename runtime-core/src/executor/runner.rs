//! The runner: the thread that runs entries when nobody waits for them.

use alloc::string::ToString;
use alloc::sync::Arc;
use core::cell::Cell;
use core::time::Duration;

use super::atomic::{AtomicBool, AtomicUsize, JoinHandle, Ordering, park};
use super::config::Config;
use super::error::StartError;
use super::guarded::word_of;
use super::resident::Resident;
use super::ring::Sleep;
use super::shared::Shared;
use crate::platform::{Backoff, ThreadToken};

std::thread_local! {
    static IS_RUNNER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is the runner of an executor: a thread of this library's own, which does nothing but what executors were given.
pub fn is_runner() -> bool {
    IS_RUNNER.get()
}

/// What the executor knows of its runner thread.
pub(super) struct Runner {
    token: AtomicUsize,
    gone: AtomicBool,
    handle: spin::Mutex<Option<JoinHandle<()>>>,
}

impl Runner {
    pub(super) fn new() -> Self {
        Self { token: AtomicUsize::new(0), gone: AtomicBool::new(false), handle: spin::Mutex::new(None) }
    }

    /// Whether the calling thread, whose token this is, is the runner.
    pub(super) fn is(&self, me: usize) -> bool {
        self.token.load(Ordering::Relaxed) == me
    }

    /// The thread has nothing more to do with the executor.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The handle, for the one who joins or detaches.
    pub(super) fn take(&self) -> Option<JoinHandle<()>> {
        self.handle.lock().take()
    }
}

pub(super) fn start<T: Resident>(shared: &Arc<Shared<T>>, config: &Config) -> Result<(), StartError> {
    let theirs = shared.clone();
    let body = move || {
        run(&theirs);
        theirs.runner.gone.store(true, Ordering::Release);
    };
    #[cfg(not(loom))]
    let started = std::thread::Builder::new().name(config.name.clone()).spawn(body);
    #[cfg(loom)]
    let started = loom::thread::Builder::new().name(config.name.clone()).spawn(body);
    let handle = started.map_err(|error| StartError::Spawn { name: config.name.clone(), reason: error.to_string() })?;
    shared.bell.hand_to(handle.thread().clone());
    *shared.runner.handle.lock() = Some(handle);
    Ok(())
}

fn run<T: Resident>(shared: &Shared<T>) {
    IS_RUNNER.set(true);
    let me = word_of(ThreadToken::current());
    shared.runner.token.store(me, Ordering::Relaxed);
    let (ring, state, bell) = (&shared.ring, &shared.state, &shared.bell);
    let mut backoff = Backoff::default();
    loop {
        let Some(held) = state.try_enter(me) else {
            // Somebody helps. Its release sees the note, and rouses this thread.
            if !shared.spin_until(shared.spin, || state.is_free()) && state.note() {
                park();
            }
            continue;
        };
        let from = ring.head();
        // A note needs no answer: this thread looks for more before it sleeps.
        let _noted = shared.work(held, me, u64::MAX);
        if shared.has_ended() {
            if ring.is_empty() {
                return;
            }
            // Claimed before the end and published after it: that and what is behind it is dropped here, so that its callers learn of it.
            backoff.wait();
            continue;
        }
        // After entries more are likely; after a mere notification the cores are for those who are at work.
        let spin = if ring.head() == from { Duration::ZERO } else { shared.spin };
        if ring.is_ready() || shared.spin_until(spin, || ring.is_ready() || !bell.is_quiet()) {
            backoff = Backoff::default();
            continue;
        }
        while !ring.is_ready() && bell.is_quiet() {
            match ring.try_sleep() {
                Sleep::Asleep => {
                    while ring.is_sleeping() && bell.is_quiet() {
                        park();
                    }
                    ring.end_sleep();
                    break;
                }
                // Somebody runs what was never queued. Its release sees the note.
                Sleep::Outstanding if state.note() => park(),
                // Claimed and not published: its producer was interrupted between the two.
                Sleep::Outstanding => backoff.wait(),
                Sleep::Closed => break,
            }
        }
    }
}
