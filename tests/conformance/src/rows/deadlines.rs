//! C18: every blocking call ends, and what it waited for goes on.

use crate::check::{Failure, Outcome};
use crate::context::{AT_ONCE, Context, Gate, SOON, eventually, on_new_stream};
use crate::factory::Variant;
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use std::sync::mpsc;
use std::time::Instant;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::timeline::Point;

tests! {
    C18 a_wait_that_times_out_names_the_time_and_the_point;
    C18 a_device_that_another_thread_has_keeps_nobody_beyond_the_timeout;
    C18 what_was_waited_for_stays_alive;
    C18 the_wait_timeout_of_the_settings_ends_every_call_without_one;
    C18 progress_starts_the_timeout_again;
    C18 work_of_others_that_comes_later_keeps_nobody_waiting;
    C18 progress_elsewhere_ends_with_the_work;
    C18 the_usual_timeout_is_thirty_seconds;
    C18 an_inline_device_keeps_deadlines_as_well;
    C18 a_timeout_of_nothing_answers_at_once;
    C18 access_in_place_that_is_not_granted_times_out;
}

const SHORT: Duration = Duration::from_millis(100);

fn timed_out(call: &str, at_least: Duration, run: impl FnOnce() -> Result<()>) -> Outcome<Option<Point>> {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    let Err(Error::Timeout { waited, point }) = result else {
        return Err(Failure::new(format_args!("{call} answered {result:?}, expected Timeout")));
    };
    ensure!(waited >= at_least, "{call} says it waited {waited:?} of {at_least:?}");
    ensure!(took >= at_least && took < at_least + AT_ONCE, "{call} took {took:?} with a timeout of {at_least:?}");
    Ok(point)
}

fn held(cx: &Context) -> Outcome<(Client, Client, Gate)> {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    Ok((client, held, gate))
}

fn a_wait_that_times_out_names_the_time_and_the_point(cx: &Context) -> Outcome {
    let (client, held, gate) = held(cx)?;
    let bytes = held.create_from_slice(&[1; 8])?;
    let done = held.sync()?;
    let point = done.point();
    ensure_eq!(timed_out("sync", SHORT, || done.wait_for(SHORT))?, Some(point));
    let point = held.record()?;
    ensure_eq!(timed_out("done", SHORT, || client.done(point)?.wait_for(SHORT))?, Some(point));
    let reading = held.read_async(&[&bytes])?;
    let point = reading.point();
    ensure_eq!(timed_out("read_async", SHORT, || reading.wait_for(SHORT).map(drop))?, Some(point));
    let point = timed_out("sync_timeout", SHORT, || held.sync_timeout(SHORT))?;
    ensure_eq!(point.map(|point| point.stream), Some(held.stream()));
    let point = timed_out("read_timeout", SHORT, || held.read_timeout(&[&bytes], SHORT).map(drop))?;
    ensure_eq!(point.map(|point| point.stream), Some(held.stream()));
    let error = ensure_err!(held.sync_timeout(SHORT), Error::Timeout { .. });
    ensure!(error.is_timeout() && !error.is_refusal() && !error.is_device_lost(), "{error:?}");
    gate.open()?;
    Ok(())
}

fn a_device_that_another_thread_has_keeps_nobody_beyond_the_timeout(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.wait_timeout = SHORT * 3;
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let bytes = client.create_from_slice(&[6; 32])?;
    let late = client.exclusive_timeout(SOON, || {
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let measured = |call: &dyn Fn() -> Result<()>| {
                    let start = Instant::now();
                    (call(), start.elapsed())
                };
                [
                    (SHORT, measured(&|| client.sync_timeout(SHORT))),
                    (SHORT, measured(&|| client.read_timeout(&[&bytes], SHORT).map(drop))),
                    (SHORT * 3, measured(&|| client.record().map(drop))),
                    (SHORT * 3, measured(&|| client.fill(&bytes, &[1]).map(drop))),
                    (SHORT * 3, measured(&|| client.flush())),
                ]
            });
            others.join().map_err(|_| Failure::new("the other thread panicked"))
        })
    })??;
    for (limit, (answer, took)) in late {
        ensure_err!(answer, Error::Busy { .. });
        ensure!(took >= limit && took < limit + AT_ONCE, "a call within {limit:?} took {took:?}");
    }
    ensure_eq!(client.read_timeout(&[&bytes], SOON)?[0].as_slice()?, [6; 32]);
    Ok(())
}

fn what_was_waited_for_stays_alive(cx: &Context) -> Outcome {
    let (client, held, gate) = held(cx)?;
    let bytes = held.create_from_slice(&[6; 32])?;
    let point = held.record()?;
    timed_out("read_timeout", SHORT, || held.read_timeout(&[&bytes], SHORT).map(drop))?;
    timed_out("done", SHORT, || client.done(point)?.wait_for(SHORT))?;
    ensure!(!client.is_done(point)?, "the work was not held back");
    gate.open()?;
    client.done(point)?.wait()?;
    ensure_eq!(held.read_one(&bytes)?.as_slice()?, [6; 32]);
    Ok(())
}

fn the_wait_timeout_of_the_settings_ends_every_call_without_one(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.wait_timeout = SHORT;
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let bytes = held.create_from_slice(&[6; 32])?;
    timed_out("sync", SHORT, || held.sync()?.wait())?;
    timed_out("read", SHORT, || held.read(&[&bytes]).map(drop))?;
    timed_out("read_one", SHORT, || held.read_one(&bytes).map(drop))?;
    timed_out("sync_buffers", SHORT, || held.sync_buffers(&[&bytes]))?;
    timed_out("read_lazy", SHORT, || held.read_lazy(&bytes)?.as_slice().map(drop))?;
    timed_out("read_into", SHORT, || held.read_into(&bytes, &mut [0; 32]))?;
    gate.open()?;
    ensure_eq!(held.read_timeout(&[&bytes], SOON)?[0].as_slice()?, [6; 32]);
    Ok(())
}

fn progress_starts_the_timeout_again(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let mut gates = Vec::new();
    for _ in 0..7 {
        let held = on_new_stream(&client);
        let gate = cx.gate(&client)?;
        gate.block(&held)?;
        gates.push((gate, held));
    }
    // The stream of the last gate; what was accepted before it is finished bit by bit.
    let Some((_, last)) = gates.last() else { return Ok(()) };
    let point = last.record()?;
    // Each step is far shorter than the limit, or a machine that keeps the opener from running decides; all of them are longer.
    let limit = Duration::from_secs(3);
    let opener = std::thread::spawn(move || -> Outcome {
        for (gate, _) in gates {
            std::thread::sleep(limit / 6);
            gate.open()?;
        }
        Ok(())
    });
    let start = Instant::now();
    let waited = client.done(point)?.wait_for(limit);
    let took = start.elapsed();
    opener.join().map_err(|_| Failure::new("the opener panicked"))??;
    waited?;
    ensure!(took > limit, "the work was not held back: {took:?}");
    Ok(())
}

fn work_of_others_that_comes_later_keeps_nobody_waiting(cx: &Context) -> Outcome {
    let (client, held, gate) = held(cx)?;
    let point = held.record()?;
    let (stop, stopped) = mpsc::channel::<()>();
    let other = on_new_stream(&client);
    let busy = std::thread::spawn(move || -> Result<()> {
        let bytes = other.empty(64)?;
        while stopped.recv_timeout(Duration::from_millis(5)).is_err() {
            other.fill(&bytes, &[1])?;
            other.sync()?.wait()?;
        }
        Ok(())
    });
    let outcome = timed_out("done", SHORT, || client.done(point)?.wait_for(SHORT));
    stop.send(()).ok();
    busy.join().map_err(|_| Failure::new("the busy thread panicked"))??;
    ensure_eq!(outcome?, Some(point));
    gate.open()?;
    Ok(())
}

fn progress_elsewhere_ends_with_the_work(cx: &Context) -> Outcome {
    let (client, held, gate) = held(cx)?;
    let other = on_new_stream(&client);
    for _ in 0..5 {
        other.fill(&other.empty(64)?, &[1])?;
    }
    other.sync()?.wait()?;
    // Nothing moves any more.
    timed_out("sync_timeout", SHORT, || held.sync_timeout(SHORT))?;
    gate.open()?;
    Ok(())
}

fn the_usual_timeout_is_thirty_seconds(_: &Context) -> Outcome {
    let settings = trunnion_runtime_core::service::Settings::default();
    ensure_eq!(settings.wait_timeout, Duration::from_secs(30));
    Ok(())
}

fn an_inline_device_keeps_deadlines_as_well(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.executor.execution = Execution::Inline;
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let bytes = held.create_from_slice(&[2; 16])?;
    timed_out("sync_timeout", SHORT, || held.sync_timeout(SHORT))?;
    timed_out("read_timeout", SHORT, || held.read_timeout(&[&bytes], SHORT).map(drop))?;
    gate.open()?;
    ensure_eq!(held.read_one(&bytes)?.as_slice()?, [2; 16]);
    Ok(())
}

fn a_timeout_of_nothing_answers_at_once(cx: &Context) -> Outcome {
    let (client, held, gate) = held(cx)?;
    let point = held.record()?;
    timed_out("done", Duration::ZERO, || client.done(point)?.wait_for(Duration::ZERO))?;
    // What is done is done, however little time there is.
    let free = on_new_stream(&client);
    let point = free.record()?;
    free.sync()?.wait()?;
    // It may be another thread's for a moment, which a busy machine makes longer than the device is waited for, now and then.
    eventually("it is found done", || match client.done(point)?.wait_for(Duration::ZERO) {
        Err(error) if error.is_timeout() => Ok(false),
        answer => answer.map(|()| true),
    })?;
    gate.open()?;
    Ok(())
}

fn access_in_place_that_is_not_granted_times_out(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.wait_timeout = SHORT;
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let gate = cx.gate(&client)?;
    timed_out("get_resource", SHORT, || cx.factory().get_resource(&client, gate.handle()).map(drop))?;
    let handle = gate.handle().clone();
    gate.open()?;
    eventually("it is granted", || match cx.factory().get_resource(&client, &handle) {
        Err(error) if error.is_timeout() => Ok(false),
        answer => answer.map(|_| true),
    })?;
    ensure_eq!(client.read_timeout(&[&handle], SOON)?[0].len(), 64);
    Ok(())
}
