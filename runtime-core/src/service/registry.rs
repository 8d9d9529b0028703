//! The one registry of the process: which devices run.

use super::{Service, Settings};
use crate::backend;
use crate::error::{Error, Result};
use crate::id::{DeviceId, ServiceId};
use crate::platform::{Backoff, Deadline};
use crate::server::Opened;
use crate::sync::explored::Mutex;
use crate::sync::{const_fn, process_wide};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::time::Duration;

process_wide! {
    static REGISTRY: Registry<Service> = Registry::new();
}

enum Entry<S> {
    /// Somebody is starting it.
    Starting,
    Running(ServiceId, Weak<S>),
}

/// Which devices have a service, of whatever type it is.
struct Registry<S> {
    entries: Mutex<Vec<(DeviceId, Entry<S>)>>,
}

impl<S> Registry<S> {
    const_fn! {
        fn new() -> Self {
            Self { entries: Mutex::new(Vec::new()) }
        }
    }

    /// The running service, or the place to start one in.
    fn find(&self, device: DeviceId, deadline: &Deadline) -> Result<core::result::Result<Arc<S>, Place<'_, S>>> {
        let mut backoff = Backoff::default();
        loop {
            {
                let mut entries = self.entries.lock();
                match entries.iter_mut().find(|(d, _)| *d == device) {
                    Some((_, entry @ Entry::Running(..))) => {
                        if let Entry::Running(_, service) = entry
                            && let Some(service) = service.upgrade()
                        {
                            return Ok(Ok(service));
                        }
                        // The last client is gone; what is left of the service ends by itself.
                        *entry = Entry::Starting;
                        return Ok(Err(Place { registry: self, device }));
                    }
                    Some((_, Entry::Starting)) => {}
                    None => {
                        entries.push((device, Entry::Starting));
                        return Ok(Err(Place { registry: self, device }));
                    }
                }
            }
            if deadline.expired() {
                return Err(Error::Busy { what: "another thread is starting the device".into() });
            }
            backoff.wait();
        }
    }

    /// The running service, or the one that `start` gives; whether it was that.
    fn find_or_start(
        &self,
        device: DeviceId,
        deadline: &Deadline,
        start: impl FnOnce() -> Result<(ServiceId, Arc<S>)>,
    ) -> Result<(Arc<S>, bool)> {
        match self.find(device, deadline)? {
            Ok(service) => Ok((service, false)),
            Err(place) => {
                let (id, service) = start()?;
                place.fill(id, &service);
                Ok((service, true))
            }
        }
    }

    fn running(&self, id: ServiceId) -> Option<Arc<S>> {
        self.entries.lock().iter().find_map(|(_, entry)| match entry {
            Entry::Running(running, service) if *running == id => service.upgrade(),
            _ => None,
        })
    }

    /// Every service that runs.
    fn all(&self) -> Vec<Arc<S>> {
        let entries = self.entries.lock();
        let running = entries.iter().filter_map(|(_, entry)| match entry {
            Entry::Running(_, service) => service.upgrade(),
            Entry::Starting => None,
        });
        running.collect()
    }

    /// Takes a service out, and none that was started on its device since.
    fn forget(&self, id: ServiceId) {
        self.entries.lock().retain(|(_, entry)| !matches!(entry, Entry::Running(running, _) if *running == id));
    }
}

/// The place of a device in the registry while its server starts: given up again unless it is filled.
struct Place<'a, S> {
    registry: &'a Registry<S>,
    device: DeviceId,
}

impl<S> Place<'_, S> {
    fn fill(self, id: ServiceId, service: &Arc<S>) {
        let mut entries = self.registry.entries.lock();
        if let Some((_, entry)) = entries.iter_mut().find(|(d, _)| *d == self.device) {
            *entry = Entry::Running(id, Arc::downgrade(service));
        }
        drop(entries);
        // Not given up: the service may have ended by now, and the place be another's.
        core::mem::forget(self);
    }
}

impl<S> Drop for Place<'_, S> {
    fn drop(&mut self) {
        let mut entries = self.registry.entries.lock();
        entries.retain(|(d, entry)| *d != self.device || !matches!(entry, Entry::Starting));
    }
}

fn find_or_start(
    device: DeviceId,
    settings: &Settings,
    make: impl FnOnce() -> Result<Opened>,
) -> Result<(Arc<Service>, bool)> {
    REGISTRY.find_or_start(device, &Deadline::after(settings.wait_timeout), || {
        let service = Arc::new(Service::start(device, make()?, settings.clone())?);
        Ok((service.id, service))
    })
}

/// The running service of a device, started through its backend if there is none.
pub(crate) fn load(device: DeviceId, settings: &Settings) -> Result<Arc<Service>> {
    let open = || backend::backend(device.backend.as_str())?.open(device.index, &settings.open);
    Ok(find_or_start(device, settings, open)?.0)
}

/// The running service of a device, started with a ready-made server if there is none.
pub(crate) fn init(
    device: DeviceId,
    make: impl FnOnce() -> Result<Opened>,
    settings: &Settings,
) -> Result<Arc<Service>> {
    Ok(find_or_start(device, settings, make)?.0)
}

/// Starts a ready-made server on a device that has none.
pub(crate) fn try_init(device: DeviceId, opened: Opened, settings: &Settings) -> Result<Arc<Service>> {
    match find_or_start(device, settings, || Ok(opened))? {
        (service, true) => Ok(service),
        (_, false) => Err(Error::AlreadyRunning { device }),
    }
}

/// The running service of this id.
pub(crate) fn running(id: ServiceId) -> Option<Arc<Service>> {
    REGISTRY.running(id)
}

/// Ends every service that runs, within one timeout. How many operations were abandoned.
pub(crate) fn shutdown_all(timeout: Duration) -> usize {
    let deadline = Deadline::after(timeout);
    let left = || deadline.remaining().unwrap_or(timeout);
    REGISTRY.all().into_iter().map(|service| service.shutdown(left())).sum()
}

/// Takes a service that has ended out of the registry, so that its device can be started again.
pub(super) fn forget(service: &Service) {
    REGISTRY.forget(service.id);
}

#[cfg(all(test, loom))]
mod loom;
