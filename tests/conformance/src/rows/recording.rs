//! M19: what is asked of the device's memory is written down, and can be asked again without the device.

use crate::check::{Failure, Outcome};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::program::Random;
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use trunnion_memory_pools::PoolsConfig;
use trunnion_memory_pools::trace::{Event, Picture, Requested, Trace, replay};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::ReportScope;
use trunnion_runtime_core::sink::Sink;

tests! {
    M19 every_request_and_free_is_recorded_in_order;
    M19 a_recording_replayed_on_the_same_pools_has_the_same_peaks;
    M19 requests_that_failed_are_recorded_with_their_cause;
    M19 a_snapshot_has_the_usage_of_its_place;
    M19 a_recording_begins_with_what_is_live;
    M19 a_layout_that_is_installed_meanwhile_is_marked;
    M19 a_second_recording_is_refused_while_one_runs;
    M19 without_a_recording_a_snapshot_does_nothing;
    M19 a_sink_that_fails_ends_the_recording_and_disturbs_nobody;
    M19 a_sink_that_takes_nothing_is_refused;
    M19 the_end_of_the_device_is_the_end_of_the_recording;
    M19 a_recording_on_many_threads_is_whole;
}

/// Lines that a test reads while they are written, at most so many.
#[derive(Clone)]
struct Lines(Arc<Mutex<String>>, usize);

impl Lines {
    fn new() -> Self {
        Self::few(usize::MAX)
    }

    fn few(count: usize) -> Self {
        Self(Arc::default(), count)
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn trace(&self) -> Outcome<Trace> {
        let text = self.text();
        Trace::parse(&text).map_err(|error| Failure::new(format!("{error}\n{text}")))
    }
}

impl Sink for Lines {
    fn line(&mut self, line: &str) -> Result<(), String> {
        self.1 = self.1.checked_sub(1).ok_or("no more lines, on purpose")?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line(line)
    }
}

/// What is recorded of a task.
fn recorded(client: &Client, task: impl FnOnce() -> Outcome) -> Outcome<Trace> {
    let lines = Lines::new();
    client.record_memory_start(lines.clone())?;
    task()?;
    let recording = client.record_memory_stop()?.ok_or_else(|| Failure::new("nothing was recorded"))?;
    ensure_eq!(recording.fault, None);
    let trace = lines.trace()?;
    ensure_eq!(trace.events.len() as u64, recording.events);
    Ok(trace)
}

/// The events that are requests or frees, as a word each.
fn told(trace: &Trace) -> Vec<String> {
    let told = |event: &Event| match event {
        Event::Request(Requested { size, mode, refused: None, .. }) => Some(format!("{size} {mode}")),
        Event::Request(Requested { size, .. }) => Some(format!("{size} refused")),
        Event::Free { number, .. } => Some(format!("free {number}")),
        Event::Cleanup => Some("cleanup".into()),
        Event::Snapshot(snapshot) => Some(snapshot.label.clone()),
        _ => None,
    };
    trace.events.iter().filter_map(told).collect()
}

fn every_request_and_free_is_recorded_in_order(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let trace = recorded(&client, || {
        let first = client.empty(1000)?;
        let second = client.memory_persistent_allocation(|| client.zeros(2000))?;
        let third = client.memory_dedicated_allocation(|| client.create_from_slice(&[1; 300]))?;
        // What is dropped while a request is in the queue is free for it.
        client.sync()?.wait()?;
        drop(second);
        client.sync()?.wait()?;
        let none = client.empty(0)?;
        let slice = first.slice(..10)?;
        drop((first, none));
        client.record_memory("a slice is left")?;
        drop(slice);
        client.memory_cleanup()?;
        drop(third);
        Ok(())
    })?;
    let expected =
        ["1000 auto", "2000 persistent", "300 dedicated", "free 1", "a slice is left", "free 0", "cleanup", "free 2"];
    ensure_eq!(told(&trace), expected);
    let named: Vec<_> = trace.config.iter().map(|(name, _)| name.as_str()).collect();
    ensure!(named.contains(&"device") && named.contains(&"adapter"), "{named:?}");
    let stream = client.stream();
    let mut streams = trace.events.iter().filter_map(|event| match event {
        Event::Request(request) => Some(request.stream),
        _ => None,
    });
    ensure!(streams.all(|of| of == stream), "a request is recorded on another stream");
    Ok(())
}

fn a_recording_replayed_on_the_same_pools_has_the_same_peaks(cx: &Context) -> Outcome {
    let of_every_kind = {
        let pages = PageSizes::growing(64 << 10, 1 << 20, 10);
        PoolLayout::new(vec![
            PoolDescription::slabs("slots", 2000, pages),
            PoolDescription::new("steps", Placement::Linear, pages).up_to(20_000),
            PoolDescription::new("middle", Placement::Fit, pages).up_to(200_000),
            PoolDescription::new("each", Placement::Exclusive, pages),
        ])?
    };
    let layouts = [PoolLayout::adaptive(), PoolLayout::slabs(), PoolLayout::exclusive(), of_every_kind];
    for (seed, layout) in (0..).zip(layouts) {
        let client = cx.open(&Variant::late(Duration::from_micros(300), seed))?;
        client.install_memory_pools(&layout)?;
        let streams: Vec<_> = (0..4).map(|_| on_new_stream(&client)).collect();
        let mut random = Random::new(seed);
        let mut most = 0;
        let mut report = None;
        let trace = recorded(&client, || {
            let mut kept: Vec<Handle> = Vec::new();
            for _ in 0..400 {
                let on = &streams[random.below(4) as usize];
                let limit = 1 << (4 + random.below(18));
                let size = 1 + random.below(limit);
                match random.below(12) {
                    0..5 if !kept.is_empty() => drop(kept.swap_remove(random.below(kept.len() as u64) as usize)),
                    5 => kept.push(on.memory_persistent_allocation(|| on.zeros(size))?),
                    6 => kept.push(on.memory_dedicated_allocation(|| on.zeros(size))?),
                    7 if kept.len() > 1 => {
                        let half = |handle: &Handle| handle.slice(..handle.size_in_used().min(16));
                        let (from, to) = (half(&kept[0])?, half(&kept[kept.len() - 1])?);
                        let size = from.size_in_used().min(to.size_in_used());
                        on.copy(&from.slice(..size)?, &to.slice(..size)?)?;
                    }
                    8 => client.memory_cleanup()?,
                    _ => kept.push(on.zeros(size)?),
                }
                most = most.max(client.memory_usage()?.live);
            }
            report = Some(client.memory_report(ReportScope::Device)?);
            Ok(())
        })?;
        let pools = trace.pools.clone().unwrap_or_default();
        ensure_eq!(pools.layout, layout);
        let replayed = replay(&trace, &pools);
        ensure_eq!((replayed.peak_live, replayed.failed), (most, 0), "seed {seed}");
        let device = report.unwrap_or_default();
        // The report was made before what was kept to the end was freed.
        for (replayed, recorded) in replayed.end.pools.iter().zip(&device.pools) {
            ensure_eq!(replayed.name, recorded.name);
            ensure_eq!(replayed.peak_live, recorded.peak_live, "seed {seed}: {}", recorded.name);
            let requests = |pool: &trunnion_runtime_core::report::PoolReport| pool.reused + pool.grown;
            ensure_eq!(requests(replayed), requests(recorded), "seed {seed}: {}", recorded.name);
        }
        ensure_eq!(replayed.end.total().live, 0);
        for layout in
            [PoolLayout::adaptive(), PoolLayout::slabs(), PoolLayout::exclusive(), PoolLayout::fixed(1 << 20)?]
        {
            let other = replay(&trace, &PoolsConfig { layout, ..pools.clone() });
            ensure_eq!((other.peak_live, other.failed), (most, 0));
        }
        let picture = Picture::of("conformance", &replayed).to_string();
        ensure!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"), "{picture}");
    }
    Ok(())
}

fn requests_that_failed_are_recorded_with_their_cause(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.open.memory_budget = Some(8 << 20);
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let trace = recorded(&client, || {
        let kept = client.zeros(5 << 20)?;
        let none = client.zeros(5 << 20)?;
        let error = ensure_err!(client.check(&[&none]), _);
        ensure!(error.is_out_of_memory(), "{error}");
        drop(none);
        client.sync()?.wait()?;
        drop(kept);
        Ok(())
    })?;
    ensure_eq!(told(&trace), ["5242880 auto", "5242880 refused", "free 1", "free 0"]);
    let cause = trace.events.iter().find_map(|event| match event {
        Event::Request(Requested { refused, .. }) => refused.as_deref(),
        _ => None,
    });
    let cause = cause.unwrap_or_default();
    ensure!(cause.contains("5242880 bytes requested") && cause.contains("budget 8388608"), "{cause}");
    let pools = trace.pools.clone().unwrap_or_default();
    let replayed = replay(&trace, &pools);
    ensure_eq!((replayed.failed, replayed.refused_before, replayed.peak_live), (1, 1, 5 << 20));
    let without = replay(&trace, &PoolsConfig { budget: None, ..pools });
    ensure_eq!((without.failed, without.peak_live), (0, 10 << 20));
    Ok(())
}

fn a_snapshot_has_the_usage_of_its_place(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let mut usages = Vec::new();
    let trace = recorded(&client, || {
        client.record_memory("nothing")?;
        usages.push(client.memory_usage()?);
        let first = client.empty(1000)?;
        client.record_memory("one \"buffer\"\n")?;
        usages.push(client.memory_usage()?);
        let second = client.empty(3000)?;
        drop(first);
        client.record_memory(format!("another of {}", 3000))?;
        usages.push(client.memory_usage()?);
        drop(second);
        Ok(())
    })?;
    let snapshots: Vec<_> = trace
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Snapshot(snapshot) => Some((snapshot.label.as_str(), snapshot.usage)),
            _ => None,
        })
        .collect();
    let labels = ["nothing", "one \"buffer\"\n", "another of 3000"];
    ensure_eq!(snapshots, labels.into_iter().zip(usages).collect::<Vec<_>>());
    Ok(())
}

fn a_recording_begins_with_what_is_live(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (kept, gone) = (client.zeros(1234)?, client.zeros(77)?);
    let lasting = client.memory_persistent_allocation(|| client.zeros(4321))?;
    drop(gone);
    client.sync()?.wait()?;
    let trace = recorded(&client, || {
        drop(kept);
        client.sync()?.wait()?;
        Ok(())
    })?;
    let mut told = told(&trace);
    let freed = told.pop().unwrap_or_default();
    let number = told.iter().position(|word| word == "1234 auto");
    ensure_eq!(Some(freed), number.map(|number| format!("free {number}")));
    told.sort();
    ensure_eq!(told, ["1234 auto", "4321 persistent"]);
    drop(lasting);
    Ok(())
}

fn a_layout_that_is_installed_meanwhile_is_marked(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = PoolLayout::fixed(1 << 20)?;
    client.install_memory_pools(&before)?;
    let trace = recorded(&client, || {
        drop(client.zeros(1000)?);
        client.install_memory_pools(&PoolLayout::slabs())?;
        drop(client.zeros(2000)?);
        Ok(())
    })?;
    ensure_eq!(trace.pools.as_ref().map(|pools| &pools.layout), Some(&before));
    let marks = trace.events.iter().filter_map(|event| match event {
        Event::Mark(text) => Some(text.clone()),
        _ => None,
    });
    ensure_eq!(marks.collect::<Vec<_>>(), [format!("pools from here on: {}", PoolLayout::slabs())]);
    ensure_eq!(told(&trace), ["1000 auto", "free 0", "2000 auto", "free 1"]);
    Ok(())
}

fn a_second_recording_is_refused_while_one_runs(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (first, second) = (Lines::new(), Lines::new());
    client.record_memory_start(first.clone())?;
    ensure_err!(client.record_memory_start(second.clone()), Error::Busy { .. });
    ensure_eq!(second.text(), "");
    drop(client.empty(10)?);
    ensure!(client.record_memory_stop()?.is_some(), "the first recording was lost");
    ensure_eq!(told(&first.trace()?), ["10 auto", "free 0"]);
    client.record_memory_start(second.clone())?;
    ensure!(client.record_memory_stop()?.is_some(), "the second recording was lost");
    ensure_eq!(told(&second.trace()?).len(), 0);
    Ok(())
}

fn without_a_recording_a_snapshot_does_nothing(cx: &Context) -> Outcome {
    let client = cx.client()?;
    client.record_memory("nowhere")?;
    ensure_eq!(client.record_memory_stop()?, None);
    let lines = Lines::new();
    client.record_memory_start(lines.clone())?;
    client.record_memory_stop()?;
    let text = lines.text();
    client.record_memory("too late")?;
    drop(client.zeros(100)?);
    client.sync()?.wait()?;
    ensure_eq!(lines.text(), text);
    ensure_eq!(client.record_memory_stop()?, None);
    Ok(())
}

fn a_sink_that_fails_ends_the_recording_and_disturbs_nobody(cx: &Context) -> Outcome {
    for events in [0u64, 1, 7] {
        let client = cx.client()?;
        let whole = Lines::new();
        client.record_memory_start(whole.clone())?;
        client.record_memory_stop()?;
        // All lines but the last are there before the first event.
        let head = whole.text().lines().count() - 1;
        let lines = Lines::few(head + events as usize);
        client.record_memory_start(lines.clone())?;
        for i in 0..10u8 {
            let handle = client.create_from_slice(&[i; 100])?;
            ensure_eq!(client.read_one(&handle)?.as_slice()?, [i; 100]);
        }
        let recording = client.record_memory_stop()?.ok_or_else(|| Failure::new("nothing was recorded"))?;
        ensure_eq!((recording.fault.as_deref(), recording.events), (Some("no more lines, on purpose"), events));
        let (trace, damage) = Trace::recover(&lines.text());
        ensure!(damage.is_some(), "a recording that was cut off looks whole");
        ensure_eq!(trace.events.len() as u64, events);
        // The next one is not troubled by that.
        client.record_memory_start(Lines::new())?;
        ensure_eq!(client.record_memory_stop()?.and_then(|recording| recording.fault), None);
    }
    Ok(())
}

fn a_sink_that_takes_nothing_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let error = ensure_err!(client.record_memory_start(Lines::few(0)), Error::File { .. });
    ensure!(error.to_string().contains("no more lines, on purpose"), "{error}");
    ensure_eq!(client.record_memory_stop()?, None);
    Ok(())
}

fn the_end_of_the_device_is_the_end_of_the_recording(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let lines = Lines::new();
    client.record_memory_start(lines.clone())?;
    let kept = client.zeros(500)?;
    client.shutdown(Duration::from_secs(5));
    ensure_eq!(told(&lines.trace()?), ["500 auto"]);
    drop(kept);
    ensure!(client.record_memory("after the end").is_err(), "a device that was shut down takes a snapshot");
    ensure_eq!(told(&lines.trace()?), ["500 auto"]);
    Ok(())
}

fn a_recording_on_many_threads_is_whole(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let trace = recorded(&client, || {
        let failed = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=6u64)
                .map(|thread| {
                    let client = client.clone();
                    scope.spawn(move || {
                        (0..50).try_for_each(|i| {
                            let handle = client.zeros(thread * 1000 + i)?;
                            client.record_memory("step")?;
                            drop(handle);
                            Ok::<_, Error>(())
                        })
                    })
                })
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().map_or(Some(None), |done| done.err().map(Some)))
                .next()
        });
        ensure!(failed.is_none(), "{failed:?}");
        client.sync()?.wait()?;
        Ok(())
    })?;
    let count = |is: fn(&Event) -> bool| trace.events.iter().filter(|event| is(event)).count();
    ensure_eq!(count(|event| matches!(event, Event::Request(_))), 300);
    ensure_eq!(count(|event| matches!(event, Event::Free { .. })), 300);
    ensure_eq!(count(|event| matches!(event, Event::Snapshot(_))), 300);
    let mut streams: Vec<_> = trace
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Request(Requested { stream, mode: AllocationMode::Auto, .. }) => Some(*stream),
            _ => None,
        })
        .collect();
    streams.sort_unstable();
    streams.dedup();
    ensure_eq!(streams.len(), 6);
    Ok(())
}
