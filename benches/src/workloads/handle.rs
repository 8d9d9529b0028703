//! The executor alone: calls on one thread, on four, and how long a call takes to start or to be answered.

use crate::harness::{Case, Run, interleave, percentile};
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::platform::Deadline;

/// The state every call works on.
struct State {
    items: Vec<usize>,
}

impl State {
    fn new() -> Self {
        Self { items: vec![0; 100] }
    }

    fn work(&mut self, data: &[u64; 16]) {
        for i in 0..100 {
            self.items[i] += data[i % 16] as usize * (if i % 5 == 0 { 3 } else { 1 }) + 2;
        }
    }
}

impl Resident for State {}

fn executor() -> Result<Arc<Executor<State>>, Box<dyn Error>> {
    Ok(Arc::new(Executor::new(State::new(), Config::default())?))
}

fn words(seed: usize) -> [u64; 16] {
    black_box(core::array::from_fn(|i| (seed + i) as u64))
}

fn call(executor: &Executor<State>, seed: usize) {
    let data = words(seed);
    executor.submit(move |state, _| state.work(&data)).expect("the executor takes it");
}

fn answer(executor: &Executor<State>) -> usize {
    executor.call(|state, _| state.items[7], &Deadline::never()).expect("the executor answers")
}

pub fn one_thread(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, mutex) = (executor()?, Mutex::new(State::new()));
    let burst = |idle: bool| {
        if idle {
            thread::sleep(Duration::from_millis(3));
        }
        let start = Instant::now();
        for i in 0..1_000 {
            call(&ours, i);
        }
        black_box(answer(&ours));
        start.elapsed().as_secs_f64() * 1e6
    };
    let locked = || {
        let start = Instant::now();
        for i in 0..1_000 {
            let data = words(i);
            mutex.lock().expect("nobody panics").work(&data);
        }
        black_box(mutex.lock().expect("nobody panics").items[7]);
        start.elapsed().as_secs_f64() * 1e6
    };
    for (case, idle, rounds) in [("hot", false, 201), ("idle", true, 51)] {
        let (ours, peer) = interleave(run.rounds(rounds), || burst(idle), locked);
        run.report(Case { case, ours, unit: "µs", peer: Some(("mutex", peer)), target: None });
    }
    Ok(())
}

pub fn four_threads(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, mutex) = (executor()?, Arc::new(Mutex::new(State::new())));
    let threads = |body: &(dyn Fn() + Sync)| {
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(body);
            }
        });
        start
    };
    let burst = || {
        let start = threads(&|| (0..5_000).for_each(|i| call(&ours, i)));
        black_box(answer(&ours));
        start.elapsed().as_secs_f64() * 1e3
    };
    let locked = || {
        let start = threads(&|| (0..5_000).for_each(|i| mutex.lock().expect("nobody panics").work(&words(i))));
        black_box(mutex.lock().expect("nobody panics").items[7]);
        start.elapsed().as_secs_f64() * 1e3
    };
    let (ours, peer) = interleave(run.rounds(51), burst, locked);
    let p99 = |values: &[f64]| vec![percentile(values, 0.99)];
    let (ours_p99, peer_p99) = (p99(&ours), p99(&peer));
    run.report(Case { case: "median", ours, unit: "ms", peer: Some(("mutex", peer)), target: Some(1.0) });
    run.report(Case { case: "p99", ours: ours_p99, unit: "ms", peer: Some(("mutex", peer_p99)), target: None });
    Ok(())
}

pub fn latency(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let ours = executor()?;
    let epoch = Instant::now();
    let idle = || thread::sleep(Duration::from_millis(3));
    // A lone call, from its issue to its start on the runner; and the same with nothing but a parked thread.
    let lone = || {
        idle();
        let started = Arc::new(AtomicU64::new(0));
        let seen = started.clone();
        let issued = epoch.elapsed();
        ours.submit(move |_, _| seen.store(epoch.elapsed().as_nanos() as u64, Ordering::Release)).expect("it is taken");
        await_nonzero(&started) as f64 / 1e3 - issued.as_nanos() as f64 / 1e3
    };
    let woken = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicU64::new(0));
    let sleeper = {
        let (woken, stop) = (woken.clone(), stop.clone());
        thread::spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                thread::park();
                woken.store(epoch.elapsed().as_nanos() as u64, Ordering::Release);
            }
        })
    };
    let bare = || {
        idle();
        woken.store(0, Ordering::Release);
        let issued = epoch.elapsed();
        sleeper.thread().unpark();
        await_nonzero(&woken) as f64 / 1e3 - issued.as_nanos() as f64 / 1e3
    };
    let (lone, unpark) = interleave(run.rounds(401), lone, bare);
    stop.store(1, Ordering::Release);
    sleeper.thread().unpark();
    sleeper.join().map_err(|_| "the sleeper panicked")?;
    for (case, share, target) in [("lone-p50", 0.5, Some(2.0)), ("lone-p99", 0.99, None)] {
        let (ours, peer) = (vec![percentile(&lone, share)], vec![percentile(&unpark, share)]);
        run.report(Case { case, ours, unit: "µs", peer: Some(("unpark", peer)), target });
    }
    let round_trip = || {
        let start = Instant::now();
        black_box(answer(&ours));
        start.elapsed().as_secs_f64() * 1e6
    };
    let hot: Vec<f64> = (0..run.repeat(20_000)).map(|_| round_trip()).collect();
    let cold: Vec<f64> = (0..run.rounds(401)).map(|_| (idle(), round_trip()).1).collect();
    run.report(Case { case: "hot-p50", ours: hot, unit: "µs", peer: None, target: None });
    run.report(Case { case: "idle-p50", ours: cold, unit: "µs", peer: None, target: None });
    Ok(())
}

/// Gives way while it waits: where the woken thread is put on this one's core, it shall not have to wait for the end of a time slice.
fn await_nonzero(cell: &AtomicU64) -> u64 {
    loop {
        match cell.load(Ordering::Acquire) {
            0 => thread::yield_now(),
            value => return value,
        }
    }
}
