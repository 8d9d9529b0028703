//! A thread of the pool that sleeps until it is called, and the core it is called to.
//!
//! A system that has no core to spare wakes a thread where it last ran, and may leave it there for milliseconds: behind the thread that called
//! it, beside a core that has been idle since. So who calls takes a sleeper from another core than its own, and sends one off its own where there
//! is no other. Awake, the thread may run on every core again.

use core::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// One thread of the pool.
pub(crate) struct Sleeper {
    thread: Thread,
    called: AtomicBool,
    place: place::Place,
}

impl Sleeper {
    /// The calling thread.
    pub(crate) fn new() -> Self {
        Self { thread: thread::current(), called: AtomicBool::new(false), place: place::Place::new() }
    }

    /// The thread is about to sleep where it runs now.
    pub(crate) fn lie_down(&self) {
        self.place.note();
    }

    /// Sleeps until called. Only by the thread itself.
    pub(crate) fn sleep(&self) {
        while !self.called.swap(false, Ordering::Acquire) {
            thread::park();
        }
        self.place.open();
    }

    /// Wakes the thread, for its turn at what the caller goes on with on its own core.
    pub(crate) fn call(&self) {
        self.place.leave_to_caller();
        self.called.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// The one to call: the last to lie down of those who are not on the caller's core.
    pub(crate) fn best<S: AsRef<Self>>(sleepers: &[S]) -> Option<usize> {
        let here = place::here();
        let elsewhere = sleepers.iter().rposition(|sleeper| !sleeper.as_ref().place.is_on(here));
        elsewhere.or(sleepers.len().checked_sub(1))
    }
}

/// Cores, on systems that tell a thread's and let it be changed.
#[cfg(target_os = "linux")]
mod place {
    use crate::lock::Lock;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// The core the calling thread runs on.
    pub(super) fn here() -> usize {
        sched_getcpu()
    }

    pub(super) struct Place {
        thread: Pid,
        core: AtomicUsize,
        /// The cores it may run on, while it was sent off one.
        allowed: Lock<Option<CpuSet>>,
    }

    impl Place {
        pub(super) fn new() -> Self {
            Self { thread: gettid(), core: AtomicUsize::new(sched_getcpu()), allowed: Lock::new(None) }
        }

        pub(super) fn note(&self) {
            self.note_on(sched_getcpu());
        }

        pub(super) fn note_on(&self, core: usize) {
            self.core.store(core, Ordering::Relaxed);
        }

        pub(super) fn is_on(&self, core: usize) -> bool {
            self.core.load(Ordering::Relaxed) == core
        }

        /// Sends the thread off the calling thread's core. A system that refuses leaves it there, and it is only slower.
        pub(super) fn leave_to_caller(&self) {
            let here = sched_getcpu();
            if !self.is_on(here) {
                return;
            }
            let Ok(allowed) = sched_getaffinity(Some(self.thread)) else { return };
            let mut others = allowed;
            others.unset(here);
            if others.count() > 0 && sched_setaffinity(Some(self.thread), &others).is_ok() {
                *self.allowed.lock() = Some(allowed);
            }
        }

        /// Lets the calling thread run on all its cores again.
        pub(super) fn open(&self) {
            if let Some(allowed) = self.allowed.lock().take() {
                let _ = sched_setaffinity(None, &allowed);
            }
        }
    }
}

/// A system that does not say on which core a thread runs.
#[cfg(not(target_os = "linux"))]
mod place {
    pub(super) fn here() {}

    pub(super) struct Place;

    impl Place {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) fn note(&self) {}

        pub(super) fn is_on(&self, (): ()) -> bool {
            false
        }

        pub(super) fn leave_to_caller(&self) {}

        pub(super) fn open(&self) {}
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
    use std::{println, sync::mpsc};

    /// The calling thread runs on this core alone.
    fn only(core: usize) {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).unwrap();
    }

    #[test]
    fn a_thread_that_sleeps_on_its_callers_core_is_called_to_another_and_may_then_run_on_all() {
        let allowed = sched_getaffinity(None).unwrap();
        if allowed.count() < 2 {
            println!("NOT RUN: this process may use one core");
            return;
        }
        // Where it runs once it may run on all is the system's affair: a busy one may have put it back before it looks, now and then.
        let called_away = (0..20).any(|_| {
            let here = sched_getcpu();
            only(here);
            let (sender, receiver) = mpsc::channel();
            let thread = thread::spawn(move || {
                only(here);
                sched_setaffinity(None, &allowed).unwrap();
                let sleeper = Arc::new(Sleeper::new());
                // As if it had run here last, wherever the system has put it meanwhile.
                sleeper.place.note_on(here);
                sender.send(sleeper.clone()).unwrap();
                sleeper.sleep();
                (sched_getcpu(), sched_getaffinity(None).unwrap())
            });
            receiver.recv().unwrap().call();
            let (there, may_use) = thread.join().unwrap();
            sched_setaffinity(None, &allowed).unwrap();
            assert_eq!(may_use, allowed);
            there != here
        });
        assert!(called_away, "it was called to its caller's core each time");
    }

    #[test]
    fn who_sleeps_on_another_core_is_called_before_who_sleeps_on_the_callers() {
        let here = sched_getcpu();
        let [mine, other] = [here, here + 1].map(|core| {
            let sleeper = Arc::new(Sleeper::new());
            sleeper.place.note_on(core);
            sleeper
        });
        let allowed = sched_getaffinity(None).unwrap();
        only(here);
        assert_eq!(Sleeper::best(&[other.clone(), mine.clone()]), Some(0));
        assert_eq!(Sleeper::best(&[mine.clone(), other]), Some(1));
        assert_eq!(Sleeper::best(&[mine]), Some(0));
        assert_eq!(Sleeper::best::<Arc<Sleeper>>(&[]), None);
        sched_setaffinity(None, &allowed).unwrap();
    }
}
