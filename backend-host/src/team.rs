//! Teams: helpers that stay with a stream from launch to launch of a batch.
//!
//! Most launches are shorter than it takes to find a thread for them, so a helper that has come for one stays a moment for the next: to put up
//! a launch, and to take it up, costs each side a lock that nobody else wants. To the pool a team is one piece of shared work, open as long as
//! the batch; whoever waits in it for a launch goes when a stream or other shared work needs a thread.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::pool::{self, Crew, Shift, Work};

/// The helpers of a stream.
#[derive(Clone)]
pub(crate) struct Team(Arc<Shared>);

struct Shared {
    /// What is to be shared now.
    work: Lock<Option<Arc<dyn Work>>>,
    /// Counts what was put up, for those who wait for more.
    rounds: AtomicUsize,
    /// Helpers that are here, at work or waiting for some.
    present: AtomicUsize,
    /// Whether the pool knows of it: between the first shared work of a batch and the batch's end.
    open: AtomicBool,
    crew: Crew,
}

impl Team {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            work: Lock::new(None),
            rounds: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            crew: Crew::new(),
        }))
    }

    /// Whether somebody would help at once, without being woken.
    pub(crate) fn is_attended(&self) -> bool {
        self.0.present.load(Ordering::Relaxed) > 0
    }

    /// Does the work, with the help of those who are here or come, up to `helpers` of them, as many as any work of the batch has use for.
    /// It is done when this returns.
    pub(crate) fn share(&self, work: Arc<dyn Work>, helpers: usize) {
        let shared = &*self.0;
        *shared.work.lock() = Some(work.clone());
        shared.rounds.fetch_add(1, Ordering::Release);
        if !shared.open.swap(true, Ordering::Relaxed) {
            pool::open(self.0.clone(), helpers);
        } else if !self.is_attended() {
            pool::beckon();
        }
        work.work(&Shift::owner());
        // From here on nobody joins.
        *shared.work.lock() = None;
        work.crew().see_off();
    }

    /// The batch is over: nobody is kept.
    pub(crate) fn dismiss(&self) {
        if self.0.open.swap(false, Ordering::Release) {
            pool::close(&*self.0);
        }
    }
}

impl Shared {
    /// The work that is up, for a helper who is counted among its crew then.
    fn join(&self) -> Option<Arc<dyn Work>> {
        let up = self.work.lock();
        let work = up.as_ref().filter(|work| !work.is_taken())?;
        // Under the lock: the owner waits for those who joined before it took the work down.
        work.crew().join();
        Some(work.clone())
    }

    /// Waits a moment for more work; false when there was none, or the helper is needed elsewhere.
    fn await_more(&self, seen: usize, shift: &Shift<'_>) -> bool {
        let added = pool::added();
        let start = pool::now();
        loop {
            if self.rounds.load(Ordering::Acquire) != seen {
                return true;
            }
            let needed_elsewhere = shift.is_over() || pool::added() != added;
            if needed_elsewhere || !self.open.load(Ordering::Relaxed) || start.elapsed() > pool::LOOKING {
                return false;
            }
            for _ in 0..8 {
                core::hint::spin_loop();
            }
        }
    }
}

impl Work for Shared {
    fn work(&self, shift: &Shift<'_>) {
        self.present.fetch_add(1, Ordering::Relaxed);
        loop {
            let seen = self.rounds.load(Ordering::Acquire);
            if let Some(work) = self.join() {
                work.work(shift);
                work.crew().leave();
            }
            if shift.is_over() || !self.await_more(seen, shift) {
                break;
            }
        }
        self.present.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_taken(&self) -> bool {
        self.work.lock().as_ref().is_none_or(|work| work.is_taken())
    }

    fn crew(&self) -> &Crew {
        &self.crew
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::Sum;

    #[test]
    fn what_is_shared_is_done_once_and_nobody_is_at_it_afterwards() {
        let team = Team::new();
        for round in 0..3000 {
            let work = Arc::new(Sum::default());
            team.share(work.clone(), 1 + round % 3);
            assert_eq!(work.sum(), 999 * 1000 / 2);
            assert!(work.crew().is_empty(), "a helper is at work that is over");
            if round % 7 == 0 {
                team.dismiss();
            }
        }
        team.dismiss();
        assert!(!team.is_attended());
    }

    #[test]
    fn teams_of_several_streams_share_the_threads_there_are() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let team = Team::new();
                    for _ in 0..300 {
                        let work = Arc::new(Sum::default());
                        team.share(work.clone(), 2);
                        assert_eq!(work.sum(), 999 * 1000 / 2);
                    }
                    team.dismiss();
                });
            }
        });
    }
}
