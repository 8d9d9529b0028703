//! Memory runs out and comes back: the device's, and the board's heap.

use crate::board::{HEAP, heap_used};
use crate::check::{Check, Outcome, fails, holds, same};
use crate::device::{MEMORY, device, holds_elements, open, open_with, upload};
use crate::kernels::{PART, PART_BYTES, add};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Rung};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::pressure::{PressureAnswer, RETRIES};
use trunnion_runtime_core::report::{MemoryUsage, PoolKind, ReportScope};
use trunnion_runtime_core::service::Settings;
use trunnion_runtime_core::sink::Sink;

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "a request over the device's largest allocation is refused", run: too_large },
    Check { name: "a request over the budget fails, with the numbers, and lies on the buffer", run: over_budget },
    Check { name: "memory that was given back serves the next request, after the work that used it", run: given_back },
    Check { name: "a heap that has no more refuses the device a page, and the device goes on", run: heap_exhausted },
    Check { name: "a read that the heap has no room for fails, and the next one does not", run: no_room_to_read },
    Check { name: "a page that the driver refuses once is asked for again", run: refused_once },
    Check { name: "hooks are asked before a request is refused, and a bounded number of times", run: hooked },
    Check { name: "a client holds no more than it may, whatever the device has", run: capped },
    Check { name: "an upload goes through locked memory, and through plain where that is refused", run: staged },
    Check { name: "a dry run plans more memory than the board has", run: dry },
    Check { name: "memory is kept or has a page of its own where that is asked for", run: modes },
    Check { name: "what is asked of memory is written to a port, line by line", run: recorded },
    Check { name: "when everything is dropped the report is at its baseline", run: baseline },
];

fn too_large() -> Outcome {
    let client = open()?;
    let error = fails(client.empty(MEMORY + 1), |e| matches!(e, Error::TooLarge { .. }))?;
    same(format!("{error}"), format!("{} bytes requested, the device gives at most {MEMORY} at once", MEMORY + 1))
}

/// The first device with a budget.
fn open_within(budget: u64) -> Outcome<Client> {
    let mut settings = Settings::default();
    settings.open.memory_budget = Some(budget);
    Ok(Client::load_with(device(0), &settings)?)
}

fn over_budget() -> Outcome {
    let client = open_within(64 << 10)?;
    let add = client.prepare(add())?;
    let (kept, none) = (client.zeros(40 << 10)?, client.zeros(40 << 10)?);
    client.launch(&add, Grid::x(1), ([&none], &1u32))?;
    let error = fails(client.read_one(&none), |e| matches!(e, Error::OutOfMemory(_)))?;
    let Error::OutOfMemory(numbers) = error.root() else { return Err(error.into()) };
    same((numbers.requested, numbers.live, numbers.budget), (40 << 10, 40 << 10, Some(64 << 10)))?;
    holds(numbers.tried.contains(&Rung::Reuse) && numbers.tried.contains(&Rung::Trim), &error)?;
    drop((kept, none));
    let next = client.zeros(40 << 10)?;
    client.launch(&add, Grid::x(1), ([&next], &1u32))?;
    holds_elements(&client, &next.slice(..PART_BYTES)?, &[1u32; PART])
}

fn given_back() -> Outcome {
    let client = open_within(64 << 10)?;
    let add = client.prepare(add())?;
    for _ in 0..50 {
        let a = client.zeros(40 << 10)?;
        client.launch(&add, Grid::x(600), ([&a], &1u32))?;
        let b = client.zeros(20 << 10)?;
        client.copy(&a.slice(..20 << 10)?, &b)?;
        holds_elements(&client, &b.slice(..8)?, &[1u32; 2])?;
    }
    let total = client.memory_report(ReportScope::Device)?.total();
    holds(total.peak_reserved <= 64 << 10 && total.reused >= 98, format!("{total:?}"))
}

fn heap_exhausted() -> Outcome {
    let client = open_with(&[("memory", "1GiB")])?;
    let (small, none) = (upload(&client, &[1u32, 2])?, client.zeros(HEAP as u64)?);
    let error = fails(client.read_one(&none.slice(..4)?), |e| matches!(e, Error::OutOfMemory(_)))?;
    holds(format!("{error}").contains("the allocator has no"), &error)?;
    holds_elements(&client, &small, &[1u32, 2])?;
    let more = client.zeros(HEAP as u64 / 4)?;
    holds_elements(&client, &more.slice(HEAP as u64 / 4 - 8..)?, &[0u32; 2])
}

fn no_room_to_read() -> Outcome {
    let client = open_with(&[("memory", "1GiB")])?;
    let a = client.zeros(HEAP as u64 / 2)?;
    let error = fails(client.read_one(&a), |e| !e.is_refusal())?;
    holds(format!("{error}").contains("bytes"), error)?;
    holds_elements(&client, &a.slice(..8)?, &[0u32; 2])
}

fn refused_once() -> Outcome {
    let client = open_with(&[("refuse_allocation", "1"), ("memory", "64KiB")])?;
    let a = client.memory_dedicated_allocation(|| client.zeros(4096))?;
    holds_elements(&client, &a, &[0u8; 4096])
}

fn hooked() -> Outcome {
    let client = open_within(64 << 10)?;
    let asked = Arc::new(AtomicU32::new(0));
    let theirs = asked.clone();
    let hook = client.on_memory_pressure(move |_| {
        theirs.fetch_add(1, Ordering::Relaxed);
        PressureAnswer::Retry
    })?;
    let (kept, none) = (client.zeros(40 << 10)?, client.empty(40 << 10)?);
    let error = fails(client.check(&[&none]), |e| matches!(e, Error::OutOfMemory(_)))?;
    let Error::OutOfMemory(numbers) = error.root() else { return Err(error.into()) };
    holds(numbers.tried.last() == Some(&Rung::Hook), &error)?;
    same(asked.load(Ordering::Relaxed), RETRIES)?;
    drop((kept, none, hook));
    holds_elements(&client, &client.zeros(40 << 10)?.slice(..8)?, &[0u32; 2])
}

fn capped() -> Outcome {
    let mut client = open()?;
    client.set_memory_limit(1000)?;
    let held = upload(&client, &[7u32; 200])?;
    fails(client.clone().empty(201), |e| matches!(e, Error::ClientMemoryLimit { live: 800, .. }))?;
    holds_elements(&client, &held, &[7u32; 200])?;
    same(client.memory_budget()?.client_live, Some(800))
}

fn staged() -> Outcome {
    let client = open_with(&[("pinned_memory", "8KiB"), ("refuse_pin", "1")])?;
    for number in 1..4u32 {
        let data = [number; 300];
        let a = client.create_from_slice_pinned(&bytemuck::cast_slice(&data)[..1000 + 4 * number as usize])?;
        holds_elements(&client, &a, &data[..250 + number as usize])?;
    }
    let usage = client.staging_usage();
    same((usage.pinned, usage.refused, usage.in_use), (2, 1, 0))
}

fn dry() -> Outcome {
    let mut settings = Settings::default();
    settings.open.dry_run = true;
    let client = Client::load_with(device(0), &settings)?;
    let (add, heap_before) = (client.prepare(add())?, heap_used());
    let held = (0..10).map(|_| client.zeros(MEMORY)).collect::<Result<Vec<_>, _>>()?;
    for a in &held {
        client.launch(&add, Grid::x((MEMORY / PART_BYTES) as u32), ([a], &1u32))?;
    }
    holds_elements(&client, &held[9].slice(..8)?, &[0u32; 2])?;
    let usage = client.memory_usage()?;
    holds(usage.live == 10 * MEMORY && usage.reserved >= usage.live, format!("{usage:?}"))?;
    holds(heap_used() < heap_before + (32 << 10), format!("{} bytes of heap", heap_used() - heap_before))
}

fn modes() -> Outcome {
    let client = open()?;
    let kept = client.memory_persistent_allocation(|| client.zeros(3000))?;
    let own = client.memory_dedicated_allocation(|| client.zeros(3000))?;
    client.sync_buffers(&[&kept, &own])?;
    let report = client.memory_report(ReportScope::Device)?;
    let live = |kind| report.pools.iter().filter(|pool| pool.kind == kind).map(|pool| pool.live).sum::<u64>();
    same([PoolKind::Persistent, PoolKind::Dedicated, PoolKind::General].map(live), [3000, 3000, 0])
}

/// Stands for a port: counts the lines, and those of events.
struct Port;

static LINES: AtomicU32 = AtomicU32::new(0);
static EVENTS: AtomicU32 = AtomicU32::new(0);

impl Sink for Port {
    fn line(&mut self, line: &str) -> Result<(), String> {
        LINES.fetch_add(1, Ordering::Relaxed);
        let is_event = ["alloc 0 100 ", "snapshot ", "free 0"].iter().any(|word| line.starts_with(word));
        EVENTS.fetch_add(is_event.into(), Ordering::Relaxed);
        Ok(())
    }
}

fn recorded() -> Outcome {
    let client = open()?;
    client.record_memory_start(Port)?;
    let buffer = client.zeros(100)?;
    client.record_memory("one buffer")?;
    drop(buffer);
    let recording = client.record_memory_stop()?;
    same(recording.map(|recording| (recording.events, recording.fault)), Some((3, None)))?;
    same(EVENTS.load(Ordering::Relaxed), 3)?;
    holds(LINES.load(Ordering::Relaxed) > 4, "the head and the end are lines too")
}

fn baseline() -> Outcome {
    let client = open()?;
    let add = client.prepare(add())?;
    client.sync()?.wait()?;
    let (before, heap_before) = (client.memory_usage()?, heap_used());
    same(before, MemoryUsage::default())?;
    let mut heap_after_first = 0;
    for round in 0..4 {
        let buffers = (1..30u64).map(|i| client.zeros(i * 500)).collect::<Result<Vec<_>, _>>()?;
        for a in &buffers {
            client.launch(&add, Grid::x(2), ([a], &1u32))?;
        }
        client.sync_buffers(&buffers.iter().collect::<Vec<_>>())?;
        same(client.memory_usage()?.live, (1..30).map(|i| i * 500).sum())?;
        drop(buffers);
        client.memory_cleanup()?;
        same(client.memory_usage()?, before)?;
        match round {
            0 => heap_after_first = heap_used(),
            _ => same(heap_used(), heap_after_first)?,
        }
    }
    // What stays are tables that grew with what was there at once.
    holds(heap_after_first < heap_before + (16 << 10), format!("{} bytes more of heap", heap_after_first - heap_before))
}
