//! What can be known at once is refused at once, with nothing submitted.

use crate::check::{Check, Outcome, fails, same};
use crate::device::{device, holds_elements, open, upload};
use crate::kernels::{PART, PART_BYTES, add, double};
use alloc::format;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Resource, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};
use trunnion_runtime_core::timeline::Point;

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "arguments of a transfer that are wrong are refused", run: transfers },
    Check { name: "arguments of a launch that are wrong are refused", run: launches },
    Check { name: "kernels that the device cannot run are refused", run: kernels },
    Check { name: "what belongs to another device is refused", run: foreign },
];

/// A call is refused for its arguments, in these words.
#[track_caller]
fn refused<T>(result: Result<T>, words: &str) -> Outcome {
    let error = fails(result, Error::is_refusal)?;
    same(format!("{error}").as_str(), words)
}

fn transfers() -> Outcome {
    let client = open()?;
    let a = upload(&client, &[1u8; 8])?;
    let start = client.record()?;
    refused(client.write_slice(&a, &[1; 9]), "write: 9 bytes given, 8 expected")?;
    refused(client.fill(&a, &[1, 2, 3]), "fill pattern (1, 2, 4, 8 or 16 bytes): 3 bytes given, 16 expected")?;
    refused(client.fill(&a.slice(..6)?, &[0; 4]), "size of a fill: 6 is not a multiple of 4")?;
    refused(client.copy(&a.slice(..4)?, &a.slice(..5)?), "copy: 4 bytes given, 5 expected")?;
    refused(client.copy(&a.slice(..4)?, &a.slice(3..7)?), "copy: arguments 0 and 1 overlap and one is written")?;
    refused(a.slice(4..9), "slice of a handle: bytes 4..9 of 8")?;
    refused(client.read_into(&a, &mut [0; 7]), "read_into: 7 bytes given, 8 expected")?;
    same(client.record()?.seq, start.seq + 1)?;
    holds_elements(&client, &a, &[1u8; 8])
}

fn launches() -> Outcome {
    let client = open()?;
    let (add, double) = (client.prepare(add())?, client.prepare(double())?);
    let a = client.zeros(2 * PART_BYTES)?;
    let half = a.slice(..PART_BYTES)?;
    let start = client.record()?;
    let launch = |grid| -> Result<Point> { client.launch(&add, grid, ([&a], &1u32)) };
    let words = "65536 workgroups on axis y, the device takes 65535; `Grid::spread` splits a count over the axes";
    refused(launch(Grid::xy(1, 65_536)), words)?;
    refused(client.launch(&add, Grid::x(1), ([&a, &a], &1u32)), "kernel `add` takes 1 buffers, 2 given")?;
    refused(client.launch(&add, Grid::x(1), [&a]), "kernel `add` takes 4 bytes of parameters, 0 given")?;
    let words = "double: arguments 0 and 1 overlap and one is written";
    refused(client.launch(&double, Grid::x(2), [&a, &half]), words)?;
    let other = client.zeros(2 * PART_BYTES)?;
    fails(client.launch(&double, Grid::x(1), [&a, &other]), |e| matches!(e, Error::BufferSize { index: 1, .. }))?;
    let odd = a.slice(4..)?;
    fails(client.launch(&add, Grid::x(1), ([&odd], &1u32)), |e| matches!(e, Error::Misaligned { alignment: 16, .. }))?;
    // The memory and its zeros are what was submitted since.
    same(client.record()?.seq, start.seq + 3)?;
    holds_elements(&client, &a, &[0u32; 2 * PART])
}

fn kernels() -> Outcome {
    let client = open()?;
    let host = || Source::host(|_| Ok(()));
    let large = SourceKernel::new("large", Interface::new()).workgroup_size([1024, 2, 1]).source(host());
    fails(client.prepare(large), |e| {
        matches!(e, Error::TooManyResources { resource: Resource::Invocations, requested: 2048, max: 1024, .. })
    })?;
    let shared = SourceKernel::new("shared", Interface::new().shared(1 << 20)).source(host());
    fails(client.prepare(shared), |e| {
        matches!(e, Error::TooManyResources { resource: Resource::SharedMemory, requested: 0x10_0000, max: 0x4000, .. })
    })?;
    let text = SourceKernel::new("text", Interface::new()).source(Source::wgsl("@compute fn text() {}"));
    fails(client.prepare(text), |e| matches!(e, Error::NoSource { .. }))?;
    Ok(())
}

fn foreign() -> Outcome {
    let (here, there) = (open()?, Client::load(device(1))?);
    let (add, a) = (there.prepare(add())?, there.zeros(PART_BYTES)?);
    let own = here.zeros(PART_BYTES)?;
    fails(here.read_one(&a), |e| matches!(e, Error::ForeignHandle { .. }))?;
    fails(here.copy(&own, &a), |e| matches!(e, Error::ForeignHandle { .. }))?;
    fails(here.launch(&add, Grid::x(1), ([&own], &1u32)), |e| matches!(e, Error::ForeignKernel { .. }))?;
    Ok(())
}
