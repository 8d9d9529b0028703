//! The program's own part in running out of memory: hooks that are asked before a request is refused, and may give something back.

use crate::error::Error;
use crate::executor::contain;
use crate::platform::ThreadToken;
use crate::sync::AtomicU64;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How often a request is tried again because a hook asked for that.
pub const RETRIES: u32 = 4;

/// A request that finds no memory, as a hook is told of it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct MemoryPressure<'a> {
    /// The bytes asked for.
    pub requested: u64,
    /// What the request is answered with if nothing changes, with every number: [`Error::OutOfMemory`] of the device,
    /// [`Error::ClientMemoryLimit`] of a client.
    pub error: &'a Error,
    /// How often hooks have been asked for this request before: from 0, at most [`RETRIES`] - 1.
    pub attempt: u32,
}

impl<'a> MemoryPressure<'a> {
    pub(crate) fn new(requested: u64, error: &'a Error, attempt: u32) -> Self {
        Self { requested, error, attempt }
    }
}

/// What a hook answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PressureAnswer {
    /// Something was given back: try again.
    Retry,
    /// There is nothing to give back.
    Refuse,
}

type Hook = Arc<dyn Fn(&MemoryPressure<'_>) -> PressureAnswer + Send + Sync>;

/// The hooks of a device, in the order in which they came.
#[derive(Default)]
pub(crate) struct Hooks {
    list: spin::Mutex<Vec<(u64, Hook)>>,
    count: AtomicUsize,
    /// The threads inside a hook.
    asking: spin::Mutex<Vec<ThreadToken>>,
}

impl Hooks {
    /// Adds a hook, which is there until what is answered is dropped.
    pub(crate) fn add(self: &Arc<Self>, hook: Hook) -> PressureHook {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list.lock();
        list.push((number, hook));
        self.count.store(list.len(), Ordering::Release);
        PressureHook { hooks: self.clone(), number }
    }

    fn remove(&self, number: u64) {
        let removed = {
            let mut list = self.list.lock();
            let found = list.iter().position(|(known, _)| *known == number).map(|i| list.remove(i));
            self.count.store(list.len(), Ordering::Release);
            found
        };
        // What a hook holds may do anything as it goes, so not under the lock.
        drop(removed);
    }

    /// Forgets every hook.
    pub(crate) fn clear(&self) {
        let all = {
            let mut list = self.list.lock();
            self.count.store(0, Ordering::Release);
            core::mem::take(&mut *list)
        };
        drop(all);
    }

    /// Whether there is one. Free of cost.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Asks every hook; the request is tried again if one of them says so. `None` where nobody was asked: there is no hook, or the
    /// request comes from inside one.
    #[cold]
    pub(crate) fn ask(&self, pressure: &MemoryPressure<'_>) -> Option<PressureAnswer> {
        // Asked without the lock, so that a hook may add and remove hooks.
        let hooks: Vec<Hook> = self.list.lock().iter().map(|(_, hook)| hook.clone()).collect();
        let me = ThreadToken::current();
        if hooks.is_empty() || !self.enter(me) {
            return None;
        }
        let mut answer = PressureAnswer::Refuse;
        for hook in hooks {
            // The last one to hold a hook drops what it holds.
            let said = contain(move || {
                let said = hook(pressure);
                drop(hook);
                said
            });
            match said {
                Ok(PressureAnswer::Retry) => answer = PressureAnswer::Retry,
                Ok(PressureAnswer::Refuse) => {}
                Err(panic) => {
                    log::error!("a hook for memory pressure panicked, which is a refusal: {}", panic.message());
                    panic.discard();
                }
            }
        }
        self.asking.lock().retain(|thread| *thread != me);
        Some(answer)
    }

    fn enter(&self, me: ThreadToken) -> bool {
        let mut asking = self.asking.lock();
        let is_new = !asking.contains(&me);
        if is_new {
            asking.push(me);
        }
        is_new
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("count", &self.count).finish_non_exhaustive()
    }
}

/// A hook, asked until this is dropped or the device ends. A call of it that is under way on another thread is not waited for.
#[must_use = "the hook is removed when this is dropped"]
pub struct PressureHook {
    hooks: Arc<Hooks>,
    number: u64,
}

impl PressureHook {
    /// Leaves the hook there until the device ends.
    pub fn keep(mut self) {
        // A number that no hook has.
        self.number = 0;
    }
}

impl Drop for PressureHook {
    fn drop(&mut self) {
        self.hooks.remove(self.number);
    }
}

impl fmt::Debug for PressureHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PressureHook({})", self.number)
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;

    fn ask(hooks: &Hooks) -> Option<PressureAnswer> {
        let error = Error::TooLarge { requested: 2, limit: 1 };
        hooks.ask(&MemoryPressure::new(2, &error, 0))
    }

    #[test]
    fn every_hook_is_asked_and_one_that_wants_a_retry_is_enough() {
        let hooks = Arc::new(Hooks::default());
        assert_eq!((hooks.any(), ask(&hooks)), (false, None));
        let asked = Arc::new(AtomicUsize::new(0));
        let hook = |answer| {
            let asked = asked.clone();
            hooks.add(Arc::new(move |pressure: &MemoryPressure<'_>| {
                assert_eq!((pressure.requested, pressure.attempt), (2, 0));
                asked.fetch_add(1, Ordering::Relaxed);
                answer
            }))
        };
        let refuses = hook(PressureAnswer::Refuse);
        assert_eq!(ask(&hooks), Some(PressureAnswer::Refuse));
        let retries = hook(PressureAnswer::Retry);
        let kept = hook(PressureAnswer::Refuse);
        kept.keep();
        assert_eq!(ask(&hooks), Some(PressureAnswer::Retry));
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        drop((refuses, retries));
        assert_eq!(ask(&hooks), Some(PressureAnswer::Refuse));
        hooks.clear();
        assert_eq!((hooks.any(), ask(&hooks)), (false, None));
    }

    #[test]
    fn a_hook_that_panics_refuses_and_the_others_are_asked() {
        let hooks = Arc::new(Hooks::default());
        let _panics = hooks.add(Arc::new(|_: &MemoryPressure<'_>| panic!("on purpose")));
        assert_eq!(ask(&hooks), Some(PressureAnswer::Refuse));
        let _retries = hooks.add(Arc::new(|_: &MemoryPressure<'_>| PressureAnswer::Retry));
        assert_eq!(ask(&hooks), Some(PressureAnswer::Retry));
        assert_eq!(ask(&hooks), Some(PressureAnswer::Retry), "the thread is not taken for one inside a hook");
    }

    #[test]
    fn a_hook_can_remove_itself_and_is_not_asked_from_inside() {
        let hooks = Arc::new(Hooks::default());
        let own: Arc<spin::Mutex<Option<PressureHook>>> = Arc::default();
        let (inside, taken) = (hooks.clone(), own.clone());
        *own.lock() = Some(hooks.add(Arc::new(move |_: &MemoryPressure<'_>| {
            assert_eq!(ask(&inside), None);
            drop(taken.lock().take());
            PressureAnswer::Retry
        })));
        assert_eq!(ask(&hooks), Some(PressureAnswer::Retry));
        assert_eq!(ask(&hooks), None);
    }
}
