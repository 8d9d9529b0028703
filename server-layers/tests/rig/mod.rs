//! Devices with layers around them, kernels for them, and a server that behaves as a test says.

#![allow(dead_code, reason = "each test file uses a part of it")]

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use std::sync::Mutex;
use trunnion_backend_host::HostBackend;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::backend::Backend;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::{Config, Execution, Executor, Notifier, Resident, Wakers};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::handle::{Handle, Handles};
use trunnion_runtime_core::id::{DeviceId, MemoryId, ServiceId, StreamId};
use trunnion_runtime_core::kernel::{Interface, KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, ReportScope};
use trunnion_runtime_core::server::{
    AccessServer, Bounds, ForeignServer, Grant, Launch, MemoryServer, Opened, Pattern, Payload, Region, Server,
    StagingServer, Until,
};
use trunnion_runtime_core::service::Settings;
use trunnion_runtime_core::staging::PinnedMemory;
use trunnion_runtime_core::timeline::Moment;
use trunnion_server_layers::{FaultInjector, FaultPlan, FaultRecord, Validate, Violations};

pub fn host() -> Opened {
    HostBackend::default().open(0, &Default::default()).unwrap()
}

pub fn start_with(opened: Opened, settings: &Settings) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(100);
    let device = DeviceId { backend: HostBackend::default().name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init_with(device, opened, settings).unwrap()
}

pub fn start(opened: Opened) -> Client {
    let mut settings = Settings::default();
    settings.wait_timeout = Duration::from_secs(10);
    start_with(opened, &settings)
}

/// A host device with a plan, watched from both sides.
pub struct Rig {
    pub client: Client,
    pub faults: FaultRecord,
    pub violations: [Violations; 2],
}

impl Rig {
    pub fn new(plan: FaultPlan) -> Self {
        let (opened, inner) = Validate::around(host());
        let (opened, faults) = FaultInjector::around(opened, plan);
        let (opened, outer) = Validate::around(opened);
        Self { client: start(opened), faults, violations: [outer, inner] }
    }

    /// Nobody broke the contract.
    #[track_caller]
    pub fn is_clean(&self) {
        for violations in &self.violations {
            assert_eq!(violations.count(), 0, "{violations:?}");
        }
    }
}

pub fn on_new_stream(client: &Client) -> Client {
    let mut client = client.clone();
    client.set_stream(StreamId::new());
    client
}

/// `[x]`: adds 1 to every byte of its 64.
pub fn step() -> SourceKernel {
    SourceKernel::new("step", Interface::new().partition(64)).source(Source::host(|group| {
        group.part::<u8>(0)?.iter_mut().for_each(|x| *x = x.wrapping_add(1));
        Ok(())
    }))
}

/// `[from, a, b]`: replaces `a` and `b` by the 64 bytes of `from`.
pub fn spread() -> SourceKernel {
    let interface = Interface::new().read().overwrite(64).overwrite(64);
    SourceKernel::new("spread", interface).source(Source::host(|group| {
        let from = group.read::<u8>(0)?;
        group.part::<u8>(1)?.copy_from_slice(&from[..64]);
        group.part::<u8>(2)?.copy_from_slice(&from[..64]);
        Ok(())
    }))
}

/// A kernel prepared for a server without a client.
pub fn prepared(kernel: SourceKernel, service: ServiceId) -> KernelHandle {
    let Opened { properties, reader, .. } = host();
    KernelHandle::prepare(Arc::new(kernel), &properties, &*reader, service).unwrap()(0)
}

/// A notifier nobody hears.
pub fn notifier() -> Notifier {
    struct Nobody;
    impl Resident for Nobody {}
    let config = Config { execution: Execution::Inline, ..Config::default() };
    Executor::new(Nobody, config).unwrap().notifier()
}

/// What a [`Scripted`] server does otherwise than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    LeavesReadsOpen,
    LeavesSignalsOpen,
    LeavesGrantsOpen,
    ReadsTooLittle,
    ReadsOverFailure,
    HandsNothingOn,
    UndoesMoments,
    FindsMoreUnfinished,
    PollFails,
    FlushFails,
    ChangesFault,
    PendsAfterFault,
    HoldsMemory,
    ReportsOtherwise,
    EndsLate,
    CompilesNone,
}

#[derive(Default)]
pub struct State {
    pub wrong: BTreeSet<Wrong>,
    pub has_memory: bool,
    pub has_access: bool,
    pub fault: Option<Error>,
    /// Bytes carry a failure: memory by index.
    pub failing: BTreeSet<u32>,
    pub started: u32,
    pub entered: u32,
    pub left: u32,
    pub panicked: Vec<u64>,
    pub freed: Vec<MemoryId>,
}

pub type Remote = Arc<Mutex<State>>;

/// A server that carries everything out at once, but for what it is told.
pub struct Scripted {
    pub remote: Remote,
    wakers: Wakers,
    polls: u32,
    asked: core::cell::Cell<usize>,
    last: Option<Error>,
}

impl Scripted {
    pub fn new(has_memory: bool, has_access: bool) -> (Box<Self>, Remote) {
        let remote = Remote::new(Mutex::new(State { has_memory, has_access, ..State::default() }));
        let asked = core::cell::Cell::new(0);
        let server = Self { remote: remote.clone(), wakers: Wakers::new(), polls: 0, asked, last: None };
        (Box::new(server), remote)
    }

    fn is(&self, wrong: Wrong) -> bool {
        self.remote.lock().unwrap().wrong.contains(&wrong)
    }

    fn fails(&self, handle: &Handle) -> bool {
        self.remote.lock().unwrap().failing.contains(&handle.memory().index)
    }

    fn hand_on(&self, from: &[&Handle], to: &[&Handle]) {
        let fails = from.iter().any(|handle| self.fails(handle));
        for handle in to {
            let mut state = self.remote.lock().unwrap();
            if fails && !state.wrong.contains(&Wrong::HandsNothingOn) {
                state.failing.insert(handle.memory().index);
            }
        }
    }
}

pub fn failure() -> Error {
    Error::Driver { call: "test".into(), code: 7, message: "on purpose".into() }
}

impl Server for Scripted {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
    fn start(&mut self, _: Notifier) {
        self.remote.lock().unwrap().started += 1;
    }
    fn enter(&mut self) {
        self.remote.lock().unwrap().entered += 1;
    }
    fn progress(&mut self) {}
    fn leave(&mut self) -> Wakers {
        let mut state = self.remote.lock().unwrap();
        state.left += 1;
        let changes = state.wrong.contains(&Wrong::ChangesFault) && state.left > 1;
        self.last = state.fault.clone().map(|fault| if changes { failure() } else { fault });
        core::mem::take(&mut self.wakers)
    }
    fn panicked(&mut self, seq: u64, _: &str) {
        self.remote.lock().unwrap().panicked.push(seq);
    }
    fn fault(&self) -> Option<&Error> {
        self.last.as_ref()
    }
    fn unfinished(&self, _: u64) -> usize {
        self.asked.set(self.asked.get() + 1);
        if self.is(Wrong::FindsMoreUnfinished) { self.asked.get() } else { 0 }
    }
    fn reserve(&mut self, _: Moment, _: &Handle, _: AllocationMode) {}
    fn free(&mut self, memory: MemoryId) {
        self.remote.lock().unwrap().freed.push(memory);
    }
    fn write(&mut self, _: Moment, target: &Region, data: Payload<'_>) {
        let mut state = self.remote.lock().unwrap();
        match data {
            Payload::Promised(promise) if promise.get().is_none_or(|given| given.is_err()) => {
                state.failing.insert(target.handle.memory().index);
            }
            _ => {
                state.failing.remove(&target.handle.memory().index);
            }
        }
    }
    fn read(&mut self, _: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        if self.is(Wrong::LeavesReadsOpen) {
            return;
        }
        let fails = sources.iter().any(|source| self.fails(&source.handle));
        let short = u64::from(self.is(Wrong::ReadsTooLittle));
        let bytes = sources.iter().map(|s| Bytes::from_vec(vec![0; (s.size() - short) as usize])).collect();
        let answer = if fails && !self.is(Wrong::ReadsOverFailure) { Err(failure()) } else { Ok(bytes) };
        into.fulfil(answer, &mut self.wakers);
    }
    fn copy(&mut self, _: Moment, source: &Region, target: &Region) {
        self.hand_on(&[&source.handle], &[&target.handle]);
    }
    fn fill(&mut self, _: Moment, target: &Handle, _: Pattern) {
        self.remote.lock().unwrap().failing.remove(&target.memory().index);
    }
    fn launch(&mut self, _: Moment, launch: &Launch<'_>) {
        if let [from, to @ ..] = launch.buffers {
            self.hand_on(&[from], &to.iter().collect::<Vec<_>>());
        }
    }
    fn mark(&mut self, _: Moment) {}
    fn wait(&mut self, _: Moment, _: Until) {}
    fn flush(&mut self, _: StreamId) -> Result<()> {
        if self.is(Wrong::FlushFails) { Err(failure()) } else { self.last.clone().map_or(Ok(()), Err) }
    }
    fn poll(&mut self, _: Moment, _: &Waker) -> Poll<Result<()>> {
        self.polls += 1;
        match &self.last {
            _ if self.is(Wrong::PollFails) => Poll::Ready(Err(failure())),
            _ if self.is(Wrong::UndoesMoments) && self.polls > 1 => Poll::Pending,
            Some(_) if self.is(Wrong::PendsAfterFault) => Poll::Pending,
            Some(fault) => Poll::Ready(Err(fault.clone())),
            None => Poll::Ready(Ok(())),
        }
    }
    fn signal(&mut self, _: Moment, promise: Promise<()>) {
        if !self.is(Wrong::LeavesSignalsOpen) {
            promise.fulfil(Ok(()), &mut self.wakers);
        }
    }
    fn check(&mut self, targets: &[Handle]) -> Result<()> {
        if targets.iter().any(|target| self.fails(target)) { Err(failure()) } else { Ok(()) }
    }
    fn compile(&mut self, _: &KernelHandle, _: Bounds) -> Result<()> {
        Ok(())
    }
    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        if self.is(Wrong::CompilesNone) { Vec::new() } else { kernels.iter().map(|_| Ok(())).collect() }
    }
    fn shutdown(&mut self, _: &Deadline) -> usize {
        if self.is(Wrong::EndsLate) {
            std::thread::sleep(Duration::from_millis(1100));
        }
        3
    }
    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        if self.remote.lock().unwrap().has_memory { Some(self) } else { None }
    }
    /// Page-locked memory, where it gives out its own in place.
    fn staging(&mut self) -> Option<&mut dyn StagingServer> {
        if self.remote.lock().unwrap().has_access { Some(self) } else { None }
    }
    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        if self.remote.lock().unwrap().has_access { Some(self) } else { None }
    }
    /// It takes what is foreign where it gives out its own in place.
    fn foreign(&mut self) -> Option<&mut dyn ForeignServer> {
        if self.remote.lock().unwrap().has_access { Some(self) } else { None }
    }
}

impl ForeignServer for Scripted {
    fn import(&mut self, _: Moment, _: &Handle, foreign: &Foreign) -> Result<()> {
        foreign.get::<u32>().map(|_| ())
    }
    fn import_event(&mut self, _: Moment, event: &Foreign) -> Result<()> {
        event.get::<u32>().map(|_| ())
    }
    fn export_event(&mut self, at: Moment) -> Result<Arc<dyn Any + Send + Sync>> {
        Ok(Arc::new(at.seq))
    }
}

impl StagingServer for Scripted {
    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>> {
        Err(Error::Driver { call: "pin".into(), code: 7, message: format!("{size} bytes") })
    }
}

impl MemoryServer for Scripted {
    fn usage(&self) -> MemoryUsage {
        let live = 64 * u64::from(self.is(Wrong::HoldsMemory) || self.is(Wrong::ReportsOtherwise));
        MemoryUsage { live, ..MemoryUsage::default() }
    }
    fn report(&self, _: ReportScope) -> MemoryReport {
        let mut report = MemoryReport::default();
        if self.is(Wrong::HoldsMemory) {
            let mut pool = report.total();
            pool.live = 64;
            report.pools.push(pool);
        }
        report
    }
    fn cleanup(&mut self) -> Result<()> {
        Ok(())
    }
}

impl AccessServer for Scripted {
    fn open(&mut self, _: Moment, _: &Handle, _: Access, granted: Promise<Grant>) {
        if !self.is(Wrong::LeavesGrantsOpen) {
            granted.fulfil(Ok(Grant { resource: Arc::new(7u32), host: None }), &mut self.wakers);
        }
    }
    fn close(&mut self, _: Moment, _: Option<Error>) {}
}

/// A server that a test calls itself, with handles and numbers.
pub struct Direct {
    pub server: Box<dyn Server>,
    pub handles: Handles,
    pub service: ServiceId,
    pub stream: StreamId,
    seq: u64,
}

impl Direct {
    pub fn new(server: Box<dyn Server>) -> Self {
        let service = ServiceId::new();
        let handles = Handles::new(service).unwrap();
        let mut direct = Self { server, handles, service, stream: StreamId::new(), seq: 0 };
        direct.server.start(notifier());
        direct
    }

    /// The next moment of the stream.
    pub fn next(&mut self) -> Moment {
        self.seq += 1;
        Moment { stream: self.stream, seq: self.seq }
    }

    /// Memory that is reserved.
    pub fn reserved(&mut self, size: u64) -> Handle {
        let (handle, at) = (self.handles.create(size).unwrap(), self.next());
        self.server.reserve(at, &handle, AllocationMode::Auto);
        handle
    }
}
