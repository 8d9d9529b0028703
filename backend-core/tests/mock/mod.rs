//! A driver that does what a test tells it: records every call, finishes batches when told to, fails where told to.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use trunnion_backend_core::driver::{
    CompileJob, Compiled, Driver, DriverGrid, DriverLaunch, DriverRefusal, Imported, Outcome, Place, StoredCode,
};
use trunnion_backend_core::{DriverServer, ServerSettings};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::executor::{Config, Execution, Executor, Notifier, Resident};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::{Handle, Handles};
use trunnion_runtime_core::id::{BackendName, DeviceId, ServiceId, StreamId};
use trunnion_runtime_core::kernel::{DeclaredInterface, Interface, KernelHandle, KernelReader, Source, SourceKernel};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::properties::{DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties};
use trunnion_runtime_core::server::{Bounds, Grant, HostMemory, Launch, Pattern, Payload, Region, Server};
use trunnion_runtime_core::timeline::Moment;

pub type Memory = Arc<Mutex<Vec<u8>>>;
type Step = Box<dyn FnOnce(&mut Outcome) + Send>;

/// What happens to a call of the driver.
#[derive(Clone)]
pub enum Fate {
    Fails(Error),
    Panics,
}

struct Batch {
    seq: u64,
    steps: Vec<(u64, Step)>,
    waits: Vec<(u32, u64)>,
}

#[derive(Default)]
struct Queue {
    encoded: Vec<(u64, Step)>,
    submitted: VecDeque<Batch>,
    /// What the batch being encoded waits for: other streams and their operations.
    waits: Vec<(u32, u64)>,
    finished: u64,
    outcome: Outcome,
}

#[derive(Default)]
pub struct State {
    pub log: Vec<String>,
    queues: BTreeMap<u32, Queue>,
    next: u32,
    /// By call and how many of them go well before.
    fates: HashMap<&'static str, VecDeque<(usize, Fate)>>,
    pub pages: usize,
    pub device_memory: Option<u64>,
    /// In what steps pages grow; set before the server is made.
    pub growth_step: Option<u64>,
    pub taken: u64,
    /// Batches finish as they are submitted.
    pub instant: bool,
    /// Whether short writes are carried out at once.
    pub writes_now: bool,
    /// `drain` finishes everything.
    pub drains: bool,
    pub stored_is_refused: bool,
    /// How many kernels are compiled at the same time; 0 is 1.
    pub compiles_at_once: usize,
    /// Operations that fail when they run.
    pub failing: BTreeMap<u64, Error>,
    pub lost: Option<Error>,
}

impl State {
    fn fate(&mut self, call: &'static str) -> Result<()> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let Some(queue) = self.fates.get_mut(call) else { return Ok(()) };
        let Some((before, fate)) = queue.front_mut() else { return Ok(()) };
        if *before > 0 {
            *before -= 1;
            return Ok(());
        }
        let fate = fate.clone();
        queue.pop_front();
        match fate {
            Fate::Fails(error) => Err(error),
            Fate::Panics => panic!("the mock's {call} panics"),
        }
    }

    /// Finishes the oldest batch of a stream, if what it waits for is finished.
    pub fn finish(&mut self, stream: u32) -> bool {
        let over = |(other, seq): &(u32, u64)| self.queues.get(other).is_none_or(|queue| queue.finished >= *seq);
        let may = self
            .queues
            .get(&stream)
            .and_then(|queue| queue.submitted.front())
            .is_some_and(|batch| batch.waits.iter().all(over));
        let Some(queue) = self.queues.get_mut(&stream).filter(|_| may) else { return false };
        let Some(Batch { seq, steps, .. }) = queue.submitted.pop_front() else { return false };
        for (op, step) in steps {
            match self.failing.remove(&op) {
                // Of several pieces of a read the others are gone with it.
                Some(error) => queue.outcome.failed.push((op, error)),
                None => step(&mut queue.outcome),
            }
        }
        queue.finished = seq;
        true
    }

    pub fn finish_all(&mut self) {
        let streams: Vec<u32> = self.queues.keys().copied().collect();
        while streams.iter().filter(|stream| self.finish(**stream)).count() > 0 {}
    }

    /// Where events of somebody else are among the streams.
    const EVENTS: u32 = 1 << 16;

    /// An event of somebody else happens.
    pub fn happens(&mut self, event: u32) {
        self.queues.entry(Self::EVENTS + event).or_default().finished = 1;
    }

    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    pub fn streams(&self) -> Vec<u32> {
        self.queues.keys().copied().collect()
    }

    pub fn open_streams(&self) -> usize {
        self.queues.len()
    }
}

#[derive(Clone)]
pub struct Script(Arc<Mutex<State>>);

impl Script {
    pub fn get(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The next call of this name has this fate, after `before` that go well.
    pub fn next(&self, call: &'static str, before: usize, fate: Fate) {
        self.get().fates.entry(call).or_default().push_back((before, fate));
    }
}

pub struct MockPage {
    bytes: Memory,
    size: u64,
}

pub struct MockStream(u32);

/// Memory of somebody else, which tells when it is dropped.
pub struct MockMemory {
    pub bytes: Memory,
    pub held: Arc<()>,
}

/// An event of somebody else: it happens when the test says so.
pub struct MockEvent {
    pub number: u32,
    pub held: Arc<()>,
}

pub struct Mock {
    script: Script,
    properties: DeviceProperties,
    pub compiler: String,
}

struct Window {
    bytes: Memory,
    start: usize,
}

impl HostMemory for Window {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let start = self.start + offset as usize;
        into.copy_from_slice(&self.bytes.lock().unwrap()[start..start + into.len()]);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let start = self.start + offset as usize;
        self.bytes.lock().unwrap()[start..start + from.len()].copy_from_slice(from);
    }
}

fn window(place: &Place<'_, MockPage>) -> (Memory, usize, usize) {
    (place.page.bytes.clone(), place.offset as usize, place.size as usize)
}

impl Mock {
    fn encode(&mut self, stream: &MockStream, seq: u64, text: String, step: Step) {
        let mut state = self.script.get();
        state.log.push(format!("{text} on {} #{seq}", stream.0));
        let queue = state.queues.get_mut(&stream.0).unwrap();
        assert!(queue.encoded.last().is_none_or(|(before, _)| *before <= seq), "numbers grow on a stream");
        queue.encoded.push((seq, step));
    }
}

// SAFETY: it runs nothing but what was encoded, on memory it owns.
unsafe impl Driver for Mock {
    type Page = MockPage;
    type Stream = MockStream;
    type Code = String;

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        Arc::new(reader())
    }

    fn start(&mut self, _: Notifier) {}

    fn allocate(&mut self, size: u64) -> Result<MockPage, DriverRefusal> {
        let mut state = self.script.get();
        if state.device_memory.is_some_and(|most| state.taken + size > most) {
            return Err(DriverRefusal { message: "the mock is full".into(), out_of_memory: true });
        }
        state.taken += size;
        state.pages += 1;
        Ok(MockPage { bytes: Arc::new(Mutex::new(vec![0; size as usize])), size })
    }

    fn growth_step(&self) -> Option<u64> {
        self.script.get().growth_step
    }

    fn allocate_growing(&mut self, size: u64, reach: u64) -> Result<MockPage, DriverRefusal> {
        self.script.get().log.push(format!("page of {size} up to {reach}"));
        self.allocate(size)
    }

    fn grow(&mut self, page: &mut MockPage, size: u64) -> Result<(), DriverRefusal> {
        let mut state = self.script.get();
        state.log.push(format!("page of {} grows to {size}", page.size));
        if let Err(error) = state.fate("grow") {
            return Err(DriverRefusal { message: error.to_string(), out_of_memory: error.is_out_of_memory() });
        }
        state.taken += size - page.size;
        page.size = size;
        page.bytes.lock().unwrap().resize(size as usize, 0);
        Ok(())
    }

    fn release(&mut self, page: MockPage) {
        let mut state = self.script.get();
        state.taken -= page.size;
        state.pages -= 1;
    }

    fn page_alignment(&self) -> u64 {
        256
    }

    fn compile(&mut self, kernel: &KernelHandle, _: Bounds, stored: Option<&[u8]>) -> Result<Compiled<String>> {
        let mut state = self.script.get();
        state.log.push(format!("compile {}{}", kernel.name(), if stored.is_some() { " stored" } else { "" }));
        state.fate("compile")?;
        let source = String::from_utf8_lossy(kernel.source().content().unwrap_or_default()).into_owned();
        if source.contains("error") {
            let message = "the source says so".into();
            return Err(Error::Compile { kernel: kernel.name().into(), message, line: Some(1) });
        }
        let code = format!("code of {source}");
        let stored = match stored {
            Some(_) if state.stored_is_refused => StoredCode::Damaged(code.clone().into_bytes()),
            Some(bytes) => {
                assert_eq!(bytes, code.as_bytes(), "stored code belongs to this source");
                StoredCode::Used
            }
            None => StoredCode::Keep(code.clone().into_bytes()),
        };
        Ok(Compiled { code, stored })
    }

    fn compiles_at_once(&self) -> usize {
        self.script.get().compiles_at_once
    }

    fn compile_together(&mut self, jobs: &[CompileJob<'_>]) -> Vec<Result<Compiled<String>>> {
        self.script.get().log.push(format!("together {}", jobs.len()));
        jobs.iter().map(|job| self.compile(job.kernel, job.bounds, job.stored)).collect()
    }

    fn compiler_identity(&self) -> &str {
        &self.compiler
    }

    fn open_stream(&mut self) -> Result<MockStream> {
        let mut state = self.script.get();
        state.fate("open")?;
        state.next += 1;
        let stream = state.next;
        state.queues.insert(stream, Queue::default());
        state.log.push(format!("open {stream}"));
        Ok(MockStream(stream))
    }

    fn close_stream(&mut self, stream: MockStream) {
        let mut state = self.script.get();
        let queue = state.queues.remove(&stream.0).expect("closed once");
        assert!(queue.submitted.is_empty(), "a stream is closed only when nothing on it is unfinished");
        state.log.push(format!("close {}", stream.0));
    }

    fn barrier(&mut self, stream: &mut MockStream) {
        self.script.get().log.push(format!("barrier on {}", stream.0));
    }

    fn wait(&mut self, stream: &mut MockStream, other: &mut MockStream, seq: u64) {
        let mut state = self.script.get();
        assert!(state.queues[&stream.0].encoded.is_empty(), "a wait comes before what is encoded");
        let other_queue = &state.queues[&other.0];
        let submitted = other_queue.submitted.iter().any(|batch| batch.seq >= seq);
        assert!(submitted || other_queue.finished >= seq, "what is waited for was submitted");
        state.log.push(format!("wait on {} for {} #{seq}", stream.0, other.0));
        state.queues.get_mut(&stream.0).unwrap().waits.push((other.0, seq));
    }

    fn submit(&mut self, stream: &mut MockStream, seq: u64) -> Result<()> {
        let mut state = self.script.get();
        state.log.push(format!("submit {} #{seq}", stream.0));
        let fate = state.fate("submit");
        let queue = state.queues.get_mut(&stream.0).unwrap();
        let (steps, waits) = (std::mem::take(&mut queue.encoded), std::mem::take(&mut queue.waits));
        fate?;
        queue.submitted.push_back(Batch { seq, steps, waits });
        if state.instant {
            state.finish_all();
        }
        Ok(())
    }

    fn poll(&mut self, stream: &mut MockStream, outcome: &mut Outcome) -> Result<u64> {
        let mut state = self.script.get();
        state.fate("poll")?;
        let queue = state.queues.get_mut(&stream.0).unwrap();
        outcome.failed.append(&mut queue.outcome.failed);
        outcome.read.append(&mut queue.outcome.read);
        Ok(queue.finished)
    }

    unsafe fn launch(&mut self, stream: &mut MockStream, seq: u64, launch: DriverLaunch<'_, Self>) -> Result<()> {
        self.script.get().fate("launch")?;
        if let DriverGrid::Static(counts) = launch.grid {
            assert!(!counts.contains(&0));
        }
        // Every kernel adds one to each byte of its last buffer, and to it the first byte of its first.
        let places: Vec<_> = launch.buffers.iter().map(window).collect();
        let step: Step = Box::new(move |_| {
            let Some((last, start, size)) = places.last().cloned() else { return };
            let (first, at, length) = places[0].clone();
            let add = if length > 0 && places.len() > 1 { first.lock().unwrap()[at] } else { 0 };
            last.lock().unwrap()[start..start + size].iter_mut().for_each(|b| *b = b.wrapping_add(1).wrapping_add(add));
        });
        self.encode(stream, seq, launch.kernel.name().into(), step);
        Ok(())
    }

    unsafe fn copy(
        &mut self,
        stream: &mut MockStream,
        seq: u64,
        source: Place<'_, MockPage>,
        source_rows: &Rows,
        target: Place<'_, MockPage>,
        target_rows: &Rows,
    ) -> Result<()> {
        self.script.get().fate("copy")?;
        let ((from, from_start, _), (to, to_start, _)) = (window(&source), window(&target));
        let (from_rows, to_rows) = (source_rows.clone(), target_rows.clone());
        self.encode(
            stream,
            seq,
            "copy".into(),
            Box::new(move |_| {
                let bytes = gather(&from.lock().unwrap(), from_start, &from_rows);
                scatter(&mut to.lock().unwrap(), to_start, &to_rows, &bytes);
            }),
        );
        Ok(())
    }

    unsafe fn fill(
        &mut self,
        stream: &mut MockStream,
        seq: u64,
        target: Place<'_, MockPage>,
        pattern: Pattern,
    ) -> Result<()> {
        self.script.get().fate("fill")?;
        let (to, start, size) = window(&target);
        self.encode(
            stream,
            seq,
            "fill".into(),
            Box::new(move |_| {
                let mut bytes = to.lock().unwrap();
                for chunk in bytes[start..start + size].chunks_mut(pattern.bytes().len()) {
                    chunk.copy_from_slice(&pattern.bytes()[..chunk.len()]);
                }
            }),
        );
        Ok(())
    }

    unsafe fn write(
        &mut self,
        stream: &mut MockStream,
        seq: u64,
        data: Bytes,
        target: Place<'_, MockPage>,
        rows: &Rows,
    ) -> Result<()> {
        self.script.get().fate("write")?;
        let ((to, start, _), rows) = (window(&target), rows.clone());
        self.encode(
            stream,
            seq,
            "write".into(),
            Box::new(move |_| {
                scatter(&mut to.lock().unwrap(), start, &rows, data.as_slice().unwrap());
            }),
        );
        Ok(())
    }

    unsafe fn write_now(&mut self, data: &[u8], target: Place<'_, MockPage>, rows: &Rows) -> bool {
        let mut state = self.script.get();
        if state.writes_now {
            state.log.push("write now".into());
            drop(state);
            let (to, start, _) = window(&target);
            scatter(&mut to.lock().unwrap(), start, rows, data);
            return true;
        }
        false
    }

    unsafe fn read(
        &mut self,
        stream: &mut MockStream,
        seq: u64,
        index: usize,
        source: Place<'_, MockPage>,
        rows: &Rows,
        mut into: HostBuffer,
    ) -> Result<()> {
        self.script.get().fate("read")?;
        let ((from, start, _), rows) = (window(&source), rows.clone());
        self.encode(
            stream,
            seq,
            "read".into(),
            Box::new(move |outcome| {
                into.as_mut_slice().copy_from_slice(&gather(&from.lock().unwrap(), start, &rows));
                outcome.read.push((seq, index, into));
            }),
        );
        Ok(())
    }

    unsafe fn grant(&mut self, place: Place<'_, MockPage>, access: Access) -> Grant {
        let mut state = self.script.get();
        state.log.push(format!("grant {access:?}"));
        let panics = state.fate("grant").is_err();
        drop(state);
        assert!(!panics);
        let (bytes, start, _) = window(&place);
        Grant { resource: Arc::new(()), host: Some(Arc::new(Window { bytes, start })) }
    }

    fn import(&mut self, foreign: &Foreign) -> Result<Imported<MockPage>> {
        let mut state = self.script.get();
        state.fate("import")?;
        let bytes = foreign.get::<MockMemory>()?.bytes.clone();
        state.pages += 1;
        Ok(Imported { page: MockPage { bytes, size: 0 }, offset: 2 })
    }

    fn import_event(&mut self, stream: &mut MockStream, event: &Foreign) -> Result<()> {
        let mut state = self.script.get();
        state.fate("import_event")?;
        let number = event.get::<MockEvent>()?.number;
        state.log.push(format!("wait on {} for event {number}", stream.0));
        state.queues.entry(State::EVENTS + number).or_default();
        state.queues.get_mut(&stream.0).unwrap().waits.push((State::EVENTS + number, 1));
        Ok(())
    }

    fn export_event(&mut self, stream: &mut MockStream, seq: u64) -> Result<Arc<dyn Any + Send + Sync>> {
        self.script.get().fate("export_event")?;
        Ok(Arc::new((stream.0, seq)))
    }

    fn drain(&mut self, deadline: &Deadline) -> bool {
        let mut state = self.script.get();
        if state.drains {
            state.finish_all();
        }
        let idle = state.queues.values().all(|queue| queue.submitted.is_empty());
        drop(state);
        if !idle {
            std::thread::sleep(deadline.remaining().unwrap_or(Duration::ZERO));
        }
        idle
    }
}

fn gather(from: &[u8], start: usize, rows: &Rows) -> Vec<u8> {
    let mut bytes = Vec::new();
    rows.for_each(|offset| {
        let at = start + offset as usize;
        bytes.extend_from_slice(&from[at..at + rows.row as usize]);
    });
    bytes
}

fn scatter(to: &mut [u8], start: usize, rows: &Rows, bytes: &[u8]) {
    let mut chunks = bytes.chunks(rows.row as usize);
    rows.for_each(|offset| {
        let at = start + offset as usize;
        to[at..at + rows.row as usize].copy_from_slice(chunks.next().unwrap());
    });
}

pub fn reader() -> DeclaredInterface {
    DeclaredInterface(vec![SourceForm::Wgsl, SourceForm::Host])
}

pub fn properties() -> DeviceProperties {
    let device = DeviceId { backend: BackendName::new("mock").unwrap(), index: 0 };
    let info = DeviceInfo::new(device, DeviceKind::Other, "mock", "1", "1");
    let mut limits = Limits::default();
    limits.max_allocation = 1 << 20;
    limits.max_buffers = 16;
    DeviceProperties::new(
        info,
        Features::new(vec![ElemType::U8], vec![SourceForm::Wgsl]),
        limits,
        TargetProperties::new("mock", 16, 1),
    )
}

struct Nobody;

impl Resident for Nobody {}

/// A server over the mock, and what a client would keep for it.
pub struct Rig {
    pub server: DriverServer<Mock>,
    pub script: Script,
    pub handles: Handles,
    pub service: ServiceId,
    seq: u64,
    kernels: u32,
    /// Where the notifier comes from.
    _executor: Executor<Nobody>,
}

pub fn rig() -> Rig {
    rig_with(ServerSettings::default())
}

pub fn rig_with(settings: ServerSettings) -> Rig {
    rig_of("mock compiler 1", settings)
}

/// The driver alone, and what it is told by.
pub fn driver(compiler: &str) -> (Mock, Script) {
    let script = Script(Arc::default());
    (Mock { script: script.clone(), properties: properties(), compiler: compiler.into() }, script)
}

pub fn rig_of(compiler: &str, settings: ServerSettings) -> Rig {
    rig_over(driver(compiler), ServerSettings { memory_pools: PoolLayout::fixed(4096).unwrap(), ..settings })
}

/// A rig over a mock that may have been told something already.
pub fn rig_over((driver, script): (Mock, Script), settings: ServerSettings) -> Rig {
    let executor = Executor::new(Nobody, Config { execution: Execution::Inline, ..Config::default() }).unwrap();
    let settings = ServerSettings { drop_wait: Duration::from_millis(20), ..settings };
    let mut server = DriverServer::new(driver, settings);
    server.start(executor.notifier());
    let service = ServiceId::new();
    let handles = Handles::new(service).unwrap();
    Rig { server, script, handles, service, seq: 0, kernels: 0, _executor: executor }
}

impl Rig {
    pub fn at(&mut self, stream: StreamId) -> Moment {
        self.seq += 1;
        Moment { stream, seq: self.seq }
    }

    pub fn buffer(&mut self, stream: StreamId, size: u64) -> Handle {
        let handle = self.handles.create(size).unwrap();
        let at = self.at(stream);
        self.server.reserve(at, &handle, AllocationMode::Auto);
        handle
    }

    pub fn free_dropped(&mut self) {
        self.handles.free_dropped(|memory| self.server.free(memory));
    }

    pub fn kernel(&mut self, name: &str, interface: Interface) -> KernelHandle {
        self.kernel_of(name, name, interface)
    }

    pub fn kernel_of(&mut self, name: &str, source: &str, interface: Interface) -> KernelHandle {
        self.prepared(SourceKernel::new(name, interface).source(Source::wgsl(source)))
    }

    pub fn prepared(&mut self, kernel: SourceKernel) -> KernelHandle {
        self.kernels += 1;
        KernelHandle::prepare(Arc::new(kernel), &properties(), &reader(), self.service).unwrap()(self.kernels - 1)
    }

    pub fn launch(&mut self, stream: StreamId, kernel: &KernelHandle, buffers: &[&Handle]) -> Moment {
        let at = self.at(stream);
        let buffers: Vec<Handle> = buffers.iter().map(|handle| (*handle).clone()).collect();
        let launch = Launch { kernel, grid: &Grid::x(1), buffers: &buffers, parameters: &[], bounds: Bounds::Checked };
        self.server.launch(at, &launch);
        at
    }

    pub fn write(&mut self, stream: StreamId, target: &Handle, byte: u8) -> Moment {
        let at = self.at(stream);
        let bytes = Bytes::from_vec(vec![byte; target.size_in_used() as usize]);
        self.server.write(at, &Region::whole(target), Payload::Bytes(bytes));
        at
    }

    pub fn read(&mut self, stream: StreamId, source: &Handle) -> Promise<Vec<Bytes>> {
        let (at, promise) = (self.at(stream), Promise::new());
        self.server.read(at, &[Region::whole(source)], promise.clone());
        promise
    }

    /// Finishes everything, as often as there is something new.
    pub fn run(&mut self) {
        for _ in 0..100 {
            self.script.get().finish_all();
            self.server.progress();
        }
    }

    pub fn log(&self) -> Vec<String> {
        self.script.get().take_log()
    }

    pub fn is_done(&mut self, at: Moment) -> bool {
        self.server.poll(at, std::task::Waker::noop()).is_ready()
    }
}

/// The first byte a read was given.
pub fn first(promise: &Promise<Vec<Bytes>>) -> Result<u8> {
    promise.get().expect("the read is over").map(|all| all[0].as_slice().unwrap()[0])
}

pub fn io() -> Interface {
    Interface::new().read().partition(1)
}

pub fn out() -> Interface {
    Interface::new().partition(1)
}
