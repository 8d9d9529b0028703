//! Devices with a fault, as the suite and the process's table of backends get them.

use crate::driver::MutantDriver;
use crate::fault::Fault;
use crate::list::{Base, Mutant};
use crate::server::MutantServer;
use alloc::sync::Arc;
use core::any::Any;
use core::ops::Range;
use trunnion_backend_core::driver::Driver;
use trunnion_backend_core::{DriverServer, ServerSettings};
use trunnion_backend_host::{HostBackend, HostOptions};
use trunnion_conformance::outside::Owner;
use trunnion_conformance::{Factory, Outside, Refusal, Variant};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::backend::{self, Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{BackendName, StreamId};
use trunnion_runtime_core::kernel::{Kernel, KernelReader, Reading, Source};
use trunnion_runtime_core::properties::DeviceInfo;
use trunnion_runtime_core::server::Opened;
use trunnion_runtime_core::timeline::Point;

/// The host, as the suite makes its devices.
#[path = "../../conformance/src/builtin/host.rs"]
mod host;

/// Makes devices with the fault of one mutant.
pub struct MutantFactory {
    mutant: &'static Mutant,
    host: host::Host,
}

impl MutantFactory {
    /// A factory of this mutant's devices.
    pub fn new(mutant: &'static Mutant) -> Self {
        let host = match mutant.base {
            Base::Plain | Base::Loose => host::Host::plain(),
            Base::Hard => host::Host::hard(),
        };
        Self { mutant, host }
    }

    /// Makes the mutant the process's host backend.
    ///
    /// # Errors
    /// As for [`backend::register`].
    pub fn register(&self) -> Result<()> {
        let host = HostBackend::new(self.host.options(&Variant::plain())?);
        backend::register(Arc::new(MutantBackend { mutant: self.mutant, host }))
    }
}

impl core::fmt::Debug for MutantFactory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("MutantFactory").field(self.mutant).finish()
    }
}

impl Factory for MutantFactory {
    fn name(&self) -> &str {
        self.mutant.name
    }

    fn backend(&self) -> &str {
        self.host.backend()
    }

    fn available(&self) -> Result<(), String> {
        Ok(())
    }

    fn start(&self, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal> {
        Ok(open(self.mutant, &self.host.options(variant)?, settings)?)
    }

    fn with_resource(
        &self,
        client: &Client,
        handle: &Handle,
        access: Access,
        task: &mut dyn FnMut(StreamId),
    ) -> Result<Point> {
        self.host.with_resource(client, handle, access, task)
    }

    fn get_resource(&self, client: &Client, handle: &Handle) -> Result<Box<dyn Any>> {
        match self.host.get_resource(client, handle) {
            Err(Error::ForeignHandle { .. }) if self.mutant.fault == Fault::ForeignAccepted => Ok(Box::new(())),
            answer => answer,
        }
    }

    fn export(&self, client: &Client, handle: &Handle) -> Result<Box<dyn Any>> {
        self.host.export(client, handle)
    }

    fn import(&self, client: &Client, memory: &Outside, range: Range<usize>, owner: Owner) -> Result<Handle> {
        self.host.import(client, memory, range, owner)
    }
}

/// The host backend of a process whose host is a mutant.
struct MutantBackend {
    mutant: &'static Mutant,
    host: HostBackend,
}

impl Backend for MutantBackend {
    fn name(&self) -> BackendName {
        self.host.name()
    }

    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        let mut devices = self.host.enumerate()?;
        if self.mutant.fault == Fault::ListingOff {
            devices.iter_mut().for_each(|info| info.device.index += 1);
        }
        Ok(devices)
    }

    fn open(&self, index: u32, settings: &OpenSettings) -> Result<Opened> {
        if index > 0 && self.mutant.fault != Fault::IndexIgnored {
            return self.host.open(index, settings);
        }
        open(self.mutant, &self.host.options().clone().apply(&settings.options)?, settings)
    }
}

/// A reader of kernels for which every kernel works in place.
struct InPlaceReader(Arc<dyn KernelReader>);

impl KernelReader for InPlaceReader {
    fn takes(&self) -> &[SourceForm] {
        self.0.takes()
    }

    fn read(&self, kernel: &dyn Kernel, source: &Source) -> Result<Reading> {
        let mut reading = self.0.read(kernel, source)?;
        reading.interface.in_place = true;
        Ok(reading)
    }
}

fn open(mutant: &Mutant, options: &HostOptions, settings: &OpenSettings) -> Result<Opened> {
    let driver = MutantDriver::new(options, mutant.fault, mutant.base == Base::Loose)?;
    if settings.dry_run && mutant.fault != Fault::DryRunRuns {
        return Ok(trunnion_backend_core::open(driver, settings));
    }
    let (properties, mut reader) = (driver.properties().clone(), driver.reader());
    if mutant.fault == Fault::InterfaceMisread {
        reader = Arc::new(InPlaceReader(reader));
    }
    let mut settings = ServerSettings::from(settings);
    if mutant.fault == Fault::BudgetIgnored {
        settings.memory_budget = None;
    }
    let server = Box::new(MutantServer::new(DriverServer::new(driver, settings), mutant.fault));
    Ok(Opened { server, properties, reader })
}
