//! The pool where there is one thread: what is ready runs at once, on the caller, to its end.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::lock::Lock;

/// Something that is ready to run.
pub(crate) trait Errand: Send + Sync + 'static {
    /// Runs it, until it is done or somebody else's turn.
    fn run(self: Arc<Self>);
}

/// Something that is done in pieces.
pub(crate) trait Work: Send + Sync + 'static {
    /// Does all of it.
    fn work(&self, shift: &Shift<'_>);

    /// Whether nothing is left to begin.
    #[allow(dead_code, reason = "only the pool with threads looks at it")]
    fn is_taken(&self) -> bool;

    /// Nobody else is at it.
    #[allow(dead_code, reason = "only the pool with threads looks at it")]
    fn crew(&self) -> &Crew;
}

/// The one who does the work does all of it.
pub(crate) struct Shift<'a>(core::marker::PhantomData<&'a ()>);

impl Shift<'_> {
    pub(crate) const fn owner() -> Self {
        Self(core::marker::PhantomData)
    }

    pub(crate) const fn is_owner(&self) -> bool {
        true
    }

    pub(crate) const fn is_over(&self) -> bool {
        false
    }
}

/// Nobody.
pub(crate) struct Crew;

impl Crew {
    pub(crate) const fn new() -> Self {
        Self
    }
}

struct Ready {
    errands: VecDeque<Arc<dyn Errand>>,
    running: bool,
}

static READY: Lock<Ready> = Lock::new(Ready { errands: VecDeque::new(), running: false });

pub(crate) const fn cores() -> usize {
    1
}

/// Runs the errand and what becomes ready by it. An errand pushed by one that runs is run after it, so that the stack stays flat.
pub(crate) fn push(errand: Arc<dyn Errand>) {
    {
        let mut ready = READY.lock();
        ready.errands.push_back(errand);
        if core::mem::replace(&mut ready.running, true) {
            return;
        }
    }
    loop {
        let next = {
            let mut ready = READY.lock();
            let next = ready.errands.pop_front();
            ready.running = next.is_some();
            next
        };
        match next {
            Some(errand) => errand.run(),
            None => return,
        }
    }
}

pub(crate) const fn is_awaited() -> bool {
    false
}

pub(crate) const fn attract() {}

pub(crate) const fn has_idle_thread() -> bool {
    false
}

pub(crate) fn share<W: Work>(work: &Arc<W>, _helpers: usize) {
    work.work(&Shift::owner());
}

/// Nobody.
pub(crate) struct Team;

impl Team {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) const fn is_attended(&self) -> bool {
        false
    }

    pub(crate) fn share(&self, work: Arc<dyn Work>, _helpers: usize) {
        work.work(&Shift::owner());
    }

    pub(crate) const fn dismiss(&self) {}
}

/// There is no clock to measure with.
#[derive(Clone, Copy)]
pub(crate) struct Instant;

pub(crate) const fn now() -> Instant {
    Instant
}

pub(crate) const fn nanoseconds_since(_start: Instant) -> u64 {
    0
}
