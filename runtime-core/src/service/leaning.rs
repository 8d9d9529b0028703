//! What a device waits for that another device brings: whoever waits for the one looks at the other too, where that has no thread.
//!
//! A device without a thread gets on only while somebody calls it. Where another device waits for its bytes or its points, whoever waits
//! for that other device has no reason to call it, and would wait for ever. So a device notes what it leans on, and its waiters go along.

use super::{Core, Service, Shared};
use crate::executor::{Execution, Glance};
use crate::promise::Promise;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many devices of the process have no thread. While there are none, nothing is noted.
static WITHOUT_THREAD: AtomicUsize = AtomicUsize::new(0);

/// What a device leans on.
#[derive(Default)]
pub(super) struct Leans {
    any: AtomicBool,
    on: spin::Mutex<Vec<Lean>>,
}

/// Something promised by another device.
struct Lean {
    is_given: Box<dyn Fn() -> bool + Send>,
    /// What that device leans on itself.
    other: Weak<Shared>,
    /// To look at it, where it has no thread.
    glance: Option<Glance<Core>>,
}

impl Leans {
    /// Looks at what is leaned on and not given yet; whether there is a device among it that gets on only when it is looked at, or
    /// somebody else is at it, so that it is not known.
    fn look(&self) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        // Taken out meanwhile: devices may lean on each other in a circle, and a look may wake somebody who leans on more.
        let mut on = core::mem::take(&mut *self.on.lock());
        if on.is_empty() {
            // Taken out by another thread, which may be looking for itself alone, and soon no more.
            return true;
        }
        on.retain(|lean| !(lean.is_given)());
        let mut wants = false;
        for lean in &on {
            if let Some(other) = lean.other.upgrade() {
                wants |= other.leans.look();
            }
            if let Some(glance) = &lean.glance {
                glance.take();
                wants = true;
            }
        }
        let mut new = self.on.lock();
        new.append(&mut on);
        self.any.store(!new.is_empty(), Ordering::Release);
        wants
    }
}

/// Counts a device without a thread until it is dropped.
pub(super) struct WithoutThread(());

impl WithoutThread {
    pub(super) fn of(execution: Execution) -> Option<Self> {
        (execution == Execution::Inline).then(|| {
            WITHOUT_THREAD.fetch_add(1, Ordering::Relaxed);
            Self(())
        })
    }
}

impl Drop for WithoutThread {
    fn drop(&mut self) {
        WITHOUT_THREAD.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    /// This device will wait for what `other` promised.
    pub(crate) fn lean_on<T: Clone + Send + 'static>(&self, other: &Service, promise: &Promise<T>) {
        if WITHOUT_THREAD.load(Ordering::Relaxed) == 0 || promise.is_given() {
            return;
        }
        let promise = promise.clone();
        let lean = Lean {
            is_given: Box::new(move || promise.is_given()),
            other: Arc::downgrade(&other.shared),
            glance: (other.settings.executor.execution == Execution::Inline).then(|| other.executor.glance()),
        };
        let leans = &self.shared.leans;
        let mut on = leans.on.lock();
        on.retain(|lean| !(lean.is_given)());
        on.push(lean);
        leans.any.store(true, Ordering::Release);
    }

    /// Looks at the devices without a thread that this one waits for; whether there are any.
    pub(crate) fn look_at_leans(&self) -> bool {
        self.shared.leans.look()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn whoever_looks_while_another_does_goes_on_looking() {
        let leans = Arc::new(Leans::default());
        let (inside, given) = (leans.clone(), Arc::new(AtomicBool::new(false)));
        let is_given = given.clone();
        let lean = Lean {
            // What is looked at from within a look is what another thread finds meanwhile.
            is_given: Box::new(move || {
                assert!(inside.look(), "the other one would sleep on");
                is_given.load(Ordering::Relaxed)
            }),
            other: Weak::new(),
            glance: None,
        };
        leans.on.lock().push(lean);
        leans.any.store(true, Ordering::Release);
        assert!(!leans.look() && leans.any.load(Ordering::Relaxed));
        given.store(true, Ordering::Relaxed);
        assert!(!leans.look() && !leans.any.load(Ordering::Relaxed), "what is given is leaned on no more");
        assert!(!leans.look());
    }
}
