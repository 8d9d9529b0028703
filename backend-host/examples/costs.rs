//! What the host device costs over plain Rust: an empty launch, a workgroup, a copy. Run it with `--release`.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use trunnion_backend_core::driver::{Driver, DriverGrid, DriverLaunch, Outcome, Place};
use trunnion_backend_host::{HostCode, HostDriver, HostOptions, HostPage, HostStream};
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::executor::{Config, Execution, Executor, Resident};
use trunnion_runtime_core::id::ServiceId;
use trunnion_runtime_core::kernel::{Interface, KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::server::Bounds;

struct Silent;

impl Resident for Silent {}

fn main() -> Result<()> {
    // Without a runner: the device's own cost, not that of the thread it would wake.
    let executor = Executor::new(Silent, Config { execution: Execution::Inline, ..Config::default() })
        .map_err(|error| error.to_string())
        .expect("an executor starts");
    let mut driver = HostDriver::new(0, &HostOptions::default())?;
    driver.start(executor.notifier());
    let mut stream = driver.open_stream()?;
    let mut seq = 0;

    let empty = compile(&mut driver, SourceKernel::new("empty", Interface::new()).source(Source::host(|_| Ok(()))))?;
    let one = median(2000, || {
        seq += 1;
        launch(&mut driver, &mut stream, seq, &empty, [1, 1, 1], &[])?;
        driver.submit(&mut stream, seq)?;
        wait(&mut driver, &mut stream, seq)
    })?;
    println!("an empty launch, submitted and waited for   {:>10.2} us", one * 1e6);
    let batch = median(500, || {
        for _ in 0..64 {
            seq += 1;
            launch(&mut driver, &mut stream, seq, &empty, [1, 1, 1], &[])?;
        }
        driver.submit(&mut stream, seq)?;
        wait(&mut driver, &mut stream, seq)
    })?;
    println!("an empty launch in a batch of 64            {:>10.2} us", batch / 64.0 * 1e6);

    const GROUPS: usize = 1000;
    const ELEMENTS: usize = 64;
    let page = driver.allocate((GROUPS * ELEMENTS * 4) as u64).expect("memory");
    let interface = Interface::new().partition(ELEMENTS as u64 * 4);
    let add = compile(
        &mut driver,
        SourceKernel::new("add", interface).source(Source::host(|group| {
            add_one(group.part(0)?);
            Ok(())
        })),
    )?;
    let nothing = median(2000, || {
        seq += 1;
        launch(&mut driver, &mut stream, seq, &empty, [GROUPS as u32, 1, 1], &[])?;
        driver.submit(&mut stream, seq)?;
        wait(&mut driver, &mut stream, seq)
    })?;
    println!(
        "1000 empty workgroups                       {:>10.2} us, {:.1} ns each",
        nothing * 1e6,
        (nothing - one) * 1e9 / GROUPS as f64
    );
    let groups = median(2000, || {
        seq += 1;
        let place = Place { page: &page, offset: 0, size: page.size() };
        launch(&mut driver, &mut stream, seq, &add, [GROUPS as u32, 1, 1], &[place])?;
        driver.submit(&mut stream, seq)?;
        wait(&mut driver, &mut stream, seq)
    })?;
    let mut plain = vec![0_u32; GROUPS * ELEMENTS];
    let looped = median(2000, || {
        plain.chunks_mut(ELEMENTS).for_each(|part| add_one(black_box(part)));
        Ok(())
    })?;
    println!(
        "1000 workgroups that add 64 numbers each    {:>10.2} us, a plain loop {:.2} us",
        groups * 1e6,
        looped * 1e6
    );

    const SIZE: usize = 64 << 20;
    let page = driver.allocate(SIZE as u64).expect("memory");
    let source = Bytes::from_vec(vec![1_u8; SIZE]);
    let rows = Rows::single(SIZE as u64);
    let (from, mut to) = (vec![1_u8; SIZE], vec![2_u8; SIZE]);
    let copied = median(15, || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        Ok(())
    })?;
    let deadline = Deadline::never();
    let written = median(15, || {
        seq += 1;
        let place = Place { page: &page, offset: 0, size: page.size() };
        // SAFETY: the page is used by nothing else, and waited for.
        unsafe { driver.write(&mut stream, seq, source.clone(), place, &rows)? };
        driver.submit(&mut stream, seq)?;
        // Asleep: a caller that spins would take a core from the copy.
        driver.drain(&deadline);
        wait(&mut driver, &mut stream, seq)
    })?;
    let mut buffer = Some(HostBuffer::zeroed(SIZE)?);
    let read = median(15, || {
        seq += 1;
        let place = Place { page: &page, offset: 0, size: page.size() };
        let Some(into) = buffer.take() else { return Ok(()) };
        // SAFETY: as above.
        unsafe { driver.read(&mut stream, seq, 0, place, &rows, into)? };
        driver.submit(&mut stream, seq)?;
        driver.drain(&deadline);
        let mut outcome = Outcome::default();
        driver.poll(&mut stream, &mut outcome)?;
        buffer = outcome.read.pop().map(|(_, _, buffer)| buffer);
        Ok(())
    })?;
    println!(
        "64 MiB: memcpy {:.2} ms, write {:.2} ms ({:.2}), read {:.2} ms ({:.2})",
        copied * 1e3,
        written * 1e3,
        written / copied,
        read * 1e3,
        read / copied
    );
    Ok(())
}

fn add_one(part: &mut [u32]) {
    part.iter_mut().for_each(|x| *x = x.wrapping_add(1));
}

fn compile(driver: &mut HostDriver, kernel: SourceKernel) -> Result<(KernelHandle, HostCode)> {
    let reader = driver.reader();
    let kernel = KernelHandle::prepare(Arc::new(kernel), driver.properties(), &*reader, ServiceId::new())?(0);
    let code = driver.compile(&kernel, Bounds::Checked, None)?.code;
    Ok((kernel, code))
}

fn launch(
    driver: &mut HostDriver,
    stream: &mut HostStream,
    seq: u64,
    (kernel, code): &(KernelHandle, HostCode),
    grid: [u32; 3],
    buffers: &[Place<'_, HostPage>],
) -> Result<()> {
    let launch = DriverLaunch {
        code,
        kernel,
        grid: DriverGrid::Static(grid),
        buffers,
        parameters: &[],
        bounds: Bounds::Checked,
    };
    // SAFETY: one stream, and pages that outlive it.
    unsafe { driver.launch(stream, seq, launch) }
}

fn wait(driver: &mut HostDriver, stream: &mut HostStream, seq: u64) -> Result<()> {
    let mut outcome = Outcome::default();
    while driver.poll(stream, &mut outcome)? < seq {
        std::hint::spin_loop();
    }
    outcome.failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

/// The median time of `run`, in seconds.
fn median(rounds: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..rounds / 10 + 1 {
        run()?;
    }
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[rounds / 2])
}
