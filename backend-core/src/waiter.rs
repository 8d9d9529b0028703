//! The thread that waits for what a queue or stream was given, for drivers that tell of its end only to who asks or waits for it.
//!
//! It sleeps while nothing is unfinished. What is, it takes in order, and waits for it by what the backend has for that ([`Watched`]). Then it
//! tells who drives the device. From the first thing that it waits for until it sleeps it is [`Inside`] the driver's library; when the process
//! exits it goes in no more, and ends.
//!
//! Who gives the queue something [rouses](Waiter::rouse) the thread afterwards: one exchange, and a call of the system only where it sleeps.
//! Before it sleeps the thread announces that, and looks once more. So either it sees what was given, or who gave it sees the announcement.
//!
//! A thread cannot be called back from a wait. It [ends](Waiter::end) with the one that it is in, and is waited for only where that is over;
//! otherwise it is left behind, with what it holds.

use crate::exit::{self, Inside, Step};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::mem;
use core::time::Duration;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;

/// What loom explores every order of.
#[cfg(not(loom))]
mod explored {
    pub(super) use core::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::thread::{Thread, current, park};
}
#[cfg(loom)]
mod explored {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(super) use loom::thread::{Thread, current, park};
}

use explored::{AtomicBool, Ordering, Thread, current, park};

/// How long the thread pauses before it asks again where a driver neither waits nor says what is finished.
pub const PAUSE: Duration = Duration::from_millis(1);

/// What a thread waits for, one thing after the other. The thread owns it, and drops it where it ends.
pub trait Watched: Send + 'static {
    /// One thing to wait for.
    type Next;

    /// What to wait for next; `None` while nothing is unfinished: the thread then sleeps until it is roused.
    ///
    /// MUST call nothing of the driver's: the thread may be outside its library.
    fn next(&mut self) -> Option<Self::Next>;

    /// Waits for it. Whether it is finished: if not, the thread looks whether it is to end, and what is [next](Self::next) now. It does so
    /// at once, so a wait that is not over MUST have taken a while. The longest that it takes is the longest that the thread outlives its
    /// owner.
    ///
    /// # Errors
    /// What the driver answers. [`Error::DeviceLost`] ends the thread; after others it goes on, [`PAUSE`] later.
    fn wait(&mut self, next: &Self::Next) -> Result<bool>;

    /// It is finished, and who drives the device is told next.
    fn finished(&mut self, next: Self::Next);
}

/// The thread that waits, as its owner has it: first there is none. Dropped, it tells the thread to end, and waits for nothing.
///
/// Equivalent to: the thread of a host program that loops over `cuEventSynchronize` or `vkWaitSemaphores`; wgpu's is one that calls
/// `Device::poll`.
#[derive(Default)]
pub struct Waiter {
    rest: Arc<Rest>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Waiter {
    /// Starts the thread, unless it was started. It tells the notifier, where there is one, of whatever is finished, and of whatever the driver
    /// answers instead.
    ///
    /// # Errors
    /// [`Error::Driver`] of the call `spawn`, with the system's error number, when the system gives no thread.
    pub fn start(&self, name: &str, watched: impl Watched, notifier: Option<&Notifier>) -> Result<()> {
        self.start_as(Builder::new().name(String::from(name)), watched, notifier)
    }

    fn start_as(&self, builder: Builder, watched: impl Watched, notifier: Option<&Notifier>) -> Result<()> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if handle.is_none() {
            let (rest, notifier) = (self.rest.clone(), notifier.cloned());
            let started = builder.spawn(move || rest.attend(watched, notifier.as_ref())).map_err(|error| {
                let message = format!("the thread that waits for the device's work: {error}");
                Error::Driver { call: "spawn".into(), code: i64::from(error.raw_os_error().unwrap_or(0)), message }
            })?;
            *handle = Some(started);
        }
        Ok(())
    }

    /// There may be something new to wait for: called after [`Watched::next`] would find it.
    #[inline]
    pub fn rouse(&self) {
        self.rest.rouse();
    }

    /// Ends the thread, which waits for nothing more than it does now. Where that wait is over, as far as the owner knows, this returns when
    /// the thread has ended; otherwise at once. The owner is asked after the thread was told.
    pub fn end(&self, is_over: impl FnOnce() -> bool) {
        self.rest.end();
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle
            && (handle.is_finished() || is_over())
        {
            // What it panicked with, if it did, was said when it did.
            let _ = handle.join();
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.rest.end();
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

/// Whether the thread sleeps, and is still wanted.
///
/// Every change of `is_asleep` is an exchange: each sees what who made the one before had done until then.
#[derive(Default)]
struct Rest {
    /// Set by the thread before it announces that it sleeps for the first time.
    thread: OnceLock<Thread>,
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

impl Rest {
    #[inline]
    fn rouse(&self) {
        if self.is_asleep.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.rouse();
    }

    /// What the thread does.
    fn attend<W: Watched>(&self, mut watched: W, notifier: Option<&Notifier>) {
        let _ = self.thread.set(current());
        let tell = || {
            if let Some(notifier) = notifier {
                notifier.notify();
            }
        };
        let mut inside = None;
        while !self.is_over.load(Ordering::Acquire) {
            let Some(next) = watched.next() else {
                inside = None;
                // Announced before this look already, and nothing was given since. Where something was found after an announcement, that stands:
                // who gives the next thing rouses a thread that is awake.
                if self.is_asleep.swap(true, Ordering::AcqRel) {
                    park();
                }
                continue;
            };
            inside = inside.or_else(Inside::try_new);
            if inside.is_none() {
                // The process exits, and nobody is told of anything any more. Nor is anything given back: others may wait for this thread.
                mem::forget((next, watched));
                return;
            }
            match watched.wait(&next) {
                Ok(true) => {
                    exit::after(Step::Finished);
                    watched.finished(next);
                    tell();
                }
                Ok(false) => {}
                Err(error) => {
                    // What is finished is seen by whoever looks, and told a little later.
                    tell();
                    if error.is_device_lost() {
                        break;
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
        match inside.or_else(Inside::try_new) {
            Some(_inside) => drop(watched),
            // As above.
            None => mem::forget(watched),
        }
    }
}

#[cfg(all(test, loom))]
mod loom;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use core::sync::atomic::AtomicU64;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
    use trunnion_runtime_core::executor::{Config, Executor, Resident};
    use trunnion_runtime_core::platform::Deadline;

    const LONG: Duration = Duration::from_secs(60);

    /// Numbers that are given, each waited for by a function of the test's.
    struct Numbers {
        given: Arc<AtomicU64>,
        seen: u64,
        wait: Box<dyn FnMut(u64) -> Result<bool> + Send>,
        finished: Sender<u64>,
    }

    impl Watched for Numbers {
        type Next = u64;

        fn next(&mut self) -> Option<u64> {
            (self.given.load(Ordering::Relaxed) > self.seen).then_some(self.seen + 1)
        }

        fn wait(&mut self, next: &u64) -> Result<bool> {
            (self.wait)(*next)
        }

        fn finished(&mut self, next: u64) {
            self.seen = next;
            let _ = self.finished.send(next);
        }
    }

    /// Who gives numbers, and hears of those that are finished.
    struct Giver {
        waiter: Waiter,
        given: Arc<AtomicU64>,
        heard: Receiver<u64>,
    }

    impl Giver {
        fn new(wait: impl FnMut(u64) -> Result<bool> + Send + 'static, notifier: Option<&Notifier>) -> Self {
            let (given, (finished, heard)) = (Arc::new(AtomicU64::new(0)), channel());
            let waiter = Waiter::default();
            let numbers = Numbers { given: given.clone(), seen: 0, wait: Box::new(wait), finished };
            waiter.start("numbers", numbers, notifier).unwrap();
            Self { waiter, given, heard }
        }

        fn give(&self, count: u64) {
            self.given.fetch_add(count, Ordering::Relaxed);
            self.waiter.rouse();
        }

        /// Waits until the thread has dropped what it watched.
        fn has_ended(&self) {
            assert_eq!(self.heard.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        }
    }

    fn refused() -> Error {
        Error::Driver { call: "wait".into(), code: 1, message: "no".into() }
    }

    #[test]
    fn what_is_given_is_waited_for_in_order_however_it_comes() {
        let giver = Giver::new(|_| Ok(true), None);
        let mut expected = 1..;
        for round in 0..200 {
            // One and several at once; to a thread that sleeps and one that does not yet.
            let count = 1 + round % 3;
            giver.give(count);
            for _ in 0..count {
                assert_eq!(giver.heard.recv_timeout(LONG).ok(), expected.next());
            }
        }
        giver.waiter.end(|| true);
        assert_eq!(giver.heard.try_recv(), Err(TryRecvError::Disconnected), "the thread has ended");
    }

    #[test]
    fn who_drives_the_device_is_told_of_an_end_and_of_an_error() {
        struct Driver(Sender<()>);
        impl Resident for Driver {
            fn progress(&mut self) {
                let _ = self.0.send(());
            }
        }
        let (told, tells) = channel();
        let executor = Executor::new(Driver(told), Config::default()).unwrap();
        let mut answers = [Ok(true), Err(refused()), Ok(true)].into_iter();
        let giver = Giver::new(move |_| answers.next().unwrap(), Some(&executor.notifier()));
        giver.give(1);
        tells.recv_timeout(LONG).unwrap();
        assert_eq!(giver.heard.try_recv(), Ok(1), "it is told of what is finished, not of what will be");
        giver.give(1);
        tells.recv_timeout(LONG).unwrap();
        assert_eq!(giver.heard.recv_timeout(LONG), Ok(2), "it is asked for again");
        giver.waiter.end(|| true);
        assert!(executor.shutdown(&Deadline::after(LONG)).ran_all);
    }

    #[test]
    fn a_device_that_is_lost_ends_the_thread() {
        let giver = Giver::new(|_| Err(Error::DeviceLost { cause: "gone".into() }), None);
        giver.give(1);
        giver.has_ended();
        giver.waiter.end(|| false);
    }

    #[test]
    fn a_wait_that_does_not_return_is_left_behind() {
        let (release, released) = channel::<()>();
        let (begin, begun) = channel();
        let wait = move |_| {
            let _ = begin.send(());
            let _ = released.recv();
            Ok(true)
        };
        let giver = Giver::new(wait, None);
        giver.give(2);
        begun.recv_timeout(LONG).unwrap();
        giver.waiter.end(|| false);
        assert_eq!(giver.heard.try_recv(), Err(TryRecvError::Empty), "nobody waited for the thread");
        drop(release);
        assert_eq!(giver.heard.recv_timeout(LONG), Ok(1), "what it was in is seen to its end");
        giver.has_ended();
    }

    #[test]
    fn a_wait_in_slices_ends_with_one_of_them() {
        let (begin, begun) = channel();
        let slice = move |_| {
            let _ = begin.send(());
            thread::sleep(PAUSE);
            Ok(false)
        };
        let giver = Giver::new(slice, None);
        giver.give(1);
        begun.recv_timeout(LONG).unwrap();
        begun.recv_timeout(LONG).unwrap();
        giver.waiter.end(|| false);
        giver.has_ended();
    }

    #[test]
    fn a_waiter_that_is_dropped_tells_its_thread() {
        let Giver { waiter, heard, .. } = Giver::new(|_| Ok(true), None);
        drop(waiter);
        assert_eq!(heard.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_second_start_leaves_the_thread_as_it_is() {
        let giver = Giver::new(|_| Ok(true), None);
        let (finished, heard) = channel();
        let second = Numbers { given: giver.given.clone(), seen: 0, wait: Box::new(|_| Ok(true)), finished };
        giver.waiter.start("second", second, None).unwrap();
        giver.give(1);
        assert_eq!(giver.heard.recv_timeout(LONG), Ok(1));
        assert_eq!(heard.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        giver.waiter.end(|| true);
    }

    #[test]
    fn a_thread_that_the_system_refuses_is_an_error_and_can_be_asked_for_again() {
        let (finished, heard) = channel();
        let numbers = |finished| Numbers { given: Arc::default(), seen: 0, wait: Box::new(|_| Ok(true)), finished };
        let waiter = Waiter::default();
        // No address space has room for such a stack.
        let builder = Builder::new().stack_size(isize::MAX as usize);
        let refused = waiter.start_as(builder, numbers(finished.clone()), None).unwrap_err();
        assert!(matches!(&refused, Error::Driver { call, code, .. } if call == "spawn" && *code != 0), "{refused}");
        waiter.rouse();
        waiter.start("numbers", numbers(finished), None).unwrap();
        waiter.end(|| true);
        assert_eq!(heard.try_recv(), Err(TryRecvError::Disconnected));
    }
}
