//! M14: how allocations are made, in windows.

use crate::check::{Failure, Outcome};
use crate::context::{Context, on_new_stream};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::report::{PoolKind, ReportScope};

tests! {
    M14 allocations_go_to_the_pool_of_the_mode;
    M14 windows_nest_and_the_innermost_counts;
    M14 a_window_is_its_streams_own;
    M14 a_window_ends_when_a_panic_passes;
    M14 a_window_closed_out_of_order_says_so_and_the_others_stay;
    M14 a_window_may_be_closed_on_another_thread;
    M14 dedicated_memory_goes_back_to_the_driver_when_it_is_free;
    M14 persistent_memory_fits_exactly_and_serves_the_same_size_again;
    M14 the_mode_of_the_call_counts_not_of_its_execution;
}

/// Allocations in use, by the kind of pool.
fn kinds(client: &Client) -> Outcome<[u64; 3]> {
    let report = client.memory_report(ReportScope::Device)?;
    let of = |kind: PoolKind| report.pools.iter().filter(|pool| pool.kind == kind).map(|pool| pool.allocations).sum();
    Ok([of(PoolKind::General), of(PoolKind::Persistent), of(PoolKind::Dedicated)])
}

fn allocations_go_to_the_pool_of_the_mode(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let general = client.zeros(1000)?;
    ensure_eq!(kinds(&client)?, [1, 0, 0]);
    let persistent = client.memory_persistent_allocation(|| client.zeros(1000))?;
    ensure_eq!(kinds(&client)?, [1, 1, 0]);
    let dedicated = client.memory_dedicated_allocation(|| client.zeros(1000))?;
    ensure_eq!(kinds(&client)?, [1, 1, 1]);
    let after = client.zeros(1000)?;
    ensure_eq!(kinds(&client)?, [2, 1, 1]);
    for handle in [&general, &persistent, &dedicated, &after] {
        ensure_eq!(client.read_one(handle)?.as_slice()?, [0; 1000]);
    }
    drop((general, persistent, dedicated, after));
    client.sync()?.wait()?;
    ensure_eq!(kinds(&client)?, [0, 0, 0]);
    Ok(())
}

fn windows_nest_and_the_innermost_counts(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let mut kept = Vec::new();
    let outer = client.allocation_mode(AllocationMode::Persistent);
    kept.push(client.zeros(100)?);
    ensure_eq!(kinds(&client)?, [0, 1, 0]);
    let inner = client.allocation_mode(AllocationMode::Dedicated);
    kept.push(client.zeros(100)?);
    ensure_eq!(kinds(&client)?, [0, 1, 1]);
    {
        let _innermost = client.allocation_mode(AllocationMode::Auto);
        kept.push(client.zeros(100)?);
        ensure_eq!(kinds(&client)?, [1, 1, 1]);
    }
    kept.push(client.zeros(100)?);
    ensure_eq!(kinds(&client)?, [1, 1, 2]);
    inner.close()?;
    kept.push(client.zeros(100)?);
    ensure_eq!(kinds(&client)?, [1, 2, 2]);
    outer.close()?;
    kept.push(client.zeros(100)?);
    ensure_eq!(kinds(&client)?, [2, 2, 2]);
    Ok(())
}

fn a_window_is_its_streams_own(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let pinned = on_new_stream(&client);
    let _window = pinned.allocation_mode(AllocationMode::Dedicated);
    let other = client.zeros(100)?;
    ensure_eq!(kinds(&client)?, [1, 0, 0]);
    // A clone of the pinned client is on the same stream, on whatever thread.
    let clone = pinned.clone();
    let there =
        std::thread::spawn(move || clone.zeros(100)).join().map_err(|_| Failure::new("the thread panicked"))??;
    ensure_eq!(kinds(&client)?, [1, 0, 1]);
    // The window of a client that is not pinned is the thread's stream's.
    let _own = client.allocation_mode(AllocationMode::Persistent);
    let own = client.zeros(100)?;
    let elsewhere = client.clone();
    let elsewhere =
        std::thread::spawn(move || elsewhere.zeros(100)).join().map_err(|_| Failure::new("the thread panicked"))??;
    ensure_eq!(kinds(&client)?, [2, 1, 1]);
    drop((other, there, own, elsewhere));
    Ok(())
}

fn a_window_ends_when_a_panic_passes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for _ in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            client.memory_persistent_allocation(|| {
                client.memory_dedicated_allocation(|| -> Handle { panic!("on purpose, in an allocation window") })
            })
        }));
        ensure!(panicked.is_err(), "the panic was swallowed");
    }
    let _kept = client.zeros(100)?;
    ensure_eq!(kinds(&client)?, [1, 0, 0]);
    Ok(())
}

fn a_window_closed_out_of_order_says_so_and_the_others_stay(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let outer = client.allocation_mode(AllocationMode::Persistent);
    let middle = client.allocation_mode(AllocationMode::Auto);
    let inner = client.allocation_mode(AllocationMode::Dedicated);
    let error = ensure_err!(outer.close(), Error::ScopeOrder { .. });
    ensure!(matches!(error, Error::ScopeOrder { open: 2, .. }) && error.is_refusal(), "{error:?}");
    let first = client.zeros(100)?;
    ensure_eq!(kinds(&client)?, [0, 0, 1]);
    inner.close()?;
    let second = client.zeros(100)?;
    ensure_eq!(kinds(&client)?, [1, 0, 1]);
    middle.close()?;
    let third = client.zeros(100)?;
    ensure_eq!(kinds(&client)?, [2, 0, 1]);
    drop((first, second, third));
    Ok(())
}

fn a_window_may_be_closed_on_another_thread(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let window = client.allocation_mode(AllocationMode::Dedicated);
    std::thread::spawn(move || window.close()).join().map_err(|_| Failure::new("the thread panicked"))??;
    let _kept = client.zeros(100)?;
    ensure_eq!(kinds(&client)?, [1, 0, 0]);
    Ok(())
}

fn dedicated_memory_goes_back_to_the_driver_when_it_is_free(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.memory_usage()?.reserved;
    for round in 0..10 {
        let handle = client.memory_dedicated_allocation(|| client.zeros(1 << 20))?;
        ensure!(client.memory_usage()?.reserved >= before + (1 << 20), "round {round}: not reserved");
        drop(handle);
        client.sync()?.wait()?;
        ensure_eq!(client.memory_usage()?.reserved, before, "round {round}");
    }
    Ok(())
}

fn persistent_memory_fits_exactly_and_serves_the_same_size_again(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let make = |size: u64| client.memory_persistent_allocation(|| client.zeros(size));
    let report = || -> Outcome<_> {
        let report = client.memory_report(ReportScope::Device)?;
        let pool = report.pools.iter().find(|pool| pool.kind == PoolKind::Persistent).cloned();
        pool.ok_or_else(|| Failure::new("there is no persistent pool"))
    };
    let (a, b) = (make(100_000)?, make(3_000)?);
    let first = report()?;
    ensure_eq!(first.live, 103_000);
    ensure!(first.reserved < 103_000 + 16_384, "{} bytes for 103,000 is no exact fit", first.reserved);
    drop(a);
    client.sync()?.wait()?;
    // Kept for the same size, not given to another.
    let (c, d) = (make(100_000)?, make(50_000)?);
    let second = report()?;
    ensure_eq!(second.live, 153_000);
    ensure!(second.reserved < 153_000 + 32_768, "{} bytes for 153,000", second.reserved);
    ensure!(second.reused > first.reused, "the freed block was not used again");
    // A clean-up trims nothing that is in use.
    client.memory_cleanup()?;
    ensure_eq!(report()?.live, 153_000);
    drop((b, c, d));
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    ensure_eq!(report()?.reserved, 0);
    Ok(())
}

fn the_mode_of_the_call_counts_not_of_its_execution(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let before = kinds(&client)?;
    let inside = held.memory_dedicated_allocation(|| held.empty(100))?;
    let outside = held.empty(100)?;
    gate.open()?;
    held.sync_buffers(&[&inside, &outside])?;
    let after = kinds(&client)?;
    ensure_eq!(after[2], before[2] + 1);
    Ok(())
}
