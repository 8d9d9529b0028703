//! Events of streams that hold what makes them happen, imported by other devices: whoever imports one waits for it all the same, and is told if
//! it does not happen.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, PATIENCE, Rig, all, assert_clean, claim, double, eventually, in_time, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_backend_cuda::{CudaBackend, CudaEvent, CudaImport, CudaOptions, CudaPage, CudaResource, CudaStream};
use trunnion_cuda_double::Device;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::foreign::{Event, Foreign};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::service::Settings;
use trunnion_runtime_core::timeline::Point;

const LAUNCH_FAILED: u32 = 719;

/// More calls than a stream is given at once.
const MANY: u64 = 1500;

const LAST: u8 = MANY as u8;

fn options() -> CudaOptions {
    CudaOptions::default().library(double().path())
}

// ---- driven directly

fn pair() -> [Rig; 2] {
    [claim(), claim()].map(|device| Rig::new(device, &options()))
}

fn end(rigs: [Rig; 2]) {
    let devices = rigs.each_ref().map(|rig| rig.device);
    drop(rigs);
    devices.iter().for_each(assert_clean);
}

/// Fills a page many times on a stream that stands at a gate, and exports an event of the last. It is held.
fn held(rig: &mut Rig, stream: &mut CudaStream, page: &CudaPage, gate: &Gate) -> Foreign {
    rig.driver.import_event(stream, &gate.event()).unwrap();
    let event = in_time(gate, || {
        for seq in 1..=MANY {
            rig.fill(stream, seq, all(page), &[seq as u8]);
            rig.driver.submit(stream, seq).unwrap();
        }
        export(rig, stream, MANY + 1)
    });
    rig.driver.submit(stream, MANY + 1).unwrap();
    let known: &CudaEvent = event.get().unwrap();
    assert!(!known.is_recorded());
    event
}

/// An event that happens with what is submitted next.
fn export(rig: &mut Rig, stream: &mut CudaStream, seq: u64) -> Foreign {
    let event = rig.driver.export_event(stream, seq).unwrap().downcast::<CudaEvent>().unwrap();
    Foreign::new(Arc::into_inner(event).unwrap())
}

/// A stream that comes after an event, with a fill and a read of a page behind it as 1 and 2.
fn behind(rig: &mut Rig, event: &Foreign, page: &CudaPage) -> CudaStream {
    let mut stream = rig.driver.open_stream().unwrap();
    rig.driver.import_event(&mut stream, event).unwrap();
    rig.fill(&mut stream, 1, all(page), &[7]);
    rig.read_later(&mut stream, 2, all(page));
    rig.driver.submit(&mut stream, 2).unwrap();
    stream
}

/// That a stream failed up to an operation since an event of a device does not happen, for a reason; nothing was read.
fn assert_refused(rig: &mut Rig, stream: &mut CudaStream, seq: u64, of: &Device, why: &str) {
    let outcome = rig.finish(stream, seq);
    assert!(outcome.failed.iter().map(|(seq, _)| *seq).eq(1..=seq), "{:?}", outcome.failed);
    outcome.failed.iter().for_each(|(_, error)| assert_names(error, of, why));
    assert!(outcome.read.is_empty());
}

/// That an error says that an event of a device does not happen, and why; the device that says so is not lost.
fn assert_names(error: &Error, of: &Device, why: &str) {
    if let Error::Several(errors) = error {
        // Of what was to be read, and of what was to write it.
        return errors.iter().for_each(|error| assert_names(error, of, why));
    }
    let Error::Driver { call, message, .. } = error.root() else { panic!("{error:?}") };
    let event = format!("an event of cuda:{} does not happen: ", of.ordinal());
    assert!(call == "import_event" && message.starts_with(&event) && message.contains(why), "{error}");
    assert!(!error.is_device_lost());
}

/// That a device works.
fn assert_works(rig: &mut Rig) {
    let page = rig.page_of_bytes(&[9; 256]);
    assert_eq!(rig.read(all(&page)), [9; 256]);
    rig.driver.release(page);
}

#[test]
fn who_waits_for_what_another_device_holds_starts_when_that_is_done() {
    let [mut here, mut there] = pair();
    let (theirs, ours) = (there.page_of_bytes(&[0; 256]), here.page_of_bytes(&[0; 256]));
    let (gate, mut full) = (Gate::new(&there.device), there.driver.open_stream().unwrap());
    let event = held(&mut there, &mut full, &theirs, &gate);
    here.device.forget_calls().unwrap();
    let mut stream = behind(&mut here, &event, &ours);
    // And who comes after that, on another stream and on the same.
    let mut after = here.driver.open_stream().unwrap();
    here.driver.wait(&mut after, &mut stream, 2);
    here.read_later(&mut after, 1, all(&ours));
    here.driver.submit(&mut after, 1).unwrap();
    here.fill(&mut stream, 3, all(&ours), &[8]);
    here.driver.wait(&mut stream, &mut after, 1);
    here.driver.submit(&mut stream, 3).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(here.driver.poll(&mut stream, &mut Outcome::default()), Ok(0));
    // Nothing was handed over, and nobody looks.
    assert_eq!(["cuMemsetD8Async", "cuStreamWaitEvent"].map(|call| here.device.calls(call).unwrap()), [0, 0]);
    gate.open();
    // Nobody looks there either: what is held goes on by itself.
    let outcome = here.finish(&mut stream, 2);
    assert_eq!((outcome.failed.len(), outcome.read[0].2.as_slice()), (0, &[7; 256][..]));
    assert_eq!(here.finish(&mut after, 1).read[0].2.as_slice(), [7; 256]);
    assert_eq!(here.finish(&mut stream, 3).failed, []);
    assert_eq!(there.finish(&mut full, MANY + 1).failed, []);
    assert_eq!((here.read(all(&ours)), there.read(all(&theirs))), (vec![8; 256], vec![LAST; 256]));
    [stream, after].into_iter().for_each(|stream| here.driver.close_stream(stream));
    there.driver.close_stream(full);
    drop((gate, theirs, ours));
    end([here, there]);
}

#[test]
fn an_event_of_what_is_not_submitted_yet_is_waited_for_elsewhere() {
    let [mut here, mut there] = pair();
    let ours = here.page_of_bytes(&[0; 256]);
    let mut makes = there.driver.open_stream().unwrap();
    let event = export(&mut there, &mut makes, 1);
    let mut stream = behind(&mut here, &event, &ours);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(here.driver.poll(&mut stream, &mut Outcome::default()), Ok(0));
    // On its own device it may be what its stream is submitted after.
    let mut own = there.driver.open_stream().unwrap();
    let busy = there.driver.import_event(&mut own, &event).unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy}");
    there.driver.submit(&mut makes, 1).unwrap();
    assert_eq!(here.finish(&mut stream, 2).failed, []);
    there.driver.import_event(&mut own, &event).unwrap();
    there.driver.submit(&mut own, 1).unwrap();
    there.finish(&mut own, 1);
    there.finish(&mut makes, 1);
    here.driver.close_stream(stream);
    [own, makes].into_iter().for_each(|stream| there.driver.close_stream(stream));
    drop(ours);
    end([here, there]);
}

#[test]
fn what_is_held_is_waited_for_on_its_own_device_and_by_another_driver_of_that() {
    let device = claim();
    let mut rig = Rig::new(device, &options());
    let mut other = Rig::new(device, &options());
    let (theirs, ours) = (rig.page_of_bytes(&[0; 256]), other.page_of_bytes(&[0; 256]));
    let (gate, mut full) = (Gate::new(&device), rig.driver.open_stream().unwrap());
    let event = held(&mut rig, &mut full, &theirs, &gate);
    let mut own = rig.driver.open_stream().unwrap();
    rig.driver.import_event(&mut own, &event).unwrap();
    rig.read_later(&mut own, 1, all(&theirs));
    rig.driver.submit(&mut own, 1).unwrap();
    let mut stream = behind(&mut other, &event, &ours);
    assert_eq!(other.driver.poll(&mut stream, &mut Outcome::default()), Ok(0));
    gate.open();
    assert_eq!(rig.finish(&mut own, 1).read[0].2.as_slice(), [LAST; 256]);
    assert_eq!(other.finish(&mut stream, 2).failed, []);
    rig.finish(&mut full, MANY + 1);
    other.driver.close_stream(stream);
    [own, full].into_iter().for_each(|stream| rig.driver.close_stream(stream));
    drop((gate, theirs, ours, rig, other));
    assert_clean(&device);
}

#[test]
fn a_device_that_is_lost_is_named_to_who_waits_for_its_events_and_loses_no_other() {
    let [mut here, mut there] = pair();
    let (lost, ours) = (there.device, here.page_of_bytes(&[0; 256]));
    let theirs = there.page_of_bytes(&[0; 256]);
    let (gate, mut full) = (Gate::new(&lost), there.driver.open_stream().unwrap());
    let event = held(&mut there, &mut full, &theirs, &gate);
    let mut later = there.driver.open_stream().unwrap();
    let unsubmitted = export(&mut there, &mut later, 1);
    let mut streams = [&event, &unsubmitted].map(|event| behind(&mut here, event, &ours));
    // Who comes after who waits: on the same stream, on another one, and on the device that handed out the event of that.
    let [first, _] = &mut streams;
    here.fill(first, 3, all(&ours), &[8]);
    let next = export(&mut here, first, 3);
    here.driver.submit(first, 3).unwrap();
    let mut after = here.driver.open_stream().unwrap();
    here.driver.wait(&mut after, first, 3);
    here.fill(&mut after, 1, all(&ours), &[9]);
    here.driver.submit(&mut after, 1).unwrap();
    let third = claim();
    let mut far = Rig::new(third, &options());
    let farther = far.page_of_bytes(&[0; 256]);
    let mut last = behind(&mut far, &next, &farther);
    lost.fail("cuMemsetD8Async", 1, LAUNCH_FAILED).unwrap();
    gate.open();
    let [mut first, mut second] = streams;
    assert_refused(&mut here, &mut first, 3, &lost, "cuMemsetD8Async");
    assert_refused(&mut here, &mut second, 2, &lost, "cuMemsetD8Async");
    assert_refused(&mut here, &mut after, 1, &lost, "cuMemsetD8Async");
    assert_refused(&mut far, &mut last, 2, &lost, "cuMemsetD8Async");
    for event in [&event, &unsubmitted, &next] {
        assert_names(&here.driver.import_event(&mut after, event).unwrap_err(), &lost, "cuMemsetD8Async");
    }
    assert_eq!((here.read(all(&ours)), far.read(all(&farther))), (vec![0; 256], vec![0; 256]));
    assert_works(&mut here);
    assert_eq!(here.device.calls("cuMemsetD8Async"), Ok(0));
    // What follows on the same stream is as before.
    here.fill(&mut first, 4, all(&ours), &[4]);
    here.driver.submit(&mut first, 4).unwrap();
    assert_eq!(here.finish(&mut first, 4).failed, []);
    assert_eq!(here.read(all(&ours)), [4; 256]);
    [first, second, after].into_iter().for_each(|stream| here.driver.close_stream(stream));
    far.driver.close_stream(last);
    lost.reset().unwrap();
    [full, later].into_iter().for_each(|stream| there.driver.close_stream(stream));
    drop((gate, theirs, ours, farther, event, unsubmitted, next));
    let ours = here.device;
    drop((here, there, far));
    [ours, third].iter().for_each(assert_clean);
}

#[test]
fn a_stream_that_ends_before_it_makes_its_events_happen_is_told_to_who_waits_for_them() {
    let [mut here, mut there] = pair();
    let (theirs, ours) = (there.page_of_bytes(&[0; 256]), here.page_of_bytes(&[0; 256]));
    let ended = there.device;
    // Nothing was submitted; what was waits for another device, which has not submitted it.
    let (mut never, mut waits) = (there.driver.open_stream().unwrap(), there.driver.open_stream().unwrap());
    let mut opens = here.driver.open_stream().unwrap();
    let opened = export(&mut here, &mut opens, 1);
    there.driver.import_event(&mut waits, &opened).unwrap();
    there.fill(&mut waits, 1, all(&theirs), &[1]);
    let events = [export(&mut there, &mut never, 1), export(&mut there, &mut waits, 1)];
    there.driver.submit(&mut waits, 1).unwrap();
    let streams = events.each_ref().map(|event| behind(&mut here, event, &ours));
    // Nothing of either was handed over, so nothing is left of them.
    [never, waits].into_iter().for_each(|stream| there.driver.close_stream(stream));
    for mut stream in streams {
        assert_refused(&mut here, &mut stream, 2, &ended, "its stream ended");
        here.driver.close_stream(stream);
    }
    // The other way round: the one that imports ends, and the one that exports goes on.
    here.driver.submit(&mut opens, 1).unwrap();
    assert_eq!(here.finish(&mut opens, 1).failed, []);
    here.driver.close_stream(opens);
    assert_works(&mut here);
    assert_works(&mut there);
    drop((theirs, ours, opened, events));
    end([here, there]);
}

#[test]
fn an_imported_event_is_let_go_of_where_it_is_not_used_or_who_waits_for_it_ends() {
    let [mut here, mut there] = pair();
    let (theirs, ours) = (there.page_of_bytes(&[0; 256]), here.page_of_bytes(&[0; 256]));
    let (gate, mut full) = (Gate::new(&there.device), there.driver.open_stream().unwrap());
    let event = held(&mut there, &mut full, &theirs, &gate);
    let mut unused = here.driver.open_stream().unwrap();
    here.driver.import_event(&mut unused, &event).unwrap();
    let (stream, dropped) = (behind(&mut here, &event, &ours), behind(&mut here, &event, &ours));
    here.driver.close_stream(unused);
    here.driver.close_stream(stream);
    drop(dropped);
    drop(event);
    // Nothing is under way, and what is not used is given back.
    let used = here.device.memory_used().unwrap();
    here.driver.release(ours);
    eventually("the page is given back", || here.device.memory_used().unwrap() < used);
    assert_works(&mut here);
    gate.open();
    assert_eq!(there.finish(&mut full, MANY + 1).failed, []);
    assert_eq!(there.read(all(&theirs)), [LAST; 256]);
    there.driver.close_stream(full);
    drop((gate, theirs));
    end([here, there]);
}

#[test]
fn an_event_that_the_driver_refuses_to_record_keeps_nobody() {
    const REFUSED: u32 = 999;
    let [mut here, mut there] = pair();
    let ours = here.page_of_bytes(&[0; 256]);
    let mut makes = there.driver.open_stream().unwrap();
    let event = export(&mut there, &mut makes, 1);
    let mut stream = behind(&mut here, &event, &ours);
    there.device.fail("cuEventRecord", 1, REFUSED).unwrap();
    there.driver.submit(&mut makes, 1).unwrap();
    let failed = there.finish(&mut makes, 1).failed;
    assert!(matches!(&failed[..], [(1, Error::Driver { call, .. })] if call == "cuEventRecord"), "{failed:?}");
    // It came after that all the same: the batch was finished when that was seen.
    assert_eq!(here.finish(&mut stream, 2).failed, []);
    here.driver.close_stream(stream);
    there.driver.close_stream(makes);
    drop((ours, event));
    end([here, there]);
}

// ---- by clients

fn start(device: &Device) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(9000);
    let backend = CudaBackend::new(options());
    let opened = backend.open(device.ordinal() as u32, &OpenSettings::default()).unwrap();
    let id = DeviceId { backend: backend.name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
    let mut settings = Settings::default();
    settings.wait_timeout = PATIENCE / 2;
    Client::try_init_with(id, opened, &settings).unwrap()
}

fn bytes(client: &Client, handle: &Handle) -> Vec<u8> {
    client.read_one(handle).unwrap().as_slice().unwrap().to_vec()
}

/// Fills a buffer many times behind a gate; the point of the last, whose event is held.
fn fill_behind(client: &Client, buffer: &Handle, gate: &Gate, last: u8) -> Point {
    // SAFETY: recorded, and destroyed at the end of the test.
    let opened = client.import_event(unsafe { CudaEvent::new(gate.raw_event(), ()) }).unwrap();
    client.wait(opened).unwrap();
    for at in 0..MANY {
        client.fill(buffer, &[at as u8, 1]).unwrap();
    }
    client.fill(buffer, &[last]).unwrap()
}

/// What `to` does next comes after the point of the other device. Whether it was held.
fn pass(from: &Client, point: Point, to: &Client) -> bool {
    let event = Arc::into_inner(from.export_event::<CudaEvent>(point).unwrap()).unwrap();
    let is_held = !event.is_recorded();
    to.wait(to.import_event(event).unwrap()).unwrap();
    is_held
}

/// A buffer of one device, for another one.
fn lend(from: &Client, buffer: &Handle, to: &Client) -> Handle {
    // SAFETY: each test orders what is done with it.
    to.import(unsafe { CudaImport::of(from.export::<CudaResource>(buffer).unwrap()) }).unwrap()
}

#[test]
fn two_devices_wait_for_what_each_of_them_holds_in_both_directions_at_once() {
    for seed in 1..=4 {
        let devices = [claim(), claim()];
        devices.iter().for_each(|device| device.set_delays(seed).unwrap());
        let clients = devices.each_ref().map(start);
        let gates = devices.each_ref().map(Gate::new);
        let [made, copies] = [0; 2].map(|_| clients.each_ref().map(|client| client.zeros(4096).unwrap()));
        let lent = [0, 1].map(|at| lend(&clients[1 - at], &made[1 - at], &clients[at]));
        // Before anything waits for the other device's work, which a client does all of its own after.
        let points = [0, 1].map(|at| fill_behind(&clients[at], &made[at], &gates[at], 10 + at as u8));
        let is_held = [0, 1].map(|at| pass(&clients[1 - at], points[1 - at], &clients[at]));
        assert_eq!(is_held, [true; 2]);
        let copied = [0, 1].map(|at| clients[at].copy(&lent[at], &copies[at]).unwrap());
        // Back again: each writes what the other one has copied.
        let back = [0, 1].map(|at| pass(&clients[1 - at], copied[1 - at], &clients[at]));
        assert_eq!(back, [true; 2]);
        for at in [0, 1] {
            clients[at].fill(&made[at], &[20 + at as u8]).unwrap();
        }
        let first = (seed % 2) as usize;
        gates[first].open();
        std::thread::sleep(Duration::from_millis(5));
        gates[1 - first].open();
        for at in [0, 1] {
            assert_eq!(bytes(&clients[at], &copies[at]), [11 - at as u8; 4096], "seed {seed}");
            assert_eq!(bytes(&clients[at], &made[at]), [20 + at as u8; 4096], "seed {seed}");
        }
        drop((lent, made, copies, gates));
        for client in clients {
            assert_eq!(client.shutdown(PATIENCE / 2).abandoned, 0);
        }
        devices.iter().for_each(assert_clean);
    }
}

/// Memory of `there`'s that is filled with 5 behind a gate, the same as it is lent to `here`, and what `here` copies it to afterwards.
fn copied_behind(gate: &Gate, here: &Client, there: &Client) -> [Handle; 3] {
    let (theirs, copy) = (there.zeros(4096).unwrap(), here.zeros(4096).unwrap());
    let lent = lend(there, &theirs, here);
    assert!(pass(there, fill_behind(there, &theirs, gate, 5), here));
    here.copy(&lent, &copy).unwrap();
    [theirs, lent, copy]
}

#[test]
fn what_was_to_come_after_a_device_that_is_lost_carries_an_error_that_names_it() {
    let devices = [claim(), claim()];
    let [here, there] = devices.each_ref().map(start);
    let gate = Gate::new(&devices[1]);
    let kept = here.zeros(64).unwrap();
    let [theirs, lent, copy] = copied_behind(&gate, &here, &there);
    devices[1].fail("cuMemsetD8Async", 1, LAUNCH_FAILED).unwrap();
    devices[1].fail("cuMemsetD32Async", 1, LAUNCH_FAILED).unwrap();
    gate.open();
    let error = here.read_one(&copy).unwrap_err();
    assert_names(&error, &devices[1], "cuMemsetD");
    // The bytes it did not write are as they were, and so is the device.
    assert_eq!(bytes(&here, &kept), [0; 64]);
    here.fill(&kept, &[3]).unwrap();
    assert_eq!(bytes(&here, &kept), [3; 64]);
    assert!(there.sync().and_then(|synced| synced.wait()).unwrap_err().is_device_lost());
    devices[1].reset().unwrap();
    drop((lent, theirs, copy, kept, gate));
    for client in [here, there] {
        client.shutdown(PATIENCE / 2);
    }
    assert_clean(&devices[0]);
}

#[test]
fn a_device_that_is_shut_down_before_its_event_can_happen_is_named_to_who_waits_for_it() {
    let devices = [claim(), claim()];
    let [here, there] = devices.each_ref().map(start);
    let (theirs, copy) = (there.zeros(64).unwrap(), here.zeros(64).unwrap());
    // Of the host, and never given.
    let (never, signal) = Event::new();
    there.wait(there.import_event(never).unwrap()).unwrap();
    assert!(pass(&there, there.fill(&theirs, &[1]).unwrap(), &here));
    here.fill(&copy, &[2]).unwrap();
    here.flush().unwrap();
    drop(theirs);
    there.shutdown(Duration::from_millis(50));
    let error = here.read_one(&copy).unwrap_err();
    assert_names(&error, &devices[1], "ended");
    drop((there, signal, copy));
    assert_eq!(here.shutdown(PATIENCE / 2).abandoned, 0);
    drop(here);
    devices.iter().for_each(assert_clean);
}

#[test]
fn a_device_that_is_shut_down_while_it_holds_what_others_wait_for_still_does_it() {
    let devices = [claim(), claim()];
    let [here, there] = devices.each_ref().map(start);
    let gate = Gate::new(&devices[1]);
    let [theirs, lent, copy] = copied_behind(&gate, &here, &there);
    here.flush().unwrap();
    there.shutdown(Duration::from_millis(50));
    drop(there);
    gate.open();
    assert_eq!(bytes(&here, &copy), [5; 4096]);
    drop((lent, theirs, copy, gate));
    here.shutdown(PATIENCE / 2);
    drop(here);
    // The other one keeps what it could not give back in time, and stays claimed.
    assert_clean(&devices[0]);
}

#[test]
fn a_device_that_is_shut_down_while_it_waits_for_another_keeps_nobody() {
    let devices = [claim(), claim()];
    let [here, there] = devices.each_ref().map(start);
    let gate = Gate::new(&devices[1]);
    let [theirs, lent, copy] = copied_behind(&gate, &here, &there);
    here.flush().unwrap();
    let report = in_time(&gate, || here.shutdown(Duration::from_millis(50)));
    assert!(report.abandoned > 0);
    drop((here, lent, copy));
    gate.open();
    assert_eq!(bytes(&there, &theirs), [5; 4096]);
    drop(theirs);
    assert_eq!(there.shutdown(PATIENCE / 2).abandoned, 0);
    drop((there, gate));
    // What was lent is kept with the rest, so both stay claimed.
    assert_eq!(devices.map(|device| device.take_reports().unwrap()), [Vec::new(), Vec::new()]);
}

#[test]
fn another_driver_of_a_device_ends_while_what_it_waits_for_is_held() {
    let device = claim();
    let mut rig = Rig::new(device, &options());
    let page = rig.page_of_bytes(&[0; 256]);
    let (gate, mut full) = (Gate::new(&device), rig.driver.open_stream().unwrap());
    let event = held(&mut rig, &mut full, &page, &gate);
    let mut other = open(&device, &options());
    let mut stream = other.open_stream().unwrap();
    in_time(&gate, || {
        other.import_event(&mut stream, &event).unwrap();
        other.submit(&mut stream, 1).unwrap();
        other.close_stream(stream);
        drop(other);
    });
    gate.open();
    assert_eq!(rig.finish(&mut full, MANY + 1).failed, []);
    assert_eq!(rig.read(all(&page)), [LAST; 256]);
    rig.driver.close_stream(full);
    drop((gate, page, event, rig));
    assert_clean(&device);
}
