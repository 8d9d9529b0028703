//! M13: memory and events of somebody else, used by the device, and the device's, used by somebody else.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{Context, SOON, eventually, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::outside::{Outside, Owner, PAGE, when_dropped};
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::foreign::{Event, ForeignMemory};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::report::{PoolKind, PoolReport, ReportScope};

tests! {
    M13 imported_memory_is_used_where_it_is;
    M13 kernels_run_on_imported_memory_beside_the_devices_own;
    M13 what_is_copied_into_imported_memory_is_there_for_its_owner;
    M13 work_on_imported_memory_is_ordered_and_fails_like_any_other;
    M13 imported_memory_is_let_go_of_once_and_only_when_its_work_is_done;
    M13 imported_memory_is_let_go_of_although_nobody_calls_the_device;
    M13 its_owner_may_use_the_device_when_it_is_let_go_of;
    M13 an_owner_that_panics_disturbs_nobody;
    M13 the_same_memory_can_be_imported_again;
    M13 memory_of_another_type_is_named_and_let_go_of;
    M13 memory_that_begins_anywhere_is_refused_and_let_go_of;
    M13 no_bytes_are_let_go_of_at_once;
    M13 imported_memory_has_a_line_of_its_own_in_the_report;
    M13 imported_memory_counts_for_no_budget_and_no_limit;
    M13 a_resource_of_imported_memory_keeps_it;
    M13 a_device_that_ends_lets_go_of_imported_memory;
    M13 exported_memory_can_be_written_and_stays;
    M13 an_export_waits_for_readers_too;
    M13 a_stream_waits_for_an_event_of_somebody_else;
    M13 an_event_that_was_dropped_keeps_nobody_waiting;
    M13 an_event_that_never_happens_holds_up_nothing_else;
    M13 an_exported_event_happens_when_the_point_is_done;
    M13 an_event_goes_from_one_device_to_another;
    M13 import_works_with_the_device_reserved;
    M13 a_dry_run_takes_imported_memory_and_touches_none;
}

/// Memory of a type that no backend takes.
struct NobodysMemory(Arc<AtomicU32>);

impl ForeignMemory for NobodysMemory {
    fn size(&self) -> u64 {
        64
    }
}

impl Drop for NobodysMemory {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The first `size` bytes of some memory, and how often they were let go of.
fn import(cx: &Context, client: &Client, memory: &Outside, size: usize) -> Outcome<(Handle, Arc<AtomicU32>)> {
    let drops = Arc::new(AtomicU32::new(0));
    let owner = counted(&drops);
    Ok((cx.factory().import(client, memory, 0..size, owner)?, drops))
}

fn counted(drops: &Arc<AtomicU32>) -> Owner {
    let drops = drops.clone();
    when_dropped(move || {
        drops.fetch_add(1, Ordering::Relaxed);
    })
}

fn let_go_of(client: &Client, drops: &AtomicU32) -> Outcome {
    eventually("the end of imported memory", || {
        client.sync()?.wait()?;
        Ok(drops.load(Ordering::Relaxed) > 0)
    })?;
    ensure_eq!(drops.load(Ordering::Relaxed), 1);
    Ok(())
}

fn imported_memory_is_used_where_it_is(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = Outside::new(2 * PAGE);
    let before = pattern(2 * PAGE, 1);
    memory.write(&before);
    let (handle, drops) = import(cx, &client, &memory, 2 * PAGE)?;
    ensure_eq!((handle.size_in_used(), handle.service()), (2 * PAGE as u64, client.service_id()));
    ensure_eq!(client.read_one(&handle)?.as_slice()?, before);
    let part = handle.slice(256..512)?;
    client.write_slice(&part, &pattern(256, 2))?;
    client.sync()?.wait()?;
    // The owner sees what the device wrote, and nothing else has changed.
    let mut now = before;
    now[256..512].copy_from_slice(&pattern(256, 2));
    ensure_eq!(memory.read(2 * PAGE), now);
    // And the device what the owner writes.
    let later = pattern(2 * PAGE, 3);
    memory.write(&later);
    ensure_eq!(client.read_one(&handle)?.as_slice()?, later);
    ensure_eq!(drops.load(Ordering::Relaxed), 0);
    drop((handle, part));
    let_go_of(&client, &drops)
}

fn kernels_run_on_imported_memory_beside_the_devices_own(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let add = client.prepare(kernels::add())?;
    let memory = Outside::new(PAGE);
    memory.write(raw(&[1.5f32; 256]));
    let (input, _drops) = import(cx, &client, &memory, 1024)?;
    let (own, output) = (client.create_from_slice(raw(&[2.0f32; 256]))?, Outside::new(PAGE));
    let (imported, drops) = import(cx, &client, &output, PAGE)?;
    let into = imported.slice(1024..2048)?;
    client.launch(&add, cover(256)?, [&input, &own, &into])?;
    client.sync_buffers(&[&into])?;
    ensure_eq!(&output.read(2048)[1024..], raw(&[3.5f32; 256]));
    ensure_eq!(output.read(1024), [0; 1024]);
    drop((into, imported));
    let_go_of(&client, &drops)
}

fn what_is_copied_into_imported_memory_is_there_for_its_owner(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = Outside::new(3 * PAGE);
    let (handle, _drops) = import(cx, &client, &memory, 3 * PAGE)?;
    let own = client.create_from_slice(&pattern(PAGE, 9))?;
    client.copy(&own, &handle.slice(4096..8192)?)?;
    client.fill(&handle.slice(8192..)?, &[1, 2, 3, 4])?;
    let back = client.empty(PAGE as u64)?;
    client.copy(&handle.slice(4096..8192)?, &back)?;
    ensure_eq!(client.read_one(&back)?.as_slice()?, pattern(PAGE, 9));
    client.sync()?.wait()?;
    let seen = memory.read(3 * PAGE);
    ensure_eq!(&seen[..PAGE], [0; PAGE]);
    ensure_eq!(&seen[PAGE..2 * PAGE], pattern(PAGE, 9));
    ensure!(seen[2 * PAGE..].chunks(4).all(|four| four == [1, 2, 3, 4]), "the fill is not there");
    Ok(())
}

fn work_on_imported_memory_is_ordered_and_fails_like_any_other(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { delay: Some(Duration::from_millis(1)), ..Variant::broken() })?;
    let (step, broken) = (client.prepare(kernels::step())?, client.prepare(kernels::broken())?);
    let memory = Outside::new(PAGE);
    let (handle, _drops) = import(cx, &client, &memory, 256)?;
    for _ in 0..20 {
        on_new_stream(&client).launch(&step, cover(64)?, [&handle])?;
    }
    ensure_eq!(client.read_one(&handle)?.to_vec::<u32>()?, [20; 64]);
    client.launch(&broken, cover(64)?, [&client.zeros(256)?, &handle])?;
    ensure_err!(client.read_one(&handle), Error::Compile { .. });
    client.fill(&handle, &[5])?;
    ensure_eq!(client.read_one(&handle)?.as_slice()?, [5; 256]);
    Ok(())
}

fn imported_memory_is_let_go_of_once_and_only_when_its_work_is_done(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(3), 7))?;
    let memory = Outside::new(PAGE);
    let (handle, drops) = import(cx, &client, &memory, PAGE)?;
    let gate = cx.gate(&client)?;
    let held = on_new_stream(&client);
    gate.block(&held)?;
    let written = held.fill(&handle, &[8])?;
    let read = held.read_async(&[&handle])?;
    drop(handle);
    client.flush()?;
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    ensure_eq!(drops.load(Ordering::Relaxed), 0, "work on it waits");
    gate.open()?;
    ensure_eq!(ready(read)??[0].as_slice()?, [8; PAGE]);
    ensure!(client.is_done(written)?, "what was read before is not done");
    let_go_of(&client, &drops)?;
    ensure_eq!(memory.read(PAGE), [8; PAGE]);
    Ok(())
}

fn imported_memory_is_let_go_of_although_nobody_calls_the_device(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { delay: Some(Duration::from_millis(2)), ..Variant::plain() })?;
    for is_idle in [true, false] {
        let (handle, drops) = import(cx, &client, &Outside::new(PAGE), PAGE)?;
        client.fill(&handle, &[1])?;
        if is_idle {
            client.sync()?.wait()?;
        }
        drop(handle);
        eventually("the end of imported memory", || Ok(drops.load(Ordering::Relaxed) > 0))?;
    }
    Ok(())
}

fn its_owner_may_use_the_device_when_it_is_let_go_of(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (memory, (tell, told)) = (Outside::new(PAGE), mpsc::channel());
    let theirs = client.clone();
    let owner = when_dropped(move || {
        // Whoever has the device while this runs would wait for itself.
        let answer = theirs.create_from_slice(&[1, 2, 3]).and_then(|bytes| theirs.read_one(&bytes));
        tell.send(answer.map(|bytes| bytes.len())).ok();
    });
    let handle = cx.factory().import(&client, &memory, 0..64, owner)?;
    client.fill(&handle, &[1])?;
    drop(handle);
    client.sync()?.wait()?;
    client.memory_usage()?;
    let answer = told.recv_timeout(SOON).map_err(|_| Failure::new("the memory was not let go of"))?;
    ensure_eq!(answer?, 3);
    Ok(())
}

fn an_owner_that_panics_disturbs_nobody(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = Outside::new(PAGE);
    let owner = when_dropped(|| panic!("on purpose, when memory is let go of"));
    drop(cx.factory().import(&client, &memory, 0..64, owner)?);
    client.sync()?.wait()?;
    client.memory_usage()?;
    ensure_eq!(client.read_one(&client.create_from_slice(&[4; 8])?)?.as_slice()?, [4; 8]);
    Ok(())
}

fn the_same_memory_can_be_imported_again(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = Outside::new(2 * PAGE);
    let mut all = Vec::new();
    for round in 0..20u8 {
        let (handle, drops) = import(cx, &client, &memory, PAGE * (1 + usize::from(round % 2)))?;
        client.fill(&handle, &[round])?;
        all.push(drops);
    }
    for drops in &all {
        let_go_of(&client, drops)?;
    }
    ensure_eq!(memory.read(2 * PAGE), [19; 2 * PAGE]);
    Ok(())
}

fn memory_of_another_type_is_named_and_let_go_of(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let drops = Arc::new(AtomicU32::new(0));
    let error = ensure_err!(client.import(NobodysMemory(drops.clone())), Error::ServiceMismatch { .. });
    ensure!(error.is_refusal() && error.to_string().contains("NobodysMemory"), "{error}");
    let_go_of(&client, &drops)
}

fn memory_that_begins_anywhere_is_refused_and_let_go_of(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (memory, drops) = (Outside::new(PAGE), Arc::new(AtomicU32::new(0)));
    let owner = counted(&drops);
    let error = ensure_err!(cx.factory().import(&client, &memory, 1..65, owner), Error::Misaligned { .. });
    ensure!(error.is_refusal(), "{error}");
    let_go_of(&client, &drops)?;
    ensure_eq!(imported(&client)?, None);
    Ok(())
}

fn no_bytes_are_let_go_of_at_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (handle, drops) = import(cx, &client, &Outside::new(PAGE), 0)?;
    ensure_eq!((handle.size_in_used(), drops.load(Ordering::Relaxed)), (0, 1));
    ensure_eq!(client.read_one(&handle)?.len(), 0);
    Ok(())
}

fn imported(client: &Client) -> Outcome<Option<PoolReport>> {
    let report = client.memory_report(ReportScope::Device)?;
    Ok(report.pools.into_iter().find(|pool| pool.kind == PoolKind::Imported))
}

fn imported_memory_has_a_line_of_its_own_in_the_report(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let own = client.create_from_slice(&[1; 3000])?;
    let before = client.memory_report(ReportScope::Device)?;
    ensure_eq!(imported(&client)?, None);
    let memory = Outside::new(4 * PAGE);
    let (a, _a) = import(cx, &client, &memory, PAGE)?;
    let (b, drops) = import(cx, &client, &Outside::new(PAGE), 100)?;
    let line = imported(&client)?.unwrap_or_default();
    ensure_eq!((line.allocations, line.live, line.reserved, line.pages), (2, PAGE as u64 + 100, PAGE as u64 + 100, 2));
    ensure_eq!((line.name.as_str(), line.free, line.padding), ("imported", 0, 0));
    let report = client.memory_report(ReportScope::Device)?;
    ensure_eq!(report.usage(), client.memory_usage()?);
    ensure_eq!((report.total().live, report.total().reserved), (before.total().live, before.total().reserved));
    ensure!(report.to_string().contains("imported"), "{report}");
    let of_stream = client.memory_report(ReportScope::Stream(client.stream()))?;
    ensure_eq!(of_stream.total().live, 3000);
    // No clean-up takes it.
    client.memory_cleanup()?;
    ensure_eq!(imported(&client)?.unwrap_or_default().live, PAGE as u64 + 100);
    drop(b);
    let_go_of(&client, &drops)?;
    let line = imported(&client)?.unwrap_or_default();
    ensure_eq!((line.allocations, line.live, line.pages, line.peak_live), (1, PAGE as u64, 1, PAGE as u64 + 100));
    drop((a, own));
    Ok(())
}

fn imported_memory_counts_for_no_budget_and_no_limit(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.open.memory_budget = Some(1 << 20);
    let mut client = cx.open_with(&Variant::plain(), &settings)?;
    client.set_memory_limit(Some(1 << 20))?;
    let memory = Outside::new(4 << 20);
    let (large, _drops) = import(cx, &client, &memory, 4 << 20)?;
    client.fill(&large, &[3])?;
    let own = client.create_from_slice(&pattern(600 << 10, 1))?;
    client.sync_buffers(&[&large, &own])?;
    ensure_eq!(memory.read(4 << 20).iter().filter(|byte| **byte == 3).count(), 4 << 20);
    // A request that needs the room is served by nobody's imported memory, also when that is free.
    drop(large);
    let more = client.empty(900 << 10);
    ensure!(more.is_err() || client.check(&[&more?]).is_err(), "more than the budget was reserved");
    Ok(())
}

fn a_resource_of_imported_memory_keeps_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (handle, drops) = import(cx, &client, &Outside::new(PAGE), PAGE)?;
    let resource = cx.factory().get_resource(&client, &handle)?;
    drop(handle);
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    ensure_eq!(drops.load(Ordering::Relaxed), 0);
    drop(resource);
    let_go_of(&client, &drops)
}

fn a_device_that_ends_lets_go_of_imported_memory(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (memory, own) = (Outside::new(PAGE), Outside::new(PAGE));
    let (handle, drops) = import(cx, &client, &memory, PAGE)?;
    let (kept, kept_drops) = import(cx, &client, &own, PAGE)?;
    client.fill(&handle, &[6])?;
    let resource = cx.factory().get_resource(&client, &kept)?;
    client.shutdown(SOON);
    ensure_eq!(drops.load(Ordering::Relaxed), 1);
    ensure_eq!(memory.read(PAGE), [6; PAGE]);
    // What was handed out may still be used, and keeps its memory.
    ensure_eq!(kept_drops.load(Ordering::Relaxed), 0);
    drop((resource, kept, handle));
    ensure_eq!((drops.load(Ordering::Relaxed), kept_drops.load(Ordering::Relaxed)), (1, 1));
    ensure_err!(import(cx, &client, &memory, PAGE), Failure::Failed(_));
    Ok(())
}

fn exported_memory_can_be_written_and_stays(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.memory_usage()?.live;
    let bytes = client.create_from_slice(&[1; 5000])?;
    let exported = cx.factory().export(&client, &bytes)?;
    client.fill(&bytes, &[2])?;
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [2; 5000]);
    drop(bytes);
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, before + 5000);
    drop(exported);
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, before);
    let error = ensure_err!(cx.factory().export(&client, &client.empty(0)?), Error::OutOfRange { .. });
    ensure!(error.is_refusal(), "{error}");
    Ok(())
}

fn an_export_waits_for_readers_too(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 64])?;
    let (done, told) = mpsc::channel();
    let mut early = None;
    cx.factory().with_resource(&client, &bytes, Access::Read, &mut |_| {
        let (cx, client, bytes, done) = (cx.clone(), client.clone(), bytes.clone(), done.clone());
        std::thread::spawn(move || done.send(cx.factory().export(&client, &bytes).map(|_| ())));
        early = told.recv_timeout(Duration::from_millis(50)).ok();
    })?;
    ensure!(early.is_none(), "an export overtook a reader");
    told.recv_timeout(SOON).map_err(|_| Failure::new("the export did not end"))??;
    Ok(())
}

fn a_stream_waits_for_an_event_of_somebody_else(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let memory = Outside::new(PAGE);
    let (handle, _drops) = import(cx, &client, &memory, 256)?;
    let (event, signal) = Event::new();
    let point = client.import_event(event)?;
    let waiting = on_new_stream(&client);
    waiting.wait(point)?;
    let launched = waiting.launch(&step, cover(64)?, [&handle])?;
    waiting.flush()?;
    on_new_stream(&client).sync()?.wait()?;
    ensure!(!client.is_done(launched)? && !client.is_done(point)?, "a launch overtook the event it waits for");
    memory.write(raw(&[41u32; 64]));
    signal.give();
    client.done(launched)?.wait()?;
    ensure!(client.is_done(point)?, "the point is not done after its event");
    ensure_eq!(memory.read(256), raw(&[42u32; 64]));
    Ok(())
}

fn an_event_that_was_dropped_keeps_nobody_waiting(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (event, signal) = Event::new();
    let point = client.import_event(event)?;
    drop(signal);
    ready(client.done(point)?)??;
    let (event, signal) = Event::new();
    signal.give();
    client.wait(client.import_event(event)?)?;
    client.sync()?.wait()?;
    Ok(())
}

fn an_event_that_never_happens_holds_up_nothing_else(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (event, signal) = Event::new();
    let point = client.import_event(event)?;
    let waiting = on_new_stream(&client);
    waiting.wait(point)?;
    let held = waiting.fill(&waiting.empty(64)?, &[1])?;
    ensure_err!(client.done(point)?.wait_for(Duration::from_millis(50)), Error::Timeout { .. });
    ensure_eq!(client.read_one(&client.create_from_slice(&[3; 8])?)?.as_slice()?, [3; 8]);
    ensure!(!client.is_done(held)?, "work behind the event is done");
    let report = client.shutdown(Duration::from_millis(200));
    ensure!(report.abandoned > 0, "{report:?}");
    drop(signal);
    Ok(())
}

fn an_exported_event_happens_when_the_point_is_done(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    let point = gate.block(&held)?;
    let event = client.export_event::<Event>(point)?;
    on_new_stream(&client).sync()?.wait()?;
    ensure!(!event.has_happened(), "the event happened before the point was done");
    gate.open()?;
    ready((*event).clone())?;
    ensure!(client.is_done(point)?, "the event happened and the point is not done");
    let past = client.export_event::<Event>(point)?;
    ready((*past).clone())?;
    Ok(())
}

fn an_event_goes_from_one_device_to_another(cx: &Context) -> Outcome {
    let (here, there) = (cx.client()?, cx.client()?);
    let step = there.prepare(kernels::step())?;
    // Both use the same memory, ordered by nothing but the event.
    let memory = Outside::new(PAGE);
    let ((ours, _a), (theirs, _b)) = (import(cx, &here, &memory, 256)?, import(cx, &there, &memory, 256)?);
    let held = on_new_stream(&here);
    let gate = cx.gate(&here)?;
    gate.block(&held)?;
    let written = held.write_slice(&ours, raw(&[6u32; 64]))?;
    let event = here.export_event::<Event>(written)?;
    let waiting = on_new_stream(&there);
    waiting.wait(there.import_event((*event).clone())?)?;
    let launched = waiting.launch(&step, cover(64)?, [&theirs])?;
    waiting.flush()?;
    there.sync()?.wait()?;
    ensure!(!there.is_done(launched)?, "a launch overtook the event of another device");
    gate.open()?;
    there.done(launched)?.wait()?;
    ensure_eq!(memory.read(256), raw(&[7u32; 64]));
    Ok(())
}

fn import_works_with_the_device_reserved(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = Outside::new(PAGE);
    let drops = client.exclusive(|| -> Outcome<_> {
        let (handle, drops) = import(cx, &client, &memory, PAGE)?;
        client.fill(&handle, &[2])?;
        ensure_eq!(client.read_one(&handle)?.as_slice()?, [2; PAGE]);
        Ok(drops)
    })??;
    let_go_of(&client, &drops)
}

fn a_dry_run_takes_imported_memory_and_touches_none(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.open.dry_run = true;
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let memory = Outside::new(PAGE);
    let (handle, drops) = import(cx, &client, &memory, PAGE)?;
    client.fill(&handle, &[2])?;
    ensure_eq!(client.read_one(&handle)?.as_slice()?, [0; PAGE]);
    ensure_eq!(imported(&client)?.unwrap_or_default().live, PAGE as u64);
    drop(handle);
    let_go_of(&client, &drops)?;
    ensure_eq!(memory.read(PAGE), [0; PAGE]);
    Ok(())
}
