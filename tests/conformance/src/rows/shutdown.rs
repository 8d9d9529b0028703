//! C16: the end of a device, and of a process that has one.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, SOON, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handle;

tests! {
    C16 queued_work_is_finished_before_the_end;
    C16 work_that_cannot_end_is_abandoned_and_counted_in_bounded_time;
    C16 it_can_be_called_again_and_from_any_thread;
    C16 calls_after_it_answer_that_the_device_is_shut_down;
    C16 what_somebody_waits_for_is_answered;
    C16 a_lazy_read_after_it_is_an_error;
    C16 the_device_can_be_started_again;
    C16 the_last_client_dropped_ends_the_device;
    C16 a_kernel_that_runs_long_does_not_keep_it_beyond_its_timeout;
    C16 handles_may_outlive_the_device;
    C16 all_devices_of_the_process_are_ended_in_one_call .child().seconds(60);
    C16 a_shutdown_inside_exclusive_does_not_hang;
    C16 a_client_in_a_static_does_not_keep_the_process .child().seconds(4);
    C16 a_client_in_a_thread_local_does_not_keep_the_process .child().seconds(4);
    C16 a_thread_that_panics_with_a_client_harms_nobody .child().seconds(60);
    C16 a_process_that_is_started_while_a_device_works_disturbs_nobody .child().seconds(60);
    // Without layers between backend and driver: those tear down what they are still asked for.
    C16 a_process_may_end_with_work_queued .env(&[("CONFORMANCE_VALIDATION", "0")]).seconds(8);
    C16 a_hundred_devices_one_after_another_leave_no_memory_behind .child().seconds(480);
    C16 a_hundred_thousand_launches_without_a_sync_leave_no_memory_behind .child().seconds(480);
}

fn queued_work_is_finished_before_the_end(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 4))?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    for _ in 0..20 {
        client.launch(&step, cover(64)?, [&bytes])?;
    }
    let reading = client.read_async(&[&bytes])?;
    ensure_eq!(client.shutdown(SOON).abandoned, 0);
    ensure_eq!(reading.wait()?[0].to_vec::<u32>()?, [20; 64]);
    Ok(())
}

fn work_that_cannot_end_is_abandoned_and_counted_in_bounded_time(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    held.fill(&held.empty(64)?, &[1])?;
    let start = Instant::now();
    let report = client.shutdown(Duration::from_millis(200));
    ensure!(report.abandoned >= 2, "{} operations abandoned, at least the copy and the fill were", report.abandoned);
    ensure!(start.elapsed() < Duration::from_secs(4), "a shutdown within 200 ms took {:?}", start.elapsed());
    Ok(())
}

fn it_can_be_called_again_and_from_any_thread(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 4))?;
    for _ in 0..10 {
        client.zeros(1000)?;
    }
    let reports: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| client.shutdown(SOON))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(reports.len(), 4);
    ensure!(reports.iter().all(|report| report.abandoned == 0), "{reports:?}");
    ensure_eq!(client.shutdown(Duration::ZERO).abandoned, 0);
    Ok(())
}

fn calls_after_it_answer_that_the_device_is_shut_down(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    client.shutdown(SOON);
    let service = client.service_id();
    let answers: Vec<(&str, Option<Error>)> = vec![
        ("empty", client.empty(8).err()),
        ("create", client.create_from_slice(&[1; 8]).err()),
        ("write", client.write_slice(&bytes, &[1; 256]).err()),
        ("read", client.read_one(&bytes).err()),
        ("fill", client.fill(&bytes, &[1]).err()),
        ("launch", client.launch(&step, cover(64)?, [&bytes]).err()),
        ("sync", client.sync().err()),
        ("flush", client.flush().err()),
        ("check", client.check(&[&bytes]).err()),
        ("record", client.record().err()),
        ("memory_usage", client.memory_usage().err()),
        ("memory_cleanup", client.memory_cleanup().err()),
    ];
    for (call, error) in answers {
        ensure_eq!(error, Some(Error::ShutDown { service }), "{call}");
    }
    // What is known of the device stays known.
    ensure!(!client.name().is_empty() && client.limits().memory > 0, "the properties are gone");
    Ok(())
}

fn what_somebody_waits_for_is_answered(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let (reading, done) = (held.read_async(&[&held.create_from_slice(&[1; 8])?])?, held.sync()?);
    let waiting = std::thread::spawn(move || (reading.wait(), done.wait()));
    client.shutdown(Duration::from_millis(50));
    let (reading, done) = waiting.join().map_err(|_| Failure::new("the waiting thread panicked"))?;
    ensure_err!(reading, Error::ShutDown { .. });
    ensure_err!(done, Error::ShutDown { .. });
    Ok(())
}

fn a_lazy_read_after_it_is_an_error(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 8])?;
    let (looked, lazy) = (client.read_lazy(&bytes)?, client.read_lazy(&bytes)?);
    ensure_eq!(looked.as_slice()?, [1; 8]);
    client.shutdown(SOON);
    ensure_err!(lazy.as_slice().map(<[u8]>::len), Error::ShutDown { .. });
    ensure_eq!(looked.as_slice()?, [1; 8]);
    Ok(())
}

fn the_device_can_be_started_again(cx: &Context) -> Outcome {
    let mut client = cx.client()?;
    let device = client.device_id();
    for round in 0..5u8 {
        let old = client.create_from_slice(&[round; 16])?;
        let service = client.service_id();
        client.shutdown(SOON);
        let again = Client::try_init(device, cx.opened(&Variant::plain(), &Default::default())?)?;
        ensure!(again.service_id() != service, "round {round}: the same server");
        ensure_err!(client.record(), Error::ShutDown { .. });
        ensure_err!(again.read_one(&old), Error::ForeignHandle { .. });
        let new = again.create_from_slice(&[round ^ 0xFF; 16])?;
        drop(old);
        ensure_eq!(again.read_one(&new)?.as_slice()?, [round ^ 0xFF; 16]);
        client = again;
    }
    Ok(())
}

fn the_last_client_dropped_ends_the_device(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 4))?;
    let (device, clone) = (client.device_id(), client.clone());
    let handle = client.create_from_slice(&[1; 512])?;
    drop(client);
    clone.fill(&handle, &[2])?;
    let start = Instant::now();
    drop(clone);
    ensure!(start.elapsed() < Duration::from_secs(6), "the drop took {:?}", start.elapsed());
    let again = Client::try_init(device, cx.opened(&Variant::plain(), &Default::default())?)?;
    ensure_err!(again.check(&[&handle]), Error::ForeignHandle { .. });
    Ok(())
}

fn a_kernel_that_runs_long_does_not_keep_it_beyond_its_timeout(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let slow = client.prepare(kernels::slow(Duration::from_millis(1500)))?;
    let (from, to) = (client.zeros(256)?, client.zeros(256)?);
    client.launch(&slow, cover(64)?, [&from, &to])?;
    client.flush()?;
    let start = Instant::now();
    let report = client.shutdown(Duration::from_millis(100));
    ensure!(report.abandoned >= 1, "nothing was abandoned");
    // A kernel cannot be interrupted; what it uses stays until it ends, but nobody waits for that here for long.
    ensure!(start.elapsed() < Duration::from_secs(5), "a shutdown within 100 ms took {:?}", start.elapsed());
    Ok(())
}

fn all_devices_of_the_process_are_ended_in_one_call(cx: &Context) -> Outcome {
    let late = Variant { delay: Some(Duration::from_millis(20)), ..Variant::plain() };
    let (works, held, idle) = (cx.open(&late)?, cx.client()?, cx.client()?);
    let bytes = works.create_from_slice(raw(&[0u32; 64]))?;
    let step = works.prepare(kernels::step())?;
    for _ in 0..100 {
        works.launch(&step, cover(64)?, [&bytes])?;
    }
    let reading = works.read_async(&[&bytes])?;
    let gate = cx.gate(&held)?;
    gate.block(&held)?;
    let start = Instant::now();
    // What the gate holds takes all of it, and what works has to end in it, on a busy machine too.
    let report = Client::shutdown_all(Duration::from_secs(6));
    ensure!(start.elapsed() < Duration::from_secs(15), "it took {:?}", start.elapsed());
    ensure!(report.abandoned >= 1, "what the gate held was not abandoned");
    ensure_eq!(reading.wait()?[0].to_vec::<u32>()?, [100; 64]);
    for client in [&works, &held, &idle] {
        ensure_err!(client.record(), Error::ShutDown { .. });
    }
    // Again, there is nothing to do.
    ensure_eq!(Client::shutdown_all(Duration::ZERO).abandoned, 0);
    ensure_eq!(cx.client()?.zeros(64)?.size_in_used(), 64);
    Ok(())
}

fn handles_may_outlive_the_device(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let handles = (0..100).map(|i| client.create_from_slice(&[1; 64][..i % 64])).collect::<Result<Vec<Handle>, _>>()?;
    let step = client.prepare(kernels::step())?;
    let lazy = client.read_lazy(&handles[5])?;
    drop(client);
    let other = cx.client()?;
    let more = (0..100).map(|_| other.create_from_slice(&[2; 64])).collect::<Result<Vec<Handle>, _>>()?;
    drop((handles, step, lazy));
    for handle in &more {
        ensure_eq!(other.read_one(handle)?.as_slice()?, [2; 64]);
    }
    Ok(())
}

fn a_shutdown_inside_exclusive_does_not_hang(cx: &Context) -> Outcome {
    let client = cx.client()?;
    client.zeros(64)?;
    let start = Instant::now();
    client.exclusive(|| client.shutdown(Duration::from_secs(2)))?;
    client.shutdown(Duration::from_secs(2));
    ensure!(start.elapsed() < Duration::from_secs(8), "it took {:?}", start.elapsed());
    ensure_err!(client.record(), Error::ShutDown { .. });
    Ok(())
}

// ---- in a process of their own

fn a_client_in_a_static_does_not_keep_the_process(cx: &Context) -> Outcome {
    static KEPT: OnceLock<(Client, Handle)> = OnceLock::new();
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 4096])?;
    client.fill(&bytes, &[2])?;
    let (client, bytes) = KEPT.get_or_init(|| (client, bytes));
    ensure_eq!(client.read_one(bytes)?.len(), 4096);
    client.fill(bytes, &[3])?;
    Ok(())
}

fn a_client_in_a_thread_local_does_not_keep_the_process(cx: &Context) -> Outcome {
    std::thread_local! {
        static KEPT: core::cell::RefCell<Option<(Client, Handle)>> = const { core::cell::RefCell::new(None) };
    }
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 4096])?;
    KEPT.with(|kept| *kept.borrow_mut() = Some((client.clone(), bytes)));
    let thread = std::thread::spawn(move || {
        KEPT.with(|kept| *kept.borrow_mut() = client.zeros(64).ok().map(|bytes| (client, bytes)));
    });
    thread.join().map_err(|_| Failure::new("dropping a client at the end of a thread panicked"))?;
    Ok(())
}

fn a_thread_that_panics_with_a_client_harms_nobody(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 64])?;
    let (other, held) = (client.clone(), bytes.clone());
    let thread = std::thread::spawn(move || {
        let lazy = other.read_lazy(&held);
        let window = other.allocation_mode(trunnion_runtime_core::allocation::AllocationMode::Dedicated);
        other.fill(&held, &[2]).ok();
        let _both = (lazy, window);
        panic!("on purpose, with a client");
    });
    ensure!(thread.join().is_err(), "the thread did not panic");
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [2; 64]);
    Ok(())
}

fn a_process_that_is_started_while_a_device_works_disturbs_nobody(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 8))?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    for round in 1..=10u32 {
        for _ in 0..20 {
            client.launch(&step, cover(64)?, [&bytes])?;
        }
        // A copy of this process, for a moment, with all the device has; then another program.
        let mut list = Command::new(std::env::current_exe()?);
        let listed = list.args(["--backend", cx.factory().name(), "--rows"]).stdin(Stdio::null()).output()?;
        ensure!(listed.status.success() && !listed.stdout.is_empty(), "round {round}: {listed:?}");
        ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [20 * round; 64]);
    }
    ensure_eq!(client.shutdown(SOON).abandoned, 0);
    Ok(())
}

fn a_process_may_end_with_work_queued(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { delay: Some(Duration::from_millis(20)), ..Variant::plain() })?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    for _ in 0..1000 {
        client.launch(&step, cover(64)?, [&bytes])?;
    }
    std::thread::spawn(move || drop(client));
    Ok(())
}

/// Fails when each of several runs of `rounds` leaves `most` more bytes in memory than there were before it. What is lost in every round
/// shows in all of them; one of them alone may also rise by what threads that ended late, on a busy machine, or an allocator still keep.
pub(super) fn levels_off(rounds: usize, most: u64, mut round: impl FnMut() -> Outcome) -> Outcome {
    let mut levels = vec![resident()?];
    for _ in 0..4 {
        (0..rounds).try_for_each(|_| round())?;
        levels.push(resident()?);
        let [.., before, after] = levels[..] else { break };
        if after < before + most {
            return Ok(());
        }
    }
    Err(Failure::new(format!("memory rose by over {most} bytes in every run of {rounds} rounds: {levels:?}")))
}

/// Bytes of this process that are in memory.
fn resident() -> Outcome<u64> {
    let known = || {
        let text = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    known().ok_or_else(|| Failure::Skipped("this system does not say how much memory a process has".into()))
}

fn a_hundred_devices_one_after_another_leave_no_memory_behind(cx: &Context) -> Outcome {
    let round = || -> Outcome {
        let client = cx.client()?;
        let step = client.prepare(kernels::step())?;
        let bytes = client.create_from_slice(&vec![1u8; 4 << 20])?;
        // Some of it is enough: not every device is quick.
        client.launch(&step, cover(1 << 14)?, [&bytes])?;
        ensure_eq!(client.read_one(&bytes)?.len(), 4 << 20);
        Ok(())
    };
    // The allocator of the process keeps some of what was freed; it has reached its level then.
    (0..40).try_for_each(|_| round())?;
    levels_off(100, 32 << 20, round)
}

fn a_hundred_thousand_launches_without_a_sync_leave_no_memory_behind(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    let mut launches = 0u32;
    let mut round = || -> Outcome {
        for _ in 0..100_000 {
            client.launch(&step, cover(64)?, [&bytes])?;
            launches += 1;
        }
        Ok(client.sync()?.wait()?)
    };
    round()?;
    // What is under way at once may differ by as much as a round is; what every launch left behind would be several times that.
    levels_off(6, 64 << 20, round)?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [launches; 64]);
    Ok(())
}
