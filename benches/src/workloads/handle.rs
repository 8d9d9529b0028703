//! The executor alone: calls on one thread, on four, and how long a call takes to start or to be answered.

use crate::harness::{Case, Run, Target, interleave, percentile};
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::platform::Deadline;

/// The state every call works on.
#[derive(Debug)]
pub struct State {
    items: Vec<usize>,
}

impl Default for State {
    fn default() -> Self {
        Self { items: vec![0; 100] }
    }
}

impl State {
    /// The work of a call.
    #[inline]
    pub fn work(&mut self, data: &[u64; 16]) {
        for i in 0..100 {
            self.items[i] += data[i % 16] as usize * (if i % 5 == 0 { 3 } else { 1 }) + 2;
        }
    }

    /// What a blocking call asks for.
    #[inline]
    pub fn answer(&self) -> usize {
        self.items[7]
    }
}

impl Resident for State {}

/// The 16 words a call carries.
#[inline]
pub fn words(seed: usize) -> [u64; 16] {
    black_box(core::array::from_fn(|i| (seed + i) as u64))
}

/// What keeps a [`State`] and runs calls on it: ours and every peer.
pub trait Calls: Sync {
    /// A fire-and-forget call: [`State::work`] on the [`words`] of this seed.
    fn call(&self, seed: usize);

    /// A blocking call: [`State::answer`].
    fn answer(&self) -> usize;

    /// A fire-and-forget call that says when it starts; nothing comes after it and nothing is flushed.
    fn lone(&self, started: impl FnOnce() + Send + 'static);
}

/// Ours: an executor as configured by default.
#[derive(Debug)]
pub struct Ours(Executor<State>);

impl Ours {
    /// An executor with its runner.
    ///
    /// # Errors
    /// The executor's own.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self(Executor::new(State::default(), Config::default())?))
    }
}

impl Calls for Ours {
    #[inline]
    fn call(&self, seed: usize) {
        let data = words(seed);
        self.0.submit(move |state, _| state.work(&data)).expect("the executor takes it");
    }

    #[inline]
    fn answer(&self) -> usize {
        self.0.call(|state, _| state.answer(), &Deadline::never()).expect("the executor answers")
    }

    fn lone(&self, started: impl FnOnce() + Send + 'static) {
        self.0.submit(move |_, _| started()).expect("the executor takes it");
    }
}

/// The floor: a mutex, with which every call runs on its caller.
#[derive(Debug, Default)]
struct Locked(Mutex<State>);

impl Calls for Locked {
    fn call(&self, seed: usize) {
        let data = words(seed);
        self.0.lock().expect("nobody panics").work(&data);
    }

    fn answer(&self) -> usize {
        self.0.lock().expect("nobody panics").answer()
    }

    fn lone(&self, started: impl FnOnce() + Send + 'static) {
        started();
    }
}

/// 3 ms of rest, after which a device is idle.
pub fn rest() {
    thread::sleep(Duration::from_millis(3));
}

/// A round of handle-1t, in µs: 1,000 calls and an answer.
pub fn one_thread_round(calls: &impl Calls) -> f64 {
    let start = Instant::now();
    for i in 0..1_000 {
        calls.call(i);
    }
    black_box(calls.answer());
    start.elapsed().as_secs_f64() * 1e6
}

/// A round of handle-4t, in ms: four fresh threads with 5,000 calls each, and an answer.
pub fn four_threads_round(calls: &impl Calls) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5_000).for_each(|i| calls.call(i)));
        }
    });
    black_box(calls.answer());
    start.elapsed().as_secs_f64() * 1e3
}

/// A round trip, in µs.
pub fn round_trip(calls: &impl Calls) -> f64 {
    let start = Instant::now();
    black_box(calls.answer());
    start.elapsed().as_secs_f64() * 1e6
}

/// From the issue of a lone call to its start, in µs; `None` where it has not started after `patience`.
pub fn lone_round(calls: &impl Calls, patience: Duration) -> Option<f64> {
    let epoch = Instant::now();
    let started = Arc::new(AtomicU64::new(0));
    let seen = started.clone();
    calls.lone(move || seen.store(epoch.elapsed().as_nanos() as u64, Ordering::Release));
    await_nonzero(&started, epoch + patience).map(|nanoseconds| nanoseconds as f64 / 1e3)
}

/// `handle-1t`, beside a mutex.
///
/// # Errors
/// The executor's own.
pub fn one_thread(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, mutex) = (Ours::new()?, Locked::default());
    for (case, idle, rounds) in [("hot", false, 201), ("idle", true, 51)] {
        let ours = || {
            if idle {
                rest();
            }
            one_thread_round(&ours)
        };
        let (ours, peer) = interleave(run.rounds(rounds), ours, || one_thread_round(&mutex));
        run.report(Case { case, ours, unit: "µs", peer: Some(("mutex", peer)), target: None });
    }
    Ok(())
}

/// `handle-4t`, beside a mutex.
///
/// # Errors
/// The executor's own.
pub fn four_threads(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, mutex) = (Ours::new()?, Locked::default());
    let (ours, peer) = interleave(run.rounds(51), || four_threads_round(&ours), || four_threads_round(&mutex));
    let p99 = |values: &[f64]| vec![percentile(values, 0.99)];
    let (ours_p99, peer_p99) = (p99(&ours), p99(&peer));
    let target = Some(Target::Ratio(1.0));
    run.report(Case { case: "median", ours, unit: "ms", peer: Some(("mutex", peer)), target });
    run.report(Case { case: "p99", ours: ours_p99, unit: "ms", peer: Some(("mutex", peer_p99)), target: None });
    Ok(())
}

/// `handle-latency`, beside a bare `unpark`.
///
/// # Errors
/// The executor's own.
pub fn latency(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let ours = Ours::new()?;
    let lone = || {
        rest();
        lone_round(&ours, FOREVER).expect("it starts")
    };
    let sleeper = Sleeper::new();
    let bare = || {
        rest();
        sleeper.wake()
    };
    let (lone, unpark) = interleave(run.rounds(401), lone, bare);
    for (case, share, target) in [("lone-p50", 0.5, Some(Target::Ratio(2.0))), ("lone-p99", 0.99, None)] {
        let (ours, peer) = (vec![percentile(&lone, share)], vec![percentile(&unpark, share)]);
        run.report(Case { case, ours, unit: "µs", peer: Some(("unpark", peer)), target });
    }
    let hot: Vec<f64> = (0..run.repeat(20_000)).map(|_| round_trip(&ours)).collect();
    let cold: Vec<f64> = (0..run.rounds(401)).map(|_| (rest(), round_trip(&ours)).1).collect();
    run.report(Case { case: "hot-p50", ours: hot, unit: "µs", peer: None, target: None });
    run.report(Case { case: "idle-p50", ours: cold, unit: "µs", peer: None, target: None });
    Ok(())
}

/// Longer than anything here takes.
pub const FOREVER: Duration = Duration::from_secs(60);

/// Nothing but a parked thread: what waking one costs.
struct Sleeper {
    thread: Option<thread::JoinHandle<()>>,
    epoch: Instant,
    woken: Arc<AtomicU64>,
    stops: Arc<AtomicBool>,
}

impl Sleeper {
    fn new() -> Self {
        let (epoch, woken, stops) = (Instant::now(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, stop) = (woken.clone(), stops.clone());
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                thread::park();
                seen.store(epoch.elapsed().as_nanos() as u64, Ordering::Release);
            }
        });
        Self { thread: Some(thread), epoch, woken, stops }
    }

    fn unpark(&self) {
        self.thread.iter().for_each(|handle| handle.thread().unpark());
    }

    /// From the call to its running, in µs.
    fn wake(&self) -> f64 {
        self.woken.store(0, Ordering::Release);
        let issued = self.epoch.elapsed();
        self.unpark();
        let woken = await_nonzero(&self.woken, Instant::now() + FOREVER).expect("it wakes up");
        (woken - issued.as_nanos() as u64) as f64 / 1e3
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        self.unpark();
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Gives way while it waits: where the woken thread is put on this one's core, it shall not have to wait for the end of a time slice.
fn await_nonzero(cell: &AtomicU64, until: Instant) -> Option<u64> {
    loop {
        match cell.load(Ordering::Acquire) {
            0 if Instant::now() > until => return None,
            0 => thread::yield_now(),
            value => return Some(value),
        }
    }
}
