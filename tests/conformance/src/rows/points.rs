//! C19: points: every enqueue has one, and they can be waited for, polled and awaited, across devices too.

use crate::check::{Outcome, raw};
use crate::context::{AT_ONCE, Context, SOON, eventually, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use std::time::Instant;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::timeline::Point;

tests! {
    C19 every_enqueue_answers_a_later_point_of_its_stream;
    C19 a_point_is_done_when_its_work_is;
    C19 a_point_is_not_done_before_its_work_can_be;
    C19 a_point_can_be_awaited;
    C19 a_stream_that_waits_for_a_point_goes_on_after_it;
    C19 a_wait_does_not_block_its_caller_nor_other_streams;
    C19 a_stream_waits_for_a_point_of_another_device;
    C19 a_stream_stays_behind_a_point_of_another_device;
    C19 two_devices_that_wait_for_each_other_in_turn_get_on;
    C19 a_point_of_another_device_can_be_polled_and_awaited_here;
    C19 a_point_of_a_device_that_is_gone_is_named;
    C19 waiting_for_what_is_done_costs_nothing;
}

fn every_enqueue_answers_a_later_point_of_its_stream(cx: &Context) -> Outcome {
    let client = on_new_stream(&cx.client()?);
    let step = client.prepare(kernels::step())?;
    let (a, b) = (client.create_from_slice(raw(&[0u32; 64]))?, client.empty(256)?);
    let mut points: Vec<(&str, Point)> = vec![
        ("write", client.write_slice(&a, raw(&[1u32; 64]))?),
        ("fill", client.fill(&b, &[1])?),
        ("copy", client.copy(&a, &b)?),
        ("launch", client.launch(&step, cover(64)?, [&a])?),
        ("record", client.record()?),
        ("launch of nothing", client.launch(&step, cover(0)?, [&a])?),
        ("wait", client.wait(client.record()?)?),
        ("prepared launch", client.prepare_launch(&step, cover(64)?, [&a])?.launch()?),
        ("read_async", client.read_async(&[&a])?.point()),
        ("sync", client.sync()?.point()),
    ];
    points.dedup();
    ensure_eq!(points.len(), 10);
    for pair in points.windows(2) {
        ensure!(pair[0].1.seq < pair[1].1.seq, "{pair:?} are not in order");
    }
    for (call, point) in points {
        ensure_eq!((point.service, point.stream), (client.service_id(), client.stream()), "{call}");
        ensure!(point.seq > 0, "{call} has number 0");
        client.done(point)?.wait()?;
    }
    // An access in place has a stream of its own.
    let point = cx.factory().with_resource(&client, &a, Access::Read, &mut |_| {})?;
    ensure_eq!(point.service, client.service_id());
    client.done(point)?.wait()?;
    Ok(())
}

fn a_point_is_done_when_its_work_is(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let before = held.record()?;
    let gate = cx.gate(&client)?;
    let blocked = gate.block(&held)?;
    let after = held.record()?;
    eventually("the point before the gate", || client.is_done(before))?;
    ensure!(!client.is_done(blocked)? && !client.is_done(after)?, "points behind the gate are done");
    gate.open()?;
    eventually("the point behind the gate", || client.is_done(after))?;
    ensure!(client.is_done(blocked)?, "a later point of the stream is done, an earlier one is not");
    Ok(())
}

fn a_point_is_not_done_before_its_work_can_be(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (slow, time) = super::syncing::slow(&client, Duration::from_millis(60))?;
    let (from, to) = (client.zeros(256)?, client.zeros(256)?);
    client.sync()?.wait()?;
    let start = Instant::now();
    let point = client.launch(&slow, cover(64)?, [&from, &to])?;
    client.flush()?;
    while !client.is_done(point)? {
        ensure!(start.elapsed() < SOON, "the work is not done");
        std::thread::sleep(Duration::from_millis(1));
    }
    ensure!(start.elapsed() >= time, "the point of {time:?} of work was done after {:?}", start.elapsed());
    Ok(())
}

fn a_point_can_be_awaited(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 6))?;
    let points = (0..5).map(|_| {
        let stream = on_new_stream(&client);
        stream.fill(&stream.empty(100)?, &[1])
    });
    for point in points.collect::<Result<Vec<_>, _>>()? {
        ready(client.done(point)?)??;
        ensure!(client.is_done(point)?, "{point} was awaited and is not done");
    }
    Ok(())
}

fn a_stream_that_waits_for_a_point_goes_on_after_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (held, waiting) = (on_new_stream(&client), on_new_stream(&client));
    let gate = cx.gate(&client)?;
    let point = gate.block(&held)?;
    waiting.wait(point)?;
    // Touches nothing the held stream touches: only the wait orders them.
    let after = waiting.fill(&waiting.empty(64)?, &[1])?;
    waiting.flush()?;
    on_new_stream(&client).sync()?.wait()?;
    ensure!(!client.is_done(after)?, "the stream went on before the point it waits for");
    gate.open()?;
    client.done(after)?.wait()?;
    ensure!(client.is_done(point)?, "the stream went on before the point it waited for was done");
    Ok(())
}

fn a_wait_does_not_block_its_caller_nor_other_streams(cx: &Context) -> Outcome {
    let (here, there) = (cx.client()?, cx.client()?);
    let held = on_new_stream(&there);
    let gate = cx.gate(&there)?;
    let point = gate.block(&held)?;
    let (waiting, free) = (on_new_stream(&here), on_new_stream(&here));
    let start = Instant::now();
    waiting.wait(point)?;
    let after = waiting.record()?;
    ensure!(start.elapsed() < AT_ONCE, "the wait blocked its caller for {:?}", start.elapsed());
    let bytes = free.create_from_slice(&[2; 10])?;
    ensure_eq!(free.read_one(&bytes)?.as_slice()?, [2; 10]);
    ensure!(!here.is_done(after)?, "the stream did not wait");
    gate.open()?;
    here.done(after)?.wait()?;
    Ok(())
}

fn a_stream_waits_for_a_point_of_another_device(cx: &Context) -> Outcome {
    let (here, there) = (cx.client()?, cx.client()?);
    let held = on_new_stream(&there);
    let gate = cx.gate(&there)?;
    let point = gate.block(&held)?;
    let step = here.prepare(kernels::step())?;
    let bytes = here.create_from_slice(raw(&[1u32; 64]))?;
    here.wait(point)?;
    let launched = here.launch(&step, cover(64)?, [&bytes])?;
    here.flush()?;
    // Bytes the waiting stream is going to write are ordered after the point as well.
    let other = on_new_stream(&here);
    let reading = other.read_async(&[&bytes])?;
    ensure!(!here.is_done(launched)?, "the launch did not wait");
    gate.open()?;
    ensure_eq!(reading.wait()?[0].to_vec::<u32>()?, [2; 64]);
    ensure!(there.is_done(point)?, "the launch ran before the point was done");
    Ok(())
}

fn a_stream_stays_behind_a_point_of_another_device(cx: &Context) -> Outcome {
    let (here, there) = (cx.client()?, cx.client()?);
    let held = on_new_stream(&there);
    let gate = cx.gate(&there)?;
    let bytes = here.zeros(64)?;
    here.wait(gate.block(&held)?)?;
    let filled = here.fill(&bytes, &[1])?;
    // Time enough to go wrong.
    ensure_err!(here.done(filled)?.wait_for(Duration::from_millis(50)), Error::Timeout { .. });
    gate.open()?;
    here.done(filled)?.wait_for(SOON)?;
    ensure_eq!(here.read_one(&bytes)?.as_slice()?, [1; 64]);
    Ok(())
}

fn two_devices_that_wait_for_each_other_in_turn_get_on(cx: &Context) -> Outcome {
    let (a, b) = (
        cx.open(&Variant::late(Duration::from_micros(500), 8))?,
        cx.open(&Variant::late(Duration::from_micros(500), 9))?,
    );
    let (step_a, step_b) = (a.prepare(kernels::step())?, b.prepare(kernels::step())?);
    let (x, y) = (a.create_from_slice(raw(&[0u32; 64]))?, b.create_from_slice(raw(&[0u32; 64]))?);
    let mut point = a.record()?;
    for _ in 0..20 {
        b.wait(point)?;
        point = b.launch(&step_b, cover(64)?, [&y])?;
        a.wait(point)?;
        point = a.launch(&step_a, cover(64)?, [&x])?;
    }
    b.done(point)?.wait_for(SOON)?;
    ensure_eq!(a.read_one(&x)?.to_vec::<u32>()?, [20; 64]);
    ensure_eq!(b.read_one(&y)?.to_vec::<u32>()?, [20; 64]);
    Ok(())
}

fn a_point_of_another_device_can_be_polled_and_awaited_here(cx: &Context) -> Outcome {
    let (here, there) = (cx.client()?, cx.client()?);
    let held = on_new_stream(&there);
    let gate = cx.gate(&there)?;
    let point = gate.block(&held)?;
    ensure!(!here.is_done(point)?, "the point of another device is done early");
    ensure_err!(here.done(point)?.wait_for(Duration::from_millis(20)), Error::Timeout { .. });
    gate.open()?;
    ready(here.done(point)?)??;
    ensure!(here.is_done(point)?, "it was awaited and is not done");
    Ok(())
}

fn a_point_of_a_device_that_is_gone_is_named(cx: &Context) -> Outcome {
    let (here, there) = (cx.client()?, cx.client()?);
    let point = there.record()?;
    let owner = there.service_id();
    there.shutdown(SOON);
    drop(there);
    ensure_eq!(ensure_err!(here.wait(point), Error::ForeignPoint { .. }), Error::ForeignPoint { owner });
    ensure_eq!(ensure_err!(here.is_done(point), Error::ForeignPoint { .. }), Error::ForeignPoint { owner });
    ensure_eq!(ensure_err!(here.done(point), Error::ForeignPoint { .. }), Error::ForeignPoint { owner });
    here.sync()?.wait()?;
    Ok(())
}

fn waiting_for_what_is_done_costs_nothing(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let other = on_new_stream(&client);
    let point = client.record()?;
    client.sync()?.wait()?;
    for _ in 0..100 {
        other.wait(point)?;
        // A stream that waits for itself is ordered already.
        other.wait(other.record()?)?;
    }
    other.sync()?.wait()?;
    Ok(())
}
