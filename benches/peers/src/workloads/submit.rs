//! What a fire-and-forget call costs by the size of what it carries, beside the peer's `DeviceHandle`. Both sides build the same closure on
//! the caller's stack and hand it over by value, and both answer one blocking call when all are made.

use crate::beside::measure;
use benches::harness::{Run, Target};
use benches::workloads::submit::{CALLS, Ours, Submits, Sum, round};
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle};
use cubecl_common::device_handle::DeviceHandle;
use std::error::Error;
use std::sync::Arc;

struct Service(Sum);

impl DeviceService for Service {
    fn init(_: DeviceId) -> Self {
        Self(Sum::default())
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }
}

struct Peer(DeviceHandle<Service>);

impl Submits for Peer {
    #[inline]
    fn submit(&self, call: impl FnOnce(&mut Sum) + Send + 'static) {
        self.0.submit(move |service| call(&mut service.0));
    }

    fn answer(&self) -> u64 {
        self.0.submit_blocking(|service| service.0.0).expect("the device answers")
    }
}

pub fn sizes(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, peer) = (Ours::new()?, Peer(DeviceHandle::new(DeviceId { type_id: 2, index_id: 0 })));
    for producers in [1, 4] {
        carried::<1>(run, &ours, &peer, "8B", producers);
        carried::<32>(run, &ours, &peer, "256B", producers);
        carried::<256>(run, &ours, &peer, "2KiB", producers);
        carried::<640>(run, &ours, &peer, "5KB", producers);
    }
    Ok(())
}

fn carried<const WORDS: usize>(run: &mut Run, ours: &Ours, peer: &Peer, size: &str, producers: usize) {
    let calls = run.repeat(CALLS);
    let ours = || round::<WORDS>(ours, producers, calls);
    let peer = || Ok(round::<WORDS>(peer, producers, calls));
    let target = if WORDS == 256 && producers == 4 { None } else { Some(Target::Ratio(0.6)) };
    measure(run.rounds(5), ours, peer).report(run, &format!("{size}-{producers}"), "ns", target);
}
