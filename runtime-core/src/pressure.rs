//! The program's own part in running out of memory: hooks that are asked before a request is refused, and may give something back.

use crate::error::Error;
use crate::executor::{contain, let_go};
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

/// The threads inside a hook, of whichever device.
static ASKED: spin::Mutex<Vec<ThreadToken>> = spin::Mutex::new(Vec::new());
/// How many they are.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling thread is inside a hook. What it requests asks no hook, or two could ask each other for ever. Free of cost where
/// no hook is asked just now.
#[inline]
pub(crate) fn is_inside_hook() -> bool {
    // A thread that is inside has counted itself.
    INSIDE.load(Ordering::Relaxed) > 0 && ASKED.lock().contains(&ThreadToken::current())
}

/// The calling thread is inside a hook until this is dropped.
struct Inside(ThreadToken);

impl Inside {
    /// `None` where it is already.
    fn enter() -> Option<Self> {
        let me = ThreadToken::current();
        let mut asked = ASKED.lock();
        let is_new = !asked.contains(&me);
        is_new.then(|| {
            asked.push(me);
            INSIDE.store(asked.len(), Ordering::Relaxed);
            Self(me)
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut asked = ASKED.lock();
        asked.retain(|thread| *thread != self.0);
        INSIDE.store(asked.len(), Ordering::Relaxed);
    }
}

/// The hooks of a device, in the order in which they came.
#[derive(Default)]
pub(crate) struct Hooks {
    list: spin::Mutex<List>,
    count: AtomicUsize,
}

#[derive(Default)]
struct List {
    hooks: Vec<(u64, Hook)>,
    has_ended: bool,
}

impl Hooks {
    /// Adds a hook, which is there until what is answered is dropped. `None` once the device has ended: a hook may hold a client, and so
    /// what keeps this list.
    pub(crate) fn add(self: &Arc<Self>, hook: Hook) -> Option<PressureHook> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list.lock();
        if list.has_ended {
            drop(list);
            let_go([hook]);
            return None;
        }
        list.hooks.push((number, hook));
        self.count.store(list.hooks.len(), Ordering::Release);
        Some(PressureHook { hooks: self.clone(), number })
    }

    fn remove(&self, number: u64) {
        let removed = {
            let mut list = self.list.lock();
            let found = list.hooks.iter().position(|(known, _)| *known == number).map(|i| list.hooks.remove(i));
            self.count.store(list.hooks.len(), Ordering::Release);
            found
        };
        // What a hook holds may do anything as it goes, so not under the lock.
        let_go(removed);
    }

    /// The device has ended: forgets every hook, and takes none from here on.
    pub(crate) fn end(&self) {
        let all = {
            let mut list = self.list.lock();
            self.count.store(0, Ordering::Release);
            list.has_ended = true;
            core::mem::take(&mut list.hooks)
        };
        let_go(all);
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
        let hooks: Vec<Hook> = self.list.lock().hooks.iter().map(|(_, hook)| hook.clone()).collect();
        if hooks.is_empty() {
            return None;
        }
        let _inside = Inside::enter()?;
        let mut answer = PressureAnswer::Refuse;
        for hook in hooks {
            let said = contain(|| hook(pressure));
            // The last one to hold a hook drops what it holds.
            let_go([hook]);
            match said {
                Ok(PressureAnswer::Retry) => answer = PressureAnswer::Retry,
                Ok(PressureAnswer::Refuse) => {}
                Err(panic) => {
                    log::error!("a hook for memory pressure panicked, which is a refusal: {}", panic.message());
                    panic.discard();
                }
            }
        }
        Some(answer)
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
            hooks
                .add(Arc::new(move |pressure: &MemoryPressure<'_>| {
                    assert_eq!((pressure.requested, pressure.attempt), (2, 0));
                    asked.fetch_add(1, Ordering::Relaxed);
                    answer
                }))
                .unwrap()
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
        hooks.end();
        assert_eq!((hooks.any(), ask(&hooks)), (false, None));
    }

    #[test]
    fn a_hook_that_panics_refuses_and_the_others_are_asked() {
        let hooks = Arc::new(Hooks::default());
        let _panics = hooks.add(Arc::new(|_: &MemoryPressure<'_>| panic!("on purpose"))).unwrap();
        assert_eq!(ask(&hooks), Some(PressureAnswer::Refuse));
        let _retries = hooks.add(Arc::new(|_: &MemoryPressure<'_>| PressureAnswer::Retry)).unwrap();
        assert_eq!(ask(&hooks), Some(PressureAnswer::Retry));
        assert_eq!(ask(&hooks), Some(PressureAnswer::Retry), "the thread is not taken for one inside a hook");
    }

    #[test]
    fn a_hook_can_remove_itself_and_is_not_asked_from_inside() {
        let hooks = Arc::new(Hooks::default());
        let own: Arc<spin::Mutex<Option<PressureHook>>> = Arc::default();
        let (inside, taken) = (hooks.clone(), own.clone());
        let other = Arc::new(Hooks::default());
        let _other = other.add(Arc::new(|_: &MemoryPressure<'_>| PressureAnswer::Retry)).unwrap();
        *own.lock() = hooks.add(Arc::new(move |_: &MemoryPressure<'_>| {
            assert!(is_inside_hook());
            assert_eq!(ask(&inside), None);
            assert_eq!(ask(&other), None, "of another device");
            drop(taken.lock().take());
            PressureAnswer::Retry
        }));
        assert_eq!(ask(&hooks), Some(PressureAnswer::Retry));
        assert_eq!(ask(&hooks), None);
        assert!(!is_inside_hook());
    }

    #[test]
    fn a_device_that_has_ended_takes_no_hook_and_keeps_none() {
        let hooks = Arc::new(Hooks::default());
        let held = Arc::new(());
        let hook = || {
            let held = held.clone();
            hooks.add(Arc::new(move |_: &MemoryPressure<'_>| {
                let _held = &held;
                PressureAnswer::Retry
            }))
        };
        let first = hook();
        hooks.end();
        // As of a thread that looked just before the end whether there is one.
        assert!(first.is_some() && hook().is_none());
        assert_eq!((hooks.any(), ask(&hooks), Arc::strong_count(&held)), (false, None, 1));
    }
}
