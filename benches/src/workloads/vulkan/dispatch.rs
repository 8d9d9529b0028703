//! Ten thousand launches of a tiny kernel, one after the other, and one wait at the end.
//!
//! Each launch reads what the one before wrote: two buffers change places, and a parameter counts up. So every launch is bound anew and comes
//! behind a barrier, on both sides.

use super::bare::{Bare, Buffer, Commands, Pipeline};
use super::{BYTES, KERNEL, NUMBERS, TEXT, adapter, open, spirv};
use crate::harness::{Case, Run, Target, interleave};
use std::error::Error;
use std::time::Instant;
use trunnion_backend_vulkan::ash::vk;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result as CoreResult;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::{KernelHandle, SourceKernel};

/// How many launches a round makes.
pub const LAUNCHES: usize = 10_000;

/// Launches in one of the bare side's command buffers.
const BATCH: usize = 250;

/// The bare side's command buffers, so that one is recorded while others run.
const COMMANDS: usize = 4;

/// Ours: a client, the kernel, and the buffers that change places.
#[derive(Debug)]
pub struct Ours {
    client: Client,
    kernel: KernelHandle,
    buffers: [Handle; 2],
}

impl Ours {
    /// A device as configured by default.
    ///
    /// # Errors
    /// The client's own.
    pub fn new() -> CoreResult<Self> {
        let client = open()?;
        let kernel = client.prepare(SourceKernel::wgsl(KERNEL, TEXT))?;
        let buffers = [client.create_from_slice(&[0; BYTES])?, client.create_from_slice(&[0; BYTES])?];
        Ok(Self { client, kernel, buffers })
    }

    /// A round, in µs a launch.
    ///
    /// # Errors
    /// The client's own.
    pub fn round(&self, launches: usize) -> CoreResult<f64> {
        let start = Instant::now();
        for i in 0..launches {
            let [before, after] = [&self.buffers[i % 2], &self.buffers[(i + 1) % 2]];
            self.client.launch(&self.kernel, Grid::x(1), ([before, after], &(i as u32)))?;
        }
        self.client.sync()?.wait()?;
        Ok(per_launch(start, launches))
    }

    /// What the launches of all rounds left.
    ///
    /// # Errors
    /// The client's own.
    pub fn result(&self, launches: usize) -> CoreResult<u32> {
        Ok(self.client.read_one(&self.buffers[launches % 2])?.cast::<u32>()?[NUMBERS - 1])
    }
}

/// µs a launch since then.
pub fn per_launch(start: Instant, launches: usize) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / launches as f64
}

/// What so many rounds leave in every number.
pub fn expected(rounds: usize, launches: usize) -> u32 {
    (0..launches as u32).fold(0u32, |sum, by| sum.wrapping_add(by)).wrapping_mul(rounds as u32)
}

/// The same with the bare API: command buffers that are recorded anew each time.
struct Peer<'a> {
    bare: &'a Bare,
    pipeline: Pipeline<'a>,
    buffers: [Buffer<'a>; 2],
    commands: Vec<Commands>,
}

impl<'a> Peer<'a> {
    fn new(bare: &'a Bare) -> Result<Self, Box<dyn Error>> {
        let (words, pushed) = spirv()?;
        let mut buffers = [bare.buffer(BYTES)?, bare.buffer(BYTES)?];
        buffers.iter_mut().filter_map(Buffer::bytes).for_each(|bytes| bytes.fill(0));
        let commands = (0..COMMANDS).map(|_| bare.commands()).collect::<Result<_, _>>()?;
        Ok(Self { bare, pipeline: bare.pipeline(&words, 2, pushed)?, buffers, commands })
    }

    fn round(&mut self, launches: usize) -> Result<f64, vk::Result> {
        let start = Instant::now();
        let [even, odd] = &self.buffers;
        for (batch, first) in (0..launches).step_by(BATCH).enumerate() {
            let commands = &mut self.commands[batch % COMMANDS];
            self.bare.submit(commands, |recording| {
                recording.bind(&self.pipeline);
                for i in first..launches.min(first + BATCH) {
                    if i > first {
                        recording.barrier();
                    }
                    let buffers = if i % 2 == 0 { [even, odd] } else { [odd, even] };
                    recording.dispatch(&self.pipeline, buffers, i as u32);
                }
            })?;
        }
        self.bare.finish()?;
        Ok(per_launch(start, launches))
    }

    /// Where the host reaches it.
    fn result(&mut self, launches: usize) -> Option<u32> {
        let bytes = self.buffers[launches % 2].bytes()?;
        Some(u32::from_ne_bytes(*bytes.last_chunk()?))
    }
}

/// `dispatch`: ours beside the bare API.
///
/// # Errors
/// Where there is no Vulkan device; what client and driver answer.
pub fn dispatch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let name = adapter(run)?;
    let (ours, bare) = (Ours::new()?, Bare::open(&name)?);
    let mut peer = Peer::new(&bare)?;
    let (launches, rounds) = (run.repeat(LAUNCHES), run.rounds(21));
    let (values, peers) = interleave(
        rounds,
        || ours.round(launches).expect("the device computes"),
        || peer.round(launches).expect("the device computes"),
    );
    // One more than is measured warms up.
    let expected = expected(rounds + 1, launches);
    assert_eq!(ours.result(launches)?, expected);
    assert!(peer.result(launches).is_none_or(|result| result == expected));
    run.report(Case {
        case: "vulkan",
        ours: values,
        unit: "µs",
        peer: Some(("bare Vulkan", peers)),
        target: Some(Target::Ratio(1.15)),
    });
    Ok(())
}
