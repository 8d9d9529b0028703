//! The registry under loom: starting, failing to start and ending on several threads at once.

use super::*;
use crate::id::BackendName;
use crate::sync::explore;
use crate::sync::explored::{AtomicBool, AtomicU32, Ordering};
use ::loom::thread;

/// A device of which each service forgets itself as it ends, as [`Service`] does.
struct Device {
    registry: Registry<Running>,
    being_started: AtomicBool,
    starts: AtomicU32,
}

struct Running {
    id: ServiceId,
    device: Arc<Device>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.device.registry.forget(self.id);
    }
}

const DEVICE: DeviceId = DeviceId { backend: BackendName::new("model").unwrap(), index: 0 };

fn device() -> Arc<Device> {
    Arc::new(Device { registry: Registry::new(), being_started: AtomicBool::new(false), starts: AtomicU32::new(0) })
}

impl Device {
    fn start(self: &Arc<Self>) -> Result<(Arc<Running>, bool)> {
        self.find_or(|id| Ok((id, Arc::new(Running { id, device: self.clone() }))))
    }

    fn fail_to_start(self: &Arc<Self>) -> Result<(Arc<Running>, bool)> {
        self.find_or(|_| Err(Error::Busy { what: "on purpose".into() }))
    }

    fn find_or(
        self: &Arc<Self>,
        start: impl FnOnce(ServiceId) -> Result<(ServiceId, Arc<Running>)>,
    ) -> Result<(Arc<Running>, bool)> {
        self.registry.find_or_start(DEVICE, &Deadline::never(), || {
            assert!(!self.being_started.swap(true, Ordering::Relaxed), "started by two at once");
            let id = ServiceId::from_raw(1 + self.starts.fetch_add(1, Ordering::Relaxed));
            self.being_started.store(false, Ordering::Relaxed);
            start(id)
        })
    }
}

#[test]
fn two_that_ask_for_a_device_at_once_share_one_service() {
    explore(6, || {
        let device = device();
        let theirs = device.clone();
        let other = thread::spawn(move || theirs.start().unwrap());
        let (mine, started) = device.start().unwrap();
        let (theirs, also_started) = other.join().unwrap();
        assert!(Arc::ptr_eq(&mine, &theirs));
        assert!(started != also_started);
    });
}

#[test]
fn a_start_that_fails_leaves_the_place_to_who_waits_for_it() {
    explore(6, || {
        let device = device();
        let theirs = device.clone();
        let other = thread::spawn(move || theirs.fail_to_start());
        let (mine, started) = device.start().unwrap();
        assert!(started);
        if let Ok((theirs, started)) = other.join().unwrap() {
            assert!(!started && Arc::ptr_eq(&mine, &theirs));
        }
    });
}

#[test]
fn a_service_that_ends_forgets_none_that_was_started_after_it() {
    explore(6, || {
        let device = device();
        let (first, _) = device.start().unwrap();
        let theirs = device.clone();
        let other = thread::spawn(move || theirs.start().unwrap().0);
        drop(first);
        let second = other.join().unwrap();
        let found = device.registry.running(second.id).unwrap();
        assert!(Arc::ptr_eq(&second, &found));
    });
}

#[test]
fn a_service_that_is_ended_while_its_start_returns_leaves_the_next_ones_place_alone() {
    explore(6, || {
        let device = device();
        let theirs = device.clone();
        let other = thread::spawn(move || {
            // What a shutdown does, whose caller then starts the device anew.
            theirs.registry.forget(ServiceId::from_raw(1));
            theirs.start().unwrap()
        });
        let first = device.start().unwrap();
        let again = device.start().unwrap();
        drop((first, again, other.join().unwrap()));
    });
}
