//! Time, thread identity and waiting: the three things the runtime asks of what it runs on.
//!
//! With feature `std` they come from the standard library. Without it (and on `wasm32-unknown-unknown`, where the
//! standard library has neither clock nor threads) a board may `install` a [`Platform`] before anything else is
//! used. Without one there is no clock and one thread is assumed: a [`Deadline`] then counts how often it was polled.

use core::future::Future;
use core::num::NonZeroU64;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// How many polls of a [`Deadline`] count as one millisecond where there is no clock.
///
/// A poll there is a handful of instructions and one look at the device, a microsecond or so on a small core: a
/// deadline of one second gives up after a million polls.
pub const POLLS_PER_MILLISECOND: u64 = 1_000;

/// What a board gives the runtime in place of the standard library.
pub trait Platform: Send + Sync {
    /// Time since any fixed moment, never decreasing; `None` where there is no clock.
    fn now(&self) -> Option<Duration>;

    /// The thread (task) that is running.
    ///
    /// MUST differ between any two threads of the program, ended ones included.
    fn thread(&self) -> ThreadToken;
}

/// A platform was installed before; the first one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a platform is already installed, and one program has one")]
pub struct AlreadyInstalled;

/// Names a thread. No two threads of a program have the same, not even after one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadToken(NonZeroU64);

impl ThreadToken {
    /// The token of the calling thread.
    #[inline]
    pub fn current() -> Self {
        host::thread()
    }

    /// A token of the platform's own numbering.
    pub const fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    /// The number inside.
    pub const fn get(self) -> NonZeroU64 {
        self.0
    }
}

/// A moment after which a wait gives up, or none.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: host::Moment,
    limit: Option<Duration>,
}

impl Deadline {
    /// Passes `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self { start: host::Moment::now(), limit: Some(limit) }
    }

    /// Never passes.
    pub fn never() -> Self {
        Self { start: host::Moment::now(), limit: None }
    }

    /// Whether it has passed. Where there is no clock, each call counts as one poll
    /// ([`POLLS_PER_MILLISECOND`] of them make a millisecond, whichever deadline was asked).
    pub fn expired(&self) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        host::poll();
        self.start.elapsed() >= limit
    }

    /// What is left: zero once passed, `None` when it never passes. Counts as no poll.
    pub fn remaining(&self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.start.elapsed()))
    }

    /// Time since this deadline was made. Counts as no poll.
    pub fn waited(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Lets another thread have the core, where one wants it: whoever looks for something again and again may be keeping the one it
/// waits for from running.
pub(crate) fn give_way() {
    host::yield_now();
}

/// Passes the time between two looks at something: first by spinning, then by yielding, then by sleeping for at
/// most 200 µs a round. Where there are no threads it only spins.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    round: u32,
}

impl Backoff {
    const SPINS: u32 = 6;
    const YIELDS: u32 = 4;
    const SLEEP: Duration = Duration::from_micros(25);
    const DOUBLINGS: u32 = 3;

    pub(crate) fn wait(&mut self) {
        if self.round < Self::SPINS {
            host::spin(1 << self.round);
        } else if self.round < Self::SPINS + Self::YIELDS {
            host::yield_now();
        } else {
            let doublings = (self.round - Self::SPINS - Self::YIELDS).min(Self::DOUBLINGS);
            host::sleep(Self::SLEEP * (1 << doublings));
        }
        self.round = self.round.saturating_add(1);
    }
}

/// Runs `future` on the calling thread until it is ready; `None` when the deadline passed first.
///
/// With `std` the thread sleeps between polls and the future's waker wakes it; otherwise it polls without pause. The
/// future is polled at least once, however late it is. A thread's first call makes its waker; later ones allocate nothing.
pub fn block_on<F: Future>(future: F, deadline: &Deadline) -> Option<F::Output> {
    let mut future = pin!(future);
    host::with_waker(|sleeper, waker| {
        let mut context = Context::from_waker(waker);
        let mut is_late = false;
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                // The waker is shared by every wait of this thread: one around this may have missed its own wake.
                sleeper.rouse();
                return Some(output);
            }
            if is_late || !sleeper.sleep(deadline) {
                sleeper.rouse();
                return None;
            }
            // A future that wakes itself, again and again, never sleeps. What has come by now is found by one more look.
            is_late = deadline.remaining() == Some(Duration::ZERO);
        }
    })
}

/// Standard library with a clock and threads.
#[cfg(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown"))))]
mod host {
    use super::{Deadline, Duration, NonZeroU64, ThreadToken, Waker};
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use core::cell::Cell;
    use std::time::Instant;

    use crate::sync::AtomicU64;
    use crate::sync::explored::{AtomicBool, Ordering, Thread, current, park, park_timeout};

    #[cfg(not(loom))]
    std::thread_local! {
        static TOKEN: Cell<u64> = const { Cell::new(0) };
        static SLEEPER: (Arc<Sleeper>, Waker) = new_sleeper();
    }
    #[cfg(loom)]
    loom::thread_local! {
        static TOKEN: Cell<u64> = Cell::new(0);
        static SLEEPER: (Arc<Sleeper>, Waker) = new_sleeper();
    }

    #[inline]
    pub(super) fn thread() -> ThreadToken {
        TOKEN.with(|cell| match NonZeroU64::new(cell.get()) {
            Some(number) => ThreadToken(number),
            None => first_token(cell),
        })
    }

    #[cold]
    fn first_token(cell: &Cell<u64>) -> ThreadToken {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // 2^64 threads are never reached; `MAX` keeps the type honest without a panic.
        let number = NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU64::MAX);
        cell.set(number.get());
        ThreadToken(number)
    }

    #[derive(Clone, Copy, Debug)]
    pub(super) struct Moment(Instant);

    impl Moment {
        pub(super) fn now() -> Self {
            Self(Instant::now())
        }

        pub(super) fn elapsed(self) -> Duration {
            // In a model time stands still, or its runs would differ: only a deadline of no time passes there.
            if cfg!(loom) { Duration::ZERO } else { self.0.elapsed() }
        }
    }

    pub(super) fn poll() {}

    #[cfg(not(loom))]
    pub(super) fn spin(times: u32) {
        for _ in 0..times {
            core::hint::spin_loop();
        }
    }

    #[cfg(not(loom))]
    pub(super) fn yield_now() {
        std::thread::yield_now();
    }

    #[cfg(not(loom))]
    pub(super) fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    #[cfg(loom)]
    pub(super) fn spin(_times: u32) {
        loom::thread::yield_now();
    }

    #[cfg(loom)]
    pub(super) fn yield_now() {
        loom::thread::yield_now();
    }

    #[cfg(loom)]
    pub(super) fn sleep(_time: Duration) {
        loom::thread::yield_now();
    }

    pub(super) struct Sleeper {
        thread: Thread,
        woken: AtomicBool,
    }

    impl Sleeper {
        /// Returns once woken; `false` when the deadline passed first.
        pub(super) fn sleep(&self, deadline: &Deadline) -> bool {
            const LOOKS: u32 = if cfg!(loom) { 0 } else { 64 };
            for _ in 0..LOOKS {
                if self.woken.swap(false, Ordering::Acquire) {
                    return true;
                }
                core::hint::spin_loop();
            }
            loop {
                if self.woken.swap(false, Ordering::Acquire) {
                    return true;
                }
                match deadline.remaining() {
                    None => park(),
                    Some(Duration::ZERO) => return false,
                    Some(left) => park_timeout(left),
                }
            }
        }

        pub(super) fn rouse(&self) {
            // Release also where it was set before: the sleeper must see what every waker wrote.
            if !self.woken.swap(true, Ordering::AcqRel) {
                self.thread.unpark();
            }
        }
    }

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.rouse();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.rouse();
        }
    }

    fn new_sleeper() -> (Arc<Sleeper>, Waker) {
        let sleeper = Arc::new(Sleeper { thread: current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(sleeper.clone());
        (sleeper, waker)
    }

    pub(super) fn with_waker<R>(run: impl FnOnce(&Sleeper, &Waker) -> R) -> R {
        let mut run = Some(run);
        let cached = SLEEPER.try_with(|(sleeper, waker)| run.take().map(|run| run(sleeper, waker)));
        match (cached, run) {
            (Ok(Some(output)), _) => output,
            // A thread that is ending has lost its cached one; waiting there still works.
            (_, Some(run)) => {
                let (sleeper, waker) = new_sleeper();
                run(&sleeper, &waker)
            }
            // `run` is gone only if it ran, and then the first arm had its output.
            (_, None) => unreachable!(),
        }
    }
}

/// A board, or a host without clock and threads.
#[cfg(not(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown")))))]
mod host {
    use super::{
        AlreadyInstalled, Deadline, Duration, NonZeroU64, POLLS_PER_MILLISECOND, Platform, ThreadToken, Waker,
    };
    use core::sync::atomic::Ordering;

    use crate::sync::AtomicU64;

    static INSTALLED: spin::Once<&'static dyn Platform> = spin::Once::new();
    static POLLS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn install(platform: &'static dyn Platform) -> Result<(), AlreadyInstalled> {
        let mut first = false;
        INSTALLED.call_once(|| {
            first = true;
            platform
        });
        if first { Ok(()) } else { Err(AlreadyInstalled) }
    }

    pub(super) fn thread() -> ThreadToken {
        INSTALLED.get().map_or(ThreadToken(NonZeroU64::MIN), |platform| platform.thread())
    }

    #[derive(Clone, Copy, Debug)]
    pub(super) struct Moment(Duration);

    impl Moment {
        pub(super) fn now() -> Self {
            Self(clock().unwrap_or_else(polled))
        }

        pub(super) fn elapsed(self) -> Duration {
            Self::now().0.saturating_sub(self.0)
        }
    }

    fn clock() -> Option<Duration> {
        INSTALLED.get().and_then(|platform| platform.now())
    }

    fn polled() -> Duration {
        Duration::from_micros(POLLS.load(Ordering::Relaxed).saturating_mul(1_000) / POLLS_PER_MILLISECOND)
    }

    pub(super) fn poll() {
        if clock().is_none() {
            POLLS.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn spin(times: u32) {
        for _ in 0..times {
            core::hint::spin_loop();
        }
    }

    pub(super) fn yield_now() {
        core::hint::spin_loop();
    }

    pub(super) fn sleep(_time: Duration) {
        core::hint::spin_loop();
    }

    pub(super) struct Sleeper;

    impl Sleeper {
        pub(super) fn sleep(&self, deadline: &Deadline) -> bool {
            core::hint::spin_loop();
            !deadline.expired()
        }

        pub(super) fn rouse(&self) {}
    }

    pub(super) fn with_waker<R>(run: impl FnOnce(&Sleeper, &Waker) -> R) -> R {
        run(&Sleeper, Waker::noop())
    }
}

/// Gives the runtime its clock and its thread identity, before anything else of it is used.
///
/// # Errors
/// [`AlreadyInstalled`] when one was installed before.
#[cfg(not(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown")))))]
pub fn install(platform: &'static dyn Platform) -> Result<(), AlreadyInstalled> {
    host::install(platform)
}
