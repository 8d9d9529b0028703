//! M7: reading.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{Context, SOON, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;
use trunnion_runtime_core::error::Error;

tests! {
    M7 a_read_comes_after_every_earlier_write_of_any_stream;
    M7 a_read_sees_nothing_that_was_issued_after_it;
    M7 a_read_sees_what_a_long_launch_before_it_writes;
    M7 a_read_of_several_handles_answers_each_in_order;
    M7 a_read_into_a_slice_fills_it_exactly;
    M7 a_read_names_the_failure_first;
    M7 a_failure_elsewhere_in_the_buffer_is_not_named;
    M7 an_unchecked_read_panics_with_the_error;
    M7 of_two_reads_of_one_handle_one_may_be_dropped;
    M7 an_awaited_read_completes_with_nobody_polling;
    M7 many_reads_in_flight_are_answered_each_with_its_own;
    M7 a_reads_memory_may_be_dropped_while_it_is_in_flight;
    M7 a_read_of_memory_apart_from_the_hosts_is_exact;
}

fn a_read_comes_after_every_earlier_write_of_any_stream(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 21))?;
    let streams: Vec<_> = (0..5).map(|_| on_new_stream(&client)).collect();
    let target = client.zeros(5 * 64)?;
    for round in 0..20u8 {
        for (i, stream) in streams.iter().enumerate() {
            let part = target.slice(i as u64 * 64..i as u64 * 64 + 64)?;
            match round % 2 {
                0 => stream.fill(&part, &[round + i as u8])?,
                _ => stream.write_slice(&part, &[round + i as u8; 64])?,
            };
        }
        let expected: Vec<u8> = (0..5).flat_map(|i| [round + i; 64]).collect();
        ensure_eq!(client.read_one(&target)?.as_slice()?, expected, "round {round}");
    }
    Ok(())
}

fn a_read_sees_nothing_that_was_issued_after_it(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 22))?;
    let step = client.prepare(kernels::step())?;
    let target = client.create_from_slice(raw(&[0u32; 64]))?;
    let mut readings = Vec::new();
    for _ in 0..30 {
        readings.push(client.read_async(&[&target])?);
        client.launch(&step, cover(64)?, [&target])?;
    }
    for (i, reading) in readings.into_iter().enumerate() {
        ensure_eq!(reading.wait()?[0].to_vec::<u32>()?, [i as u32; 64]);
    }
    Ok(())
}

fn a_read_sees_what_a_long_launch_before_it_writes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let slow = client.prepare(kernels::slow(Duration::from_millis(40)))?;
    let (from, to) = (client.create_from_slice(raw(&[3u32; 64]))?, client.zeros(256)?);
    client.sync()?.wait()?;
    for reader in [client.clone(), on_new_stream(&client)] {
        client.fill(&to, &[0])?;
        client.launch(&slow, cover(64)?, [&from, &to])?;
        ensure_eq!(reader.read_one(&to)?.to_vec::<u32>()?, [3; 64]);
    }
    Ok(())
}

fn a_read_of_several_handles_answers_each_in_order(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let sizes = [3u64, 0, 70_000, 1, 256];
    let handles = sizes
        .iter()
        .map(|size| client.create_from_slice(&pattern(*size as usize, *size as u8)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut asked: Vec<_> = handles.iter().collect();
    asked.push(&handles[2]);
    let read = client.read(&asked)?;
    ensure_eq!(read.len(), 6);
    for (bytes, size) in read.iter().zip(sizes.iter().chain([&70_000])) {
        ensure!(bytes.as_slice()? == pattern(*size as usize, *size as u8), "the read of {size} bytes is another");
    }
    Ok(())
}

fn a_read_into_a_slice_fills_it_exactly(cx: &Context) -> Outcome {
    for variant in [Variant::plain(), Variant { separate_memory: true, ..Variant::plain() }] {
        let client = cx.open(&variant)?;
        for size in [1usize, 100, 262_143, 262_144, 2 << 20] {
            let data = pattern(size, 4);
            let handle = client.create_from_slice(&data)?;
            let mut into = vec![0; size + 2];
            client.read_into(&handle, &mut into[1..=size])?;
            ensure!(into[1..=size] == data, "{size} bytes are not those written");
            ensure_eq!((into[0], into[size + 1]), (0, 0));
            ensure_err!(client.read_into(&handle, &mut into), Error::WrongLength { .. });
            ensure_err!(client.read_into(&handle, &mut into[..size - 1]), Error::WrongLength { .. });
        }
    }
    Ok(())
}

fn a_read_names_the_failure_first(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let healthy = client.create_from_slice(&[1; 16])?;
    ensure_err!(client.read_one(&marked), Error::Compile { .. });
    ensure_err!(client.read(&[&healthy, &marked]), Error::Compile { .. });
    ensure_err!(client.read_into(&marked, &mut [0; 256]), Error::Compile { .. });
    ensure_err!(client.read_timeout(&[&marked], SOON), Error::Compile { .. });
    ensure_err!(ready(client.read_async(&[&marked])?)?, Error::Compile { .. });
    // Reading does not take the failure away.
    ensure_err!(client.read_one(&marked), Error::Compile { .. });
    ensure_eq!(client.read_one(&healthy)?.as_slice()?, [1; 16]);
    // A large read takes another way.
    let broken = client.prepare(kernels::broken())?;
    let (input, large) = (client.zeros(1 << 20)?, client.zeros(1 << 20)?);
    client.launch(&broken, cover(1 << 18)?, [&input, &large])?;
    let mut into = vec![7; 1 << 20];
    ensure_err!(client.read_into(&large, &mut into), Error::Compile { .. });
    ensure!(into.iter().all(|byte| *byte == 7), "a read that failed wrote into the slice");
    Ok(())
}

fn a_failure_elsewhere_in_the_buffer_is_not_named(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let broken = client.prepare(kernels::broken())?;
    let (input, memory) = (client.zeros(256)?, client.create_from_slice(&[5; 1024])?);
    client.launch(&broken, cover(64)?, [&input, &memory.slice(256..512)?])?;
    ensure_eq!(client.read_one(&memory.slice(..256)?)?.as_slice()?, [5; 256]);
    ensure_eq!(client.read_one(&memory.slice(512..)?)?.as_slice()?, [5; 512]);
    ensure_err!(client.read_one(&memory), Error::Compile { .. });
    Ok(())
}

fn an_unchecked_read_panics_with_the_error(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    ensure_eq!(client.read_one_unchecked(&client.create_from_slice(&[1, 2])?).as_slice()?, [1, 2]);
    let panicked = catch_unwind(AssertUnwindSafe(|| client.read_one_unchecked(&marked).len()));
    let Err(payload) = panicked else { return Err(Failure::new("an unchecked read of marked bytes did not panic")) };
    let message = payload.downcast_ref::<String>().cloned().unwrap_or_default();
    ensure!(message.contains(kernels::BROKEN), "the panic does not say why: {message:?}");
    Ok(())
}

fn of_two_reads_of_one_handle_one_may_be_dropped(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let handle = client.create_from_slice(&[8; 1000])?;
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let (first, second, third) =
        (held.read_async(&[&handle])?, held.read_async(&[&handle])?, held.read_async(&[&handle])?);
    drop(first);
    // One that was polled before it is dropped.
    let mut third = Box::pin(third);
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    ensure!(third.as_mut().poll(&mut context).is_pending(), "the read was not held back");
    drop(third);
    gate.open()?;
    ensure_eq!(ready(second)??[0].as_slice()?, [8; 1000]);
    Ok(())
}

fn an_awaited_read_completes_with_nobody_polling(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(5), 2))?;
    let step = client.prepare(kernels::step())?;
    let handle = client.create_from_slice(raw(&[0u32; 64]))?;
    for _ in 0..5 {
        client.launch(&step, cover(64)?, [&handle])?;
    }
    let read = ready(async { client.read_async(&[&handle])?.await })??;
    ensure_eq!(read[0].to_vec::<u32>()?, [5; 64]);
    Ok(())
}

fn many_reads_in_flight_are_answered_each_with_its_own(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 23))?;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = |seed: u8| {
            let client = client.clone();
            move || -> Outcome {
                let handles = (0..16u8)
                    .map(|i| client.create_from_slice(&pattern(500 + usize::from(i), seed ^ i)))
                    .collect::<Result<Vec<_>, _>>()?;
                let readings =
                    handles.iter().map(|handle| client.read_async(&[handle])).collect::<Result<Vec<_>, _>>()?;
                for (i, reading) in readings.into_iter().enumerate().rev() {
                    ensure_eq!(reading.wait()?[0].as_slice()?, pattern(500 + i, seed ^ i as u8));
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..4).map(|i| scope.spawn(work(i * 16))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(outcomes.len(), 4);
    outcomes.into_iter().collect()
}

fn a_reads_memory_may_be_dropped_while_it_is_in_flight(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let handle = client.create_from_slice(&[1; 5000])?;
    client.sync()?.wait()?;
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let reading = held.read_async(&[&handle])?;
    drop(handle);
    let next = client.create_from_slice(&[2; 5000])?;
    ensure_eq!(client.read_one(&next)?.as_slice()?, [2; 5000]);
    gate.open()?;
    ensure_eq!(reading.wait()?[0].as_slice()?, [1; 5000]);
    Ok(())
}

fn a_read_of_memory_apart_from_the_hosts_is_exact(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { separate_memory: true, ..Variant::plain() })?;
    ensure!(!client.features().host_visible, "the variant's memory is visible to the host");
    for size in [1usize, 65_535, 65_536, 65_537, 200_001, 1 << 20] {
        let data = pattern(size, 6);
        let handle = client.create_from_slice(&data)?;
        ensure!(client.read_one(&handle)?.as_slice()? == data, "{size} bytes are not those written");
        let half = size as u64 / 2;
        ensure!(
            client.read_one(&handle.slice(half..)?)?.as_slice()? == &data[half as usize..],
            "the second half of {size} bytes"
        );
    }
    Ok(())
}
