//! Streams and devices: who waits for whom, without being told and when told.

use crate::check::{Check, Outcome, fails, same};
use crate::device::{device, holds_elements, on_new_stream, open, open_with, upload};
use crate::kernels::{PART, PART_BYTES, add, double};
use alloc::vec::Vec;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::timeline::Point;

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "streams each do their own work in order", run: own_work },
    Check { name: "a stream sees what another one wrote before, without being told", run: across },
    Check { name: "streams whose batches are reported out of order still wait for each other", run: reordered },
    Check { name: "hundreds of streams come and go", run: many },
    Check { name: "a stream that is entered is that of the calls inside", run: entered },
    Check { name: "a stream waits for a point of its own, of a stranger, of another device", run: points },
    Check { name: "a point of a device that has ended is refused", run: gone },
];

fn own_work() -> Outcome {
    let client = open()?;
    let add = client.prepare(add())?;
    let mut lanes = Vec::new();
    for i in 0..8u32 {
        let client = on_new_stream(&client);
        let a = upload(&client, &[i; 2 * PART])?;
        lanes.push((client, a));
    }
    for number in 1..=20u32 {
        for (client, a) in &lanes {
            client.launch(&add, Grid::x(2), ([a], &number))?;
        }
    }
    for (i, (client, a)) in lanes.iter().enumerate() {
        holds_elements(client, a, &[i as u32 + 210; 2 * PART])?;
    }
    Ok(())
}

fn across() -> Outcome {
    let client = open()?;
    let (add, double) = (client.prepare(add())?, client.prepare(double())?);
    let (one, other) = (on_new_stream(&client), on_new_stream(&client));
    let (a, b) = (one.zeros(PART_BYTES)?, other.empty(PART_BYTES)?);
    let mut expected = 0;
    for number in 1..=10u32 {
        one.launch(&add, Grid::x(1), ([&a], &number))?;
        other.launch(&double, Grid::x(1), [&a, &b])?;
        one.launch(&double, Grid::x(1), [&b, &a])?;
        expected = 4 * (expected + number);
    }
    holds_elements(&client, &a, &[expected; PART])
}

fn reordered() -> Outcome {
    let client = open_with(&[("reorder", "7"), ("memory_types", "3"), ("row_pitch", "256")])?;
    let add = client.prepare(add())?;
    let a = client.zeros(PART_BYTES)?;
    for number in 1..=12u32 {
        on_new_stream(&client).launch(&add, Grid::x(1), ([&a], &number))?;
    }
    holds_elements(&client, &a, &[78u32; PART])
}

fn many() -> Outcome {
    let client = open()?;
    let add = client.prepare(add())?;
    let a = client.zeros(PART_BYTES)?;
    for _ in 0..300 {
        let client = on_new_stream(&client);
        let b = client.zeros(PART_BYTES)?;
        client.launch(&add, Grid::x(1), ([&b], &1u32))?;
        client.launch(&add, Grid::x(1), ([&a], &1u32))?;
    }
    holds_elements(&client, &a, &[300u32; PART])
}

fn entered() -> Outcome {
    let client = open()?;
    let (outside, inside) = (client.stream(), StreamId::new());
    {
        let _entered = inside.enter();
        same(client.record()?.stream, inside)?;
    }
    same(client.record()?.stream, outside)
}

fn points() -> Outcome {
    let (here, there) = (open()?, Client::load(device(1))?);
    let add = there.prepare(add())?;
    let a = there.zeros(PART_BYTES)?;
    let theirs = there.launch(&add, Grid::x(1), ([&a], &1u32))?;
    here.wait(theirs)?;
    let own = here.record()?;
    for ahead in [0, 1, 1000] {
        here.wait(Point { seq: own.seq + ahead, ..own })?;
    }
    here.wait(Point { stream: StreamId::new(), ..own })?;
    here.sync()?.wait()?;
    same((here.is_done(own)?, here.is_done(theirs)?, there.is_done(theirs)?), (true, true, true))
}

fn gone() -> Outcome {
    let (here, there) = (open()?, Client::load(device(1))?);
    let point = there.record()?;
    drop(there);
    fails(here.wait(point), |e| matches!(e, Error::ForeignPoint { .. }))?;
    fails(here.is_done(point), |e| matches!(e, Error::ForeignPoint { .. }))?;
    Ok(())
}
