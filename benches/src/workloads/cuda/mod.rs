//! The workloads on a GPU by CUDA, each beside the bare driver doing the same. They are about hardware: where there is no driver, and on the
//! double of one, they are not run.

mod bare;

use crate::harness::{Case, Run, Target, interleave};
use bare::Bare;
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use trunnion_backend_cuda::CudaBackend;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result as CoreResult;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

/// The kernel that is launched, and its text, which both sides hand to the driver.
const KERNEL: &str = "add";
const TEXT: &str = include_str!("add.ptx");

/// Numbers in each of its buffers: those of one block.
const NUMBERS: usize = 64;

/// Bytes of an upload.
const LARGE: usize = 64 << 20;

/// The device that is measured, or why none is.
fn device(run: &mut Run, case: &str) -> Option<()> {
    let found = CudaBackend::default().enumerate().map_err(|error| error.to_string());
    let first = found.and_then(|devices| devices.into_iter().next().ok_or("there is no device".to_string()));
    match first {
        Ok(info) if info.driver.starts_with("double") => {
            run.not_run(case, "the driver is the double, which is no hardware")
        }
        Ok(info) => {
            run.note(&format!("{}, {}", info.adapter, info.driver));
            return Some(());
        }
        Err(why) => run.not_run(case, &why),
    }
    None
}

/// A client on a device that nobody else of this process uses.
fn open() -> CoreResult<Client> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let backend = const { BackendName::new("bench-cuda").unwrap() };
    let device = DeviceId { backend, index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init(device, CudaBackend::default().open(0, &OpenSettings::default())?)
}

/// `gpu-launch`: launches of a tiny kernel, each of which reads what the one before wrote, and one wait at the end.
///
/// # Errors
/// What client and driver answer.
pub fn launch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let Some(()) = device(run, "launch") else { return Ok(()) };
    let (client, bare) = (open()?, Bare::open()?);
    // SAFETY: each of the 64 threads touches its own number of both buffers.
    let source = unsafe { Source::ptx(TEXT) };
    let interface = Interface::new().read().overwrite(4 * NUMBERS as u64).parameters(4);
    let kernel = SourceKernel::new(KERNEL, interface).workgroup_size([NUMBERS as u32, 1, 1]).source(source);
    let kernel = client.prepare(kernel)?;
    let buffers = [client.zeros(4 * NUMBERS as u64)?, client.zeros(4 * NUMBERS as u64)?];
    let (launches, rounds) = (run.repeat(10_000), run.rounds(21));
    let (function, memory) = (bare.function(TEXT, KERNEL)?, [bare.memory(4 * NUMBERS)?, bare.memory(4 * NUMBERS)?]);
    let ours = || {
        let start = Instant::now();
        for i in 0..launches {
            let [before, after] = [&buffers[i % 2], &buffers[(i + 1) % 2]];
            client.launch(&kernel, Grid::x(1), ([before, after], &1u32)).expect("the device computes");
        }
        client.sync().and_then(|done| done.wait()).expect("the device computes");
        start.elapsed().as_secs_f64() * 1e6 / launches as f64
    };
    let peer = || {
        let start = Instant::now();
        for i in 0..launches {
            bare.launch(&function, NUMBERS as u32, [memory[i % 2], memory[(i + 1) % 2]], 1)
                .expect("the device computes");
        }
        bare.finish().expect("the device computes");
        start.elapsed().as_secs_f64() * 1e6 / launches as f64
    };
    let (ours, peers) = interleave(rounds, ours, peer);
    let expected = ((rounds + 1) * launches) as u32;
    assert_eq!(client.read_one(&buffers[expected as usize % 2])?.cast::<u32>()?[NUMBERS - 1], expected);
    let (peer, target) = (Some(("bare CUDA", peers)), Some(Target::Ratio(1.3)));
    run.report(Case { case: "launch", ours, unit: "µs", peer, target });
    Ok(())
}

/// `gpu-pool-hit`: memory that was freed is had again, beside the driver's own pool.
///
/// # Errors
/// What client and driver answer.
pub fn pool_hit(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let Some(()) = device(run, "pool-hit") else { return Ok(()) };
    let (client, bare) = (open()?, Bare::open()?);
    let (times, rounds, size) = (run.repeat(10_000), run.rounds(21), 1 << 20);
    let ours = || {
        let start = Instant::now();
        (0..times).for_each(|_| drop(client.empty(size).expect("there is memory")));
        client.sync().and_then(|done| done.wait()).expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e9 / times as f64
    };
    let peer = || {
        let start = Instant::now();
        (0..times).for_each(|_| bare.allocate_and_free(size as usize).expect("there is memory"));
        bare.finish().expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e9 / times as f64
    };
    let (ours, peers) = interleave(rounds, ours, peer);
    let (peer, target) = (Some(("cuMemAllocAsync", peers)), Some(Target::Ratio(0.1)));
    run.report(Case { case: "pool-hit", ours, unit: "ns", peer, target });
    Ok(())
}

/// `gpu-pinned-upload`: bytes in page-locked memory to the device.
///
/// # Errors
/// What client and driver answer.
pub fn pinned_upload(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let Some(()) = device(run, "pinned-upload") else { return Ok(()) };
    let (client, bare) = (open()?, Bare::open()?);
    let size = if run.quick { LARGE / 16 } else { LARGE };
    let to = client.zeros(size as u64)?;
    let (memory, pinned) = (bare.memory(size)?, bare.pinned(size)?);
    let ours = || {
        // Page-locked memory is the client's own, and what is in it is not what is measured.
        let bytes = client.reserve_staging(&[size]).expect("there is memory").remove(0).into_bytes();
        let start = Instant::now();
        client.write(&to, bytes).expect("the bytes are written");
        client.sync().and_then(|done| done.wait()).expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e3
    };
    let peer = || {
        let start = Instant::now();
        bare.upload(memory, &pinned).expect("the bytes are written");
        bare.finish().expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e3
    };
    let (ours, peers) = interleave(run.rounds(21), ours, peer);
    // At least 0.9 of the bandwidth.
    let (peer, target) = (Some(("bare CUDA", peers)), Some(Target::Ratio(1.11)));
    run.report(Case { case: "pinned-upload", ours, unit: "ms", peer, target });
    Ok(())
}
