//! The one registry of the process: which devices run.

use super::{Service, Settings};
use crate::backend;
use crate::error::{Error, Result};
use crate::id::{DeviceId, ServiceId};
use crate::platform::{Backoff, Deadline};
use crate::server::Opened;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

enum Entry {
    /// Somebody is starting it.
    Starting,
    Running(Weak<Service>),
}

static REGISTRY: spin::Mutex<Vec<(DeviceId, ServiceId, Entry)>> = spin::Mutex::new(Vec::new());

/// Takes the place of a device in the registry while its server starts; gives it up again unless it is filled.
struct Place(DeviceId);

impl Place {
    /// The running service, or the place to start one in.
    fn find(device: DeviceId, deadline: &Deadline) -> Result<core::result::Result<Arc<Service>, Self>> {
        let mut backoff = Backoff::default();
        loop {
            {
                let mut registry = REGISTRY.lock();
                let position = registry.iter().position(|(d, _, _)| *d == device);
                match position.map(|p| (&registry[p].2, p)) {
                    Some((Entry::Running(service), p)) => match service.upgrade() {
                        Some(service) => return Ok(Ok(service)),
                        // The last client is gone; what is left of the service ends by itself.
                        None => {
                            registry.swap_remove(p);
                        }
                    },
                    Some((Entry::Starting, _)) => {}
                    None => {
                        registry.push((device, ServiceId::from_raw(0), Entry::Starting));
                        return Ok(Err(Self(device)));
                    }
                }
            }
            if deadline.expired() {
                return Err(Error::Busy { what: "another thread is starting the device".into() });
            }
            backoff.wait();
        }
    }

    fn fill(self, service: &Arc<Service>) {
        let mut registry = REGISTRY.lock();
        if let Some(entry) = registry.iter_mut().find(|(d, _, _)| *d == self.0) {
            entry.1 = service.id;
            entry.2 = Entry::Running(Arc::downgrade(service));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        REGISTRY.lock().retain(|(d, _, entry)| *d != self.0 || !matches!(entry, Entry::Starting));
    }
}

fn find_or_start(
    device: DeviceId,
    settings: &Settings,
    make: impl FnOnce() -> Result<Opened>,
) -> Result<(Arc<Service>, bool)> {
    match Place::find(device, &Deadline::after(settings.wait_timeout))? {
        Ok(service) => Ok((service, false)),
        Err(place) => {
            let service = Arc::new(Service::start(device, make()?, settings.clone())?);
            place.fill(&service);
            Ok((service, true))
        }
    }
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
    REGISTRY.lock().iter().find(|(_, service, _)| *service == id).and_then(|(_, _, entry)| match entry {
        Entry::Running(service) => service.upgrade(),
        Entry::Starting => None,
    })
}

/// Takes a service that has ended out of the registry, so that its device can be started again.
pub(super) fn forget(service: &Service) {
    REGISTRY.lock().retain(|(_, id, _)| *id != service.id);
}
