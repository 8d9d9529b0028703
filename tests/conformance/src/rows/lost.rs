//! C17: a device that is lost says so, to everybody, in the same words, and can be dropped.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, SOON, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::report::ReportScope;

tests! {
    C17 lost_at_any_step_every_call_answers_the_same_cause .seconds(120);
    C17 what_was_pending_is_answered_with_the_cause;
    C17 every_stream_and_every_clone_learns_of_it;
    C17 a_lost_device_does_not_touch_another;
    C17 a_lost_device_can_be_started_again_after_shutdown;
    C17 it_is_logged_once_whoever_meets_it .child().seconds(60);
    C17 everything_may_be_dropped_after_it .child().seconds(60);
    C17 a_transfer_to_another_device_is_answered;
}

/// A small program: allocation, writes, launches on two streams, a copy, reads.
fn scenario(client: &Client) -> Result<()> {
    let other = on_new_stream(client);
    let (step, sum) = (client.prepare(kernels::step())?, client.prepare(kernels::sum())?);
    let a = client.create_from_slice(raw(&[1u32; 64]))?;
    client.launch(&step, cover(64)?, [&a])?;
    client.flush()?;
    let b = other.zeros(256)?;
    other.copy(&a, &b)?;
    other.flush()?;
    let total = other.zeros(4)?;
    other.launch(&sum, cover(64)?, [&b, &total])?;
    other.read_one(&total)?;
    client.read(&[&a, &b])?;
    client.memory_cleanup()?;
    client.sync()?.wait()?;
    // Once more, so that a device that is lost late is lost here.
    client.write_slice(&a, raw(&[5u32; 64]))?;
    client.launch(&step, cover(64)?, [&a])?;
    client.read_one(&a)?;
    Ok(())
}

fn cause(error: &Error) -> Outcome<String> {
    match error {
        Error::DeviceLost { cause } => Ok(cause.clone()),
        other => Err(Failure::new(format_args!("answered {other:?}, expected DeviceLost"))),
    }
}

/// What every kind of call answers.
fn answers(client: &Client) -> Outcome<Vec<(&'static str, Option<Error>)>> {
    let bytes = client.empty(0)?;
    Ok(vec![
        ("empty", client.empty(64).err()),
        ("create", client.create_from_slice(&[1]).err()),
        ("record", client.record().err()),
        ("flush", client.flush().err()),
        ("sync", client.sync().and_then(|done| done.wait()).err()),
        ("check", client.check(&[&bytes]).err()),
        ("sync_buffers", client.sync_buffers(&[&bytes]).err()),
        ("read", client.read_one(&bytes).err()),
        ("write", client.write_slice(&bytes, &[]).err()),
        ("compile_queued", client.compile_queued().err()),
        ("compile_statistics", client.compile_statistics().err()),
        ("memory_usage", client.memory_usage().err()),
        ("memory_report", client.memory_report(ReportScope::Device).err()),
        ("memory_cleanup", client.memory_cleanup().err()),
    ])
}

fn lost_at_any_step_every_call_answers_the_same_cause(cx: &Context) -> Outcome {
    let mut lost = 0;
    for batches in 0..8 {
        let client = cx.open(&Variant::lost_after(batches))?;
        let start = Instant::now();
        let result = scenario(&client);
        ensure!(start.elapsed() < SOON, "lost after {batches}: the program took {:?}", start.elapsed());
        let Err(error) = result else { continue };
        lost += 1;
        ensure!(error.is_device_lost() && !error.is_refusal(), "lost after {batches}: {error:?}");
        let first = cause(error.root())?;
        for (call, answer) in answers(&client)? {
            let Some(answer) = answer else {
                return Err(Failure::new(format_args!("lost after {batches}: {call} succeeded")));
            };
            ensure_eq!(cause(&answer)?, first, "lost after {batches}: {call}");
        }
    }
    ensure!(lost >= 3, "the device was lost {lost} times of 8");
    Ok(())
}

fn what_was_pending_is_answered_with_the_cause(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::lost_after(2))?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client);
    let Ok(gate) = gate else { return Err(Failure::Skipped("the device was lost before it could be held up".into())) };
    // These wait for the gate, so they are not with the driver yet when the device is lost.
    let pending =
        gate.block(&held).and_then(|point| Ok((client.done(point)?, held.read_async(&[gate.handle()])?, held.sync()?)));
    let free = on_new_stream(&client);
    for _ in 0..6 {
        free.zeros(64).ok();
        free.flush().ok();
        free.sync().and_then(|done| done.wait()).ok();
    }
    let lost = cause(&ensure_err!(free.record(), Error::DeviceLost { .. }))?;
    let Ok((done, reading, sync)) = pending else { return Ok(()) };
    ensure_eq!(cause(&ensure_err!(ready(done)?, Error::DeviceLost { .. }))?, lost);
    ensure_eq!(cause(&ensure_err!(reading.wait_for(SOON), Error::DeviceLost { .. }))?, lost);
    ensure_eq!(cause(&ensure_err!(sync.wait_for(SOON), Error::DeviceLost { .. }))?, lost);
    Ok(())
}

fn lost(cx: &Context) -> Outcome<Client> {
    let client = cx.open(&Variant::lost_after(1))?;
    for _ in 0..8 {
        if scenario(&client).is_err() {
            return Ok(client);
        }
    }
    Err(Failure::new("the device was not lost"))
}

fn every_stream_and_every_clone_learns_of_it(cx: &Context) -> Outcome {
    let client = lost(cx)?;
    let first = cause(&ensure_err!(client.record(), Error::DeviceLost { .. }))?;
    let there = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| client.clone().flush())).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });
    ensure_eq!(there.len(), 4);
    for answer in there {
        ensure_eq!(cause(&ensure_err!(answer, Error::DeviceLost { .. }))?, first);
    }
    ensure_eq!(cause(&ensure_err!(on_new_stream(&client).record(), Error::DeviceLost { .. }))?, first);
    Ok(())
}

fn a_lost_device_does_not_touch_another(cx: &Context) -> Outcome {
    let healthy = cx.client()?;
    let bytes = healthy.create_from_slice(&[4; 64])?;
    let lost = lost(cx)?;
    scenario(&healthy)?;
    ensure_eq!(healthy.read_one(&bytes)?.as_slice()?, [4; 64]);
    ensure_err!(lost.record(), Error::DeviceLost { .. });
    Ok(())
}

fn a_lost_device_can_be_started_again_after_shutdown(cx: &Context) -> Outcome {
    let client = lost(cx)?;
    let device = client.device_id();
    client.shutdown(SOON);
    // What happened first stays the answer of the old clients.
    let error = client.record().err();
    ensure!(
        error.as_ref().is_some_and(|error| error.is_device_lost()),
        "after shutdown the lost device answers {error:?}"
    );
    let again = Client::try_init(device, cx.opened(&Variant::plain(), &Default::default())?)?;
    scenario(&again)?;
    Ok(())
}

/// Counts the errors that are logged of a lost device.
struct LostLog(AtomicUsize);

impl log::Log for LostLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Error
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && record.args().to_string().contains("lost") {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn flush(&self) {}
}

fn it_is_logged_once_whoever_meets_it(cx: &Context) -> Outcome {
    static LOG: LostLog = LostLog(AtomicUsize::new(0));
    log::set_logger(&LOG).map_err(|_| Failure::new("this process has a logger already"))?;
    log::set_max_level(log::LevelFilter::Error);
    for round in 1..=3 {
        let client = lost(cx)?;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let client = on_new_stream(&client);
                    scenario(&client).ok();
                    answers(&client).ok();
                });
            }
        });
        client.shutdown(SOON);
        drop(client);
        ensure_eq!(LOG.0.load(Ordering::SeqCst), round, "lines in the log after {round} devices were lost");
    }
    Ok(())
}

fn everything_may_be_dropped_after_it(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::lost_after(2))?;
    let step = client.prepare(kernels::step())?;
    let mut kept: Vec<Box<dyn core::any::Any>> = Vec::new();
    for _ in 0..4 {
        if let Ok(bytes) = client.create_from_slice(raw(&[1u32; 64])) {
            kept.push(Box::new(client.launch(&step, cover(64)?, [&bytes])));
            kept.push(Box::new(client.read_async(&[&bytes])));
            kept.push(Box::new(client.read_lazy(&bytes)));
            kept.push(Box::new(client.sync()));
            kept.push(Box::new(client.prepare_launch(&step, cover(64)?, [&bytes])));
            kept.push(Box::new(client.allocation_mode(AllocationMode::Persistent)));
            kept.push(cx.factory().get_resource(&client, &bytes).unwrap_or_else(|error| Box::new(error)));
            kept.push(Box::new(bytes));
        }
        client.flush().ok();
    }
    ensure_err!(client.record(), Error::DeviceLost { .. });
    kept.push(Box::new(client.clone()));
    while !kept.is_empty() {
        // In no particular order, some on another thread.
        drop(kept.swap_remove(kept.len() / 2));
    }
    std::thread::spawn(move || drop(client)).join().map_err(|_| Failure::new("the drop panicked"))?;
    Ok(())
}

fn a_transfer_to_another_device_is_answered(cx: &Context) -> Outcome {
    let target = cx.client()?;
    for batches in 0..4 {
        let source = cx.open(&Variant::lost_after(batches))?;
        let Ok(bytes) = source.create_from_slice(&[1; 64]) else { continue };
        let Ok(copy) = source.to_client(&bytes, &target) else { continue };
        source.flush().ok();
        source.sync().and_then(|done| done.wait()).ok();
        match target.read_one(&copy) {
            Ok(read) => ensure_eq!(read.as_slice()?, [1; 64]),
            Err(error) => ensure!(error.is_device_lost(), "lost after {batches}: the copy answers {error:?}"),
        }
    }
    // Only the copies are marked, not the device.
    target.sync()?.wait()?;
    Ok(())
}
