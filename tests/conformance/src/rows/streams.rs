//! C8: streams: which one a call is on, and what they promise each other.

use crate::check::{Outcome, raw};
use crate::context::{Context, SOON, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, tests};
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::id::StreamId;

tests! {
    C8 a_call_is_on_the_pinned_stream_else_on_the_threads_own;
    C8 a_call_inside_an_entered_stream_is_on_it;
    C8 a_future_keeps_the_stream_attached_to_it;
    C8 operations_of_one_stream_take_effect_in_order;
    C8 a_buffer_updated_in_turn_by_many_streams_is_updated_in_that_order;
    C8 a_stream_that_is_held_up_holds_up_no_other;
    C8 readers_of_the_same_bytes_on_other_streams_do_not_disturb_each_other;
    C8 a_writer_waits_for_readers_of_other_streams;
    C8 work_of_another_stream_is_waited_for_however_long_it_takes;
    C8 updates_by_many_threads_are_all_kept;
    C8 a_thousand_short_lived_threads_cost_no_memory .seconds(120);
}

fn a_call_is_on_the_pinned_stream_else_on_the_threads_own(cx: &Context) -> Outcome {
    let mut client = cx.client()?;
    ensure_eq!(client.record()?.stream, StreamId::current());
    let other = client.clone();
    let there = std::thread::spawn(move || other.record().map(|point| (point.stream, StreamId::current()))).join();
    let Ok(there) = there else { return Err(crate::Failure::new("the thread panicked")) };
    let (used, own) = there?;
    ensure_eq!(used, own);
    ensure!(used != StreamId::current(), "two threads share a stream");
    let pinned = StreamId::new();
    client.set_stream(pinned);
    ensure_eq!(client.stream(), pinned);
    ensure_eq!(client.record()?.stream, pinned);
    ensure_eq!(client.fill(&client.empty(16)?, &[1])?.stream, pinned);
    Ok(())
}

fn a_call_inside_an_entered_stream_is_on_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (outer, inner) = (StreamId::new(), StreamId::new());
    {
        let _outer = outer.enter();
        ensure_eq!(client.record()?.stream, outer);
        {
            let _inner = inner.enter();
            ensure_eq!(client.record()?.stream, inner);
            let mut pinned = client.clone();
            pinned.set_stream(outer);
            ensure_eq!(pinned.record()?.stream, outer, "pinned inside an entered stream");
        }
        ensure_eq!(client.record()?.stream, outer);
    }
    ensure!(client.record()?.stream != outer, "the stream was not left");
    Ok(())
}

fn a_future_keeps_the_stream_attached_to_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let stream = StreamId::new();
    let task = Box::pin(async {
        let bytes = client.create_from_slice(&[3; 32])?;
        let first = client.record()?.stream;
        let read = client.read_async(&[&bytes])?.await?;
        let second = client.record()?.stream;
        Ok::<_, trunnion_runtime_core::error::Error>((first, second, read[0].to_vec::<u8>()?))
    });
    let (first, second, bytes) = ready(stream.attach(task))??;
    ensure_eq!((first, second), (stream, stream));
    ensure_eq!(bytes, [3; 32]);
    Ok(())
}

fn late(cx: &Context) -> Outcome<Client> {
    cx.open(&Variant::late(Duration::from_millis(1), 3))
}

fn operations_of_one_stream_take_effect_in_order(cx: &Context) -> Outcome {
    let client = late(cx)?;
    let scramble = client.prepare(kernels::scramble())?;
    let bytes = client.create_from_slice(raw(&[0u32; 100]))?;
    let mut expected = 0u32;
    for round in 0..200u32 {
        match round % 4 {
            0 => {
                client.fill(&bytes, &round.to_le_bytes())?;
                expected = round;
            }
            _ => {
                client.launch(&scramble, cover(100)?, [&bytes])?;
                expected = expected.wrapping_mul(3).wrapping_add(1);
            }
        }
        if round % 50 == 0 {
            client.flush()?;
        }
    }
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [expected; 100]);
    Ok(())
}

fn a_buffer_updated_in_turn_by_many_streams_is_updated_in_that_order(cx: &Context) -> Outcome {
    let client = late(cx)?;
    let scramble = client.prepare(kernels::scramble())?;
    let streams: Vec<Client> = (0..7).map(|_| on_new_stream(&client)).collect();
    // Created on one stream, updated in place on all of them, again and again.
    let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
    let mut expected = 1u32;
    for round in 0..140 {
        streams[round * 3 % 7].launch(&scramble, cover(64)?, [&bytes])?;
        expected = expected.wrapping_mul(3).wrapping_add(1);
    }
    ensure_eq!(streams[2].read_one(&bytes)?.to_vec::<u32>()?, [expected; 64]);
    Ok(())
}

fn a_stream_that_is_held_up_holds_up_no_other(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (held, free) = (on_new_stream(&client), on_new_stream(&client));
    let gate = cx.gate(&client)?;
    let point = gate.block(&held)?;
    let held_bytes = held.create_from_slice(&[1; 64])?;
    for round in 0..50u8 {
        let bytes = free.create_from_slice(&[round; 64])?;
        ensure_eq!(free.read_one(&bytes)?.as_slice()?, [round; 64]);
    }
    free.sync()?.wait()?;
    ensure!(!client.is_done(point)?, "the held stream went on");
    gate.open()?;
    held.sync()?.wait()?;
    ensure!(client.is_done(point)?, "the held stream did not go on");
    ensure_eq!(free.read_one(&held_bytes)?.as_slice()?, [1; 64]);
    Ok(())
}

fn readers_of_the_same_bytes_on_other_streams_do_not_disturb_each_other(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (held, free) = (on_new_stream(&client), on_new_stream(&client));
    let source = client.create_from_slice(&[9; 64])?;
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let target = held.empty(64)?;
    let waiting = held.copy(&source, &target)?;
    // A reader waits for no reader.
    ensure_eq!(free.read_one(&source)?.as_slice()?, [9; 64]);
    let copied = free.empty(64)?;
    let done = free.copy(&source, &copied)?;
    client.done(done)?.wait_for(SOON)?;
    ensure!(!client.is_done(waiting)?, "the held copy went on");
    gate.open()?;
    ensure_eq!(free.read_one(&target)?.as_slice()?, [9; 64]);
    Ok(())
}

fn a_writer_waits_for_readers_of_other_streams(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (held, other) = (on_new_stream(&client), on_new_stream(&client));
    let source = client.create_from_slice(&[1; 64])?;
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let target = held.empty(64)?;
    held.copy(&source, &target)?;
    // Issued later on another stream: must not be seen by the copy.
    let written = other.write_slice(&source, &[2; 64])?;
    other.flush()?;
    ensure!(!client.is_done(written)?, "the write overtook a reader issued before it");
    gate.open()?;
    ensure_eq!(other.read_one(&target)?.as_slice()?, [1; 64]);
    ensure_eq!(other.read_one(&source)?.as_slice()?, [2; 64]);
    Ok(())
}

fn work_of_another_stream_is_waited_for_however_long_it_takes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let slow = client.prepare(kernels::slow(Duration::from_millis(40)))?;
    let (first, second) = (on_new_stream(&client), on_new_stream(&client));
    let (from, middle, to) = (client.create_from_slice(raw(&[7u32; 64]))?, client.zeros(256)?, client.zeros(256)?);
    client.sync()?.wait()?;
    // A reader after a writer.
    first.launch(&slow, cover(64)?, [&from, &middle])?;
    second.copy(&middle, &to)?;
    ensure_eq!(second.read_one(&to)?.to_vec::<u32>()?, [7; 64]);
    // A writer after a reader, and after a writer.
    first.launch(&slow, cover(64)?, [&from, &to])?;
    second.fill(&from, &[1])?;
    ensure_eq!(first.read_one(&to)?.to_vec::<u32>()?, [7; 64], "a fill overtook who read the bytes");
    first.launch(&slow, cover(64)?, [&middle, &to])?;
    second.fill(&to, &[2])?;
    first.sync()?.wait()?;
    ensure_eq!(second.read_one(&to)?.as_slice()?, [2; 256], "a fill overtook who wrote the bytes");
    Ok(())
}

fn updates_by_many_threads_are_all_kept(cx: &Context) -> Outcome {
    let client = late(cx)?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = || -> Outcome {
            for _ in 0..100 {
                client.launch(&step, cover(64)?, [&bytes])?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(outcomes.len(), 4);
    outcomes.into_iter().collect::<Outcome>()?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [400; 64]);
    Ok(())
}

fn a_thousand_short_lived_threads_cost_no_memory(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let shared = client.create_from_slice(raw(&[0u32; 64]))?;
    let round = |count: usize| -> Outcome {
        for _ in 0..count {
            let (client, step, shared) = (client.clone(), step.clone(), shared.clone());
            let thread = std::thread::spawn(move || -> Outcome {
                let own = client.create_from_slice(raw(&[0u32; 64]))?;
                client.launch(&step, cover(64)?, [&own])?;
                client.launch(&step, cover(64)?, [&shared])?;
                Ok(())
            });
            thread.join().map_err(|_| crate::Failure::new("a thread panicked"))??;
        }
        Ok(())
    };
    round(100)?;
    client.read_one(&shared)?;
    let before = client.memory_usage()?;
    round(900)?;
    ensure_eq!(client.read_one(&shared)?.to_vec::<u32>()?, [1000; 64]);
    let after = client.memory_usage()?;
    ensure_eq!((after.allocations, after.live), (before.allocations, before.live));
    // Work of up to a few hundred threads may be unfinished at once; what they held is used again.
    ensure!(
        after.reserved <= before.reserved.max(4 << 20),
        "reserved rose from {} to {}",
        before.reserved,
        after.reserved
    );
    Ok(())
}
