//! C15: the device to oneself.

use crate::check::{Failure, Outcome, raw};
use crate::context::{AT_ONCE, Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use std::time::Instant;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::id::StreamId;

tests! {
    C15 the_task_runs_on_the_callers_thread_and_stream_and_its_calls_pass;
    C15 calls_of_other_threads_wait_until_it_ends;
    C15 what_others_have_queued_before_takes_effect_before;
    C15 long_work_that_others_have_queued_before_takes_effect_before;
    C15 a_nested_reservation_of_the_same_device_passes;
    C15 reservations_of_two_devices_nest;
    C15 not_taken_in_time_is_busy_and_nothing_ran;
    C15 inline_a_device_somebody_has_is_busy_at_once;
    C15 a_panic_inside_comes_back_as_an_error_and_the_device_goes_on;
    C15 a_panic_with_a_value_that_panics_when_it_is_dropped_ends_there_too;
    C15 a_retry_after_busy_succeeds;
    C15 a_wait_inside_it_ends;
    C15 threads_that_take_turns_never_meet;
}

fn the_task_runs_on_the_callers_thread_and_stream_and_its_calls_pass(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let (thread, stream) = (std::thread::current().id(), StreamId::current());
    let inside = client.exclusive(|| {
        let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
        client.launch(&step, cover(64)?, [&bytes])?;
        let read = client.read_one(&bytes)?.to_vec::<u32>()?;
        client.memory_usage()?;
        Ok::<_, Error>((std::thread::current().id(), client.record()?.stream, read))
    })??;
    ensure_eq!(inside, (thread, stream, vec![2u32; 64]));
    Ok(())
}

fn calls_of_other_threads_wait_until_it_ends(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let ended = AtomicBool::new(false);
    let (calling, called) = mpsc::channel();
    std::thread::scope(|scope| -> Outcome {
        let thread = client.exclusive(|| {
            let thread = scope.spawn(|| -> Outcome<bool> {
                calling.send(()).ok();
                client.memory_usage()?;
                Ok(ended.load(Ordering::SeqCst))
            });
            called.recv_timeout(Duration::from_secs(5)).ok();
            // Long enough for a call that does not wait to show; one that does wait passes however short it is.
            std::thread::sleep(Duration::from_millis(20));
            ended.store(true, Ordering::SeqCst);
            thread
        })?;
        let late = thread.join().map_err(|_| Failure::new("the thread panicked"))??;
        ensure!(late, "a call of another thread passed while the device was reserved");
        Ok(())
    })
}

fn what_others_have_queued_before_takes_effect_before(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 9))?;
    let other = on_new_stream(&client);
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    for _ in 0..50 {
        other.launch(&step, cover(64)?, [&bytes])?;
    }
    let seen = client.exclusive(|| client.read_one(&bytes))??;
    ensure_eq!(seen.to_vec::<u32>()?, [50; 64]);
    Ok(())
}

fn long_work_that_others_have_queued_before_takes_effect_before(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let other = on_new_stream(&client);
    let slow = client.prepare(kernels::slow(Duration::from_millis(50)))?;
    let (from, to) = (client.create_from_slice(raw(&[5u32; 64]))?, client.zeros(256)?);
    client.sync()?.wait()?;
    other.launch(&slow, cover(64)?, [&from, &to])?;
    let seen = client.exclusive(|| client.read_one(&to))??;
    ensure_eq!(seen.to_vec::<u32>()?, [5; 64]);
    Ok(())
}

fn a_nested_reservation_of_the_same_device_passes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let depth =
        client.exclusive(|| client.clone().exclusive(|| client.exclusive_timeout(Duration::ZERO, || 3)))???;
    ensure_eq!(depth, 3);
    // It was given back as often as it was taken.
    let (other, bytes) = (client.clone(), client.create_from_slice(&[1])?);
    let read = std::thread::spawn(move || other.exclusive(|| other.read_one(&bytes))).join();
    ensure_eq!(read.map_err(|_| Failure::new("the thread panicked"))???.as_slice()?, [1]);
    Ok(())
}

fn reservations_of_two_devices_nest(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let moved = a.exclusive(|| b.exclusive(|| a.to_client(&a.create_from_slice(&[6; 40])?, &b)))???;
    ensure_eq!(b.read_one(&moved)?.as_slice()?, [6; 40]);
    Ok(())
}

fn not_taken_in_time_is_busy_and_nothing_ran(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let ran = AtomicBool::new(false);
    let (limit, start) = (Duration::from_millis(100), Instant::now());
    let other = client.exclusive(|| {
        std::thread::scope(|scope| {
            scope
                .spawn(|| client.exclusive_timeout(limit, || ran.store(true, Ordering::SeqCst)))
                .join()
                .map_err(|_| Failure::new("panicked"))
        })
    })??;
    let error = ensure_err!(other, Error::Busy { .. });
    ensure!(error.is_busy() && !error.is_refusal(), "{error:?}");
    ensure!(!ran.load(Ordering::SeqCst), "the task ran");
    ensure!(start.elapsed() >= limit, "Busy after {:?}, before the timeout of {limit:?}", start.elapsed());
    ensure!(start.elapsed() < AT_ONCE, "Busy only after {:?}", start.elapsed());
    client.read_one(&client.create_from_slice(&[1])?)?;
    Ok(())
}

fn inline_a_device_somebody_has_is_busy_at_once(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.executor.execution = Execution::Inline;
    settings.wait_timeout = Duration::ZERO;
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let start = Instant::now();
    let other = client.exclusive(|| {
        std::thread::scope(|scope| scope.spawn(|| client.exclusive(|| ())).join().map_err(|_| Failure::new("panicked")))
    })??;
    ensure_err!(other, Error::Busy { .. });
    ensure!(start.elapsed() < AT_ONCE, "Busy only after {:?}", start.elapsed());
    Ok(())
}

fn a_panic_inside_comes_back_as_an_error_and_the_device_goes_on(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1, 2])?;
    let error = ensure_err!(
        client.exclusive(|| -> u8 {
            client.fill(&bytes, &[8]).ok();
            panic!("on purpose, in an exclusive task")
        }),
        Error::Panicked { .. }
    );
    ensure!(error.to_string().contains("on purpose, in an exclusive task"), "the message is lost: {error}");
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [8, 8]);
    let other = client.clone();
    let read = std::thread::spawn(move || other.read_one(&bytes)).join();
    ensure_eq!(read.map_err(|_| Failure::new("the thread panicked"))??.as_slice()?, [8, 8]);
    Ok(())
}

/// A panic's value that panics once more when it is let go.
struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("on purpose, in a drop");
    }
}

fn a_panic_with_a_value_that_panics_when_it_is_dropped_ends_there_too(cx: &Context) -> Outcome {
    let client = cx.client()?;
    // Caught here where the device does not.
    let answer = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        client.exclusive(|| -> u8 { std::panic::panic_any(PanicsAgain) })
    }));
    match answer {
        Ok(answer) => drop(ensure_err!(answer, Error::Panicked { .. })),
        Err(_) => return Err(Failure::new("the second panic came out of the call")),
    }
    ensure_eq!(client.read_one(&client.create_from_slice(&[4; 8])?)?.as_slice()?, [4; 8]);
    Ok(())
}

fn a_retry_after_busy_succeeds(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (take, taken) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let other = client.clone();
    let holder = std::thread::spawn(move || {
        other.exclusive(|| {
            take.send(()).ok();
            released.recv_timeout(Duration::from_secs(10)).ok();
        })
    });
    taken.recv_timeout(Duration::from_secs(5)).map_err(|_| Failure::new("the device was not taken"))?;
    ensure_err!(client.exclusive_timeout(Duration::from_millis(20), || ()), Error::Busy { .. });
    release.send(()).ok();
    ensure_eq!(client.exclusive(|| 5)?, 5);
    holder.join().map_err(|_| Failure::new("the holder panicked"))??;
    Ok(())
}

fn a_wait_inside_it_ends(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(5), 2))?;
    let bytes = client.create_from_slice(&[3; 128])?;
    let seen = client.exclusive(|| {
        client.sync()?.wait()?;
        client.sync_buffers(&[&bytes])?;
        let lazy = client.read_lazy(&bytes)?;
        lazy.to_vec::<u8>()
    })??;
    ensure_eq!(seen, [3; 128]);
    Ok(())
}

fn threads_that_take_turns_never_meet(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (inside, met) = (AtomicU32::new(0), AtomicBool::new(false));
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = || -> Outcome {
            for _ in 0..50 {
                client.exclusive(|| {
                    if inside.fetch_add(1, Ordering::SeqCst) != 0 {
                        met.store(true, Ordering::SeqCst);
                    }
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                })?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(outcomes.len(), 4);
    outcomes.into_iter().collect::<Outcome>()?;
    ensure!(!met.load(Ordering::SeqCst), "two tasks had the device at the same time");
    Ok(())
}
