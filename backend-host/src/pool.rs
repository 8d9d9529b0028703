//! The threads of the process: one pool for all host devices, with as many threads as there are cores.
//!
//! A thread runs a stream that is ready ([`Errand`]), or joins in the work of another thread ([`Work`], shared with [`share`]): streams
//! first, because the owner of shared work gets on alone. Threads are started when there is something to do for them, and sleep when there
//! is nothing; a thread that has just run out of work looks for more for a moment before it sleeps, since waking it would take longer than
//! most launches. It yields first: a thread woken beside one that had the work would else keep that one off its core.
//!
//! No wake-up is lost: what is to be done is added and looked for under one lock, and a thread sleeps only when it finds
//! nothing under that lock. Whoever adds something, or takes something and leaves something behind, calls one more thread, unless one is looking
//! already: that one will find it, and call the next.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
pub(crate) use std::time::Instant;

use crate::lock::Lock;
use crate::sleeper::Sleeper;
pub(crate) use crate::team::Team;

/// How long a thread without work looks for some before it sleeps.
pub(crate) const LOOKING: Duration = Duration::from_micros(30);

/// How often an owner looks whether its helpers are done before it does anything about it.
const GLANCES: u32 = 200;

/// How long an owner watches its helpers finish before it sleeps.
const WATCHING: Duration = Duration::from_micros(50);

/// Something that is ready to run on one thread.
pub(crate) trait Errand: Send + Sync + 'static {
    /// Runs it, until it is done or somebody else's turn.
    fn run(self: Arc<Self>);
}

/// Something several threads can do together.
pub(crate) trait Work: Send + Sync + 'static {
    /// Does pieces of it until none is left to begin, or the shift is over.
    fn work(&self, shift: &Shift<'_>);

    /// Whether nothing is left to begin.
    fn is_taken(&self) -> bool;

    /// Who is at it.
    fn crew(&self) -> &Crew;
}

/// How long a thread stays at shared work: its owner to the end, a helper until a stream needs a thread.
pub(crate) struct Shift<'a>(Option<&'a AtomicUsize>);

impl Shift<'_> {
    /// Of somebody who does it alone.
    pub(crate) const fn owner() -> Self {
        Self(None)
    }

    #[inline]
    pub(crate) fn is_owner(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_some_and(|waiting| waiting.load(Ordering::Relaxed) > 0)
    }
}

/// The helpers at shared work.
pub(crate) struct Crew {
    helpers: AtomicUsize,
    owner: Lock<Option<Thread>>,
}

impl Crew {
    pub(crate) const fn new() -> Self {
        Self { helpers: AtomicUsize::new(0), owner: Lock::new(None) }
    }

    /// One more is at it. Only while the owner cannot have closed it.
    pub(crate) fn join(&self) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.helpers.load(Ordering::Acquire) == 0
    }

    pub(crate) fn leave(&self) {
        if self.helpers.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(owner) = self.owner.lock().take()
        {
            owner.unpark();
        }
    }

    /// Waits until no helper is left. None joins any more.
    pub(crate) fn see_off(&self) {
        // Nearly always a helper is at its last piece, and that is short.
        for _ in 0..GLANCES {
            if self.helpers.load(Ordering::Acquire) == 0 {
                return;
            }
            core::hint::spin_loop();
        }
        // To the helper, if it waits for this very core.
        thread::yield_now();
        let start = Instant::now();
        while self.helpers.load(Ordering::Acquire) > 0 {
            if start.elapsed() > WATCHING {
                // Either the last helper finds the owner here, or it has left before and the loop does not park.
                *self.owner.lock() = Some(thread::current());
                while self.helpers.load(Ordering::Acquire) > 0 {
                    thread::park();
                }
                self.owner.lock().take();
                return;
            }
            core::hint::spin_loop();
        }
    }
}

struct Pool {
    tasks: Mutex<Tasks>,
    /// Counts what was added, for those who look without the lock.
    added: AtomicUsize,
    /// Streams that are ready and have no thread.
    waiting: AtomicUsize,
    /// Threads that look for work.
    looking: AtomicUsize,
    size: usize,
}

#[derive(Default)]
struct Tasks {
    ready: VecDeque<Arc<dyn Errand>>,
    open: Vec<Open>,
    sleeping: Vec<Arc<Sleeper>>,
    started: usize,
}

/// Shared work, until its owner closes it.
struct Open {
    work: Arc<dyn Work>,
    /// How many more may join.
    places: usize,
}

impl Tasks {
    /// Whether there is something to do for one more thread.
    fn offer_something(&self) -> bool {
        !self.ready.is_empty() || self.open.iter().any(Open::has_room)
    }
}

impl Open {
    fn has_room(&self) -> bool {
        self.places > 0 && !self.work.is_taken()
    }
}

enum Task {
    Errand(Arc<dyn Errand>),
    Help(Arc<dyn Work>),
}

/// How many threads run at the same time.
pub(crate) fn cores() -> usize {
    pool().size
}

/// Runs the errand on a thread of the pool. Where the system gives no thread at all, it has run when this returns.
pub(crate) fn push(errand: Arc<dyn Errand>) {
    let pool = pool();
    let mut tasks = pool.lock();
    tasks.ready.push_back(errand);
    pool.note(&tasks);
    let threadless = tasks.started == 0;
    pool.call(tasks);
    if threadless {
        pool.run_without_threads();
    }
}

/// Whether a stream is ready and has no thread.
pub(crate) fn is_awaited() -> bool {
    pool().waiting.load(Ordering::Relaxed) > 0
}

/// Work is ahead that is worth sharing: a thread is woken now, so that it looks for some when it comes.
pub(crate) fn attract() {
    let pool = pool();
    if pool.looking.load(Ordering::Relaxed) == 0 {
        pool.call(pool.lock());
    }
}

/// Whether somebody would help at once, without being woken.
pub(crate) fn has_idle_thread() -> bool {
    pool().looking.load(Ordering::Relaxed) > 0
}

/// Does the work, with the help of up to `helpers` threads that have nothing else to do. It is done when this returns.
pub(crate) fn share<W: Work>(work: &Arc<W>, helpers: usize) {
    open(work.clone(), helpers);
    work.work(&Shift::owner());
    close(&**work);
}

/// Up to `helpers` threads that have nothing else to do may join in the work, until it is closed.
pub(crate) fn open(work: Arc<dyn Work>, helpers: usize) {
    let pool = pool();
    let mut tasks = pool.lock();
    tasks.open.push(Open { work, places: helpers });
    pool.note(&tasks);
    pool.call(tasks);
}

/// Nobody joins in the work any more, and nobody is at it when this returns.
pub(crate) fn close(work: &dyn Work) {
    pool().lock().open.retain(|open| !ptr::eq(open.work.crew(), work.crew()));
    work.crew().see_off();
}

/// There is more to do in work that is open.
pub(crate) fn beckon() {
    let pool = pool();
    let tasks = pool.lock();
    pool.note(&tasks);
    pool.call(tasks);
}

/// Changes when something is added for threads of the pool to do.
pub(crate) fn added() -> usize {
    pool().added.load(Ordering::Relaxed)
}

/// Now, for measuring how long something took.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How long ago that was, in nanoseconds.
pub(crate) fn nanoseconds_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool {
        tasks: Mutex::default(),
        added: AtomicUsize::new(0),
        waiting: AtomicUsize::new(0),
        looking: AtomicUsize::new(0),
        size: thread::available_parallelism().map_or(1, usize::from),
    })
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, tasks: &Tasks) {
        self.waiting.store(tasks.ready.len(), Ordering::Relaxed);
        self.added.fetch_add(1, Ordering::Release);
    }

    /// Sees to it that one more thread looks for work.
    fn call(&'static self, mut tasks: MutexGuard<'_, Tasks>) {
        if self.looking.load(Ordering::Relaxed) > 0 {
            return;
        }
        if let Some(best) = Sleeper::best(&tasks.sleeping) {
            let sleeper = tasks.sleeping.remove(best);
            // Without the lock: a thread that comes for work meanwhile would be put to sleep by it.
            drop(tasks);
            sleeper.call();
        } else if tasks.started < self.size {
            let name = alloc::format!("trunnion-host-{}", tasks.started);
            match thread::Builder::new().name(name).spawn(move || self.run()) {
                Ok(_) => tasks.started += 1,
                Err(error) => {
                    log::warn!("the host device has {} threads, another one was refused: {error}", tasks.started)
                }
            }
        }
    }

    /// Runs what is ready, when the system has given no thread.
    fn run_without_threads(&self) {
        loop {
            let mut tasks = self.lock();
            if tasks.started > 0 {
                return;
            }
            let Some(errand) = tasks.ready.pop_front() else { return };
            self.waiting.store(tasks.ready.len(), Ordering::Relaxed);
            drop(tasks);
            errand.run();
        }
    }

    fn run(&'static self) {
        let sleeper = Arc::new(Sleeper::new());
        loop {
            match self.next(&sleeper) {
                Task::Errand(errand) => errand.run(),
                Task::Help(work) => {
                    work.work(&Shift(Some(&self.waiting)));
                    // Whoever left for a stream may come back, or somebody else in its place.
                    let mut tasks = self.lock();
                    if let Some(open) = tasks.open.iter_mut().find(|open| ptr::eq(open.work.crew(), work.crew())) {
                        open.places += 1;
                    }
                    drop(tasks);
                    work.crew().leave();
                }
            }
        }
    }

    fn next(&'static self, sleeper: &Arc<Sleeper>) -> Task {
        let mut woken = false;
        loop {
            if let Some(task) = self.try_next() {
                return task;
            }
            if core::mem::take(&mut woken) {
                // A thread woken for work that another one got must not keep that one off its core.
                thread::yield_now();
            }
            let mut tasks = self.lock();
            self.looking.fetch_add(1, Ordering::Relaxed);
            let seen = self.added.load(Ordering::Relaxed);
            if !tasks.offer_something() {
                drop(tasks);
                let start = Instant::now();
                while self.added.load(Ordering::Acquire) == seen && start.elapsed() < LOOKING {
                    core::hint::spin_loop();
                }
                tasks = self.lock();
            }
            self.looking.fetch_sub(1, Ordering::Relaxed);
            if self.added.load(Ordering::Relaxed) == seen && !tasks.offer_something() {
                sleeper.lie_down();
                tasks.sleeping.push(sleeper.clone());
                drop(tasks);
                sleeper.sleep();
                woken = true;
            }
        }
    }

    fn try_next(&'static self) -> Option<Task> {
        let mut tasks = self.lock();
        let task = self.take(&mut tasks)?;
        if tasks.offer_something() {
            self.call(tasks);
        }
        Some(task)
    }

    fn take(&self, tasks: &mut Tasks) -> Option<Task> {
        if let Some(errand) = tasks.ready.pop_front() {
            self.waiting.store(tasks.ready.len(), Ordering::Relaxed);
            return Some(Task::Errand(errand));
        }
        let open = tasks.open.iter_mut().find(|open| open.has_room())?;
        open.places -= 1;
        let work = open.work.clone();
        // Under the lock: the owner waits for those who joined before it closed the work.
        work.crew().join();
        Some(Task::Help(work))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A thousand pieces, each done once: the sum of their numbers.
    pub(crate) struct Sum {
        next: AtomicUsize,
        sum: AtomicUsize,
        crew: Crew,
    }

    impl Default for Sum {
        fn default() -> Self {
            Self { next: AtomicUsize::new(0), sum: AtomicUsize::new(0), crew: Crew::new() }
        }
    }

    impl Sum {
        pub(crate) fn sum(&self) -> usize {
            self.sum.load(Ordering::Relaxed)
        }
    }

    impl Work for Sum {
        fn work(&self, shift: &Shift<'_>) {
            while !shift.is_over() {
                let piece = self.next.fetch_add(1, Ordering::Relaxed);
                if piece >= 1000 {
                    return;
                }
                self.sum.fetch_add(piece, Ordering::Relaxed);
            }
        }

        fn is_taken(&self) -> bool {
            self.next.load(Ordering::Relaxed) >= 1000
        }

        fn crew(&self) -> &Crew {
            &self.crew
        }
    }

    struct Send(mpsc::Sender<usize>, usize);

    impl Errand for Send {
        fn run(self: Arc<Self>) {
            let _ = self.0.send(self.1);
        }
    }

    #[test]
    fn shared_work_is_done_once_when_share_returns() {
        for round in 0..2000 {
            let sum = Arc::new(Sum::default());
            share(&sum, 1 + round % 4);
            assert_eq!(sum.sum(), 999 * 1000 / 2);
        }
    }

    #[test]
    fn every_errand_runs_however_the_threads_sleep_between() {
        let (sender, receiver) = mpsc::channel();
        let mut expected = 0;
        let mut got = 0;
        for round in 0..300 {
            for k in 0..=round % 5 {
                push(Arc::new(Send(sender.clone(), k)));
                expected += 1;
            }
            if round % 3 == 0 {
                thread::sleep(Duration::from_micros(17 * (round as u64 % 7)));
            }
            while got < expected {
                receiver.recv_timeout(Duration::from_secs(10)).expect("an errand was not run");
                got += 1;
            }
        }
        assert!(pool().lock().started <= cores());
    }
}
