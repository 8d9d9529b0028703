//! A server around `DriverServer` that hands everything on, one thing wrongly.

use crate::driver::MutantDriver;
use crate::fault::Fault;
use alloc::collections::BTreeMap;
use core::cell::OnceCell;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::HashSet;
use std::thread::ThreadId;
use trunnion_backend_core::DriverServer;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::around::Around;
use trunnion_runtime_core::budget::MemoryBudget;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::{Notifier, Wakers};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, ReportScope};
use trunnion_runtime_core::server::{
    AccessServer, Bounds, Grant, Launch, MemoryRecording, MemoryServer, Pattern, Payload, RecordingServer, Region,
    Server, Until,
};
use trunnion_runtime_core::sink::Sink;
use trunnion_runtime_core::timeline::Moment;

/// How much longer than it should a shutdown takes.
const LATE: Duration = Duration::from_secs(5);

/// How long a transfer's failure is waited for.
const TRANSFER: Duration = Duration::from_millis(500);

/// The context that servers share has ended, where they share one.
static CONTEXT_GONE: AtomicBool = AtomicBool::new(false);

/// A server around `DriverServer`.
#[derive(Debug)]
pub struct MutantServer {
    inner: DriverServer<MutantDriver>,
    fault: Fault,
    wakers: Wakers,
    /// Every operation goes here, where streams are merged.
    only: StreamId,
    /// A stream that claims to come after everything.
    ghost: StreamId,
    /// The latest operation by stream.
    latest: BTreeMap<StreamId, u64>,
    /// What the last launch was given.
    launched: Vec<Handle>,
    /// Memory that was freed before its time.
    freed: HashSet<MemoryId>,
    /// The host bytes of every write.
    payloads: Vec<Bytes>,
    /// The thread that wrote first.
    bound_to: Option<ThreadId>,
    started: bool,
    /// The buffer that was reserved last.
    reserved: Option<MemoryId>,
    /// A buffer that is said to carry a failure, and which.
    slandered: Option<(MemoryId, Error)>,
    /// Why the device was lost, as it is said to callers.
    forged: OnceCell<Error>,
}

impl MutantServer {
    /// A server around one that nobody else uses.
    pub fn new(inner: DriverServer<MutantDriver>, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            wakers: Wakers::new(),
            only: StreamId::new(),
            ghost: StreamId::new(),
            latest: BTreeMap::new(),
            launched: Vec::new(),
            freed: HashSet::new(),
            payloads: Vec::new(),
            bound_to: None,
            started: false,
            reserved: None,
            slandered: None,
            forged: OnceCell::new(),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Where an operation is put.
    fn placed(&mut self, mut at: Moment) -> Moment {
        match self.fault {
            Fault::StreamsMerged => at.stream = self.only,
            Fault::ReusedEarly => drop(self.latest.insert(at.stream, at.seq)),
            _ => {}
        }
        at
    }

    /// A stream as the server inside knows it.
    fn stream(&self, stream: StreamId) -> StreamId {
        if self.is(Fault::StreamsMerged) { self.only } else { stream }
    }

    /// Lets the server inside believe that what the ghost does next comes after all there is.
    fn pretend_to_wait(&mut self, seq: u64) {
        let ghost = Moment { stream: self.ghost, seq };
        self.inner.driver().drops_waits = true;
        for (stream, seq) in &self.latest {
            self.inner.wait(ghost, Until::Moment(Moment { stream: *stream, seq: *seq }));
        }
        self.inner.driver().drops_waits = false;
    }

    fn fill_with_zeros(&mut self, at: Moment, target: &Handle) {
        if let Ok(zero) = Pattern::new(&[0]) {
            self.inner.fill(at, target, zero);
        }
    }

    /// What lies on bytes, as it is told.
    fn told(&mut self, targets: &[Handle]) -> Result<()> {
        if let Some((slandered, error)) = &self.slandered
            && targets.iter().any(|target| target.memory() == *slandered)
        {
            return Err(error.clone());
        }
        let found = self.inner.check(targets);
        if let (Fault::FailureKept, Some(target), Err(error)) = (self.fault, targets.first(), &found) {
            self.slandered = Some((target.memory(), error.clone()));
        }
        match (self.fault, found) {
            (Fault::NamedTwice, Err(error)) => Err(Error::Several(vec![error.clone(), error])),
            (Fault::ChainReversed, Err(Error::Inherited { cause, mut chain, dropped })) => {
                chain.reverse();
                Err(Error::Inherited { cause, chain, dropped })
            }
            (Fault::LineLost, Err(Error::Compile { kernel, message, .. })) => {
                Err(Error::Compile { kernel, message, line: None })
            }
            (_, found) => found,
        }
    }

    /// What a read is answered because of what lies on its bytes, where a mutant tells that in another way.
    fn told_to_reader(&mut self, sources: &[Region]) -> Option<Error> {
        let tells = matches!(
            self.fault,
            Fault::FailureKept | Fault::NamedTwice | Fault::ChainReversed | Fault::LineLost | Fault::OomMarksNeighbour
        );
        if self.is(Fault::ContextShared) && CONTEXT_GONE.load(Ordering::SeqCst) {
            return Some(Error::DeviceLost { cause: "the context was destroyed".into() });
        }
        if !tells {
            return None;
        }
        let handles: Vec<_> = sources.iter().map(|source| source.handle.clone()).collect();
        self.told(&handles).err()
    }
}

impl Around for MutantServer {
    type Inside = DriverServer<MutantDriver>;

    fn inside(&self) -> &DriverServer<MutantDriver> {
        &self.inner
    }

    fn inside_mut(&mut self) -> &mut DriverServer<MutantDriver> {
        &mut self.inner
    }

    fn start(&mut self, notifier: Notifier) {
        self.started = true;
        self.inner.start(notifier);
    }

    fn leave(&mut self) -> Wakers {
        let mut wakers = mem::take(&mut self.wakers);
        wakers.extend(self.inner.leave());
        wakers
    }

    fn fault(&self) -> Option<&Error> {
        let fault = self.inner.fault().filter(|_| !self.is(Fault::FaultHidden))?;
        if self.is(Fault::CauseForgotten) {
            return Some(self.forged.get_or_init(|| Error::DeviceLost { cause: "an error".into() }));
        }
        Some(fault)
    }

    fn unfinished(&self, up_to: u64) -> usize {
        if self.is(Fault::ProgressUnseen) { 1 } else { self.inner.unfinished(up_to) }
    }

    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        let mut at = self.placed(at);
        if self.is(Fault::ReusedEarly) {
            self.pretend_to_wait(at.seq);
            at.stream = self.ghost;
        }
        self.inner.reserve(at, memory, if self.is(Fault::ModeIgnored) { AllocationMode::Auto } else { mode });
        if self.is(Fault::OomMarksNeighbour) {
            let failed = self.inner.check(core::slice::from_ref(memory)).err().filter(Error::is_out_of_memory);
            self.slandered = self.reserved.zip(failed).or(self.slandered.take());
            self.reserved = Some(memory.memory());
        }
    }

    fn try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()> {
        if self.is(Fault::HooksUnasked) {
            Around::reserve(self, at, memory, mode);
            return Ok(());
        }
        let at = self.placed(at);
        self.inner.try_reserve(at, memory, mode)
    }

    fn refuse(&mut self, at: Moment, memory: &Handle, cause: Error) {
        if !self.is(Fault::RefusalForgotten) {
            let at = self.placed(at);
            self.inner.refuse(at, memory, cause);
        }
    }

    fn free(&mut self, memory: MemoryId) {
        if !self.freed.remove(&memory) {
            self.inner.free(memory);
        }
    }

    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        let at = self.placed(at);
        if self.is(Fault::MarkCleared) {
            let whole = self.launched.iter().find(|handle| handle.overlap(&target.handle)).cloned();
            if let Some(whole) = whole.filter(|whole| self.inner.check(core::slice::from_ref(whole)).is_err()) {
                self.fill_with_zeros(at, &whole);
            }
        }
        if self.is(Fault::ThreadBound) {
            let here = std::thread::current().id();
            if *self.bound_to.get_or_insert(here) != here {
                return self.inner.mark(at);
            }
        }
        match data {
            Payload::Bytes(bytes) if self.is(Fault::PayloadKept) => {
                self.payloads.push(bytes.clone());
                self.inner.write(at, target, Payload::Bytes(bytes));
            }
            Payload::Promised(promise) if self.is(Fault::TransferUnmarked) && has_failed(&promise) => {
                self.inner.write(at, target, Payload::Bytes(Bytes::from_vec(vec![0; target.size() as usize])));
            }
            data => self.inner.write(at, target, data),
        }
    }

    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        let at = self.placed(at);
        match self.told_to_reader(sources) {
            Some(error) => {
                into.fulfil(Err(error), &mut self.wakers);
                self.inner.mark(at);
            }
            None => self.inner.read(at, sources, into),
        }
    }

    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        let mut at = self.placed(at);
        if self.is(Fault::StreamSplit) {
            at.stream = sibling(at.stream);
        }
        if self.is(Fault::TaintLost) && self.inner.check(core::slice::from_ref(&source.handle)).is_err() {
            return self.fill_with_zeros(at, &target.handle);
        }
        self.inner.copy(at, source, target);
    }

    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        let at = self.placed(at);
        if self.is(Fault::ZerosSkipped) && pattern.bytes().iter().all(|byte| *byte == 0) {
            return self.inner.mark(at);
        }
        self.inner.fill(at, target, pattern);
    }

    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        let at = self.placed(at);
        match self.fault {
            Fault::FreedBeforeLaunch if !matches!(launch.grid, Grid::Static(0, ..)) => {
                for handle in launch.buffers.iter().filter(|handle| handle.can_mut()) {
                    self.inner.free(handle.memory());
                    self.freed.insert(handle.memory());
                }
            }
            Fault::OffsetIgnored => {
                self.inner.driver().starts = launch.buffers.iter().map(|handle| handle.range().start).collect();
            }
            Fault::MarkCleared | Fault::FlushTells => self.launched = launch.buffers.to_vec(),
            _ => {}
        }
        let failed = self.inner.compile_statistics().failed;
        self.inner.launch(at, launch);
        let has_failed = self.inner.compile_statistics().failed > failed;
        if self.is(Fault::Recompiled) || (self.is(Fault::FailureRecompiled) && has_failed) {
            self.inner.retire_kernel(launch.kernel.slot());
        }
    }

    fn mark(&mut self, at: Moment) {
        let at = self.placed(at);
        self.inner.mark(at);
    }

    fn wait(&mut self, at: Moment, until: Until) {
        let at = self.placed(at);
        match until {
            Until::Promised(_) if self.is(Fault::ForeignPointIgnored) => self.inner.mark(at),
            Until::Moment(on) => {
                let on = Moment { stream: self.stream(on.stream), ..on };
                self.inner.wait(at, Until::Moment(on));
            }
            until => self.inner.wait(at, until),
        }
    }

    fn flush(&mut self, stream: StreamId) -> Result<()> {
        self.inner.flush(self.stream(stream))?;
        if self.is(Fault::FlushTells) { self.inner.check(&self.launched) } else { Ok(()) }
    }

    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        let at = Moment { stream: self.stream(at.stream), ..at };
        self.inner.poll(at, if self.is(Fault::WakerLost) { Waker::noop() } else { waker })
    }

    fn signal(&mut self, at: Moment, promise: Promise<()>) {
        let at = Moment { stream: self.stream(at.stream), ..at };
        self.inner.signal(at, promise);
    }

    fn check(&mut self, targets: &[Handle]) -> Result<()> {
        if self.is(Fault::CheckSilent) { Ok(()) } else { self.told(targets) }
    }

    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        let compiled = self.inner.compile(kernel, bounds);
        if self.is(Fault::CompileSilent) { Ok(()) } else { compiled }
    }

    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        let mut compiled = self.inner.compile_together(kernels);
        if self.is(Fault::CompileSilent) {
            compiled.fill(Ok(()));
        }
        compiled
    }

    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        let abandoned = self.inner.shutdown(deadline);
        if self.is(Fault::ShutdownLate) {
            std::thread::sleep(LATE);
        }
        if self.is(Fault::ShutdownUncounted) { 0 } else { abandoned }
    }

    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        Some(self)
    }

    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        Some(self)
    }
}

impl MemoryServer for MutantServer {
    fn usage(&self) -> MemoryUsage {
        self.inner.usage()
    }

    fn report(&self, scope: ReportScope) -> MemoryReport {
        let mut report = self.inner.report(scope);
        if self.is(Fault::ReportOff) {
            report.pools.iter_mut().take(1).for_each(|pool| pool.live += 1);
        }
        if self.is(Fault::RetiredHidden) {
            report.pools.retain(|pool| !pool.retired);
        }
        report
    }

    fn budget(&self) -> MemoryBudget {
        let mut budget = self.inner.budget();
        if self.is(Fault::BudgetOff) {
            budget.process_used = Some(0);
        }
        budget
    }

    fn cleanup(&mut self) -> Result<()> {
        if self.is(Fault::CleanupIgnored) { Ok(()) } else { self.inner.cleanup() }
    }

    fn install_pools(&mut self, layout: &PoolLayout) -> Option<Result<()>> {
        if self.is(Fault::LayoutIgnored) { Some(Ok(())) } else { self.inner.install_pools(layout) }
    }

    fn recording(&mut self) -> Option<&mut dyn RecordingServer> {
        Some(self)
    }
}

impl RecordingServer for MutantServer {
    fn is_recording(&self) -> bool {
        self.inner.is_recording()
    }

    fn start_recording(&mut self, sink: Box<dyn Sink + Send>) -> Result<()> {
        let frees = !self.is(Fault::FreesUnrecorded);
        self.inner.start_recording(Box::new(Selective { sink, frees }))
    }

    fn snapshot(&mut self, label: &str) {
        if !self.is(Fault::SnapshotLost) {
            self.inner.snapshot(label);
        }
    }

    fn stop_recording(&mut self) -> Option<MemoryRecording> {
        let recording = self.inner.stop_recording();
        if self.is(Fault::RecordingFaultHidden) {
            return recording.map(|recording| MemoryRecording { fault: None, ..recording });
        }
        recording
    }
}

impl AccessServer for MutantServer {
    fn open(&mut self, at: Moment, target: &Handle, access: Access, granted: Promise<Grant>) {
        self.inner.open(at, target, access, granted.clone());
        if self.is(Fault::AccessEndedEarly) && granted.is_given() {
            self.inner.close(at, None);
        }
    }

    fn close(&mut self, at: Moment, failure: Option<Error>) {
        self.inner.close(at, failure);
    }
}

impl Drop for MutantServer {
    fn drop(&mut self) {
        if self.is(Fault::ContextShared) && !self.started {
            CONTEXT_GONE.store(true, Ordering::SeqCst);
        }
    }
}

/// Takes lines, those of frees where it is to.
struct Selective {
    sink: Box<dyn Sink + Send>,
    frees: bool,
}

impl Sink for Selective {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if self.frees || !line.starts_with("free ") { self.sink.line(line) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), String> {
        self.sink.flush()
    }
}

/// A stream beside this one, which no client has.
fn sibling(stream: StreamId) -> StreamId {
    StreamId::from_raw(stream.get() ^ 1 << 63)
}

/// Whether what was promised fails within a short time.
fn has_failed(promise: &Promise<Vec<Bytes>>) -> bool {
    let deadline = Deadline::after(TRANSFER);
    while !promise.is_given() && !deadline.expired() {
        std::thread::sleep(Duration::from_millis(1));
    }
    matches!(promise.get(), Some(Err(_)))
}
