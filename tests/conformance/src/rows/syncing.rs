//! C11 to C14: handing work over, waiting for it, and asking what failed.

use crate::check::{Outcome, raw};
use crate::context::{AT_ONCE, Context, eventually, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::task::{Context as PollContext, Waker};
use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::KernelHandle;

tests! {
    C11 a_flush_does_not_wait_for_the_work;
    C11 flushed_work_ends_although_nobody_waits_for_it;
    C11 a_flush_reports_no_failure_of_a_launch;
    C11 a_flush_reports_a_fault_of_the_device;
    C12 after_a_sync_the_streams_work_is_done;
    C12 a_sync_takes_as_long_as_the_work;
    C12 a_sync_can_be_awaited;
    C12 a_sync_waits_for_its_own_stream_only;
    C12 a_sync_reports_no_failure_of_a_launch;
    C12 a_sync_reports_a_fault_of_the_device;
    C12 a_sync_that_is_dropped_disturbs_nobody;
    C12 what_is_dropped_by_whoever_is_woken_is_freed_by_the_next_call;
    C13 sync_buffers_waits_and_names_what_failed;
    C13 sync_buffers_says_nothing_of_other_buffers;
    C14 a_check_names_a_failure_known_at_enqueue;
    C14 a_check_waits_for_nothing_on_the_device;
    C14 a_check_looks_at_the_bytes_of_the_handle_alone;
}

/// A device on which the kernel [`kernels::broken`] does not compile, and a buffer of 64 elements that it failed to write.
pub(super) fn marked(cx: &Context) -> Outcome<(Client, Handle)> {
    let client = cx.open(&Variant::broken())?;
    let broken = client.prepare(kernels::broken())?;
    let (input, output) = (client.zeros(256)?, client.zeros(256)?);
    client.launch(&broken, cover(64)?, [&input, &output])?;
    Ok((client, output))
}

/// A kernel that is slow, and how long its work takes at least: the time it was made for where functions run, else as it is measured.
pub(super) fn slow(client: &Client, time: Duration) -> Outcome<(KernelHandle, Duration)> {
    let slow = client.prepare(kernels::slow(time))?;
    if slow.source().form() == SourceForm::Host {
        return Ok((slow, time));
    }
    let (from, to) = (client.zeros(256)?, client.zeros(256)?);
    let mut quickest = Duration::MAX;
    for _ in 0..4 {
        let start = Instant::now();
        client.launch(&slow, cover(64)?, [&from, &to])?;
        client.read_one(&to)?;
        quickest = quickest.min(start.elapsed());
    }
    // With room for a machine that has less to do by then; what does not wait for the work is through in far less.
    Ok((slow, quickest / 20))
}

/// Lets go of what it holds when it is woken, as a program's own callback would.
struct DropsWhenWoken(Mutex<Option<Handle>>);

impl Wake for DropsWhenWoken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn what_is_dropped_by_whoever_is_woken_is_freed_by_the_next_call(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(5), 6))?;
    let before = client.memory_usage()?.live;
    for _ in 0..20 {
        let held = on_new_stream(&client);
        let bytes = held.zeros(10_000)?;
        held.fill(&bytes, &[3])?;
        let mut done = core::pin::pin!(held.sync()?);
        let callback = Arc::new(DropsWhenWoken(Mutex::new(Some(bytes))));
        let waker = Waker::from(callback.clone());
        // Asked once: whether it is woken is up to the device.
        if done.as_mut().poll(&mut PollContext::from_waker(&waker)).is_ready() {
            waker.wake_by_ref();
        }
        eventually("the callback is called", || {
            Ok(callback.0.lock().unwrap_or_else(PoisonError::into_inner).is_none())
        })?;
        ensure_eq!(client.memory_usage()?.live, before, "what the callback let go is still counted");
    }
    Ok(())
}

fn a_flush_does_not_wait_for_the_work(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    let point = gate.block(&held)?;
    let bytes = held.create_from_slice(&[4; 64])?;
    let start = Instant::now();
    held.flush()?;
    client.flush()?;
    ensure!(start.elapsed() < AT_ONCE, "two flushes took {:?}", start.elapsed());
    ensure!(!client.is_done(point)?, "the work was not held back");
    gate.open()?;
    ensure_eq!(held.read_one(&bytes)?.as_slice()?, [4; 64]);
    Ok(())
}

fn flushed_work_ends_although_nobody_waits_for_it(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 5))?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    let mut last = client.record()?;
    for _ in 0..100 {
        last = client.launch(&step, cover(64)?, [&bytes])?;
    }
    client.flush()?;
    eventually("flushed work is done", || client.is_done(last))?;
    // Without a flush as well: the device begins at once, and goes on when it has finished something.
    for _ in 0..100 {
        last = client.launch(&step, cover(64)?, [&bytes])?;
    }
    eventually("work that was not flushed is done", || client.is_done(last))?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [200; 64]);
    Ok(())
}

fn a_flush_reports_no_failure_of_a_launch(cx: &Context) -> Outcome {
    let (client, output) = marked(cx)?;
    client.flush()?;
    ensure_err!(client.read_one(&output), Error::Compile { .. });
    client.flush()?;
    Ok(())
}

fn lost(cx: &Context) -> Outcome<Client> {
    let client = cx.open(&Variant::lost_after(1))?;
    for _ in 0..3 {
        // Which of these is the one that is refused is the device's affair.
        let bytes = client.zeros(64);
        client.flush().ok();
        drop(bytes);
    }
    Ok(client)
}

fn a_flush_reports_a_fault_of_the_device(cx: &Context) -> Outcome {
    let client = lost(cx)?;
    let error = ensure_err!(client.flush(), Error::DeviceLost { .. });
    ensure!(error.is_device_lost(), "{error:?}");
    Ok(())
}

fn after_a_sync_the_streams_work_is_done(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(3), 7))?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    let points = (0..20).map(|_| client.launch(&step, cover(64)?, [&bytes])).collect::<Result<Vec<_>, _>>()?;
    client.sync()?.wait()?;
    for point in points {
        ensure!(client.is_done(point)?, "{point} is not done after a sync");
    }
    client.sync_timeout(Duration::from_secs(5))?;
    Ok(())
}

fn a_sync_takes_as_long_as_the_work(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (slow, time) = slow(&client, Duration::from_millis(60))?;
    let (from, to) = (client.zeros(256)?, client.zeros(256)?);
    client.sync()?.wait()?;
    for awaited in [false, true] {
        let start = Instant::now();
        client.launch(&slow, cover(64)?, [&from, &to])?;
        let done = client.sync()?;
        match awaited {
            true => ready(done)??,
            false => done.wait()?,
        }
        ensure!(start.elapsed() >= time, "a sync of {time:?} of work was over after {:?}", start.elapsed());
    }
    Ok(())
}

fn a_sync_can_be_awaited(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(3), 7))?;
    let point = client.fill(&client.empty(1024)?, &[1])?;
    ready(async { client.sync()?.await })??;
    ensure!(client.is_done(point)?, "the work before an awaited sync is not done");
    Ok(())
}

fn a_sync_waits_for_its_own_stream_only(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (held, free) = (on_new_stream(&client), on_new_stream(&client));
    let gate = cx.gate(&client)?;
    let point = gate.block(&held)?;
    free.fill(&free.empty(64)?, &[1])?;
    free.sync()?.wait()?;
    ensure!(!client.is_done(point)?, "the held stream went on");
    gate.open()?;
    held.sync()?.wait()?;
    Ok(())
}

fn a_sync_reports_no_failure_of_a_launch(cx: &Context) -> Outcome {
    let (client, output) = marked(cx)?;
    client.sync()?.wait()?;
    ready(client.sync()?)??;
    ensure_err!(client.check(&[&output]), Error::Compile { .. });
    Ok(())
}

fn a_sync_reports_a_fault_of_the_device(cx: &Context) -> Outcome {
    let client = lost(cx)?;
    ensure_err!(client.sync().and_then(|done| done.wait()), Error::DeviceLost { .. });
    Ok(())
}

fn a_sync_that_is_dropped_disturbs_nobody(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let (first, second) = (held.sync()?, held.sync()?);
    drop(first);
    gate.open()?;
    ready(second)??;
    Ok(())
}

fn sync_buffers_waits_and_names_what_failed(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { delay: Some(Duration::from_millis(3)), ..Variant::broken() })?;
    let broken = client.prepare(kernels::broken())?;
    let (input, output) = (client.zeros(256)?, client.zeros(256)?);
    let point = client.fill(&input, &[1])?;
    client.launch(&broken, cover(64)?, [&input, &output])?;
    let error = ensure_err!(client.sync_buffers(&[&input, &output]), Error::Compile { .. });
    ensure!(error.to_string().contains(kernels::BROKEN), "the kernel is not named: {error}");
    ensure!(client.is_done(point)?, "work before sync_buffers is not done");
    Ok(())
}

fn sync_buffers_says_nothing_of_other_buffers(cx: &Context) -> Outcome {
    let (client, output) = marked(cx)?;
    let healthy = client.create_from_slice(&[1; 8])?;
    client.sync_buffers(&[&healthy])?;
    client.sync_buffers(&[])?;
    ensure_err!(client.sync_buffers(&[&healthy, &output]), Error::Compile { .. });
    Ok(())
}

fn a_check_names_a_failure_known_at_enqueue(cx: &Context) -> Outcome {
    let (client, output) = marked(cx)?;
    ensure_err!(client.check(&[&output]), Error::Compile { .. });
    client.check(&[])?;
    client.fill(&output, &[0])?;
    client.check(&[&output])?;
    Ok(())
}

fn a_check_waits_for_nothing_on_the_device(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    let point = gate.block(&held)?;
    let bytes = held.create_from_slice(&[1; 64])?;
    let start = Instant::now();
    held.check(&[&bytes, gate.handle()])?;
    ensure!(start.elapsed() < AT_ONCE, "a check took {:?}", start.elapsed());
    ensure!(!client.is_done(point)?, "the held stream went on");
    gate.open()?;
    Ok(())
}

fn a_check_looks_at_the_bytes_of_the_handle_alone(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let broken = client.prepare(kernels::broken())?;
    let (input, memory) = (client.zeros(256)?, client.zeros(1024)?);
    client.launch(&broken, cover(64)?, [&input, &memory.slice(256..512)?])?;
    client.check(&[&memory.slice(..256)?, &memory.slice(512..)?])?;
    for range in [0..1024, 255..257, 256..260, 508..512, 511..513] {
        ensure_err!(client.check(&[&memory.slice(range)?]), Error::Compile { .. });
    }
    Ok(())
}
