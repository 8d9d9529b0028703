//! The peer's `DeviceHandle`, which is what its client sends everything through, beside our executor: a thread that owns a value, and
//! closures that are run on it. Both sides run the same closure over the same state.
//!
//! The peer's handle carries the caller's stream with every call and sets it around the closure; ours numbers every call. Neither can be
//! turned off.

use crate::beside::measure;
use benches::harness::{Run, Target};
use benches::workloads::handle::{self, Calls, Ours, State, words};
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle};
use cubecl_common::device_handle::DeviceHandle;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

struct Service(State);

impl DeviceService for Service {
    fn init(_: DeviceId) -> Self {
        Self(State::default())
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }
}

struct Peer(DeviceHandle<Service>);

impl Peer {
    fn new() -> Self {
        Self(DeviceHandle::new(DeviceId { type_id: 1, index_id: 0 }))
    }
}

impl Calls for Peer {
    #[inline]
    fn call(&self, seed: usize) {
        let data = words(seed);
        self.0.submit(move |service| service.0.work(&data));
    }

    #[inline]
    fn answer(&self) -> usize {
        self.0.submit_blocking(|service| service.0.answer()).expect("the device answers")
    }

    fn lone(&self, started: impl FnOnce() + Send + 'static) {
        self.0.submit(move |_| started());
    }
}

pub fn one_thread(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, peer) = (Ours::new()?, Peer::new());
    for (case, idle, rounds, target) in [("hot", false, 201, Some(Target::Ratio(0.5))), ("idle", true, 51, None)] {
        let mine = || rested(idle, || handle::one_thread_round(&ours));
        let peers = || Ok(rested(idle, || handle::one_thread_round(&peer)));
        measure(run.rounds(rounds), mine, peers).report(run, case, "µs", target);
    }
    Ok(())
}

/// The round, after a rest where the device shall be idle.
fn rested(idle: bool, round: impl FnOnce() -> f64) -> f64 {
    if idle {
        handle::rest();
    }
    round()
}

/// Reported only: the target is one of a mutex, beside which `benches` measures ours.
pub fn four_threads(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, peer) = (Ours::new()?, Peer::new());
    let figures =
        measure(run.rounds(21), || handle::four_threads_round(&ours), || Ok(handle::four_threads_round(&peer)));
    figures.percentile(0.99).report(run, "p99", "ms", None);
    figures.report(run, "median", "ms", None);
    Ok(())
}

pub fn latency(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, peer) = (Ours::new()?, Peer::new());
    // What the peer's runner does with a call that nothing follows, it does at once or never: 50 ms are a thousand times what ours takes.
    const PATIENCE: Duration = Duration::from_millis(50);
    let lone = || {
        handle::rest();
        handle::lone_round(&ours, handle::FOREVER).unwrap_or(f64::NAN)
    };
    let peer_lone = || {
        handle::rest();
        let started = handle::lone_round(&peer, PATIENCE);
        peer.answer();
        started
            .ok_or(format!("a call with neither another 31 nor a flush behind it had not started after {PATIENCE:?}"))
    };
    let figures = measure(run.rounds(401), lone, peer_lone);
    figures.percentile(0.5).report(run, "lone-p50", "µs", None);
    figures.percentile(0.99).report(run, "lone-p99", "µs", None);
    for (case, idle, rounds) in [("hot-p50", false, run.repeat(20_000)), ("idle-p50", true, run.rounds(401))] {
        let mine = || rested(idle, || handle::round_trip(&ours));
        let peers = || Ok(rested(idle, || handle::round_trip(&peer)));
        measure(rounds, mine, peers).report(run, case, "µs", Some(Target::Ratio(0.1)));
    }
    Ok(())
}
