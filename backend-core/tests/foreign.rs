//! Memory and events of somebody else: what the driver is asked, in which order, and when it is let go of.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{Fate, MockEvent, MockMemory, Rig, first, out, rig};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{Server, Until};
use trunnion_runtime_core::timeline::Moment;

/// 8 bytes of somebody else, of which a device has the last 6.
fn memory() -> (MockMemory, mock::Memory, Arc<()>) {
    let (bytes, held) = (Arc::new(Mutex::new(vec![7; 8])), Arc::new(()));
    (MockMemory { bytes: bytes.clone(), held: held.clone() }, bytes, held)
}

fn import(rig: &mut Rig, s: StreamId, foreign: Foreign) -> Result<Handle> {
    let handle = rig.handles.create(6).unwrap();
    let at = rig.at(s);
    rig.server.foreign().unwrap().import(at, &handle, &foreign).map(|()| handle)
}

fn import_event(rig: &mut Rig, number: u32) -> (Result<Moment>, Arc<()>) {
    let (at, held) = (rig.at(StreamId::new()), Arc::new(()));
    let event = Foreign::new(MockEvent { number, held: held.clone() });
    (rig.server.foreign().unwrap().import_event(at, &event).map(|()| at), held)
}

/// The device is released, and who is to be woken woken.
fn leave(rig: &mut Rig) {
    rig.server.leave().into_iter().for_each(Waker::wake);
}

#[test]
fn imported_memory_begins_at_its_offset_and_is_held_until_its_last_use_is_done() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let (foreign, bytes, held) = memory();
    let handle = import(&mut rig, s, Foreign::new(foreign)).unwrap();
    rig.launch(s, &k, &[&handle]);
    let read = rig.read(s, &handle);
    drop(handle);
    rig.free_dropped();
    leave(&mut rig);
    assert_eq!((Arc::strong_count(&held), rig.script.get().pages), (2, 1));
    rig.run();
    assert_eq!((first(&read), bytes.lock().unwrap().as_slice()), (Ok(8), [7, 7, 8, 8, 8, 8, 8, 8].as_slice()));
    assert_eq!((Arc::strong_count(&held), rig.script.get().pages), (2, 0), "the device is not released yet");
    leave(&mut rig);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn what_the_driver_refuses_is_reserved_nowhere_and_held_by_nobody() {
    let mut rig = rig();
    let s = StreamId::new();
    let error = import(&mut rig, s, Foreign::new(1u8)).unwrap_err();
    assert!(matches!(&error, Error::ServiceMismatch { expected, .. } if expected == "u8"), "{error}");
    rig.script.next("import", 0, Fate::Fails(Error::Busy { what: "the mock".into() }));
    let (foreign, _, held) = memory();
    assert!(import(&mut rig, s, Foreign::new(foreign)).is_err());
    rig.free_dropped();
    assert_eq!((Arc::strong_count(&held), rig.script.get().pages), (1, 0));
    let (refused, held) = import_event(&mut rig, 1);
    refused.unwrap();
    rig.script.next("import_event", 0, Fate::Fails(Error::Busy { what: "the mock".into() }));
    let (refused, unheld) = import_event(&mut rig, 2);
    assert!(refused.is_err());
    assert_eq!((Arc::strong_count(&held), Arc::strong_count(&unheld)), (2, 1));
}

#[test]
fn an_event_is_waited_for_on_the_device_by_its_own_stream_and_by_who_waits_for_the_point() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 16);
    let (point, held) = import_event(&mut rig, 3);
    let point = point.unwrap();
    let at = rig.at(s);
    rig.server.wait(at, Until::Moment(point));
    let launched = rig.launch(s, &k, &[&a]);
    rig.server.flush(s).unwrap();
    let (of_event, of_stream) = (point.seq, launched.seq);
    assert_eq!(
        rig.log(),
        [
            "open 1".to_string(),
            "wait on 1 for event 3".into(),
            format!("submit 1 #{of_event}"),
            "open 2".into(),
            format!("wait on 2 for 1 #{of_event}"),
            format!("submit 2 #{}", at.seq),
            "compile k".into(),
            format!("k on 2 #{of_stream}"),
            format!("submit 2 #{of_stream}"),
        ]
    );
    rig.run();
    assert!(!rig.is_done(point) && !rig.is_done(launched));
    rig.script.get().happens(3);
    rig.run();
    assert!(rig.is_done(point) && rig.is_done(launched));
    rig.server.progress();
    leave(&mut rig);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn an_exported_event_is_there_before_its_stream_goes_on_and_is_submitted_with_it() {
    let mut rig = rig();
    let s = StreamId::new();
    let promise = Promise::new();
    let at = rig.at(s);
    rig.server.wait(at, Until::Promised(promise.clone()));
    let at = rig.at(s);
    let event = rig.server.foreign().unwrap().export_event(at).unwrap();
    assert_eq!(event.downcast_ref(), Some(&(1u32, at.seq)));
    assert_eq!(rig.log(), ["open 1"]);
    let mut wakers = Default::default();
    promise.fulfil(Ok(()), &mut wakers);
    rig.server.progress();
    assert_eq!(rig.log(), [format!("submit 1 #{}", at.seq)]);
    rig.run();
    assert!(rig.is_done(at));
}

#[test]
fn a_server_that_ends_lets_go_of_what_the_driver_has_done_with_and_leaks_the_rest() {
    for hangs in [false, true] {
        let mut rig = rig();
        rig.script.get().drains = true;
        let s = StreamId::new();
        let (foreign, _, held) = memory();
        let handle = import(&mut rig, s, Foreign::new(foreign)).unwrap();
        let (point, event) = import_event(&mut rig, 5);
        point.unwrap();
        if !hangs {
            rig.script.get().happens(5);
        }
        rig.server.shutdown(&Deadline::after(Duration::from_millis(5)));
        leave(&mut rig);
        let counts = (Arc::strong_count(&held), Arc::strong_count(&event));
        assert_eq!(counts, if hangs { (2, 2) } else { (1, 1) });
        drop(handle);
    }
}
