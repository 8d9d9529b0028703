//! Ours and the peer in turn, where the peer may be unable to do the job.

use benches::harness::{Case, Run, Target, interleave, percentile};
use std::cell::RefCell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The peer's name in every line.
pub const PEER: &str = "cubecl";

/// What was measured of both: ours, and the peer's or why there is nothing.
#[derive(Clone)]
pub struct Figures {
    pub ours: Vec<f64>,
    pub peer: Result<Vec<f64>, String>,
}

/// What the peer says, or what it panicked with.
pub fn attempt<T, E: Display>(peer: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(peer)) {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(format!("it panicked: {}", text.unwrap_or_default()))
        }
    }
}

/// Runs ours and the peer in turn. A peer that fails once is not asked again.
pub fn measure(rounds: usize, ours: impl FnMut() -> f64, mut peer: impl FnMut() -> Result<f64, String>) -> Figures {
    let failed = RefCell::new(None);
    let asked = || {
        if failed.borrow().is_some() {
            return f64::NAN;
        }
        attempt(&mut peer).unwrap_or_else(|reason| {
            *failed.borrow_mut() = Some(reason);
            f64::NAN
        })
    };
    let (ours, peer) = interleave(rounds, ours, asked);
    Figures { ours, peer: failed.into_inner().map_or(Ok(peer), Err) }
}

impl Figures {
    /// One value of each.
    pub fn single(ours: f64, peer: Result<f64, String>) -> Self {
        Self { ours: vec![ours], peer: peer.map(|peer| vec![peer]) }
    }

    /// A share of the values of each, as one value.
    pub fn percentile(&self, share: f64) -> Self {
        let peer = self.peer.as_ref().map(|peer| percentile(peer, share)).map_err(String::clone);
        Self::single(percentile(&self.ours, share), peer)
    }

    /// Prints them.
    pub fn report(self, run: &mut Run, case: &str, unit: &str, target: Option<Target>) {
        self.report_beside(PEER, run, case, unit, target);
    }

    /// Prints them, with a peer of that name.
    pub fn report_beside(self, name: &str, run: &mut Run, case: &str, unit: &str, target: Option<Target>) {
        let ours = self.ours;
        match self.peer {
            Ok(peer) => run.report(Case { case, ours, unit, peer: Some((name, peer)), target }),
            Err(reason) => run.report_without_peer(Case { case, ours, unit, peer: None, target }, &reason),
        }
    }
}
