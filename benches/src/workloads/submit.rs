//! What a fire-and-forget call costs, by the size of what it carries, and when the work behind it is long.

use crate::harness::{Case, Run, Target};
use std::error::Error;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::platform::Deadline;

/// The state every call adds to.
#[derive(Debug, Default)]
pub struct Sum(pub u64);

impl Resident for Sum {}

/// What keeps a [`Sum`] and runs calls on it: ours and the peer.
pub trait Submits: Sync {
    /// A fire-and-forget call that carries what the closure captures.
    fn submit(&self, call: impl FnOnce(&mut Sum) + Send + 'static);

    /// A blocking call.
    fn answer(&self) -> u64;
}

/// Ours: an executor as configured by default.
#[derive(Debug)]
pub struct Ours(Executor<Sum>);

impl Ours {
    /// An executor with its runner.
    ///
    /// # Errors
    /// The executor's own.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self(Executor::new(Sum(0), Config::default())?))
    }
}

impl Submits for Ours {
    #[inline]
    fn submit(&self, call: impl FnOnce(&mut Sum) + Send + 'static) {
        self.0.submit(move |sum, _| call(sum)).expect("the executor takes it");
    }

    fn answer(&self) -> u64 {
        self.0.call(|sum, _| sum.0, &Deadline::never()).expect("the executor answers")
    }
}

/// A round with `WORDS` words of 8 bytes carried, in ns a call: all calls, from so many producers, and an answer.
pub fn round<const WORDS: usize>(submits: &impl Submits, producers: usize, calls: usize) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| {
                for i in 0..calls / producers {
                    let mut data = [0u64; WORDS];
                    (data[0], data[WORDS - 1]) = (i as u64, i as u64);
                    let data = black_box(data);
                    submits.submit(move |sum| {
                        sum.0 = sum.0.wrapping_add(data[0] ^ data[WORDS - 1]);
                        black_box(&data);
                    });
                }
            });
        }
    });
    black_box(submits.answer());
    start.elapsed().as_secs_f64() * 1e9 / calls as f64
}

/// How many calls a round makes.
pub const CALLS: usize = 320_000;

/// `submit-size`: ours alone.
///
/// # Errors
/// The executor's own.
pub fn sizes(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let executor = Ours::new()?;
    for producers in [1, 4] {
        carried::<1>(run, &executor, "8B", producers);
        carried::<32>(run, &executor, "256B", producers);
        carried::<256>(run, &executor, "2KiB", producers);
        carried::<640>(run, &executor, "5KB", producers);
    }
    Ok(())
}

fn carried<const WORDS: usize>(run: &mut Run, executor: &Ours, size: &str, producers: usize) {
    let calls = run.repeat(CALLS);
    round::<WORDS>(executor, producers, calls);
    let ours = (0..run.rounds(11)).map(|_| round::<WORDS>(executor, producers, calls)).collect();
    run.report(Case { case: &format!("{size}-{producers}"), ours, unit: "ns", peer: None, target: None });
}

/// `caller-pays`: ours alone.
///
/// # Errors
/// The executor's own.
pub fn caller_pays(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let executor = Ours::new()?;
    let calls = run.repeat(1_000).max(100);
    let round = || {
        let start = Instant::now();
        for _ in 0..calls {
            executor.submit(|sum| sum.0 += busy(Duration::from_micros(17)));
        }
        let paid = start.elapsed().as_secs_f64() * 1e6 / calls as f64;
        black_box(executor.answer());
        paid
    };
    round();
    let ours = (0..run.rounds(21)).map(|_| round()).collect();
    run.report(Case { case: "17us", ours, unit: "µs", peer: None, target: Some(Target::Value(0.5)) });
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
