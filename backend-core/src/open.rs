//! From a driver to what a client is made of.

use crate::driver::Driver;
use crate::dry::Dry;
use crate::server::{DriverServer, ServerSettings};
use alloc::boxed::Box;
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::server::Opened;

/// A server over a driver that nobody else uses, as these settings want it: over the driver itself, or over a [`Dry`] one.
pub fn open<D: Driver>(driver: D, settings: &OpenSettings) -> Opened {
    if settings.dry_run { serve(Dry::new(driver), settings) } else { serve(driver, settings) }
}

fn serve<D: Driver>(driver: D, settings: &OpenSettings) -> Opened {
    let (properties, reader) = (driver.properties().clone(), driver.reader());
    Opened { server: Box::new(DriverServer::new(driver, ServerSettings::from(settings))), properties, reader }
}
