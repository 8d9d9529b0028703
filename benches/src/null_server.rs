//! A server that does nothing, to measure what is around it.

use std::any::Any;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::executor::{Execution, Notifier, Wakers};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{BackendName, DeviceId, MemoryId, StreamId};
use trunnion_runtime_core::kernel::{DeclaredInterface, Interface, KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::properties::{DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties};
use trunnion_runtime_core::server::{Bounds, Launch, Opened, Pattern, Payload, Region, Server, Until};
use trunnion_runtime_core::service::{Settings, defaults};
use trunnion_runtime_core::timeline::Moment;

/// Run by the next flush, from inside the device's own work: what it queues waits until that is over, and is then run in one go.
pub static BURST: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Does nothing; everything is done as soon as it is asked for.
#[derive(Default)]
pub struct NullServer {
    launches: u64,
}

impl Server for NullServer {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
    fn start(&mut self, _: Notifier) {}
    fn progress(&mut self) {}
    fn leave(&mut self) -> Wakers {
        Wakers::new()
    }
    fn panicked(&mut self, _: u64, _: &str) {}
    fn fault(&self) -> Option<&Error> {
        None
    }
    fn unfinished(&self, _: u64) -> usize {
        0
    }
    fn reserve(&mut self, _: Moment, _: &Handle, _: AllocationMode) {}
    fn free(&mut self, _: MemoryId) {}
    fn write(&mut self, _: Moment, _: &Region, _: Payload<'_>) {}
    fn read(&mut self, _: Moment, _: &[Region], _: Promise<Vec<Bytes>>) {}
    fn copy(&mut self, _: Moment, _: &Region, _: &Region) {}
    fn fill(&mut self, _: Moment, _: &Handle, _: Pattern) {}
    #[inline(never)]
    fn launch(&mut self, _: Moment, launch: &Launch<'_>) {
        self.launches += black_box(launch).buffers.len() as u64;
    }
    fn mark(&mut self, _: Moment) {}
    fn wait(&mut self, _: Moment, _: Until) {}
    fn flush(&mut self, _: StreamId) -> Result<()> {
        if let Some(burst) = BURST.lock().ok().and_then(|mut burst| burst.take()) {
            burst();
        }
        Ok(())
    }
    fn poll(&mut self, _: Moment, _: &Waker) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn signal(&mut self, _: Moment, _: Promise<()>) {}
    fn check(&mut self, _: &[Handle]) -> Result<()> {
        Ok(())
    }
    fn compile(&mut self, _: &KernelHandle, _: Bounds) -> Result<()> {
        Ok(())
    }
    fn shutdown(&mut self, _: &Deadline) -> usize {
        0
    }
}

/// A client of a null server, with a kernel of 4 buffers and 16 bytes of parameters, and 4 buffers.
pub fn client(index: u32, execution: Execution) -> Result<(Client, KernelHandle, [Handle; 4])> {
    let backend = BackendName::new("null").ok_or(Error::SizeOverflow { what: "name".into() })?;
    let device = DeviceId { backend, index };
    let mut limits = Limits::default();
    limits.max_buffers = 16;
    let properties = DeviceProperties::new(
        DeviceInfo::new(device, DeviceKind::Other, "null", "benches", "null"),
        Features::new(Vec::new(), vec![SourceForm::Host]),
        limits,
        TargetProperties::new("null", 16, 1),
    );
    let reader = Arc::new(DeclaredInterface(vec![SourceForm::Host]));
    let opened = Opened { server: Box::new(NullServer::default()), properties, reader };
    let mut settings: Settings = defaults();
    settings.executor.execution = execution;
    let client = Client::try_init_with(device, opened, &settings)?;
    let interface = Interface::new().read().read().read().partition(256).parameters(16);
    let kernel = client.prepare(SourceKernel::new("null", interface).source(Source::host(|_| Ok(()))))?;
    let buffers = [client.empty(1024)?, client.empty(1024)?, client.empty(1024)?, client.empty(1024)?];
    Ok((client, kernel, buffers))
}
