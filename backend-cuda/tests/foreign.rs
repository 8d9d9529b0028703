//! Memory and events of somebody else: addresses and events of the program's own, of this device and of others.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, assert_clean, claim, done, double, eventually, raw, within};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use trunnion_backend_cuda::{CudaBackend, CudaEvent, CudaImport, CudaOptions, CudaResource};
use trunnion_cuda_double::Device;
use trunnion_cuda_raw::Address;
use trunnion_driver_rig::clients::{bytes, on_new_stream, pattern};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::{Client, Resource};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::foreign::Event;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::service::Settings;

const SOON: Duration = Duration::from_secs(10);

fn start(device: &Device) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    let backend = CudaBackend::new(CudaOptions::default().library(double().path()));
    let mut settings = Settings::default();
    settings.wait_timeout = SOON;
    let opened = backend.open(device.ordinal() as u32, &OpenSettings::default()).unwrap();
    let id = DeviceId { backend: backend.name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init_with(id, opened, &settings).unwrap()
}

/// Runs a test with a client of a device of its own.
fn with_client(test: impl Fn(&Client, &Device)) {
    let device = claim();
    let client = start(&device);
    test(&client, &device);
    client.shutdown(SOON);
    drop(client);
    assert_clean(&device);
}

/// Memory that a program made for itself in a device's primary context.
struct Own {
    resource: Resource<CudaResource>,
    address: Address,
    freed: Arc<AtomicU32>,
}

impl Own {
    fn new(client: &Client, size: usize, freed: &Arc<AtomicU32>) -> Self {
        let resource = client.get_resource::<CudaResource>(&client.zeros(64).unwrap()).unwrap();
        let mut address = 0;
        within(resource.context().cast(), || {
            // SAFETY: the place is for an address, and the context is current.
            unsafe {
                done(raw().cuMemAlloc_v2(&mut address, size));
                done(raw().cuMemsetD8_v2(address, 1, size));
            }
        });
        Self { resource, address, freed: freed.clone() }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the device is done with it.
        within(self.resource.context().cast(), || unsafe { done(raw().cuMemFree_v2(self.address)) });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn memory_of_the_programs_own_is_used_where_it_is() {
    with_client(|client, _| {
        let freed = Arc::new(AtomicU32::new(0));
        let own = Own::new(client, 4096 + 16, &freed);
        let (address, context) = (own.address, own.resource.context());
        // SAFETY: refused before it is used.
        let error = client.import(unsafe { CudaImport::new(address + 1, 64, ()) }).unwrap_err();
        assert!(matches!(error, Error::Misaligned { alignment: 16, .. }), "{error}");
        // SAFETY: as above.
        let error = client.import(unsafe { CudaImport::new(address + 16, 4097, ()) }).unwrap_err();
        assert!(matches!(&error, Error::OutOfRange { range, size: 4112, .. } if *range == (16..4113)), "{error}");
        // SAFETY: memory of this device, which is the device's until its owner is dropped.
        let handle = client.import(unsafe { CudaImport::new(address + 16, 4096, own) }).unwrap();
        assert_eq!(bytes(client, &handle), [1; 4096]);
        client.write_slice(&handle, &pattern(4096, 1)).unwrap();
        let copy = client.empty(4096).unwrap();
        client.copy(&handle, &copy).unwrap();
        assert_eq!(bytes(client, &copy), pattern(4096, 1));
        client.sync().unwrap().wait().unwrap();
        let mut seen = vec![0; 4096];
        within(context.cast(), || {
            // SAFETY: as long as what is copied, and the device is done with it.
            unsafe { done(raw().cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), address + 16, 4096)) };
        });
        assert_eq!(seen, pattern(4096, 1));
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        drop(handle);
        eventually("the memory is let go of", || freed.load(Ordering::Relaxed) == 1);
    });
}

#[test]
fn memory_that_is_not_the_devices_is_refused_by_name() {
    with_client(|client, device| {
        let other = claim();
        let there = start(&other);
        let freed = Arc::new(AtomicU32::new(0));
        let own = Own::new(&there, 64, &freed);
        device.set_reaches(other, false).unwrap();
        // SAFETY: refused before it is used; so for the others.
        let error = client.import(unsafe { CudaImport::new(own.address, 64, ()) }).unwrap_err();
        let (owner, this) = (other.ordinal(), device.ordinal());
        assert!(
            error.to_string().contains(&format!("memory of device {owner}, which device {this} does not")),
            "{error}"
        );
        // SAFETY: as above.
        let error = client.import(unsafe { CudaImport::new(0x1230, 64, ()) }).unwrap_err();
        assert!(error.to_string().contains("0x1230 is no memory that the driver knows"), "{error}");
        // SAFETY: as above.
        let error = client.import(unsafe { CudaImport::new(u64::MAX - 15, 64, ()) }).unwrap_err();
        assert!(matches!(error, Error::SizeOverflow { .. }), "{error}");
        drop(own);
        there.shutdown(SOON);
        drop(there);
        assert_clean(&other);
    });
}

#[test]
fn a_stream_waits_on_the_device_for_an_event_of_the_programs_own() {
    with_client(|client, device| {
        let gate = Gate::new(device);
        // SAFETY: recorded, and destroyed at the end of the test.
        let point = client.import_event(unsafe { CudaEvent::new(gate.raw_event(), ()) }).unwrap();
        let waiting = on_new_stream(client);
        waiting.wait(point).unwrap();
        let buffer = waiting.zeros(64).unwrap();
        let filled = waiting.fill(&buffer, &[3]).unwrap();
        waiting.flush().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(!client.is_done(point).unwrap() && !client.is_done(filled).unwrap());
        gate.open();
        client.done(filled).unwrap().wait().unwrap();
        assert_eq!(bytes(client, &buffer), [3; 64]);
    });
}

#[test]
fn an_event_of_somebody_else_is_let_go_of_when_it_has_happened() {
    with_client(|client, device| {
        let gate = Gate::new(device);
        let held = Arc::new(());
        // SAFETY: recorded, and destroyed at the end of the test.
        let point = client.import_event(unsafe { CudaEvent::new(gate.raw_event(), held.clone()) }).unwrap();
        client.flush().unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(Arc::strong_count(&held), 2);
        gate.open();
        client.done(point).unwrap().wait().unwrap();
        eventually("the event is let go of", || {
            client.memory_usage().unwrap();
            Arc::strong_count(&held) == 1
        });
    });
}

#[test]
fn a_point_is_handed_out_as_an_event() {
    with_client(|client, _| {
        let bytes = client.zeros(64).unwrap();
        let resource = client.get_resource::<CudaResource>(&bytes).unwrap();
        let context = resource.context();
        drop(resource);
        let wait = |event: &CudaEvent| {
            // SAFETY: the event keeps what it is of.
            within(context.cast(), || unsafe { done(raw().cuEventSynchronize(event.event().cast())) });
        };
        // Of work that is under way, of work that is done, and of work that is held back.
        let event = client.export_event::<CudaEvent>(client.fill(&bytes, &[1]).unwrap()).unwrap();
        assert!(event.is_recorded());
        wait(&event);
        let point = client.record().unwrap();
        client.done(point).unwrap().wait().unwrap();
        wait(&client.export_event::<CudaEvent>(point).unwrap());
        let ((event, point), _) = client
            .with_resource::<CudaResource, _>(&bytes, Access::ReadWrite, |_, _| {
                let held = on_new_stream(client);
                let point = held.fill(&bytes, &[2]).unwrap();
                let event = client.export_event::<CudaEvent>(point).unwrap();
                assert!(!event.is_recorded());
                // The driver would take an event that is not recorded for one that has happened.
                let twin = Arc::try_unwrap(client.export_event::<CudaEvent>(point).unwrap()).unwrap();
                let error = client.import_event(twin).unwrap_err();
                assert!(matches!(error, Error::Busy { .. }), "{error}");
                (event, point)
            })
            .unwrap();
        eventually("the event is recorded", || {
            client.is_done(point).unwrap();
            event.is_recorded()
        });
        wait(&event);
        client.done(point).unwrap().wait().unwrap();
        let error = client.export_event::<u32>(point).unwrap_err();
        assert!(matches!(error, Error::ServiceMismatch { .. }), "{error}");
    });
}

#[test]
fn one_device_waits_for_an_event_of_another() {
    with_client(|here, _| {
        let other = claim();
        let there = start(&other);
        let gate = Gate::new(&other);
        // SAFETY: recorded, and destroyed at the end of the test.
        let opened = there.import_event(unsafe { CudaEvent::new(gate.raw_event(), ()) }).unwrap();
        there.wait(opened).unwrap();
        let theirs = there.zeros(64).unwrap();
        let event = there.export_event::<CudaEvent>(there.fill(&theirs, &[1]).unwrap()).unwrap();
        if event.is_recorded() {
            let point = here.import_event(Arc::try_unwrap(event).unwrap()).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            assert!(!here.is_done(point).unwrap());
            gate.open();
            here.wait(point).unwrap();
            here.done(point).unwrap().wait().unwrap();
        } else {
            panic!("what waits on the device only is handed to it at once");
        }
        assert_eq!(bytes(&there, &theirs), [1; 64]);
        drop((gate, theirs));
        there.shutdown(SOON);
        drop(there);
        assert_clean(&other);
    });
}

#[test]
fn memory_and_events_of_other_types_are_named() {
    with_client(|client, _| {
        let error = client.import_event(5u64).unwrap_err();
        assert!(matches!(&error, Error::ServiceMismatch { expected, .. } if expected == "u64"), "{error}");
        assert!(error.to_string().contains("CudaEvent"), "{error}");
        // The event of the host is one that every device takes.
        let (event, signal) = Event::new();
        let point = client.import_event(event).unwrap();
        signal.give();
        client.done(point).unwrap().wait().unwrap();
    });
}

#[test]
fn an_event_that_outlives_its_device_is_given_back_in_its_context_on_any_thread() {
    let device = claim();
    let client = start(&device);
    let bytes = client.zeros(64).unwrap();
    let held = client.get_resource::<CudaResource>(&bytes).unwrap();
    let point = client.fill(&bytes, &[1]).unwrap();
    let event = client.export_event::<CudaEvent>(point).unwrap();
    client.done(point).unwrap().wait().unwrap();
    drop((held, bytes));
    client.shutdown(SOON);
    drop(client);
    // Calls of a thread without a context are no device's.
    let left = || device.calls("cuEventCreate").unwrap() - device.calls("cuEventDestroy_v2").unwrap();
    eventually("only the event is left", || left() == 1);
    assert!(device.is_retained().unwrap());
    std::thread::spawn(move || drop(event)).join().unwrap();
    assert_eq!(left(), 0);
    eventually("the context is let go of", || !device.is_retained().unwrap());
    assert_clean(&device);
}
