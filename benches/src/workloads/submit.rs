//! What a fire-and-forget call costs, by the size of what it carries, and when the work behind it is long.

use crate::harness::{Case, Run};
use std::error::Error;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::platform::Deadline;

struct Sum(u64);

impl Resident for Sum {}

pub fn sizes(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let executor = Executor::new(Sum(0), Config::default())?;
    let calls = run.repeat(320_000);
    for producers in [1, 4] {
        carried::<1>(run, &executor, "8B", producers, calls);
        carried::<32>(run, &executor, "256B", producers, calls);
        carried::<256>(run, &executor, "2KiB", producers, calls);
        carried::<640>(run, &executor, "5KB", producers, calls);
    }
    Ok(())
}

fn carried<const WORDS: usize>(run: &Run, executor: &Executor<Sum>, size: &str, producers: usize, calls: usize) {
    let round = || {
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..producers {
                scope.spawn(|| {
                    for i in 0..calls / producers {
                        let mut data = [0u64; WORDS];
                        (data[0], data[WORDS - 1]) = (i as u64, i as u64);
                        let data = black_box(data);
                        let entry = move |sum: &mut Sum, _| {
                            sum.0 = sum.0.wrapping_add(data[0] ^ data[WORDS - 1]);
                            black_box(&data);
                        };
                        executor.submit(entry).expect("the executor takes it");
                    }
                });
            }
        });
        black_box(executor.call(|sum, _| sum.0, &Deadline::never()).expect("the executor answers"));
        start.elapsed().as_secs_f64() * 1e9 / calls as f64
    };
    round();
    let ours = (0..run.rounds(11)).map(|_| round()).collect();
    run.report(Case { case: &format!("{size}-{producers}"), ours, unit: "ns", peer: None, target: None });
}

pub fn caller_pays(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let executor = Executor::new(Sum(0), Config::default())?;
    let calls = run.repeat(1_000).max(100);
    let round = || {
        let start = Instant::now();
        for _ in 0..calls {
            executor.submit(|sum, _| sum.0 += busy(Duration::from_micros(17))).expect("the executor takes it");
        }
        let paid = start.elapsed().as_secs_f64() * 1e6 / calls as f64;
        black_box(executor.call(|sum, _| sum.0, &Deadline::never()).expect("the executor answers"));
        paid
    };
    round();
    let ours = (0..run.rounds(21)).map(|_| round()).collect();
    run.report(Case { case: "17us", ours, unit: "µs", peer: None, target: Some(0.5) });
    Ok(())
}

fn busy(time: Duration) -> u64 {
    let start = Instant::now();
    let mut turns = 0;
    while start.elapsed() < time {
        turns += 1;
    }
    turns
}
