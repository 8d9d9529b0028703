//! Devices end: by their last client, by a shutdown, and leave nothing.

use crate::board::heap_used;
use crate::check::{Check, Outcome, fails, holds, same};
use crate::device::{device, holds_elements, open, upload};
use crate::kernels::{PART, PART_BYTES, add};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "a device ends with its last client, and the next is another one", run: last_client },
    Check { name: "a shutdown finishes what was queued, and calls after it say so", run: shut_down },
    Check { name: "handles may outlive their device", run: outlived },
    Check { name: "a device that comes and goes leaves the heap as it was", run: leaves_nothing },
    Check { name: "after everything the heap is all but empty", run: all_but_empty },
];

/// Bytes that may stay in use: tables that devices share, and what the device that was made to leave work behind keeps for it,
/// with the free lists of its pool, 6 KiB for each stream that has freed memory in use and for two lists besides.
const KEPT: usize = 40 << 10;

fn last_client() -> Outcome {
    let client = open()?;
    let (first, second_client) = (client.service_id(), client.clone());
    drop(client);
    same(open()?.service_id(), first)?;
    drop(second_client);
    same(open()?.service_id() == first, false)
}

fn shut_down() -> Outcome {
    let client = open()?;
    let add = client.prepare(add())?;
    let a = client.zeros(PART_BYTES)?;
    let point = client.launch(&add, Grid::x(1), ([&a], &1u32))?;
    let read = client.read_async(&[&a])?;
    same(client.shutdown(Duration::from_secs(1)).abandoned, 0)?;
    same(client.shutdown(Duration::ZERO).abandoned, 0)?;
    same(read.wait()?[0].to_vec::<u32>()?, [1; PART])?;
    let is_shut = |e: &Error| matches!(e, Error::ShutDown { .. });
    fails(client.empty(4), is_shut)?;
    fails(client.read_one(&a), is_shut)?;
    fails(client.launch(&add, Grid::x(1), ([&a], &1u32)), is_shut)?;
    fails(client.is_done(point), is_shut)?;
    fails(client.memory_usage(), is_shut)?;
    same(client.exclusive(|| ()).is_err(), true)
}

fn outlived() -> Outcome {
    let client = open()?;
    let handles = (0..10).map(|_| client.zeros(100)).collect::<Result<Vec<_>, _>>()?;
    let kernel = client.prepare(add())?;
    client.shutdown(Duration::from_secs(1));
    drop(client);
    let client = open()?;
    fails(client.read_one(&handles[0]), |e| matches!(e, Error::ForeignHandle { .. }))?;
    let a = client.zeros(PART_BYTES)?;
    fails(client.launch(&kernel, Grid::x(1), ([&a], &1u32)), |e| matches!(e, Error::ForeignKernel { .. }))?;
    drop((handles, kernel));
    holds_elements(&client, &a, &[0u32; PART])
}

fn leaves_nothing() -> Outcome {
    let mut after_first = 0;
    for round in 0..5 {
        let (here, there) = (open()?, Client::load(device(1))?);
        let add = here.prepare(add())?;
        let a = upload(&here, &[1u32; 64])?;
        here.launch(&add, Grid::x(4), ([&a], &1u32))?;
        let b = here.to_client(&a, &there)?;
        holds_elements(&there, &b, &[2u32; 64])?;
        // In another order each time.
        match round % 3 {
            0 => drop((a, b, add, here, there)),
            1 => drop((there, here, b, a, add)),
            _ => drop((add, here, a, there, b)),
        }
        match round {
            0 => after_first = heap_used(),
            _ => same(heap_used(), after_first)?,
        }
    }
    Ok(())
}

fn all_but_empty() -> Outcome {
    holds(heap_used() <= KEPT, format!("{} bytes are in use", heap_used()))
}
