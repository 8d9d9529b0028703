//! Who looks at the device when it is time: a thread where there are threads. Elsewhere whoever waits looks again and again anyway.

use core::time::Duration;
use trunnion_runtime_core::executor::Notifier;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
mod clock {
    use super::{Duration, Notifier};
    use alloc::string::ToString;
    use alloc::sync::Arc;
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Instant;

    #[derive(Default)]
    struct Set {
        at: Option<Instant>,
        ended: bool,
    }

    #[derive(Default)]
    struct Shared {
        set: Mutex<Set>,
        changed: Condvar,
    }

    /// Rings a notifier once the time set is there.
    pub(in super::super) struct Alarm {
        shared: Arc<Shared>,
        started: bool,
    }

    impl Alarm {
        pub(in super::super) fn new() -> Self {
            Self { shared: Arc::default(), started: false }
        }

        /// Rings this long from now at the latest.
        pub(in super::super) fn ring_after(&mut self, time: Duration, notifier: &Notifier) {
            if !self.started {
                let (shared, notifier) = (self.shared.clone(), notifier.clone());
                let thread = std::thread::Builder::new().name("trunnion alarm".to_string());
                self.started = thread.spawn(move || run(&shared, &notifier)).is_ok();
            }
            if !self.started {
                // Looked at without pause, it is found all the same.
                return notifier.notify();
            }
            let Some(at) = Instant::now().checked_add(time) else { return };
            let mut set = self.shared.set.lock().unwrap_or_else(PoisonError::into_inner);
            if set.at.is_none_or(|known| at < known) {
                set.at = Some(at);
                self.shared.changed.notify_one();
            }
        }
    }

    impl Drop for Alarm {
        fn drop(&mut self) {
            self.shared.set.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
            self.shared.changed.notify_one();
        }
    }

    fn run(shared: &Shared, notifier: &Notifier) {
        let mut set = shared.set.lock().unwrap_or_else(PoisonError::into_inner);
        while !set.ended {
            let now = Instant::now();
            set = match set.at {
                None => shared.changed.wait(set).unwrap_or_else(PoisonError::into_inner),
                Some(at) if at > now => {
                    shared.changed.wait_timeout(set, at - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    set.at = None;
                    drop(set);
                    notifier.notify();
                    shared.set.lock().unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

#[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
mod clock {
    use super::{Duration, Notifier};

    /// Nobody rings.
    pub(in super::super) struct Alarm;

    impl Alarm {
        pub(in super::super) fn new() -> Self {
            Self
        }

        pub(in super::super) fn ring_after(&mut self, _: Duration, notifier: &Notifier) {
            notifier.notify();
        }
    }
}

pub(super) use clock::Alarm;
