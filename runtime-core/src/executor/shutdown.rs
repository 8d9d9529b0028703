//! The end of an executor: bounded, repeatable, from any thread.

use core::time::Duration;

use super::bell::ABANDON;
use super::guarded::word_of;
use super::resident::Resident;
use super::shared::Shared;
use crate::platform::{Backoff, Deadline, ThreadToken};

/// What a shutdown did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Everything that was queued has run.
    pub ran_all: bool,
    /// Entries that did not run to their end: dropped, or, where one hangs, that one and those behind it.
    pub abandoned: usize,
}

impl<T: Resident> Shared<T> {
    /// Time past the deadline for whoever runs entries to notice that it has passed, and for the thread to end.
    const GRACE: Duration = Duration::from_millis(20);

    pub(super) fn shutdown(&self, deadline: &Deadline) -> ShutdownReport {
        let me = word_of(ThreadToken::current());
        self.ring.close();
        self.awaken_runner();
        if self.state.is_held_by(me) {
            // Inside an entry: those behind it run when it returns, and the last of them ends it all.
            return self.report();
        }
        // An entry that hangs must not hang a shutdown that could leave it to the runner.
        let helps = !self.has_runner || self.is_runner(me);
        self.pass_time(deadline, || {
            if helps {
                self.help_to_end(me);
            }
            self.has_ended()
        });
        let grace = Deadline::after(Self::GRACE);
        if !self.has_ended() {
            self.bell.ring(ABANDON);
            self.pass_time(&grace, || {
                // With the bell ringing this runs nothing, it drops.
                self.help_to_end(me);
                self.has_ended()
            });
        }
        self.part_from_runner(me, if deadline.expired() { &grace } else { deadline });
        self.report()
    }

    /// One batch, or the end itself where nothing is queued.
    fn help_to_end(&self, me: usize) {
        self.help(me, u64::MAX);
    }

    fn pass_time(&self, deadline: &Deadline, done: impl Fn() -> bool) {
        let mut backoff = Backoff::default();
        while !done() && !deadline.expired() {
            backoff.wait();
        }
    }

    fn report(&self) -> ShutdownReport {
        let ended = self.has_ended();
        let abandoned = self.abandoned() + if ended { 0 } else { self.ring.count() };
        ShutdownReport { ran_all: ended && abandoned == 0, abandoned }
    }

    #[cfg(feature = "std")]
    pub(super) fn is_runner(&self, me: usize) -> bool {
        self.runner.is(me)
    }

    #[cfg(not(feature = "std"))]
    pub(super) fn is_runner(&self, _me: usize) -> bool {
        false
    }

    /// Joins the runner if it ends in time, and lets it go otherwise: it ends when its entry does.
    #[cfg(feature = "std")]
    fn part_from_runner(&self, me: usize, deadline: &Deadline) {
        if !self.has_runner || self.is_runner(me) {
            return;
        }
        // loom cannot poll for the end of a thread without exploring every number of polls: there the join waits.
        if !cfg!(loom) {
            self.pass_time(deadline, || self.runner.is_gone());
        }
        if let Some(handle) = self.runner.take()
            && (self.runner.is_gone() || cfg!(loom))
        {
            // It caught every panic of entries; a payload here could only be the thread's own, and there is none to tell.
            let _ = handle.join();
        }
    }

    #[cfg(not(feature = "std"))]
    fn part_from_runner(&self, _me: usize, _deadline: &Deadline) {}
}
