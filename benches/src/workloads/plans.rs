//! What a plan of known lifetimes wastes, beside the greedy plan that places the largest buffers first: 1 − peak live / size.
//!
//! A letter is the worst of seeds 1 to 5 of a trace, `mean` the mean of the letters. Whether the search is fitted to those is seen on others:
//! `back-…` is a trace that runs backwards, `like-…` one in which each size and length is another, and `cuts-N` a full block of memory over
//! time that is cut into N buffers at random, so that its best plan wastes nothing. `ms-…` is the time of a plan with the default options
//! and, as the peer's, of the greedy one.

use crate::harness::{Case, Run, Target};
use crate::lifetimes::{self, LETTERS};
use crate::workloads::pools::Random;
use std::error::Error;
use std::time::Instant;
use trunnion_memory_pools::planner::{self, Lifetime, Plan, PlanOptions};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;
const TARGET: f64 = 0.10;

pub fn waste(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let traces = lifetimes::traces(run)?;
    let mut worst = Vec::new();
    let mut greedy = Vec::new();
    for trace in &traces {
        let buffers = convert(&trace.lifetimes);
        let figures = measure(run, &trace.name, &buffers, Some(TARGET))?;
        if LETTERS.contains(&trace.name.as_str()) {
            worst.push(figures.0);
            greedy.push(figures.1);
        }
        measure(run, &format!("back-{}", trace.name), &backwards(&buffers), None)?;
        measure(run, &format!("like-{}", trace.name), &vary(&buffers), None)?;
    }
    for count in [100, 200, 400, 800] {
        measure(run, &format!("cuts-{count}"), &cuts(count), None)?;
    }
    if !worst.is_empty() {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (ours, peer) = (vec![mean(&worst)], Some(("greedy by size", vec![mean(&greedy)])));
        run.report(Case { case: "mean", ours, unit: "fraction", peer, target: Some(Target::Value(TARGET)) });
    }
    Ok(())
}

/// Reports the waste and the time of a trace; gives the worst waste, and the greedy plan's.
fn measure(run: &mut Run, name: &str, buffers: &[Lifetime], target: Option<f64>) -> Result<(f64, f64), Box<dyn Error>> {
    let options = PlanOptions { alignment: 1, ..PlanOptions::default() };
    let options = if run.quick { PlanOptions { nodes: options.nodes / 10, ..options } } else { options };
    let (mut worst, mut times) = (0f64, Vec::new());
    for seed in SEEDS {
        let (plan, time) = timed(buffers, PlanOptions { seed, ..options })?;
        worst = worst.max(plan.waste());
        times.push(time);
    }
    let (greedy, _) = timed(buffers, PlanOptions { nodes: 0, ..options })?;
    let greedy_times = SEEDS.map(|_| Ok(timed(buffers, PlanOptions { nodes: 0, ..options })?.1));
    let greedy_times = greedy_times.collect::<Result<_, Box<dyn Error>>>()?;
    let peer = Some(("greedy by size", vec![greedy.waste()]));
    run.report(Case { case: name, ours: vec![worst], unit: "fraction", peer, target: target.map(Target::Value) });
    let peer = Some(("greedy by size", greedy_times));
    run.report(Case { case: &format!("ms-{name}"), ours: times, unit: "ms", peer, target: None });
    Ok((worst, greedy.waste()))
}

fn timed(buffers: &[Lifetime], options: PlanOptions) -> Result<(Plan, f64), Box<dyn Error>> {
    let start = Instant::now();
    let plan = planner::plan(buffers, &options)?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    if let Some((one, other)) = planner::overlap(buffers, &plan.offsets) {
        return Err(format!("buffers {one} and {other} share bytes at one time").into());
    }
    Ok((plan, time))
}

fn convert(lifetimes: &[lifetimes::Lifetime]) -> Vec<Lifetime> {
    lifetimes.iter().map(|l| Lifetime { lower: l.lower, upper: l.upper, size: l.size }).collect()
}

/// The same buffers, the last first.
fn backwards(buffers: &[Lifetime]) -> Vec<Lifetime> {
    let end = buffers.iter().map(|buffer| buffer.upper).max().unwrap_or(0);
    buffers.iter().map(|b| Lifetime { lower: end - b.upper, upper: end - b.lower, size: b.size }).collect()
}

/// The same buffers with each size and length changed by up to a tenth.
fn vary(buffers: &[Lifetime]) -> Vec<Lifetime> {
    let mut random = Random::new(1);
    let mut change = |value: u64| value * (90 + random.below(21) as u64) / 100;
    let varied = buffers.iter().map(|buffer| Lifetime {
        lower: buffer.lower,
        upper: buffer.lower + change(buffer.upper - buffer.lower).max(1),
        size: change(buffer.size).max(1),
    });
    varied.collect()
}

/// A block of a mebibyte over as many moments, cut into so many buffers.
fn cuts(count: usize) -> Vec<Lifetime> {
    let mut random = Random::new(count as u64);
    let mut parts = vec![Lifetime { lower: 0, upper: 1 << 20, size: 1 << 20 }];
    while parts.len() < count {
        let index = random.below(parts.len());
        let part = parts[index];
        let (time, space) = (part.upper - part.lower, part.size);
        let (mut one, mut other) = (part, part);
        // Across the longer side mostly, so that there are few slivers.
        if time.max(space) < 2 {
            continue;
        } else if (random.below((time + space) as usize) as u64) < time {
            one.upper = part.lower + 1 + random.below(time as usize) as u64 * (time - 1) / time;
            other.lower = one.upper;
        } else {
            one.size = 1 + random.below(space as usize) as u64 * (space - 1) / space;
            other.size = part.size - one.size;
        }
        if one.size > 0 && other.size > 0 && one.lower < one.upper && other.lower < other.upper {
            parts[index] = one;
            parts.push(other);
        }
    }
    parts
}
