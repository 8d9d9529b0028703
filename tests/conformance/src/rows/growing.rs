//! M16: pages that grow where they are, on devices that have such pages.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::Context;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, tests};
use alloc::sync::Arc;
use std::sync::{Mutex, PoisonError};
use trunnion_memory_pools::trace::Trace;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::{PoolReport, ReportScope};
use trunnion_runtime_core::sink::Sink;

tests! {
    M16 where_pages_grow_a_buffer_larger_than_the_rest_of_one_fits_and_nothing_moves;
    M16 where_pages_grow_bytes_on_both_sides_of_a_seam_are_right;
}

/// What a recording of the memory says of the pools.
#[derive(Clone, Default)]
struct Head(Arc<Mutex<String>>);

impl Sink for Head {
    fn line(&mut self, line: &str) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line(line)
    }
}

/// In what steps the device's pages grow.
fn step(client: &Client) -> Outcome<u64> {
    let head = Head::default();
    client.record_memory_start(head.clone())?;
    client.record_memory_stop()?;
    let text = head.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let trace = Trace::parse(&text).map_err(|error| Failure::new(format!("{error}\n{text}")))?;
    let skip = |why: String| Failure::Skipped(format!("{}: {why}", client.name()));
    let step = trace.pools.and_then(|pools| pools.growth_step);
    let step = step.ok_or_else(|| skip("pages of this device stay as they are".into()))?;
    let limit = client.limits().max_allocation;
    match limit / 8 >= 4 * step {
        true => Ok(step),
        false => Err(skip(format!("pages grow by {step} bytes, too much where an allocation has at most {limit}"))),
    }
}

/// Pages that begin with one step and grow by what is needed, up to four.
fn layout(step: u64) -> Outcome<PoolLayout> {
    let pages = PageSizes::growing(step, 4 * step, 0);
    Ok(PoolLayout::new(vec![PoolDescription::new("growing", Placement::Fit, pages)])?)
}

fn pool(client: &Client) -> Outcome<PoolReport> {
    let report = client.memory_report(ReportScope::Device)?;
    let found = report.pools.iter().find(|pool| pool.name == "growing").cloned();
    found.ok_or_else(|| Failure::new(format!("no pool `growing`: {report}")))
}

/// Half of a page's first step, which holds `data` at its begin, and a buffer twice as large as the step behind it.
fn across(client: &Client, step: u64, data: &[u8]) -> Outcome<(Handle, Handle)> {
    client.install_memory_pools(&layout(step)?)?;
    let first = client.empty(step / 2)?;
    // It is under way while the page grows.
    client.fill(&first, &[7])?;
    client.write_slice(&first.slice(..data.len() as u64)?, data)?;
    let second = client.empty(2 * step)?;
    Ok((first, second))
}

fn where_pages_grow_a_buffer_larger_than_the_rest_of_one_fits_and_nothing_moves(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = step(&client)?;
    let data = pattern(5000, 3);
    let (first, second) = across(&client, step, &data)?;
    let grown = pool(&client)?;
    ensure_eq!((grown.pages, grown.reserved, grown.allocations), (1, 3 * step, 2));
    ensure_eq!((grown.grown, grown.reused), (2, 0), "requests for which the driver was asked");
    ensure!(client.read_one(&first.slice(..5000)?)?.as_slice()? == data, "what the page held is other bytes now");
    let rest = client.read_one(&first.slice(step / 2 - 512..)?)?;
    ensure_eq!(rest.as_slice()?, [7; 512], "where the page ended");
    // More than the page may become has another one; what it leaves is used.
    let third = client.empty(2 * step)?;
    ensure_eq!(pool(&client)?.pages, 2);
    drop((first, second, third));
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    let end = pool(&client)?;
    ensure_eq!((end.pages, end.reserved), (0, 0), "{end:?}");
    Ok(())
}

fn where_pages_grow_bytes_on_both_sides_of_a_seam_are_right(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = step(&client)?;
    let (first, second) = across(&client, step, &[9; 16])?;
    let seam = step / 2;
    client.fill(&second, &[5])?;
    let data = pattern(4096, 8);
    client.write_slice(&second.slice(seam - 2048..seam + 2048)?, &data)?;
    let whole = client.read_one(&second)?;
    let mut expected = vec![5; 2 * step as usize];
    expected[seam as usize - 2048..seam as usize + 2048].copy_from_slice(&data);
    ensure!(whole.as_slice()? == expected, "written and read, other bytes");
    // A kernel and a copy, each across it.
    let numbers: Vec<u32> = (0..128).collect();
    let middle = second.slice(seam - 256..seam + 256)?;
    client.write_slice(&middle, raw(&numbers))?;
    let add = client.prepare(kernels::step())?;
    client.launch(&add, cover(128)?, [&middle])?;
    let copied = client.empty(512)?;
    client.copy(&middle, &copied)?;
    let expected: Vec<u32> = (1..=128).collect();
    ensure_eq!(client.read_one(&copied)?.to_vec::<u32>()?, expected);
    ensure_eq!(client.read_one(&middle)?.to_vec::<u32>()?, expected);
    let before = client.read_one(&second.slice(seam - 2048..seam - 256)?)?;
    ensure!(before.as_slice()? == &data[..1792], "bytes beside what the kernel had are others");
    drop(first);
    Ok(())
}
