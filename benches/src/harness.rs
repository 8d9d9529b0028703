//! Measuring ours and a peer interleaved, and printing what came out.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// A run of several workloads.
#[derive(Debug)]
pub struct Run {
    /// Small and short, so that nothing rots; its figures mean nothing.
    pub quick: bool,
    /// The folder of lifetime traces, where one was named.
    pub traces: Option<PathBuf>,
    workload: &'static str,
    note: Option<String>,
    failures: u32,
    lines: Vec<Value>,
}

/// What a figure should not be above.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Of ours over the peer's.
    Ratio(f64),
    /// Of ours, whatever the peer's is.
    Value(f64),
}

/// What a case measured, in one unit.
#[derive(Debug)]
pub struct Case<'a> {
    /// The case's name, fixed.
    pub case: &'a str,
    /// Ours, a value a round.
    pub ours: Vec<f64>,
    /// The unit of the values.
    pub unit: &'a str,
    /// What it is compared with, and its values.
    pub peer: Option<(&'a str, Vec<f64>)>,
    /// The target. None where it is only reported.
    pub target: Option<Target>,
}

impl Run {
    /// A run that has measured nothing yet.
    pub fn new(quick: bool) -> Self {
        Self { quick, traces: None, workload: "", note: None, failures: 0, lines: Vec::new() }
    }

    /// What is reported from here on belongs to this workload.
    pub fn begin(&mut self, workload: &'static str) {
        self.workload = workload;
        self.note = None;
    }

    /// What every line says from here on, until the next workload: what the figures were measured on.
    pub fn note(&mut self, what: &str) {
        self.note = Some(what.to_owned());
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
    pub fn report(&mut self, case: Case<'_>) {
        self.print(case, None);
    }

    /// Prints a case whose peer cannot do the job, and why.
    pub fn report_without_peer(&mut self, case: Case<'_>, reason: &str) {
        self.print(case, Some(reason));
    }

    fn print(&mut self, case: Case<'_>, reason: Option<&str>) {
        let value = median(&case.ours);
        let (peer, peer_value) = match &case.peer {
            Some((name, values)) => (json!(name), Some(median(values))),
            None => (Value::Null, None),
        };
        let (target, of) = match case.target {
            Some(Target::Ratio(target)) => (Some(target), "ratio"),
            Some(Target::Value(target)) => (Some(target), "value"),
            None => (None, "ratio"),
        };
        let ratio = peer_value.map(|peer| round(value / peer)).filter(|ratio| ratio.is_finite());
        let mut line = json!({
            "workload": self.workload,
            "case": case.case,
            "value": round(value),
            "unit": case.unit,
            "peer": peer,
            "peer_value": peer_value.map(round),
            "ratio": ratio,
            "target": target,
            "spread": round(spread(&case.ours)),
        });
        // A target is of the ratio wherever there is a peer to have one; where it is not, the line says so.
        if (peer_value.is_some() || reason.is_some()) && of == "value" {
            line["target_of"] = json!(of);
        }
        if let Some(reason) = reason {
            line["reason"] = json!(reason);
        }
        if let Some(note) = &self.note {
            line["note"] = json!(note);
        }
        println!("{line}");
        self.lines.push(line);
    }

    /// A case or workload that could not be measured.
    pub fn failed(&mut self, why: &str) {
        self.failures += 1;
        let line = json!({ "workload": self.workload, "error": why });
        println!("{line}");
        self.lines.push(line);
    }

    /// A case that was not run, since what it is about is not there; no failure.
    pub fn not_run(&mut self, case: &str, why: &str) {
        let line = json!({ "workload": self.workload, "case": case, "not_run": format!("NOT RUN: {why}") });
        println!("{line}");
        self.lines.push(line);
    }

    /// Prints everything reported as a table that says which targets are met.
    pub fn table(&self) {
        println!();
        println!("{:<36}{:>22}{:>12}{:>11}{:>8}  target", "case", "ours", "peer", "ratio", "spread");
        let mut noted = "";
        for line in &self.lines {
            let text = |key: &str| line[key].as_str().unwrap_or_default();
            let number = |key: &str| line[key].as_f64().map_or("–".into(), |number| number.to_string());
            let case = format!("{} {}", text("workload"), text("case"));
            if let Some(error) = line["error"].as_str() {
                println!("{case:<36}NOT MEASURED: {error}");
                continue;
            }
            if let Some(why) = line["not_run"].as_str() {
                println!("{case:<36}{why}");
                continue;
            }
            let ours = format!("{} {}", number("value"), text("unit"));
            let peer = match line["reason"].as_str() {
                Some(_) => "cannot".into(),
                None => number("peer_value"),
            };
            let (ratio, spread) = (number("ratio"), number("spread"));
            println!("{case:<36}{ours:>22}{peer:>12}{ratio:>11}{spread:>8}  {}", verdict(line));
            if let Some(reason) = line["reason"].as_str() {
                println!("{:<36}the peer: {reason}", "");
            }
            if let Some(note) = line["note"].as_str().filter(|note| *note != noted) {
                println!("{:<36}on {note}", "");
                noted = note;
            }
        }
    }

    /// Success where everything was measured.
    pub fn finish(self) -> ExitCode {
        if self.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Whether the target of a printed line is met, in words.
fn verdict(line: &Value) -> String {
    let Some(target) = line["target"].as_f64() else { return "reported".into() };
    let of_value = line["peer_value"].is_null() && line["reason"].is_null() || line["target_of"] == "value";
    match line[if of_value { "value" } else { "ratio" }].as_f64() {
        None => format!("≤ {target}: no peer"),
        Some(figure) if figure <= target => format!("≤ {target}: met"),
        Some(_) => format!("≤ {target}: MISSED"),
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

/// The value in the middle; not a number where there is none.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which `share` of them are.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ours: f64, peer: Option<f64>, target: Option<Target>) -> Value {
        let mut run = Run::new(true);
        run.begin("w");
        let peer = peer.map(|peer| ("p", vec![peer]));
        run.report(Case { case: "c", ours: vec![ours], unit: "ns", peer, target });
        run.lines.remove(0)
    }

    #[test]
    fn a_target_of_the_ratio_is_judged_by_the_ratio() {
        assert_eq!(verdict(&line(3.0, Some(10.0), Some(Target::Ratio(0.3)))), "≤ 0.3: met");
        assert_eq!(verdict(&line(4.0, Some(10.0), Some(Target::Ratio(0.3)))), "≤ 0.3: MISSED");
    }

    #[test]
    fn a_target_of_the_value_is_judged_by_the_value_whatever_the_peer_has() {
        assert_eq!(verdict(&line(390.0, Some(1.0), Some(Target::Value(400.0)))), "≤ 400: met");
        assert_eq!(verdict(&line(410.0, None, Some(Target::Value(400.0)))), "≤ 400: MISSED");
        assert_eq!(line(410.0, Some(1.0), Some(Target::Value(400.0)))["target_of"], "value");
    }

    #[test]
    fn a_peer_that_cannot_do_the_job_leaves_a_line_with_its_reason() {
        let mut run = Run::new(true);
        run.begin("w");
        let case = Case { case: "c", ours: vec![1.0], unit: "ns", peer: None, target: Some(Target::Ratio(0.3)) };
        run.report_without_peer(case, "it panicked");
        assert_eq!(run.lines[0]["peer"], Value::Null);
        assert_eq!(run.lines[0]["reason"], "it panicked");
        assert_eq!(verdict(&run.lines[0]), "≤ 0.3: no peer");
        let case = Case { case: "c", ours: vec![1.0], unit: "ns", peer: None, target: Some(Target::Value(0.3)) };
        run.report_without_peer(case, "it panicked");
        assert_eq!(verdict(&run.lines[1]), "≤ 0.3: MISSED");
        assert_eq!(run.finish(), ExitCode::SUCCESS);
    }

    #[test]
    fn a_case_that_was_not_run_is_no_error_and_has_a_line() {
        let mut run = Run::new(true);
        run.begin("w");
        run.not_run("c", "no folder");
        assert_eq!(run.lines[0]["case"], "c");
        assert_eq!(run.lines[0]["not_run"], "NOT RUN: no folder");
        assert_eq!(run.finish(), ExitCode::SUCCESS);
    }

    #[test]
    fn a_note_is_in_every_line_of_its_workload() {
        let mut run = Run::new(true);
        let case = || Case { case: "c", ours: vec![1.0], unit: "ns", peer: None, target: None };
        run.begin("a");
        run.report(case());
        run.note("a device");
        run.report(case());
        run.begin("b");
        run.report(case());
        assert_eq!(
            run.lines.iter().map(|line| &line["note"]).collect::<Vec<_>>(),
            [&json!(null), &json!("a device"), &json!(null)]
        );
    }

    #[test]
    fn a_missed_target_is_no_error_and_an_unmeasured_workload_is() {
        let mut run = Run::new(true);
        run.report(Case { case: "c", ours: vec![9.0], unit: "ns", peer: None, target: Some(Target::Value(1.0)) });
        run.failed("no valgrind");
        assert_eq!(run.finish(), ExitCode::FAILURE);
    }
}
