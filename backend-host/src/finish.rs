//! The end of batches: counts what is unfinished, tells the executor, late where the options say so, and waits for the last.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::platform::Deadline;

use crate::lock::Lock;
use crate::options::HostOptions;

/// The most that a completion is late when only their order is to change.
const SHUFFLE: Duration = Duration::from_millis(1);

pub(crate) struct Finish {
    notifier: spin::Once<Notifier>,
    unfinished: AtomicUsize,
    lateness: Option<Lateness>,
    #[cfg(feature = "std")]
    gate: gate::Gate,
}

/// When completions are reported that are reported late.
struct Lateness {
    delay: Duration,
    /// The state of the random numbers, where there are any.
    random: Option<Lock<u64>>,
    /// The end of the latest.
    last: Lock<Option<Deadline>>,
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    alarm: alarm::Alarm,
}

impl Finish {
    pub(crate) fn new(options: &HostOptions) -> Result<Self> {
        let late = options.delay > Duration::ZERO || options.reorder.is_some();
        Ok(Self {
            notifier: spin::Once::new(),
            unfinished: AtomicUsize::new(0),
            lateness: if late { Some(Lateness::new(options)?) } else { None },
            #[cfg(feature = "std")]
            gate: gate::Gate::default(),
        })
    }

    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        self.notifier.call_once(|| notifier);
    }

    /// A batch was submitted.
    pub(crate) fn begin(&self) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
    }

    /// When a batch whose work is done now is reported, where what it depended on is reported at `after`; `None` for at once. However much
    /// the order changes, nothing is reported before what it depended on: no hardware does that.
    pub(crate) fn due(&self, after: Option<Deadline>) -> Option<Deadline> {
        let lateness = self.lateness.as_ref()?;
        let due = later(Some(Deadline::after(lateness.draw())), after);
        let mut last = lateness.last.lock();
        *last = later(*last, due);
        due
    }

    /// A batch's work is done and its stream says so.
    pub(crate) fn end(&self, due: Option<Deadline>) {
        let _last = self.unfinished.fetch_sub(1, Ordering::SeqCst) == 1;
        #[cfg(feature = "std")]
        if _last {
            self.gate.open();
        }
        let Some(notifier) = self.notifier.get() else { return };
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        if let (Some(late), Some(due)) = (&self.lateness, due) {
            late.alarm.set(due, notifier);
            return;
        }
        let _ = due;
        notifier.notify();
    }

    /// Waits until nothing is unfinished and everything is reported; false when the deadline passed first.
    pub(crate) fn drain(&self, deadline: &Deadline) -> bool {
        let is_done = || self.unfinished.load(Ordering::SeqCst) == 0;
        #[cfg(feature = "std")]
        let done = self.gate.wait(is_done, deadline);
        // Where there is one thread all is done here; where there are tasks, another one may be running it.
        #[cfg(not(feature = "std"))]
        let done = loop {
            match (is_done(), deadline.expired()) {
                (true, _) => break true,
                (false, true) => break false,
                (false, false) => core::hint::spin_loop(),
            }
        };
        done && self.wait_for_reports(deadline)
    }

    fn wait_for_reports(&self, deadline: &Deadline) -> bool {
        let Some(last) = self.lateness.as_ref().and_then(|lateness| *lateness.last.lock()) else { return true };
        while !last.expired() {
            if deadline.expired() {
                return false;
            }
            #[cfg(feature = "std")]
            std::thread::sleep(last.remaining().into_iter().chain(deadline.remaining()).min().unwrap_or_default());
            #[cfg(not(feature = "std"))]
            core::hint::spin_loop();
        }
        true
    }
}

/// The later of two.
pub(crate) fn later(a: Option<Deadline>, b: Option<Deadline>) -> Option<Deadline> {
    match (a, b) {
        (Some(a), Some(b)) if a.remaining() < b.remaining() => Some(b),
        (a, b) => a.or(b),
    }
}

impl Lateness {
    fn new(options: &HostOptions) -> Result<Self> {
        Ok(Self {
            delay: options.delay,
            random: options.reorder.map(Lock::new),
            last: Lock::new(None),
            #[cfg(all(feature = "std", not(target_family = "wasm")))]
            alarm: alarm::Alarm::new()?,
        })
    }

    fn draw(&self) -> Duration {
        let Some(random) = &self.random else { return self.delay };
        let mut state = random.lock();
        // The upper bits of a linear congruential generator: evenly spread is all they have to be.
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let most = if self.delay > Duration::ZERO { self.delay } else { SHUFFLE };
        self.delay + most.mul_f64((*state >> 32) as f64 / f64::from(u32::MAX))
    }
}

#[cfg(feature = "std")]
mod gate {
    //! Sleeping until the last batch is done.

    use core::sync::atomic::{AtomicUsize, Ordering};
    use core::time::Duration;
    use std::sync::{Condvar, Mutex, PoisonError};
    use trunnion_runtime_core::platform::Deadline;

    #[derive(Default)]
    pub(super) struct Gate {
        waiting: AtomicUsize,
        lock: Mutex<()>,
        bell: Condvar,
    }

    impl Gate {
        /// What was waited for may have happened. Costs one load while nobody waits.
        pub(super) fn open(&self) {
            // Ordered after the count that the waiter looks at, as its own announcement is before it looks: one sees the other.
            if self.waiting.load(Ordering::SeqCst) > 0 {
                drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
                self.bell.notify_all();
            }
        }

        pub(super) fn wait(&self, is_done: impl Fn() -> bool, deadline: &Deadline) -> bool {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            let done = loop {
                if is_done() {
                    break true;
                }
                if deadline.expired() {
                    break false;
                }
                let time = deadline.remaining().unwrap_or(Duration::from_secs(3600));
                (held, _) = self.bell.wait_timeout(held, time).unwrap_or_else(PoisonError::into_inner);
            };
            drop(held);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            done
        }
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod alarm {
    //! A thread that calls the notifier at the time a completion is to be reported.

    use alloc::collections::BTreeMap;
    use core::time::Duration;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    use std::thread;
    use std::time::Instant;
    use trunnion_runtime_core::error::{Error, Result};
    use trunnion_runtime_core::executor::Notifier;
    use trunnion_runtime_core::platform::Deadline;

    pub(super) struct Alarm(Sender<(Instant, Notifier)>);

    impl Alarm {
        pub(super) fn new() -> Result<Self> {
            let (sender, receiver) = channel();
            match thread::Builder::new().name("trunnion-host-late".into()).spawn(move || run(&receiver)) {
                Ok(_) => Ok(Self(sender)),
                Err(error) => {
                    let why = alloc::format!("options `delay` and `reorder` need a thread: {error}");
                    Err(Error::BackendUnavailable { backend: crate::NAME, why })
                }
            }
        }

        pub(super) fn set(&self, due: Deadline, notifier: &Notifier) {
            // A time that no clock here reaches never comes.
            if let Some(at) = Instant::now().checked_add(due.remaining().unwrap_or_default()) {
                let _ = self.0.send((at, notifier.clone()));
            }
        }
    }

    /// Ends when the device is gone: nobody hears what is left to report.
    fn run(receiver: &Receiver<(Instant, Notifier)>) {
        let mut pending: BTreeMap<(Instant, u64), Notifier> = BTreeMap::new();
        let mut count = 0;
        loop {
            let wait = pending
                .keys()
                .next()
                .map_or(Duration::from_secs(3600), |(due, _)| due.saturating_duration_since(Instant::now()));
            match receiver.recv_timeout(wait) {
                Ok((due, notifier)) => {
                    count += 1;
                    pending.insert((due, count), notifier);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            while pending.first_key_value().is_some_and(|((due, _), _)| *due <= now) {
                if let Some((_, notifier)) = pending.pop_first() {
                    notifier.notify();
                }
            }
        }
    }
}
