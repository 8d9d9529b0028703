//! M20: a run in which kernels compile, memory is planned, and nothing else happens.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{AT_ONCE, Context, eventually, fail_late, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::pressure::PressureAnswer;
use trunnion_runtime_core::properties::TimingMethod;
use trunnion_runtime_core::report::{MemoryReport, ReportScope};
use trunnion_runtime_core::service::Settings;
use trunnion_server_layers::Validate;

tests! {
    M20 a_dry_run_says_what_the_real_run_needs;
    M20 a_dry_run_takes_no_device_memory_and_may_need_more_than_there_is;
    M20 nothing_runs_in_a_dry_run_and_reads_give_zeros;
    M20 kernels_compile_in_a_dry_run;
    M20 a_budget_holds_in_a_dry_run_as_in_a_real_one;
    M20 whoever_waits_in_a_dry_run_is_answered;
    M20 whoever_awaits_what_was_held_back_in_a_dry_run_is_woken;
    M20 grids_that_are_read_and_kernels_that_fail_change_nothing_in_a_dry_run;
    M20 a_hook_and_a_cap_count_in_a_dry_run;
    M20 a_dry_run_can_be_ended_while_it_is_used;
    M20 a_long_dry_run_without_a_wait_keeps_nothing;
    M20 a_dry_run_says_that_it_is_one;
    M20 a_dry_run_goes_through_layers;
    M20 sizes_beyond_four_gibibytes_are_planned_exactly;
}

fn dry_settings(cx: &Context) -> Settings {
    let mut settings = cx.settings();
    settings.open.dry_run = true;
    settings
}

fn dry(cx: &Context, variant: &Variant) -> Outcome<Client> {
    cx.open_with(variant, &dry_settings(cx))
}

/// Some steps of a program that trains: sizes that vary, temporaries, a set that stays.
fn train(client: &Client) -> Outcome<Vec<Handle>> {
    let (step, carry) = (client.prepare(kernels::step())?, client.prepare(kernels::carry())?);
    let mut weights = Vec::new();
    client.memory_persistent_allocation(|| -> Outcome {
        for i in 0..6 {
            weights.push(client.create_from_slice(&pattern(40_000 * (i + 1), i as u8))?);
        }
        Ok(())
    })?;
    for round in 0..12usize {
        let batch = client.create_from_slice(raw(&vec![round as u32; 100_000 + 777 * round]))?;
        let mut activations = Vec::new();
        for layer in 0..5usize {
            let elements = 50_000 + 9_000 * layer;
            let size = 4 * elements as u64;
            let output = client.empty(size)?;
            client.launch(&carry, cover(elements)?, [&batch.slice(..size)?, &output])?;
            client.launch(&step, cover(1000)?, [&output])?;
            activations.push(output);
        }
        let scratch = client.memory_dedicated_allocation(|| client.zeros(3 << 20))?;
        client.copy(&activations[4].slice(..1000)?, &scratch.slice(..1000)?)?;
        let read = client.read_one(&scratch.slice(..16)?)?;
        ensure_eq!(read.len(), 16);
        drop((activations, batch, scratch));
        client.sync()?.wait()?;
    }
    Ok(weights)
}

fn needs(report: &MemoryReport) -> Vec<(String, u64, u64, u64, u64)> {
    let pools = report.pools.iter();
    pools.map(|pool| (pool.name.clone(), pool.live, pool.reserved, pool.peak_live, pool.peak_reserved)).collect()
}

fn a_dry_run_says_what_the_real_run_needs(cx: &Context) -> Outcome {
    let mut reports = Vec::new();
    for settings in [cx.settings(), dry_settings(cx)] {
        let client = cx.open_with(&Variant::plain(), &settings)?;
        let weights = train(&client)?;
        reports.push(client.memory_report(ReportScope::Device)?);
        drop(weights);
        client.sync()?.wait()?;
        client.memory_cleanup()?;
        ensure_eq!(client.memory_usage()?.reserved, 0);
    }
    ensure!(reports[0].total().peak_reserved > 3 << 20, "{}", reports[0]);
    ensure_eq!(needs(&reports[1]), needs(&reports[0]));
    Ok(())
}

fn a_dry_run_takes_no_device_memory_and_may_need_more_than_there_is(cx: &Context) -> Outcome {
    let client = dry(cx, &Variant { memory: Some(4 << 20), ..Variant::plain() })?;
    let free = client.memory_budget_within(Duration::ZERO)?.free;
    let held = (0..10).map(|_| client.zeros(3 << 20)).collect::<Result<Vec<_>, _>>()?;
    client.check(&held.iter().collect::<Vec<_>>())?;
    let budget = client.memory_budget_within(Duration::ZERO)?;
    ensure_eq!((budget.live, budget.free), (30 << 20, free));
    ensure!(budget.reserved >= 30 << 20, "{budget}");
    // What no device of this kind ever gives at once is refused here too.
    ensure_err!(client.empty(client.limits().max_allocation + 1), Error::TooLarge { .. });
    Ok(())
}

fn nothing_runs_in_a_dry_run_and_reads_give_zeros(cx: &Context) -> Outcome {
    let client = dry(cx, &Variant::plain())?;
    let (carry, step) = (client.prepare(kernels::carry())?, client.prepare(kernels::step())?);
    for size in [64usize, 4096, 1 << 20] {
        let handle = client.create_from_slice(&vec![5; size])?;
        let output = client.zeros(size as u64)?;
        client.launch(&carry, cover(size / 4)?, [&handle, &output])?;
        client.launch(&step, cover(64)?, [&output])?;
        client.fill(&handle, &[7])?;
        ensure!(client.read_one(&handle)?.as_slice()? == vec![0; size], "{size} bytes are not zeros");
        let mut into = vec![9; size];
        client.read_into(&output, &mut into)?;
        ensure!(into == vec![0; size], "{size} bytes read in place are not zeros");
        ensure!(client.read_lazy(&handle)?.as_slice()? == vec![0; size], "{size} bytes read lazily are not zeros");
        client.check(&[&handle, &output])?;
    }
    let handle = client.zeros(64)?;
    ensure!(cx.factory().get_resource(&client, &handle).is_err(), "a resource of memory that is not there");
    Ok(())
}

fn kernels_compile_in_a_dry_run(cx: &Context) -> Outcome {
    let client = dry(cx, &Variant::broken())?;
    let (broken, step) = (client.prepare(kernels::broken())?, client.prepare(kernels::step())?);
    let (input, output) = (client.zeros(256)?, client.zeros(256)?);
    client.launch(&broken, cover(64)?, [&input, &output])?;
    client.launch(&step, cover(64)?, [&input])?;
    ensure_err!(client.read_one(&output), Error::Compile { .. });
    ensure_eq!(client.read_one(&input)?.as_slice()?, [0; 256]);
    let statistics = client.compile_statistics()?;
    ensure_eq!((statistics.failed, statistics.compiled + statistics.from_disk), (1, 1));
    Ok(())
}

fn a_budget_holds_in_a_dry_run_as_in_a_real_one(cx: &Context) -> Outcome {
    let mut errors = Vec::new();
    for dry_run in [false, true] {
        let mut settings = cx.settings();
        settings.open.dry_run = dry_run;
        settings.open.memory_budget = Some(8 << 20);
        let client = cx.open_with(&Variant::plain(), &settings)?;
        let held = (0..4).map(|_| client.zeros(3 << 20)).collect::<Result<Vec<_>, _>>()?;
        client.sync()?.wait()?;
        let failed: Vec<_> = held.iter().filter_map(|handle| client.check(&[handle]).err()).collect();
        errors.push(failed.iter().map(Error::is_out_of_memory).collect::<Vec<_>>());
    }
    ensure_eq!(errors[0], [true, true]);
    ensure_eq!(errors[1], errors[0]);
    Ok(())
}

fn whoever_waits_in_a_dry_run_is_answered(cx: &Context) -> Outcome {
    let client = dry(cx, &Variant::plain())?;
    let (other, step) = (on_new_stream(&client), client.prepare(kernels::step())?);
    let handle = client.zeros(4096)?;
    for _ in 0..20 {
        client.launch(&step, cover(1024)?, [&handle])?;
        other.launch(&step, cover(1024)?, [&handle])?;
    }
    let point = other.record()?;
    client.wait(point)?;
    let last = client.launch(&step, cover(1024)?, [&handle])?;
    ready(client.done(last)?)??;
    ensure_eq!(ready(client.read_async(&[&handle])?)??[0].len(), 4096);
    client.sync_buffers(&[&handle])?;
    client.exclusive(|| client.read_one(&handle).map(|bytes| bytes.len()))??;
    let real = cx.client()?;
    let copy = client.to_client(&handle, &real)?;
    ensure_eq!(real.read_one(&copy)?.as_slice()?, [0; 4096]);
    let back = real.to_client(&copy, &client)?;
    ensure_eq!(client.read_one(&back)?.len(), 4096);
    ensure_eq!(client.shutdown(Duration::from_secs(5)).abandoned, 0);
    Ok(())
}

fn whoever_awaits_what_was_held_back_in_a_dry_run_is_woken(cx: &Context) -> Outcome {
    let (dry, real) = (dry(cx, &Variant::plain())?, cx.client()?);
    // What a dry run waits for is no work of its own: bytes and points of a real device.
    for what in ["a point", "bytes"] {
        let held = on_new_stream(&real);
        let gate = cx.gate(&held)?;
        let (waiting, handle) = (on_new_stream(&dry), dry.zeros(64)?);
        match what {
            "a point" => drop(waiting.wait(gate.block(&held)?)?),
            _ => drop(held.to_client(gate.handle(), &waiting)?),
        }
        waiting.fill(&handle, &[1])?;
        let last = waiting.record()?;
        let opener = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.open().map(drop)
        });
        let start = Instant::now();
        ready(waiting.done(last)?)??;
        // Sooner than by the looks of a waiter, of which a future has none.
        ensure!(start.elapsed() < AT_ONCE, "{what}: it took {:?}", start.elapsed());
        opener.join().map_err(|_| Failure::new("the opener panicked"))??;
    }
    Ok(())
}

fn grids_that_are_read_and_kernels_that_fail_change_nothing_in_a_dry_run(cx: &Context) -> Outcome {
    for memory_in_place in [true, false] {
        let client = dry(cx, &Variant { separate_memory: !memory_in_place, ..Variant::plain() })?;
        let (step, outside) = (client.prepare(kernels::step())?, client.prepare(kernels::out_of_bounds())?);
        let (counts, handle, other) =
            (client.create_from_slice(raw(&[u32::MAX; 3]))?, client.zeros(4096)?, client.zeros(4096)?);
        // Counts over every limit, which only a run reads.
        client.launch(&step, Grid::Dynamic(counts.clone()), [&handle])?;
        fail_late(&client, &other)?;
        client.launch(&outside, cover(64)?, [&handle])?;
        client.launch(&step, cover(64)?, [&handle])?;
        let lazy = client.read_lazy(&handle)?;
        client.check(&[&counts, &handle, &other])?;
        drop((handle, other, counts));
        ensure_eq!(lazy.as_slice()?, [0; 4096], "in place {memory_in_place}");
        drop(lazy);
        client.sync()?.wait()?;
        eventually("all is free", || Ok(client.memory_usage()?.live == 0))?;
    }
    Ok(())
}

fn a_hook_and_a_cap_count_in_a_dry_run(cx: &Context) -> Outcome {
    let mut told = Vec::new();
    for dry_run in [false, true] {
        let mut settings = cx.settings();
        settings.open.dry_run = dry_run;
        settings.open.memory_budget = Some(8 << 20);
        let mut client = cx.open_with(&Variant::plain(), &settings)?;
        let cache = Arc::new(Mutex::new(vec![client.zeros(3 << 20)?]));
        let (theirs, asked) = (cache.clone(), Arc::new(Mutex::new(Vec::new())));
        let seen = asked.clone();
        let hook = client.on_memory_pressure(move |pressure| {
            let what = (pressure.requested, pressure.attempt, pressure.error.is_out_of_memory());
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(what);
            match theirs.lock().unwrap_or_else(PoisonError::into_inner).pop() {
                Some(_) => PressureAnswer::Retry,
                None => PressureAnswer::Refuse,
            }
        })?;
        client.set_memory_limit(14 << 20)?;
        let served = client.zeros(7 << 20)?;
        let refused = client.zeros(6 << 20)?;
        let made = client.empty(100)?;
        client.copy(&refused.slice(..100)?, &made)?;
        client.check(&[&served])?;
        let error = ensure_err!(client.read_one(&made), _);
        let over = ensure_err!(client.empty(6 << 20), Error::ClientMemoryLimit { .. });
        let budget = client.memory_budget_within(Duration::ZERO)?;
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        told.push((asked, error.is_out_of_memory(), over, budget.live, budget.client_live, budget.room()));
        drop((served, refused, made, hook));
    }
    ensure_eq!(told[0], told[1]);
    Ok(())
}

fn a_dry_run_can_be_ended_while_it_is_used(cx: &Context) -> Outcome {
    let client = dry(cx, &Variant::plain())?;
    let step = client.prepare(kernels::step())?;
    let work = |client: Client, step: KernelHandle| -> Result<(), Error> {
        loop {
            let handle = client.create_from_slice_pinned(&[1; 300_000])?;
            client.launch(&step, cover(64)?, [&handle])?;
            client.read_lazy(&handle)?.as_slice()?;
            client.read_into(&handle, &mut vec![0; 300_000])?;
            client.sync()?.wait()?;
        }
    };
    let ends = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (client, step) = (on_new_stream(&client), step.clone());
                scope.spawn(move || work(client, step))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        client.shutdown(Duration::from_secs(2));
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for end in ends {
        let end = end.map_err(|_| Failure::new("a thread panicked"))?;
        ensure!(matches!(end, Err(Error::ShutDown { .. })), "{end:?}");
    }
    Ok(())
}

fn a_long_dry_run_without_a_wait_keeps_nothing(cx: &Context) -> Outcome {
    let client = dry(cx, &Variant::plain())?;
    let step = client.prepare(kernels::step())?;
    let handle = client.zeros(4096)?;
    for round in 0..20_000u32 {
        let temporary = client.create(Bytes::from_elems(vec![round; 1000]))?;
        client.launch(&step, cover(64)?, [&handle])?;
        client.copy(&temporary, &handle.slice(..4000)?)?;
    }
    let total = client.memory_report(ReportScope::Device)?.total();
    ensure!(total.peak_reserved <= 4 << 20, "{} bytes for one buffer of 4 KB at a time", total.peak_reserved);
    eventually("everything is finished", || Ok(client.memory_usage()?.live == 4096))
}

fn a_dry_run_says_that_it_is_one(cx: &Context) -> Outcome {
    let (dry, real) = (dry(cx, &Variant::plain())?, cx.client()?);
    ensure!(dry.info().to_string().contains("dry run"), "{}", dry.info());
    ensure!(!real.info().to_string().contains("dry run"), "{}", real.info());
    ensure_eq!(dry.features().timing, TimingMethod::None);
    ensure_eq!(dry.limits(), real.limits());
    ensure_eq!(dry.hardware_identity(), real.hardware_identity(), "what is compiled for one is for the other");
    Ok(())
}

fn a_dry_run_goes_through_layers(cx: &Context) -> Outcome {
    let settings = dry_settings(cx);
    let (opened, violations) = Validate::around(cx.opened(&Variant::plain(), &settings.open)?);
    let client = Client::try_init_with(cx.device()?, opened, &settings)?;
    let weights = train(&client)?;
    drop(weights);
    client.sync()?.wait()?;
    client.shutdown(Duration::from_secs(5));
    ensure!(violations.count() == 0, "{violations:?}");
    Ok(())
}

fn sizes_beyond_four_gibibytes_are_planned_exactly(cx: &Context) -> Outcome {
    const LARGE: u64 = (5 << 30) + 256;
    let client = dry(cx, &Variant { memory: Some(1 << 40), max_binding: Some(1 << 32), ..Variant::plain() })?;
    let (limits, step) = (client.limits().clone(), client.prepare(kernels::step())?);
    // At once, or in pieces where the device never gives so much.
    let piece = LARGE.min(limits.max_allocation);
    let mut held = Vec::new();
    for start in (0..LARGE).step_by(piece as usize) {
        held.push(client.empty(piece.min(LARGE - start))?);
    }
    let (Some(first), Some(last)) = (held.first(), held.last()) else { return Err(Failure::new("no pieces")) };
    let tail = last.slice(last.size_in_used() - 256..)?;
    client.fill(&tail, &[1])?;
    client.launch(&step, cover(64)?, [&tail])?;
    client.copy(&tail, &first.slice(..256)?)?;
    ensure_eq!(client.read_one(&tail)?.as_slice()?, [0; 256]);
    ensure_eq!(client.memory_usage()?.live, LARGE);
    if piece > limits.max_binding {
        let error = ensure_err!(client.launch(&step, Grid::x(1), [first]), Error::BufferSize { .. });
        ensure!(error.to_string().contains(&piece.to_string()), "the size is not named: {error}");
    }
    ensure_err!(client.empty(limits.max_allocation + 1), Error::TooLarge { .. });
    drop((held, tail));
    client.memory_cleanup()?;
    ensure_eq!(client.memory_usage()?.reserved, 0);
    Ok(())
}
