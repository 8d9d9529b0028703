//! A dry driver over the mock: it compiles, and nothing else reaches the driver inside.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{Script, driver, out, reader};
use std::sync::Arc;
use std::task::Waker;
use trunnion_backend_core::dry::{BATCHES, DryResource};
use trunnion_backend_core::{DriverServer, Dry, ServerSettings};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::executor::{Config, Execution, Executor, Resident};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::{Handle, Handles};
use trunnion_runtime_core::id::{ServiceId, StreamId};
use trunnion_runtime_core::kernel::{KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{
    AccessServer, Bounds, Launch, MemoryServer, Pattern, Payload, Region, Server, StagingServer,
};
use trunnion_runtime_core::timeline::Moment;

/// Counts how often it is asked to look at the device.
struct Bell(u32);

impl Resident for Bell {
    fn progress(&mut self) {
        self.0 += 1;
    }
}

struct Rig {
    server: DriverServer<Dry<mock::Mock>>,
    script: Script,
    handles: Handles,
    service: ServiceId,
    seq: u64,
    executor: Executor<Bell>,
}

fn rig(settings: ServerSettings) -> Rig {
    let (driver, script) = driver("mock compiler 1");
    let executor = Executor::new(Bell(0), Config { execution: Execution::Inline, ..Config::default() }).unwrap();
    let mut server = DriverServer::new(Dry::new(driver), settings);
    server.start(executor.notifier());
    let service = ServiceId::new();
    Rig { server, script, handles: Handles::new(service).unwrap(), service, seq: 0, executor }
}

impl Rig {
    fn at(&mut self, stream: StreamId) -> Moment {
        self.seq += 1;
        Moment { stream, seq: self.seq }
    }

    fn buffer(&mut self, stream: StreamId, size: u64) -> Handle {
        let (handle, at) = (self.handles.create(size).unwrap(), self.at(stream));
        self.server.reserve(at, &handle, AllocationMode::Auto);
        handle
    }

    fn kernel(&self) -> KernelHandle {
        let kernel = SourceKernel::new("k", out()).source(Source::wgsl("k"));
        KernelHandle::prepare(Arc::new(kernel), &mock::properties(), &reader(), self.service).unwrap()(0)
    }

    fn launch(&mut self, stream: StreamId, kernel: &KernelHandle, buffer: &Handle) -> Moment {
        let at = self.at(stream);
        let buffers = [buffer.clone()];
        let launch = Launch { kernel, grid: &Grid::x(1), buffers: &buffers, parameters: &[], bounds: Bounds::Checked };
        self.server.launch(at, &launch);
        at
    }
}

#[test]
fn nothing_but_kernels_reaches_the_driver_inside() {
    let mut rig = rig(ServerSettings::default());
    let (s, t, kernel) = (StreamId::new(), StreamId::new(), rig.kernel());
    let (a, b) = (rig.buffer(s, 1000), rig.buffer(s, 1000));
    rig.launch(s, &kernel, &a);
    let at = rig.at(s);
    rig.server.write(at, &Region::whole(&a), Payload::Bytes(Bytes::from_vec(vec![9; 1000])));
    let at = rig.at(t);
    rig.server.copy(at, &Region::whole(&a), &Region::whole(&b));
    let at = rig.at(t);
    rig.server.fill(at, &b, Pattern::new(&[7]).unwrap());
    let (at, read) = (rig.at(s), Promise::new());
    rig.server.read(at, &[Region::whole(&b)], read.clone());
    rig.server.progress();
    assert_eq!(read.get().unwrap().unwrap()[0].as_slice().unwrap(), [0; 1000]);
    let (at, grant) = (rig.at(StreamId::new()), Promise::new());
    rig.server.open(at, &a, Access::Write, grant.clone());
    rig.server.progress();
    let grant = grant.get().unwrap().unwrap();
    assert_eq!(grant.resource.downcast_ref::<DryResource>(), Some(&DryResource { size: 1000 }));
    rig.server.close(at, None);
    assert_eq!(rig.server.usage().live, 2000);
    let taken = rig.script.get().taken;
    assert_eq!(taken, 0);
    drop(rig.server);
    assert_eq!(rig.script.get().take_log(), ["compile k"]);
}

#[test]
fn work_is_finished_when_somebody_waits_for_it_and_not_before() {
    let mut rig = rig(ServerSettings::default());
    let (s, kernel) = (StreamId::new(), rig.kernel());
    let a = rig.buffer(s, 1000);
    let first = rig.launch(s, &kernel, &a);
    let last = rig.launch(s, &kernel, &a);
    assert_eq!(rig.server.unfinished(last.seq), 2);
    assert!(rig.server.poll(first, Waker::noop()).is_ready());
    // What the first completion let go is a batch of its own.
    assert!(rig.server.poll(last, Waker::noop()).is_ready());
    assert_eq!(rig.server.unfinished(last.seq), 0);
}

#[test]
fn batches_that_nobody_waits_for_are_finished_when_they_become_many() {
    let settings = ServerSettings { batch_limit: 1, ..ServerSettings::default() };
    let (mut rig, s) = (rig(settings), StreamId::new());
    let (kernel, a) = (rig.kernel(), rig.buffer(s, 1000));
    let mut most = 0;
    for _ in 0..10 * BATCHES {
        let at = rig.launch(s, &kernel, &a);
        most = most.max(rig.server.unfinished(at.seq));
        if rig.executor.call(|bell, _| core::mem::take(&mut bell.0), &Deadline::never()).unwrap() > 0 {
            rig.server.progress();
        }
    }
    assert!((BATCHES..=BATCHES + 2).contains(&(most as u64)), "{most} were unfinished");
}

#[test]
fn a_budget_holds_and_what_the_device_has_does_not() {
    let mut rig = rig(ServerSettings { memory_budget: Some(3 << 19), ..ServerSettings::default() });
    rig.script.get().device_memory = Some(1000);
    let s = StreamId::new();
    let (a, b) = (rig.buffer(s, 1 << 20), rig.buffer(s, 1 << 20));
    assert_eq!(rig.server.check(&[a]), Ok(()));
    assert!(rig.server.check(&[b]).is_err_and(|error| error.is_out_of_memory()));
    assert!(rig.server.staging().map(|staging: &mut dyn StagingServer| staging.pin(1).is_err()).is_none());
}
