//! What threads share is made of: the target's atomics and locks, or loom's where its model checker runs these very files.
//!
//! `explored` is that choice. A counter in a `static` that no model looks at uses [`AtomicU64`], which is never loom's.

#[cfg(target_has_atomic = "64")]
pub use core::sync::atomic::AtomicU64;
/// A 64-bit atomic made with a lock, for targets without one: not for interrupt handlers unless the firmware picks
/// `portable-atomic`'s critical-section or single-core feature.
#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::AtomicU64;

/// What loom explores every order of.
#[cfg(not(loom))]
pub(crate) mod explored {
    pub(crate) use super::AtomicU64;
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
    pub(crate) use spin::Mutex;
    #[cfg(feature = "std")]
    pub(crate) use std::thread::{JoinHandle, Thread, current, park, park_timeout};
}

#[cfg(loom)]
pub(crate) mod explored {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::thread::{JoinHandle, Thread, current, park};

    /// loom knows no time: a timed park is a park.
    pub(crate) fn park_timeout(_time: core::time::Duration) {
        park();
    }

    /// A lock whose waiters loom sees: a spin lock's would never let its owner run on.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

/// A `const fn`, except under loom, whose atomics are made while a model runs.
macro_rules! const_fn {
    ($visible:vis fn $($rest:tt)+) => {
        #[cfg(not(loom))]
        $visible const fn $($rest)+
        #[cfg(loom)]
        $visible fn $($rest)+
    };
}

/// A `static`. Under loom each run of a model has its own, made when it is first used.
macro_rules! process_wide {
    (static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        static $name: $type = $value;
        #[cfg(loom)]
        ::loom::lazy_static! {
            static ref $name: $type = $value;
        }
    };
}

pub(crate) use {const_fn, process_wide};

/// Explores a model with at most this many forced switches of thread, and `TRUNNION_LOOM_MORE` more. Says so where
/// `LOOM_MAX_DURATION`, in seconds, ended it early.
#[cfg(loom)]
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    use std::io::Write as _;

    let more = std::env::var("TRUNNION_LOOM_MORE").map_or(0, |more| more.parse().unwrap());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions + more);
    builder.max_branches = 20_000;
    let started = std::time::Instant::now();
    builder.check(model);
    if builder.max_duration.is_some_and(|limit| started.elapsed() >= limit) {
        // Past libtest, which keeps what a test that passes prints.
        let test = std::thread::current();
        let name = test.name().unwrap_or_default();
        writeln!(std::io::stderr(), "not every order was explored in time: {name}").unwrap();
    }
}
