//! M15, M17: what a device says about its memory, and giving back what is free.

use crate::check::Outcome;
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::{ensure, ensure_eq, tests};
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::report::{MemoryReport, PoolReport, ReportScope};

tests! {
    M15 the_sums_agree_whatever_was_allocated;
    M15 live_bytes_are_those_asked_for;
    M15 a_report_of_a_stream_covers_what_it_allocated;
    M15 peaks_stay_and_counters_grow;
    M15 a_report_prints_as_a_table;
    M15 a_report_can_be_serialised;
    M15 the_largest_free_block_can_be_had;
    M17 a_clean_up_gives_back_what_is_free_and_keeps_what_is_not;
    M17 repeated_clean_ups_reach_a_fixed_point;
    M17 what_was_given_back_the_driver_can_give_again;
    M17 a_persistent_set_dropped_a_thousand_times_returns_to_the_baseline .seconds(120);
    M17 a_buffer_held_across_streams_survives_a_clean_up;
    M17 a_gibibyte_dropped_and_cleaned_is_given_back .seconds(120);
    M17 a_clean_up_with_work_in_flight_waits_for_nobody_and_harms_nobody;
}

fn consistent(report: &MemoryReport, when: &str) -> Outcome {
    for pool in report.pools.iter().chain([&report.total()]) {
        ensure_eq!(pool.reserved, pool.live + pool.padding + pool.free, "{when}: reserved of {}", pool.name);
        ensure!(
            pool.largest_free <= pool.free,
            "{when}: largest free block of {}: {} of {}",
            pool.name,
            pool.largest_free,
            pool.free
        );
        ensure!(pool.peak_live >= pool.live && pool.peak_reserved >= pool.reserved, "{when}: peaks of {pool:?}");
        ensure!(
            pool.pages > 0 || pool.reserved == 0,
            "{when}: {} bytes without a page in {}",
            pool.reserved,
            pool.name
        );
        ensure!(
            pool.allocations > 0 || (pool.live == 0 && pool.padding == 0),
            "{when}: live bytes without an allocation in {pool:?}"
        );
    }
    Ok(())
}

fn report(client: &Client) -> Outcome<MemoryReport> {
    Ok(client.memory_report(ReportScope::Device)?)
}

fn the_sums_agree_whatever_was_allocated(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_micros(200), 60))?;
    consistent(&report(&client)?, "at the start")?;
    let mut kept: Vec<Handle> = Vec::new();
    let mut random = super::program::Random::new(60);
    for round in 0..300u64 {
        match random.below(5) {
            0 if !kept.is_empty() => drop(kept.swap_remove(random.below(kept.len() as u64) as usize)),
            1 => kept.push(client.memory_persistent_allocation(|| client.empty(random.below(5_000)))?),
            2 => kept.push(client.memory_dedicated_allocation(|| client.empty(random.below(5_000)))?),
            _ => {
                let most = 2 << random.below(20);
                kept.push(client.zeros(random.below(most))?);
            }
        }
        if round % 20 == 0 {
            let all = report(&client)?;
            consistent(&all, &format!("round {round}"))?;
            // Nothing happens in between on another thread, so both say the same.
            let usage = client.memory_usage()?;
            ensure_eq!((usage.allocations, usage.live), (all.total().allocations, all.total().live), "round {round}");
            let expected: u64 = kept.iter().map(Handle::size_in_used).sum();
            ensure_eq!(usage.live, expected, "round {round}");
        }
    }
    drop(kept);
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    let end = report(&client)?;
    consistent(&end, "at the end")?;
    ensure_eq!((end.total().live, end.total().allocations), (0, 0));
    Ok(())
}

fn live_bytes_are_those_asked_for(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.memory_usage()?;
    let handles = [1u64, 7, 100, 4097].map(|size| client.empty(size));
    let handles = handles.into_iter().collect::<Result<Vec<_>, _>>()?;
    let usage = client.memory_usage()?;
    ensure_eq!(usage.live - before.live, 1 + 7 + 100 + 4097);
    ensure_eq!(usage.allocations - before.allocations, 4);
    ensure!(usage.reserved >= usage.live + usage.padding, "{usage:?}");
    ensure_eq!(report(&client)?.usage(), usage);
    // A slice that is left keeps the whole.
    let slice = handles[3].slice(5..6)?;
    drop(handles);
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live - before.live, 4097);
    drop(slice);
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, before.live);
    Ok(())
}

fn a_report_of_a_stream_covers_what_it_allocated(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (a, b) = (on_new_stream(&client), on_new_stream(&client));
    let (x, y) = (a.empty(1000)?, b.empty(3000)?);
    let live = |client: &Client, stream| -> Outcome<u64> {
        Ok(client.memory_report(ReportScope::Stream(stream))?.total().live)
    };
    ensure_eq!((live(&client, a.stream())?, live(&client, b.stream())?), (1000, 3000));
    // Whoever uses it, it is the allocating stream's.
    b.fill(&x, &[1])?;
    b.sync()?.wait()?;
    ensure_eq!((live(&client, a.stream())?, live(&client, b.stream())?), (1000, 3000));
    ensure_eq!(live(&client, on_new_stream(&client).stream())?, 0);
    ensure!(client.memory_usage()?.live >= 4000, "the device has less than its streams");
    drop(x);
    client.sync()?.wait()?;
    ensure_eq!((live(&client, a.stream())?, live(&client, b.stream())?), (0, 3000));
    drop(y);
    Ok(())
}

fn peaks_stay_and_counters_grow(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let large = client.zeros(2 << 20)?;
    client.sync()?.wait()?;
    drop(large);
    client.memory_cleanup()?;
    let small = client.zeros(1000)?;
    let first = report(&client)?.total();
    ensure!(first.peak_live >= 2 << 20 && first.live < 2 << 20, "{first:?}");
    ensure!(first.grown >= 1, "no page was taken: {first:?}");
    client.sync()?.wait()?;
    drop(small);
    client.sync()?.wait()?;
    let _again = client.zeros(1000)?;
    let second = report(&client)?.total();
    ensure!(second.reused > first.reused, "memory the pool held was not counted as used again: {second:?}");
    ensure_eq!(second.grown, first.grown);
    ensure_eq!(second.peak_live, first.peak_live);
    Ok(())
}

fn a_report_prints_as_a_table(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.open.memory_budget = Some(64 << 20);
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let _kept = client.memory_persistent_allocation(|| client.zeros(12_345))?;
    let report = report(&client)?;
    let text = report.to_string();
    let lines: Vec<_> = text.lines().collect();
    // A head, a row a pool, the sums, the budget.
    ensure_eq!(lines.len(), report.pools.len() + 3, "{text}");
    for (pool, line) in report.pools.iter().zip(&lines[1..]) {
        ensure!(line.contains(&pool.name) && line.contains(&pool.kind.to_string()), "{line:?} is not of {}", pool.name);
    }
    ensure!(
        lines[0].contains("live") && lines[0].contains("reserved") && lines[lines.len() - 2].contains("total"),
        "{text}"
    );
    ensure!(text.contains("12.0 KiB") && text.contains("64.0 MiB"), "{text}");
    Ok(())
}

fn a_report_can_be_serialised(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let _kept = client.zeros(1000)?;
    let report = report(&client)?;
    let text = serde_json::to_string(&report)?;
    ensure_eq!(serde_json::from_str::<MemoryReport>(&text)?, report);
    ensure!(text.contains("largest_free"), "{text}");
    Ok(())
}

fn the_largest_free_block_can_be_had(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (first, second) = (client.zeros(10_000)?, client.zeros(10_000)?);
    client.sync()?.wait()?;
    drop(first);
    let before = report(&client)?;
    let serves = |pool: &&PoolReport| pool.allocations > 0;
    let Some(pool) = before.pools.iter().find(serves) else { return Ok(()) };
    let block = pool.largest_free;
    if block == 0 {
        return Ok(());
    }
    let _large = client.empty(block)?;
    client.check(&[&_large])?;
    ensure!(report(&client)?.total().reserved <= before.total().reserved + block, "more was taken than asked for");
    drop(second);
    Ok(())
}

// ---- M17

fn a_clean_up_gives_back_what_is_free_and_keeps_what_is_not(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let kept = client.create_from_slice(&[7; 1000])?;
    let large = (0..8).map(|_| client.zeros(8 << 20)).collect::<Result<Vec<_>, _>>()?;
    client.sync()?.wait()?;
    let full = client.memory_usage()?.reserved;
    ensure!(full >= 64 << 20, "{full} bytes reserved for 64 MiB");
    drop(large);
    client.memory_cleanup()?;
    let left = client.memory_usage()?;
    ensure!(left.reserved <= 8 << 20, "{} bytes are reserved for {} live", left.reserved, left.live);
    ensure_eq!(left.live, 1000);
    ensure_eq!(client.read_one(&kept)?.as_slice()?, [7; 1000]);
    drop(kept);
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    ensure_eq!(client.memory_usage()?.reserved, 0);
    Ok(())
}

fn repeated_clean_ups_reach_a_fixed_point(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let mut kept = (0..200u64).map(|i| client.zeros(i * 531 % 70_000 + 1)).collect::<Result<Vec<_>, _>>()?;
    let mut index = 0;
    kept.retain(|_| {
        index += 1;
        index % 3 == 0
    });
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    let first = report(&client)?;
    for _ in 0..5 {
        client.memory_cleanup()?;
        ensure_eq!(report(&client)?, first);
    }
    drop(kept);
    client.sync()?.wait()?;
    for _ in 0..2 {
        client.memory_cleanup()?;
        ensure_eq!(client.memory_usage()?.reserved, 0);
    }
    Ok(())
}

fn what_was_given_back_the_driver_can_give_again(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { memory: Some(64 << 20), ..Variant::plain() })?;
    // Each of another size and more than half of the memory, so that none fits beside what another left.
    for size in [40u64 << 20, 48 << 20, 36 << 20, 44 << 20] {
        let bytes = client.zeros(size)?;
        ensure_eq!(client.read_one(&bytes.slice(size - 8..)?)?.as_slice()?, [0; 8]);
        drop(bytes);
        client.sync()?.wait()?;
        client.memory_cleanup()?;
        ensure_eq!(client.memory_usage()?.reserved, 0);
    }
    Ok(())
}

fn a_persistent_set_dropped_a_thousand_times_returns_to_the_baseline(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let round = || -> Outcome {
        let set = client.memory_persistent_allocation(|| {
            (1..20u64).map(|i| client.zeros(i * 777)).collect::<Result<Vec<_>, _>>()
        })?;
        drop(set);
        client.sync()?.wait()?;
        client.memory_cleanup()?;
        Ok(())
    };
    round()?;
    let baseline = client.memory_usage()?;
    for i in 0..1000 {
        round()?;
        ensure_eq!(client.memory_usage()?, baseline, "round {i}");
    }
    Ok(())
}

fn a_buffer_held_across_streams_survives_a_clean_up(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (a, b) = (on_new_stream(&client), on_new_stream(&client));
    let mut kept = Vec::new();
    for i in 0..50u8 {
        let handle = a.create_from_slice(&[i; 30_000])?;
        if i % 5 == 0 {
            kept.push((i, handle));
        }
        b.fill(&b.empty(50_000)?, &[1])?;
        if i % 10 == 9 {
            client.sync()?.wait()?;
            client.memory_cleanup()?;
        }
    }
    for (i, handle) in &kept {
        b.fill(&handle.slice(..16)?, &[0xFF])?;
        let read = a.read_one(handle)?;
        ensure!(read.as_slice()?[16..].iter().all(|byte| byte == i), "buffer {i} is another after clean-ups");
    }
    Ok(())
}

fn a_gibibyte_dropped_and_cleaned_is_given_back(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let piece = 64 << 20;
    let count = (1u64 << 30).min(client.limits().memory / 4) / piece;
    let handles = (0..count).map(|_| client.empty(piece)).collect::<Result<Vec<_>, _>>()?;
    client.check(&handles.iter().collect::<Vec<_>>())?;
    let full = client.memory_usage()?;
    ensure!(full.reserved >= count * piece, "{full:?}");
    drop(handles);
    client.memory_cleanup()?;
    let left = client.memory_usage()?;
    ensure!(left.reserved < full.reserved / 10, "{} of {} bytes are still reserved", left.reserved, full.reserved);
    Ok(())
}

fn a_clean_up_with_work_in_flight_waits_for_nobody_and_harms_nobody(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let (source, target) = (held.create_from_slice(&[6; 40_000])?, held.empty(40_000)?);
    held.copy(&source, &target)?;
    drop(source);
    client.memory_cleanup()?;
    let other = client.create_from_slice(&[1; 40_000])?;
    client.memory_cleanup()?;
    ensure_eq!(client.read_one(&other)?.as_slice()?, [1; 40_000]);
    gate.open()?;
    ensure_eq!(held.read_one(&target)?.as_slice()?, [6; 40_000]);
    Ok(())
}
