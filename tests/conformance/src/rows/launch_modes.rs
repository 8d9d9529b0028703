//! L9, L12: launches that do not run, and what was launched and compiled meanwhile.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Args, LaunchMode};

tests! {
    L9 a_discarded_launch_leaves_every_byte_as_it_was;
    L9 it_compiles_at_once_or_with_the_others_as_the_mode_says;
    L9 it_is_checked_as_one_that_runs;
    L9 its_point_comes_after_the_streams_work_before_it;
    L9 it_leaves_the_failures_that_lie_on_its_buffers;
    L9 a_kernel_that_does_not_compile_marks_nothing_and_is_named_later;
    L9 a_scope_is_its_streams_own_on_every_thread;
    L9 a_prepared_launch_follows_the_scope_it_is_launched_in;
    L9 a_scope_of_another_mode_is_refused_naming_both;
    L9 scopes_of_one_mode_nest_and_end_in_any_order_and_with_a_panic;
    L9 a_scope_of_the_process_reaches_every_stream_of_every_device .child();
    L9 threads_that_queue_at_once_have_each_kernel_compiled_once;
    L9 a_dynamic_grid_is_not_read_by_a_discarded_launch;
    L12 a_recorder_lists_the_kernels_and_how_often_by_mode;
    L12 it_hears_every_client_stream_and_thread_of_its_device_and_of_no_other;
    L12 it_counts_what_was_compiled_and_what_failed_in_its_time;
    L12 several_are_open_at_once_and_dropping_one_ends_it;
    L12 refused_and_empty_launches_are_not_recorded;
    L12 its_record_adds_up_with_the_devices_statistics;
}

const DISCARDING: [LaunchMode; 2] = [LaunchMode::CompileOnly, LaunchMode::Queue];

fn compiled(client: &Client) -> Outcome<u64> {
    // In its turn, after the launches before it.
    let statistics = client.compile_statistics()?;
    Ok(statistics.compiled + statistics.from_disk)
}

fn a_discarded_launch_leaves_every_byte_as_it_was(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (step, put, carry) =
        (client.prepare(kernels::step())?, client.prepare(kernels::put())?, client.prepare(kernels::carry())?);
    let (a, b) = (pattern(1024, 3), pattern(1024, 77));
    let (x, y) = (client.create_from_slice(&a)?, client.create_from_slice(&b)?);
    for mode in DISCARDING {
        let scope = client.launch_mode(mode)?;
        ensure_eq!((scope.mode(), client.current_launch_mode()), (mode, mode));
        client.launch(&step, cover(256)?, [&x])?;
        client.launch(&put, cover(256)?, Args::new().buffer(&y).parameters(&9u32))?;
        client.launch(&carry, cover(256)?, [&x, &y])?;
        ensure!(
            client.read_one(&x)?.as_slice()? == a && client.read_one(&y)?.as_slice()? == b,
            "{mode}: bytes changed"
        );
        // What is no launch is done.
        client.copy(&x, &y)?;
        ensure!(client.read_one(&y)?.as_slice()? == a, "{mode}: the copy was not made");
        client.write_slice(&y, &b)?;
    }
    ensure_eq!(client.current_launch_mode(), LaunchMode::Execute);
    client.launch(&carry, cover(256)?, [&x, &y])?;
    ensure!(client.read_one(&y)?.as_slice()? == a, "a launch after the scopes did not run");
    Ok(())
}

fn it_compiles_at_once_or_with_the_others_as_the_mode_says(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (step, add) = (client.prepare(kernels::step())?, client.prepare(kernels::add())?);
    let bytes = [client.zeros(256)?, client.zeros(256)?, client.zeros(256)?];
    {
        let _scope = client.launch_mode(LaunchMode::CompileOnly)?;
        for _ in 0..3 {
            client.launch(&step, cover(64)?, [&bytes[0]])?;
        }
        ensure_eq!(compiled(&client)?, 1);
    }
    {
        let _scope = client.launch_mode(LaunchMode::Queue)?;
        for _ in 0..3 {
            client.launch(&add, cover(64)?, [&bytes[0], &bytes[1], &bytes[2]])?;
        }
        ensure_eq!(compiled(&client)?, 1);
        ensure_eq!(client.compile_queued()?, 1);
    }
    ensure_eq!((compiled(&client)?, client.compile_queued()?), (2, 0));
    // The code is the one that runs.
    client.launch(&step, cover(64)?, [&bytes[0]])?;
    client.launch(&add, cover(64)?, [&bytes[1], &bytes[1], &bytes[2]])?;
    ensure_eq!(client.read_one(&bytes[0])?.to_vec::<u32>()?, [1; 64]);
    ensure_eq!(compiled(&client)?, 2);
    Ok(())
}

fn it_is_checked_as_one_that_runs(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    let (step, put) = (client.prepare(kernels::step())?, client.prepare(kernels::put())?);
    let foreign_kernel = other.prepare(kernels::step())?;
    let (own, foreign) = (client.zeros(256)?, other.zeros(256)?);
    let over = client.limits().max_grid[0].checked_add(1);
    for mode in DISCARDING {
        let _scope = client.launch_mode(mode)?;
        let before = client.record()?;
        ensure_err!(client.launch(&step, cover(64)?, [&foreign]), Error::ForeignHandle { .. });
        ensure_err!(client.launch(&foreign_kernel, cover(64)?, [&own]), Error::ForeignKernel { .. });
        ensure_err!(client.launch(&step, cover(64)?, [&own, &own]), Error::BufferCount { .. });
        let parameters = Args::new().buffer(&own).parameters(&1u64);
        ensure_err!(client.launch(&put, cover(64)?, parameters), Error::ParameterSize { .. });
        if let Some(over) = over {
            ensure_err!(client.launch(&step, Grid::x(over), [&own]), Error::GridTooLarge { .. });
        }
        ensure_eq!(client.record()?.seq, before.seq + 1, "{mode}: something was submitted");
        client.launch(&step, Grid::x(0), [&own])?;
        ensure_eq!((compiled(&client)?, client.current_launch_mode()), (0, mode));
    }
    Ok(())
}

fn its_point_comes_after_the_streams_work_before_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (held, step) = (on_new_stream(&client), client.prepare(kernels::step())?);
    let bytes = client.zeros(256)?;
    for mode in DISCARDING {
        let gate = cx.gate(&client)?;
        let before = gate.block(&held)?;
        let scope = held.launch_mode(mode)?;
        let point = held.launch(&step, cover(64)?, [&bytes])?;
        drop(scope);
        ensure!(point.stream == held.stream() && point.seq > before.seq, "{mode}: {point} after {before}");
        ensure!(!client.is_done(point)?, "{mode}: done while the work before it waits");
        gate.open()?;
        client.done(point)?.wait()?;
        ensure!(client.is_done(before)?, "{mode}: done before the work before it");
    }
    Ok(())
}

fn it_leaves_the_failures_that_lie_on_its_buffers(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let (carry, put, step) =
        (client.prepare(kernels::carry())?, client.prepare(kernels::put())?, client.prepare(kernels::step())?);
    let healthy = client.create_from_slice(raw(&[5u32; 64]))?;
    for mode in DISCARDING {
        let _scope = client.launch_mode(mode)?;
        // From marked to healthy bytes, over the marked ones, and one that would replace them.
        client.launch(&carry, cover(64)?, [&marked, &healthy])?;
        client.launch(&step, cover(64)?, [&marked])?;
        client.launch(&put, cover(64)?, Args::new().buffer(&marked).parameters(&1u32))?;
        ensure_eq!(client.read_one(&healthy)?.to_vec::<u32>()?, [5; 64], "{mode}");
        let error = ensure_err!(client.read_one(&marked), Error::Compile { .. });
        ensure!(matches!(&error, Error::Compile { kernel, .. } if kernel == kernels::BROKEN), "{mode}: {error:?}");
    }
    client.launch(&put, cover(64)?, Args::new().buffer(&marked).parameters(&1u32))?;
    ensure_eq!(client.read_one(&marked)?.to_vec::<u32>()?, [1; 64]);
    Ok(())
}

fn a_kernel_that_does_not_compile_marks_nothing_and_is_named_later(cx: &Context) -> Outcome {
    for mode in DISCARDING {
        let client = cx.open(&Variant::broken())?;
        let broken = client.prepare(kernels::broken())?;
        let (input, output) = (client.zeros(256)?, client.create_from_slice(&[8; 256])?);
        {
            let _scope = client.launch_mode(mode)?;
            client.launch(&broken, cover(64)?, [&input, &output])?;
        }
        ensure_eq!(client.compile_statistics()?.failed, u64::from(mode == LaunchMode::CompileOnly), "{mode}");
        ensure_eq!(client.read_one(&output)?.as_slice()?, [8; 256], "{mode}");
        let named = ensure_err!(client.compile_queued(), Error::Compile { .. });
        client.launch(&broken, cover(64)?, [&input, &output])?;
        ensure_eq!(client.read_one(&output).err(), Some(named), "{mode}");
        ensure_eq!(client.compile_statistics()?.failed, 1, "{mode}");
    }
    Ok(())
}

fn a_scope_is_its_streams_own_on_every_thread(cx: &Context) -> Outcome {
    let (client, other_device) = (cx.client()?, cx.client()?);
    let (pinned, kernel) = (on_new_stream(&client), kernels::step());
    let step = client.prepare(kernel.clone())?;
    let (a, b) = (client.zeros(256)?, client.zeros(256)?);
    let _scope = pinned.launch_mode(LaunchMode::CompileOnly)?;
    client.launch(&step, cover(64)?, [&b])?;
    let (clone, there, bytes) = (pinned.clone(), step.clone(), a.clone());
    let grid = cover(64)?;
    std::thread::spawn(move || clone.launch(&there, grid, [&bytes]))
        .join()
        .map_err(|_| Failure::new("the thread panicked"))??;
    // The same stream of another device is not this one.
    let mut same = other_device.clone();
    same.set_stream(pinned.stream());
    let (step, c) = (other_device.prepare(kernel)?, other_device.zeros(256)?);
    same.launch(&step, cover(64)?, [&c])?;
    ensure_eq!(client.read_one(&a)?.to_vec::<u32>()?, [0; 64]);
    ensure_eq!(client.read_one(&b)?.to_vec::<u32>()?, [1; 64]);
    ensure_eq!(other_device.read_one(&c)?.to_vec::<u32>()?, [1; 64]);
    Ok(())
}

fn a_prepared_launch_follows_the_scope_it_is_launched_in(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (step, bytes) = (client.prepare(kernels::step())?, client.zeros(256)?);
    let scope = client.launch_mode(LaunchMode::Queue)?;
    let prepared = client.prepare_launch(&step, cover(64)?, [&bytes])?;
    prepared.launch()?;
    drop(scope);
    prepared.launch()?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [1; 64]);
    Ok(())
}

fn a_scope_of_another_mode_is_refused_naming_both(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (step, bytes) = (client.prepare(kernels::step())?, client.zeros(256)?);
    let all = [LaunchMode::Execute, LaunchMode::CompileOnly, LaunchMode::Queue];
    for (open, asked) in all.into_iter().flat_map(|open| all.map(|asked| (open, asked))) {
        let _scope = client.launch_mode(open)?;
        if open == asked {
            drop(client.launch_mode(asked)?);
            continue;
        }
        let error = ensure_err!(client.launch_mode(asked), Error::LaunchModeConflict { .. });
        ensure!(
            matches!(&error, Error::LaunchModeConflict { asked: a, open: o, .. } if *a == asked && *o == open),
            "{error:?}"
        );
        let text = error.to_string();
        ensure!(
            error.is_refusal() && text.contains(&asked.to_string()) && text.contains(&open.to_string()),
            "`{text}` does not name {asked} and {open}"
        );
        ensure_eq!(client.current_launch_mode(), open);
        ensure_eq!(on_new_stream(&client).launch_mode(asked)?.mode(), asked);
    }
    client.launch(&step, cover(64)?, [&bytes])?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [1; 64]);
    Ok(())
}

fn scopes_of_one_mode_nest_and_end_in_any_order_and_with_a_panic(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let outer = client.launch_mode(LaunchMode::Queue)?;
    let inner = client.launch_mode(LaunchMode::Queue)?;
    drop(outer);
    ensure_eq!(client.current_launch_mode(), LaunchMode::Queue);
    std::thread::spawn(move || drop(inner)).join().map_err(|_| Failure::new("the thread panicked"))?;
    ensure_eq!(client.current_launch_mode(), LaunchMode::Execute);
    let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let _scope = client.launch_mode(LaunchMode::CompileOnly);
        panic!("on purpose, in a scope of a launch mode")
    }));
    ensure!(panicked.is_err() && client.current_launch_mode() == LaunchMode::Execute, "the scope outlived the panic");
    Ok(())
}

fn a_scope_of_the_process_reaches_every_stream_of_every_device(cx: &Context) -> Outcome {
    let clients = [cx.client()?, cx.client()?];
    let scope = Client::process_launch_mode(LaunchMode::CompileOnly)?;
    // Also one that starts while it is open.
    let late = cx.client()?;
    for client in clients.iter().chain([&late]) {
        let (step, bytes) = (client.prepare(kernels::step())?, client.zeros(256)?);
        client.launch(&step, cover(64)?, [&bytes])?;
        let (pinned, kernel, there, grid) = (on_new_stream(client), step.clone(), bytes.clone(), cover(64)?);
        std::thread::spawn(move || pinned.launch(&kernel, grid, [&there]))
            .join()
            .map_err(|_| Failure::new("the thread panicked"))??;
        ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [0; 64]);
        ensure_eq!(compiled(client)?, 1);
        let error = ensure_err!(client.launch_mode(LaunchMode::Execute), Error::LaunchModeConflict { .. });
        ensure!(error.to_string().contains("the process"), "{error}");
    }
    ensure_err!(Client::process_launch_mode(LaunchMode::Queue), Error::LaunchModeConflict { .. });
    drop(scope);
    // The other way round: one stream is enough.
    let pinned = on_new_stream(&late);
    let execute = pinned.launch_mode(LaunchMode::Execute)?;
    let error = ensure_err!(Client::process_launch_mode(LaunchMode::Queue), Error::LaunchModeConflict { .. });
    ensure!(error.to_string().contains(&pinned.stream().to_string()), "{error} does not name the stream");
    drop(execute);
    drop(Client::process_launch_mode(LaunchMode::Queue)?);
    let (step, bytes) = (late.prepare(kernels::step())?, late.zeros(256)?);
    late.launch(&step, cover(64)?, [&bytes])?;
    ensure_eq!(late.read_one(&bytes)?.to_vec::<u32>()?, [1; 64]);
    Ok(())
}

fn threads_that_queue_at_once_have_each_kernel_compiled_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let kernels = [kernels::step(), kernels::scramble(), kernels::count()];
    let results: Vec<Outcome> = std::thread::scope(|scope| {
        let work = || -> Outcome {
            let client = on_new_stream(&client);
            let _scope = client.launch_mode(LaunchMode::Queue)?;
            let bytes = client.create_from_slice(&[6; 256])?;
            for round in 0..30 {
                let kernel = client.prepare(kernels[round % 3].clone())?;
                client.launch(&kernel, cover(64)?, [&bytes])?;
                if round % 7 == 0 {
                    client.compile_queued()?;
                }
            }
            ensure_eq!(client.read_one(&bytes)?.as_slice()?, [6; 256]);
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(results.len(), 4);
    results.into_iter().collect::<Outcome>()?;
    client.compile_queued()?;
    ensure_eq!(compiled(&client)?, 3);
    Ok(())
}

fn a_dynamic_grid_is_not_read_by_a_discarded_launch(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let (step, bytes) = (client.prepare(kernels::step())?, client.zeros(256)?);
    for mode in DISCARDING {
        let _scope = client.launch_mode(mode)?;
        client.launch(&step, Grid::Dynamic(marked.slice(..12)?), [&bytes])?;
        ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [0; 64], "{mode}");
    }
    Ok(())
}

// ---- L12

fn a_recorder_lists_the_kernels_and_how_often_by_mode(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (step, scramble) = (client.prepare(kernels::step())?, client.prepare(kernels::scramble())?);
    let bytes = client.zeros(256)?;
    client.launch(&scramble, cover(64)?, [&bytes])?;
    let recorder = client.record_launches()?;
    for _ in 0..3 {
        client.launch(&step, cover(64)?, [&bytes])?;
    }
    client.launch(&scramble, cover(64)?, [&bytes])?;
    for mode in DISCARDING {
        let _scope = client.launch_mode(mode)?;
        client.launch(&step, cover(64)?, [&bytes])?;
    }
    let so_far = recorder.kernels();
    let record = recorder.finish()?;
    client.launch(&step, cover(64)?, [&bytes])?;
    ensure_eq!(record.kernels, so_far);
    let seen: Vec<_> = record.kernels.iter().map(|k| (k.name.as_str(), k.id, k.mode, k.launches)).collect();
    let expected = [
        ("step", step.id(), LaunchMode::Execute, 3),
        ("scramble", scramble.id(), LaunchMode::Execute, 1),
        ("step", step.id(), LaunchMode::CompileOnly, 1),
        ("step", step.id(), LaunchMode::Queue, 1),
    ];
    ensure_eq!(seen, expected);
    let text = record.to_string();
    ensure!(text.contains("scramble") && text.contains("compile only"), "{text}");
    Ok(())
}

fn it_hears_every_client_stream_and_thread_of_its_device_and_of_no_other(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    let kernel = kernels::step();
    let (step, theirs) = (client.prepare(kernel.clone())?, other.prepare(kernel)?);
    let recorder = client.record_launches()?;
    other.launch(&theirs, cover(64)?, [&other.zeros(256)?])?;
    let results: Vec<Outcome> = std::thread::scope(|scope| {
        let work = || -> Outcome {
            let pinned = on_new_stream(&client);
            let bytes = pinned.zeros(256)?;
            for _ in 0..50 {
                pinned.launch(&step, cover(64)?, [&bytes])?;
            }
            ensure_eq!(pinned.read_one(&bytes)?.to_vec::<u32>()?, [50; 64]);
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(results.len(), 4);
    results.into_iter().collect::<Outcome>()?;
    let record = recorder.finish()?;
    ensure_eq!((record.kernels.len(), record.launches(LaunchMode::Execute)), (1, 200));
    Ok(())
}

fn it_counts_what_was_compiled_and_what_failed_in_its_time(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let (step, scramble) = (client.prepare(kernels::step())?, client.prepare(kernels::scramble())?);
    let broken = client.prepare(kernels::broken())?;
    let (bytes, outputs) = (client.zeros(256)?, [client.zeros(256)?, client.zeros(256)?]);
    client.launch(&step, cover(64)?, [&bytes])?;
    let recorder = client.record_launches()?;
    client.launch(&step, cover(64)?, [&bytes])?;
    client.launch(&scramble, cover(64)?, [&bytes])?;
    for output in &outputs {
        client.launch(&broken, cover(64)?, [&bytes, output])?;
    }
    let record = recorder.finish()?;
    let (made, failed) = (record.compilation.compiled + record.compilation.from_disk, record.compilation.failed);
    ensure_eq!((made, failed, record.compilation.damaged.len()), (1, 1, 0));
    ensure_eq!(record.launches(LaunchMode::Execute), 4);
    // Warm, nothing is compiled.
    let recorder = client.record_launches()?;
    client.launch(&scramble, cover(64)?, [&bytes])?;
    let record = recorder.finish()?;
    ensure_eq!((record.compilation, record.kernels.len()), (Default::default(), 1));
    for output in &outputs {
        ensure_err!(client.read_one(output), Error::Compile { .. });
    }
    Ok(())
}

fn several_are_open_at_once_and_dropping_one_ends_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (step, bytes) = (client.prepare(kernels::step())?, client.zeros(256)?);
    let first = client.record_launches()?;
    client.launch(&step, cover(64)?, [&bytes])?;
    let second = client.record_launches()?;
    client.launch(&step, cover(64)?, [&bytes])?;
    drop(client.record_launches()?);
    let (second, third) = (second.finish()?, client.record_launches()?);
    client.launch(&step, cover(64)?, [&bytes])?;
    let (first, third) = (first.finish()?, third.finish()?);
    let launches = [&first, &second, &third].map(|record| record.launches(LaunchMode::Execute));
    ensure_eq!(launches, [3, 1, 1]);
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [3; 64]);
    Ok(())
}

fn refused_and_empty_launches_are_not_recorded(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (step, bytes) = (client.prepare(kernels::step())?, client.zeros(256)?);
    let recorder = client.record_launches()?;
    ensure_err!(client.launch(&step, cover(64)?, [&bytes, &bytes]), Error::BufferCount { .. });
    client.launch(&step, Grid::Static(3, 0, 1), [&bytes])?;
    client.prepare_launch(&step, cover(64)?, [&bytes])?;
    let record = recorder.finish()?;
    ensure_eq!(record, Default::default());
    Ok(())
}

fn its_record_adds_up_with_the_devices_statistics(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let (bytes, output) = (client.zeros(256)?, client.zeros(256)?);
    let (mut compiled, mut failed) = (0, 0);
    for mode in [LaunchMode::Execute, LaunchMode::CompileOnly, LaunchMode::Queue] {
        let recorder = client.record_launches()?;
        let (step, broken) = (client.prepare(kernels::step())?, client.prepare(kernels::broken())?);
        let _scope = client.launch_mode(mode)?;
        client.launch(&step, cover(64)?, [&bytes])?;
        client.launch(&broken, cover(64)?, [&bytes, &output])?;
        if mode == LaunchMode::Queue {
            // All that failed so far.
            ensure_err!(client.compile_queued(), Error::Several(_));
        }
        let record = recorder.finish()?;
        ensure_eq!((record.kernels.len(), record.launches(mode)), (2, 2), "{mode}");
        compiled += record.compilation.compiled + record.compilation.from_disk;
        failed += record.compilation.failed;
    }
    let whole = client.compile_statistics()?;
    ensure_eq!((compiled, failed), (3, 3));
    ensure_eq!((whole.compiled + whole.from_disk, whole.failed), (compiled, failed));
    Ok(())
}
