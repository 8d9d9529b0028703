//! Layer × capability × nesting: whatever is around a server, it is the server inside that answers, with what it can do.

extern crate alloc;

mod rig;

use core::time::Duration;
use rig::{Direct, Remote, Scripted, host, on_new_stream, start, step};
use trunnion_backend_core::DriverServer;
use trunnion_backend_host::{HostDriver, HostImport, HostResource};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::foreign::{Event, Foreign};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{Opened, Region};
use trunnion_server_layers::Layers;

/// Every layer alone, every one in every other, and a few of them deep.
fn stacks() -> Vec<Layers> {
    let one = ["validate", "fault=1000000:lost", "delay=100us", "reorder=3"];
    let mut all: Vec<String> = one.iter().map(|layer| layer.to_string()).collect();
    for outer in one {
        all.extend(one.iter().map(|inner| format!("{outer},validate,{inner}")));
        all.extend(one.iter().map(|inner| format!("{inner},validate,{outer},validate")));
    }
    all.push(["validate"; 12].join(","));
    all.push("0".into());
    all.iter().map(|text| text.parse().unwrap()).collect()
}

fn scripted(layers: &Layers, has_memory: bool, has_access: bool) -> (Direct, Remote) {
    let (server, remote) = Scripted::new(has_memory, has_access);
    let opened = layers.around(Opened { server, ..host() });
    (Direct::new(opened.server), remote)
}

#[test]
fn exactly_the_capabilities_inside_are_offered() {
    for layers in stacks() {
        for (memory, access) in [(false, false), (true, false), (false, true), (true, true)] {
            let (mut it, _) = scripted(&layers, memory, access);
            assert_eq!((it.server.memory().is_some(), it.server.access().is_some()), (memory, access), "{layers}");
            assert_eq!(it.server.foreign().is_some(), access, "{layers}");
            // A server whose memory nobody writes down, and one with page-locked memory, whose refusal comes through as it is.
            assert!(it.server.memory().is_none_or(|memory| memory.recording().is_none()), "{layers}");
            let refusal = it.server.staging().map(|staging| staging.pin(64).err());
            let is_its_own = |error: &Error| matches!(error, Error::Driver { call, code: 7, .. } if call == "pin");
            assert_eq!(refusal.map(|error| error.as_ref().is_some_and(is_its_own)), access.then_some(true), "{layers}");
        }
        let mut opened = layers.around(host());
        assert!(opened.server.memory().is_some_and(|memory| memory.recording().is_some()), "{layers}");
        let staging = host().server.staging().is_some();
        assert!(opened.server.access().is_some() && opened.server.staging().is_some() == staging, "{layers}");
    }
}

#[test]
fn whoever_knows_the_type_inside_finds_it() {
    for layers in stacks() {
        let (mut it, _) = scripted(&layers, false, false);
        assert!(it.server.as_any().is::<Scripted>(), "{layers}");
        let mut opened = layers.around(host());
        assert!(opened.server.as_any().is::<DriverServer<HostDriver>>(), "{layers}");
    }
}

#[test]
fn the_life_of_a_server_is_handed_on() {
    for layers in stacks() {
        let (mut it, remote) = scripted(&layers, true, true);
        it.server.enter();
        it.server.enter();
        it.server.leave();
        it.server.panicked(17, "on purpose");
        let (a, at) = (it.reserved(8), it.next());
        let (read, signal, granted) = (Promise::new(), Promise::new(), Promise::new());
        it.server.read(at, &[Region::whole(&a)], read.clone());
        it.server.signal(at, signal.clone());
        let at = it.next();
        it.server.access().unwrap().open(at, &a, Access::Write, granted.clone());
        let patience = Deadline::after(Duration::from_secs(5));
        while !(read.is_given() && signal.is_given() && granted.is_given()) {
            it.server.progress();
            it.server.leave();
            assert!(!patience.expired(), "{layers}");
        }
        it.server.access().unwrap().close(at, None);
        it.server.free(a.memory());
        assert_eq!(it.server.shutdown(&Deadline::after(Duration::ZERO)), 3, "{layers}");
        let state = remote.lock().unwrap();
        assert_eq!((state.started, state.entered), (1, 2), "{layers}");
        assert_eq!((state.panicked.as_slice(), state.freed.as_slice()), (&[17][..], &[a.memory()][..]), "{layers}");
        assert!(state.left >= 1, "{layers}");
    }
}

#[test]
fn the_fault_of_the_server_inside_is_everybodys() {
    let lost = Error::DeviceLost { cause: "unplugged".into() };
    for layers in stacks() {
        let (mut it, remote) = scripted(&layers, true, true);
        let at = it.next();
        it.server.mark(at);
        remote.lock().unwrap().fault = Some(lost.clone());
        it.server.leave();
        assert_eq!(it.server.fault(), Some(&lost), "{layers}");
        assert_eq!(it.server.flush(at.stream), Err(lost.clone()), "{layers}");
        let polled = it.server.poll(at, core::task::Waker::noop());
        assert_eq!(polled, core::task::Poll::Ready(Err(lost.clone())), "{layers}");
    }
}

#[test]
fn what_is_somebody_elses_is_handed_on_and_answered_by_the_server_inside() {
    for layers in stacks() {
        let (mut it, _) = scripted(&layers, true, true);
        let (ours, other) = (Foreign::new(5u32), Foreign::new("another type"));
        let (a, at) = (it.handles.create(4).unwrap(), it.next());
        it.server.foreign().unwrap().import(at, &a, &ours).unwrap();
        let b = it.handles.create(4).unwrap();
        let at = it.next();
        let error = it.server.foreign().unwrap().import(at, &b, &other).unwrap_err();
        assert!(matches!(error, Error::ServiceMismatch { .. }), "{layers}: {error}");
        let at = it.next();
        it.server.foreign().unwrap().import_event(at, &ours).unwrap();
        let at = it.next();
        let event = it.server.foreign().unwrap().export_event(at).unwrap();
        assert_eq!(event.downcast_ref(), Some(&at.seq), "{layers}");
    }
}

#[test]
fn a_program_runs_with_layers_as_it_runs_without() {
    for layers in stacks() {
        let client = start(layers.around(host()));
        let other = on_new_stream(&client);
        let kernel = client.prepare(step()).unwrap();
        let (a, b) = (client.create_from_slice(&[1; 64]).unwrap(), client.empty(64).unwrap());
        client.launch(&kernel, Grid::x(1), [&a]).unwrap();
        other.copy(&a, &b).unwrap();
        other.launch(&kernel, Grid::x(1), [&b]).unwrap();
        client.wait(other.record().unwrap()).unwrap();
        let (_, point) = client
            .with_resource::<HostResource, _>(&a, Access::Write, |_, stream| assert_ne!(stream, client.stream()))
            .unwrap();
        assert_eq!(
            client.read(&[&a, &b]).unwrap().iter().map(|b| b.as_slice().unwrap()[63]).collect::<Vec<_>>(),
            [2, 3]
        );
        client.done(point).unwrap().wait().unwrap();
        other.sync().unwrap().wait().unwrap();
        let mut whole = vec![0; 1 << 20];
        let large = client.create_from_slice(&vec![9; 1 << 20]).unwrap();
        client.read_into(&large, &mut whole).unwrap();
        assert!(whole.iter().all(|byte| *byte == 9), "{layers}");
        assert_eq!(client.compile_queued().unwrap(), 0, "{layers}");
        let (event, signal) = Event::new();
        let imported = client.import(HostImport::new(vec![3u128; 4])).unwrap();
        other.wait(client.import_event(event).unwrap()).unwrap();
        let launched = other.launch(&kernel, Grid::x(1), [&imported]).unwrap();
        let happened = client.export_event::<Event>(launched).unwrap();
        assert!(!happened.has_happened(), "{layers}");
        signal.give();
        client.done(launched).unwrap().wait().unwrap();
        assert_eq!(client.read_one(&imported).unwrap().as_slice().unwrap()[0], 4, "{layers}");
        assert!(happened.has_happened(), "{layers}");
        drop((a, b, large, imported));
        assert_eq!(client.memory_usage().unwrap().live, 0, "{layers}");
        assert_eq!(client.shutdown(Duration::from_secs(5)).abandoned, 0, "{layers}");
    }
}
