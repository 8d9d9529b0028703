//! From nothing to the first result: loader, instance, device, pipeline, one launch, and its answer on the host.

use super::bare::Bare;
use super::{BYTES, KERNEL, TEXT, adapter, open, spirv};
use crate::harness::{Case, Run, Target, interleave};
use std::error::Error;
use std::time::Instant;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result as CoreResult;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::SourceKernel;

/// As many fives as a buffer has numbers, as bytes.
const FIVES: [u8; BYTES] = {
    let mut bytes = [0; BYTES];
    let (mut i, five) = (0, 5u32.to_ne_bytes());
    while i < BYTES {
        bytes[i] = five[i % 4];
        i += 1;
    }
    bytes
};

/// `start`: ours beside the bare API, which has the kernel as SPIR-V already.
///
/// # Errors
/// Where there is no Vulkan device; what client and driver answer.
pub fn start(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let name = adapter(run)?;
    let ours = || {
        let start = Instant::now();
        let client = open().expect("the device starts");
        assert_eq!(first_of(&client).expect("the device computes"), 8);
        start.elapsed().as_secs_f64() * 1e3
    };
    let (words, pushed) = spirv()?;
    let bare = || {
        let start = Instant::now();
        let bare = Bare::open(&name).expect("the device starts");
        assert_eq!(first_of_bare(&bare, &words, pushed).expect("the device computes"), 8);
        start.elapsed().as_secs_f64() * 1e3
    };
    let (ours, bare) = interleave(run.rounds(31), ours, bare);
    let over = ours.iter().zip(&bare).map(|(ours, bare)| ours - bare).collect();
    let (unit, target) = ("ms over bare Vulkan", Some(Target::Value(5.0)));
    run.report(Case { case: "vulkan", ours: over, unit, peer: None, target });
    Ok(())
}

fn first_of(client: &Client) -> CoreResult<u32> {
    let kernel = client.prepare(SourceKernel::wgsl(KERNEL, TEXT))?;
    let before = client.create_from_slice(&FIVES)?;
    let after = client.empty(BYTES as u64)?;
    client.launch(&kernel, Grid::x(1), ([&before, &after], &3u32))?;
    Ok(client.read_one(&after)?.cast::<u32>()?[0])
}

fn first_of_bare(bare: &Bare, words: &[u32], pushed: u32) -> Result<u32, Box<dyn Error>> {
    let pipeline = bare.pipeline(words, 2, pushed)?;
    let (mut before, mut after) = (bare.buffer(BYTES)?, bare.buffer(BYTES)?);
    // Where the device has memory of its own, both ways are through staging.
    let mut up = bare.staging(BYTES, false)?;
    let mut down = bare.staging(BYTES, true)?;
    let staged = before.bytes().is_none();
    let into = if staged { &mut up } else { &mut before };
    into.bytes().ok_or("not mapped")?.copy_from_slice(&FIVES);
    let mut commands = bare.commands()?;
    bare.submit(&mut commands, |recording| {
        if staged {
            recording.copy((&up, 0), (&before, 0), BYTES);
            recording.barrier();
        }
        recording.bind(&pipeline);
        recording.dispatch(&pipeline, [&before, &after], 3);
        if staged {
            recording.barrier();
            recording.copy((&after, 0), (&down, 0), BYTES);
        }
    })?;
    bare.finish()?;
    let from = if staged { &mut down } else { &mut after };
    let bytes = from.bytes().ok_or("not mapped")?;
    Ok(u32::from_ne_bytes(*bytes.first_chunk().ok_or("too short")?))
}
