//! M1, M17 under pressure: what a device's memory does when it is short, shared, or given back faster than work ends.

use crate::check::{Outcome, raw};
use crate::context::{Context, SOON, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::rows::program::Random;
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::{Error, Result, Rung};
use trunnion_runtime_core::pressure::PressureAnswer;

tests! {
    M1 memory_full_of_frees_that_are_not_finished_is_waited_for;
    M1 eight_streams_with_a_constant_live_set_have_a_bounded_high_water .seconds(120);
    M1 many_threads_that_allocate_all_get_on .seconds(120);
    M1 a_kernel_whose_last_handle_was_dropped_sees_the_old_bytes;
    M1 memory_of_long_work_is_not_given_to_another_stream_before_its_end;
    M1 an_error_that_is_kept_keeps_no_memory;
    M1 callers_go_on_while_the_device_looks_for_memory;
    M1 every_out_of_memory_error_names_every_number;
    M1 memory_freed_on_one_stream_serves_another;
    M1 a_stream_of_its_own_uses_its_memory_again_at_once;
}

fn memory_full_of_frees_that_are_not_finished_is_waited_for(cx: &Context) -> Outcome {
    let client =
        cx.open(&Variant { memory: Some(8 << 20), delay: Some(Duration::from_millis(5)), ..Variant::plain() })?;
    // Each takes most of the memory, on a stream of its own, and is dropped with its work unfinished.
    for round in 0..20u8 {
        let stream = on_new_stream(&client);
        let handle = stream.empty(6 << 20)?;
        stream.fill(&handle, &[round])?;
        let tail = handle.slice((6 << 20) - 64..)?;
        drop(handle);
        if round % 5 == 0 {
            ensure_eq!(stream.read_one(&tail)?.as_slice()?, [round; 64], "round {round}");
        } else {
            stream.flush()?;
        }
    }
    Ok(())
}

fn eight_streams_with_a_constant_live_set_have_a_bounded_high_water(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_micros(300), 70))?;
    let live: u64 = 8 * 4 * (128 << 10);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = |seed: u64| {
            let client = on_new_stream(&client);
            move || -> Outcome {
                let mut random = Random::new(seed);
                let mut kept = Vec::new();
                for round in 0..150u8 {
                    let handle = client.empty(random.below(256 << 10) + 1)?;
                    client.fill(&handle, &[round])?;
                    kept.push(handle);
                    if kept.len() > 4 {
                        kept.swap_remove(random.below(4) as usize);
                    }
                }
                client.sync_buffers(&kept.iter().collect::<Vec<_>>())?;
                Ok(())
            }
        };
        let threads: Vec<_> = (0..8).map(|i| scope.spawn(work(i + 700))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(outcomes.len(), 8);
    outcomes.into_iter().collect::<Outcome>()?;
    let total = client.memory_report(trunnion_runtime_core::report::ReportScope::Device)?.total();
    // Work that is not finished holds memory too; a leak would reach 150 MiB.
    ensure!(total.peak_reserved <= live * 16, "{} bytes were reserved for about {live} live", total.peak_reserved);
    Ok(())
}

fn many_threads_that_allocate_all_get_on(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let start = Instant::now();
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let work = |seed: u8| {
            let client = client.clone();
            move || -> Result<()> {
                for i in 0..500u64 {
                    let handle = client.empty(i * 37 % 9000 + 1)?;
                    if i % 50 == 0 {
                        client.fill(&handle, &[seed])?;
                        client.check(&[&handle])?;
                    }
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..12).map(|i| scope.spawn(work(i))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(results.len(), 12);
    results.into_iter().collect::<Result<()>>()?;
    ensure!(start.elapsed() < Duration::from_secs(20), "6,000 allocations on 12 threads took {:?}", start.elapsed());
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, 0);
    Ok(())
}

fn a_kernel_whose_last_handle_was_dropped_sees_the_old_bytes(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 71))?;
    let carry = client.prepare(kernels::carry())?;
    let other = on_new_stream(&client);
    for round in 0..40u32 {
        let output = client.empty(4096)?;
        let input = client.create_from_slice(raw(&[round; 1024]))?;
        client.launch(&carry, cover(1024)?, [&input, &output])?;
        drop(input);
        // The same size, on the same stream and on another, written at once.
        let next = client.create_from_slice(raw(&[!round; 1024]))?;
        let more = other.create_from_slice(raw(&[!round; 1024]))?;
        ensure_eq!(client.read_one(&output)?.to_vec::<u32>()?, [round; 1024], "round {round}");
        drop((next, more));
    }
    Ok(())
}

fn memory_of_long_work_is_not_given_to_another_stream_before_its_end(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { memory: Some(16 << 20), ..Variant::plain() })?;
    let (slow, other) = (client.prepare(kernels::slow(Duration::from_millis(300)))?, on_new_stream(&client));
    // Made before, so that the launch is still at work when they are written.
    let [ones, twos] = [1u32, 2].map(|value| vec![value; (10 << 20) / 4]);
    let output = client.zeros(256)?;
    let input = client.create_from_slice(raw(&ones))?;
    client.sync()?.wait()?;
    client.launch(&slow, cover(64)?, [&input, &output])?;
    drop(input);
    // There is memory for one of them only, so this has that of the first as soon as it may be had, and writes it at once.
    let next = other.create_from_slice(raw(&twos))?;
    ensure_eq!(client.read_one(&output)?.to_vec::<u32>()?, [1; 64]);
    ensure_eq!(other.read_one(&next.slice(..256)?)?.to_vec::<u32>()?, [2; 64]);
    Ok(())
}

fn an_error_that_is_kept_keeps_no_memory(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let mut errors: Vec<Error> = Vec::new();
    errors.extend(client.read_one(&marked).err());
    errors.extend(client.copy(&marked, &marked).err());
    errors.extend(client.write_slice(&marked, &[1]).err());
    let copy = client.empty(256)?;
    client.copy(&marked, &copy)?;
    errors.extend(client.read_one(&copy).err());
    ensure_eq!(errors.len(), 4);
    drop((marked, copy));
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, 0);
    client.memory_cleanup()?;
    ensure_eq!(client.memory_usage()?.reserved, 0);
    drop(errors);
    Ok(())
}

fn callers_go_on_while_the_device_looks_for_memory(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { memory: Some(8 << 20), ..Variant::plain() })?;
    let (go_on, told) = mpsc::channel::<()>();
    let (entered, enters) = mpsc::channel();
    let told = Mutex::new(told);
    // As a driver would that takes its time: nobody else may be kept by that.
    let hook = client.on_memory_pressure(move |_| {
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        entered.send(()).ok();
        told.recv_timeout(SOON).ok();
        PressureAnswer::Refuse
    })?;
    let _held = client.zeros(6 << 20)?;
    let failed = client.empty(6 << 20)?;
    enters.recv_timeout(SOON).map_err(|_| crate::Failure::new("the hook was not asked"))?;
    let start = Instant::now();
    let streams: Vec<_> = (0..4).map(|_| on_new_stream(&client)).collect();
    let handles: Vec<_> = (0..200).map(|i| streams[i % 4].empty(100 + i as u64)).collect::<Result<_>>()?;
    let took = start.elapsed();
    go_on.send(()).ok();
    ensure!(took < SOON / 2, "200 allocations took {took:?} while the device looked for memory");
    ensure_err!(client.check(&[&failed]), Error::OutOfMemory(_));
    client.check(&handles.iter().collect::<Vec<_>>())?;
    drop(hook);
    Ok(())
}

fn every_out_of_memory_error_names_every_number(cx: &Context) -> Outcome {
    const ASKED: u64 = 6 << 20;
    let budgets = [None, Some(8 << 20)];
    let modes = [AllocationMode::Auto, AllocationMode::Persistent, AllocationMode::Dedicated];
    for (budget, mode, hook) in budgets
        .into_iter()
        .flat_map(|b| modes.map(|m| (b, m, false)))
        .chain([(None, AllocationMode::Auto, true), (Some(8 << 20), AllocationMode::Auto, true)])
    {
        let what = format!("budget {budget:?}, mode {mode}, hook {hook}");
        let mut settings = cx.settings();
        settings.open.memory_budget = budget;
        let client = cx.open_with(&Variant { memory: Some(8 << 20), ..Variant::plain() }, &settings)?;
        let asked_hook = client.on_memory_pressure(|_| PressureAnswer::Refuse)?;
        if !hook {
            drop(asked_hook);
        } else {
            asked_hook.keep();
        }
        let _held = client.create_from_slice(&vec![1; 5_000_001])?;
        let window = client.allocation_mode(mode);
        let failed = client.empty(ASKED)?;
        window.close()?;
        let Err(Error::OutOfMemory(numbers)) = client.check(&[&failed]) else {
            return Err(crate::Failure::new(format_args!("{what}: there was memory")));
        };
        let (usage, room) = (client.memory_usage()?, client.memory_budget_within(Duration::ZERO)?);
        ensure_eq!((numbers.requested, numbers.live, numbers.reserved), (ASKED, usage.live, usage.reserved), "{what}");
        ensure_eq!((numbers.padding, numbers.budget), (usage.padding, budget), "{what}");
        ensure!(numbers.largest_free < ASKED, "{what}: the largest free block, {}, would do", numbers.largest_free);
        ensure_eq!(numbers.driver_free, room.free, "{what}");
        ensure_eq!(numbers.driver.is_some(), budget.is_none(), "{what}: the driver's own words");
        ensure_eq!(numbers.tried.contains(&Rung::Hook), hook, "{what}");
        ensure!(numbers.tried.starts_with(&[Rung::Reuse]), "{what}: {:?}", numbers.tried);
        let text = Error::OutOfMemory(numbers.clone()).to_string();
        let all = [numbers.requested, numbers.live, numbers.reserved, numbers.padding, numbers.largest_free];
        for number in all.into_iter().chain(numbers.budget).chain(numbers.driver_free) {
            ensure!(text.contains(&number.to_string()), "{what}: {number} is not in {text:?}");
        }
    }
    Ok(())
}

fn memory_freed_on_one_stream_serves_another(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let first = client.zeros(1 << 20)?;
    client.sync()?.wait()?;
    drop(first);
    let before = client.memory_usage()?.reserved;
    for _ in 0..50 {
        let stream = on_new_stream(&client);
        let handle = stream.zeros(1 << 20)?;
        stream.sync()?.wait()?;
        drop(handle);
    }
    ensure_eq!(client.memory_usage()?.reserved, before);
    Ok(())
}

fn a_stream_of_its_own_uses_its_memory_again_at_once(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { delay: Some(Duration::from_millis(2)), ..Variant::plain() })?;
    let step = client.prepare(kernels::step())?;
    // Nothing is waited for: what a stream frees it may take again, since its work runs in order.
    for round in 0..300u32 {
        let handle = client.create_from_slice(raw(&[round; 16_384]))?;
        client.launch(&step, cover(16_384)?, [&handle])?;
        if round % 100 == 99 {
            ensure_eq!(client.read_one(&handle.slice(..4)?)?.to_vec::<u32>()?, [round + 1]);
        }
    }
    let total = client.memory_report(trunnion_runtime_core::report::ReportScope::Device)?.total();
    ensure!(
        total.peak_reserved <= 8 << 20,
        "{} bytes were reserved for one buffer of 64 KiB at a time",
        total.peak_reserved
    );
    Ok(())
}
