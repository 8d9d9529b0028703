//! Measuring ours and a peer interleaved, and printing what came out.

use serde_json::{Value, json};
use std::process::ExitCode;

/// A run of several workloads.
pub struct Run {
    /// Small and short, so that nothing rots; its figures mean nothing.
    pub quick: bool,
    workload: &'static str,
    failures: u32,
}

/// What a case measured, in one unit.
pub struct Case<'a> {
    /// The case's name, fixed.
    pub case: &'a str,
    /// Ours, a value a round.
    pub ours: Vec<f64>,
    /// The unit of the values.
    pub unit: &'a str,
    /// What it is compared with, and its values.
    pub peer: Option<(&'a str, Vec<f64>)>,
    /// The target: of the ratio where there is a peer, else of the value. None where it is only reported.
    pub target: Option<f64>,
}

impl Run {
    pub fn new(quick: bool) -> Self {
        Self { quick, workload: "", failures: 0 }
    }

    pub fn begin(&mut self, workload: &'static str) {
        self.workload = workload;
    }

    /// `full` rounds, or as few as tell something.
    pub fn rounds(&self, full: usize) -> usize {
        if self.quick { 3.min(full) } else { full }
    }

    /// `full` repetitions inside a round, or a hundredth of them.
    pub fn repeat(&self, full: usize) -> usize {
        if self.quick { (full / 100).max(1) } else { full }
    }

    /// Prints a case: a JSON object on one line.
    pub fn report(&self, case: Case<'_>) {
        let value = median(&case.ours);
        let (peer, peer_value) = match &case.peer {
            Some((name, values)) => (json!(name), Some(median(values))),
            None => (Value::Null, None),
        };
        let line = json!({
            "workload": self.workload,
            "case": case.case,
            "value": round(value),
            "unit": case.unit,
            "peer": peer,
            "peer_value": peer_value.map(round),
            "ratio": peer_value.map(|peer| round(value / peer)),
            "target": case.target,
            "spread": round(spread(&case.ours)),
        });
        println!("{line}");
    }

    /// A case or workload that could not be measured.
    pub fn failed(&mut self, why: &str) {
        self.failures += 1;
        println!("{}", json!({ "workload": self.workload, "error": why }));
    }

    pub fn finish(self) -> ExitCode {
        if self.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs ours and the peer in turn, `rounds` times after one that warms both up; gives both values of each round.
pub fn interleave(rounds: usize, mut ours: impl FnMut() -> f64, mut peer: impl FnMut() -> f64) -> (Vec<f64>, Vec<f64>) {
    ours();
    peer();
    (0..rounds).map(|round| if round % 2 == 0 { (ours(), peer()) } else { swap((peer(), ours())) }).unzip()
}

fn swap((a, b): (f64, f64)) -> (f64, f64) {
    (b, a)
}

pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[((n - 1) as f64 * share).round() as usize],
    }
}

/// (p90 − p10) / median.
fn spread(values: &[f64]) -> f64 {
    match median(values) {
        0.0 => 0.0,
        middle => (percentile(values, 0.9) - percentile(values, 0.1)) / middle,
    }
}

/// Three significant digits are what such figures carry.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    if value.abs() >= 1000.0 { value.round() } else { (value * scale).round() / scale }
}
