//! Ten thousand launches of a tiny kernel on a Vulkan device, one after the other, and one wait at the end; the peer's is its wgpu runtime.
//!
//! Both sides launch the same kernel, each in its own language, checked against accesses out of bounds: two buffers of 64 numbers change
//! places, and a number is added that counts up. The peer's runtime takes the adapter it takes by default, which must be the one that ours is
//! measured on.

use crate::beside::{attempt, measure};
use benches::harness::{Run, Target};
use benches::workloads::vulkan::adapter;
use benches::workloads::vulkan::dispatch::{LAUNCHES, Ours, expected, per_launch};
use cubecl_core as cubecl;
use cubecl_core::prelude::*;
use cubecl_core::server::Handle;
use cubecl_environment::future::block_on;
use cubecl_server::runtime::Runtime;
use cubecl_wgpu::WgpuRuntime;
use std::error::Error;
use std::time::Instant;

const NUMBERS: usize = 64;

#[cube(launch)]
fn add(before: &[u32], after: &mut [u32], by: u32) {
    after[ABSOLUTE_POS] = before[ABSOLUTE_POS] + by;
}

struct Peer {
    client: Client,
    buffers: [Handle; 2],
}

impl Peer {
    fn new(name: &str) -> Result<Self, String> {
        let client = <WgpuRuntime>::client(&Default::default());
        let taken = &client.properties().identity.name;
        if taken != name {
            return Err(format!("it takes the adapter {taken}"));
        }
        let buffers = [(); 2].map(|()| client.create_from_slice(u32::as_bytes(&[0; NUMBERS])));
        Ok(Self { client, buffers })
    }

    fn round(&self, launches: usize) -> Result<f64, String> {
        let start = Instant::now();
        for i in 0..launches {
            let [before, after] = [&self.buffers[i % 2], &self.buffers[(i + 1) % 2]];
            // SAFETY: both buffers have as many numbers.
            let [before, after] =
                [before, after].map(|buffer| unsafe { BufferArg::from_raw_parts(buffer.clone(), NUMBERS) });
            let (count, size) = (CubeCount::Static(1, 1, 1), CubeDim::new_1d(NUMBERS as u32));
            add::launch(&self.client, count, size, before, after, i as u32);
        }
        block_on(self.client.sync()).map_err(|error| error.to_string())?;
        Ok(per_launch(start, launches))
    }

    fn result(&self, launches: usize) -> Result<u32, String> {
        let bytes = self.client.read_one(self.buffers[launches % 2].clone()).map_err(|error| error.to_string())?;
        Ok(u32::from_bytes(&bytes)[NUMBERS - 1])
    }
}

/// `dispatch`: ours beside the peer.
pub fn dispatch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let name = adapter(run)?;
    let (ours, peer) = (Ours::new()?, attempt(|| Peer::new(&name)));
    let (launches, rounds) = (run.repeat(LAUNCHES), run.rounds(11));
    let peers = || peer.as_ref().map_err(String::clone);
    let figures = measure(rounds, || ours.round(launches).expect("the device computes"), || peers()?.round(launches));
    // One more than is measured warms up.
    let expected = expected(rounds + 1, launches);
    assert_eq!(ours.result(launches)?, expected);
    if figures.peer.is_ok() {
        assert_eq!(attempt(|| peers()?.result(launches))?, expected);
    }
    figures.report(run, "vulkan", "µs", Some(Target::Ratio(0.5)));
    Ok(())
}
