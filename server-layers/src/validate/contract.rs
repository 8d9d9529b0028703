//! The `Server` trait, call by call: looked at before and after, and handed on as it is.

use super::Validate;
use super::caller::used;
use super::violation::Violation;
use crate::inside::ask_foreign;
use crate::operation::Operation;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::task::{Poll, Waker};
use core::time::Duration;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::{Notifier, Wakers};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::report::ReportScope;
use trunnion_runtime_core::server::{
    AccessServer, Bounds, CompileStatistics, ForeignServer, Grant, Launch, MemoryServer, Pattern, Payload, Region,
    Server, StagingServer, Until,
};
use trunnion_runtime_core::timeline::Moment;

/// How much longer than it was given the end may take: a machine that is busy with other things is no breach.
const GRACE: Duration = Duration::from_secs(1);

/// The bytes an operation uses.
struct Uses {
    reads: Vec<Handle>,
    writes: Vec<Handle>,
}

impl Uses {
    fn none() -> Self {
        Self { reads: Vec::new(), writes: Vec::new() }
    }

    fn of(regions: &[(&Region, Access)]) -> Self {
        let mut uses = Self::none();
        regions.iter().for_each(|(region, access)| used(region, *access, &mut uses.reads, &mut uses.writes));
        uses
    }

    fn of_launch(launch: &Launch<'_>) -> Self {
        let mut uses = Self::none();
        if launch.grid.is_empty() {
            return uses;
        }
        for (buffer, handle) in launch.kernel.interface().buffers.iter().zip(launch.buffers) {
            used(&Region::whole(handle), buffer.access, &mut uses.reads, &mut uses.writes);
        }
        if let Grid::Dynamic(counts) = launch.grid
            && let Ok(counts) = counts.slice(..12)
        {
            uses.reads.push(counts);
        }
        uses
    }
}

impl<S: Server + ?Sized> Validate<S> {
    /// Whether a failure lies on these bytes.
    fn carries_failure(&mut self, handles: &[Handle]) -> bool {
        !handles.is_empty() && self.inside.fault().is_none() && self.inside.check(handles).is_err()
    }

    /// The operation read bytes that carry a failure: what it writes carries it now.
    fn must_be_handed_on(&mut self, operation: Operation, at: Moment, uses: &Uses) {
        for output in &uses.writes {
            if self.inside.fault().is_none() && self.inside.check(core::slice::from_ref(output)).is_ok() {
                let memory = output.memory();
                self.violations.add(Violation::NotHandedOn { operation, at, memory });
            }
        }
    }

    /// An error of a call that answers nothing but the fault.
    fn only_the_fault(&mut self, call: &'static str, answer: &Result<()>) {
        if let Err(error) = answer {
            self.answers.must_be_fault(call, error, self.inside.fault());
        }
    }
}

impl<S: Server + ?Sized> Server for Validate<S> {
    fn as_any(&mut self) -> &mut dyn Any {
        self.inside.as_any()
    }

    fn start(&mut self, notifier: Notifier) {
        self.caller.start();
        self.inside.start(notifier);
    }

    fn enter(&mut self) {
        self.inside.enter();
    }

    fn progress(&mut self) {
        self.inside.progress();
    }

    fn leave(&mut self) -> Wakers {
        let wakers = self.inside.leave();
        self.answers.leave(self.inside.fault());
        wakers
    }

    fn panicked(&mut self, seq: u64, message: &str) {
        self.inside.panicked(seq, message);
    }

    fn fault(&self) -> Option<&Error> {
        self.inside.fault()
    }

    fn unfinished(&self, up_to: u64) -> usize {
        let unfinished = self.inside.unfinished(up_to);
        self.answers.unfinished(up_to, self.caller.last(), unfinished);
        unfinished
    }

    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        self.caller.accept(Operation::Reserve, at);
        self.caller.reserve(at, memory);
        self.inside.reserve(at, memory, mode);
    }

    fn try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()> {
        self.caller.accept(Operation::Reserve, at);
        // Noted before, since one that panics leaves memory that carries the panic.
        self.caller.reserve(at, memory);
        let reserved = self.inside.try_reserve(at, memory, mode);
        if reserved.is_err() {
            self.caller.free(memory.memory());
        }
        reserved
    }

    fn refuse(&mut self, at: Moment, memory: &Handle, cause: Error) {
        self.caller.accept(Operation::Reserve, at);
        self.caller.reserve(at, memory);
        self.inside.refuse(at, memory, cause);
    }

    fn free(&mut self, memory: MemoryId) {
        self.caller.free(memory);
        self.inside.free(memory);
    }

    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        self.caller.accept(Operation::Write, at);
        self.caller.region(Operation::Write, at, target);
        match &data {
            Payload::Bytes(bytes) => self.caller.length(Operation::Write, at, bytes.len() as u64, target.size()),
            Payload::Slice(bytes) => self.caller.length(Operation::Write, at, bytes.len() as u64, target.size()),
            Payload::Promised(_) => {}
        }
        self.inside.write(at, target, data);
    }

    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        self.caller.accept(Operation::Read, at);
        sources.iter().for_each(|source| self.caller.region(Operation::Read, at, source));
        let uses: Vec<_> = sources.iter().map(|source| (source, Access::Read)).collect();
        let must_fail = self.carries_failure(&Uses::of(&uses).reads);
        self.answers.read(at, into.clone(), sources.iter().map(Region::size).collect(), must_fail);
        self.inside.read(at, sources, into);
    }

    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        self.caller.accept(Operation::Copy, at);
        self.caller.copy(at, source, target);
        let uses = Uses::of(&[(source, Access::Read), (target, Access::Overwrite)]);
        let fails = self.carries_failure(&uses.reads);
        self.inside.copy(at, source, target);
        if fails {
            self.must_be_handed_on(Operation::Copy, at, &uses);
        }
    }

    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        self.caller.accept(Operation::Fill, at);
        self.caller.fill(at, target, pattern);
        self.inside.fill(at, target, pattern);
    }

    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        self.caller.accept(Operation::Launch, at);
        self.caller.launch(at, launch, &self.limits);
        let uses = Uses::of_launch(launch);
        let fails = self.carries_failure(&uses.reads);
        self.inside.launch(at, launch);
        if fails {
            self.must_be_handed_on(Operation::Launch, at, &uses);
        }
    }

    fn mark(&mut self, at: Moment) {
        self.caller.accept(Operation::Mark, at);
        self.inside.mark(at);
    }

    fn wait(&mut self, at: Moment, until: Until) {
        self.caller.accept(Operation::Wait, at);
        self.inside.wait(at, until);
    }

    fn flush(&mut self, stream: StreamId) -> Result<()> {
        let answer = self.inside.flush(stream);
        self.only_the_fault("flush", &answer);
        answer
    }

    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        let answer = self.inside.poll(at, waker);
        self.answers.polled(at, self.caller.last(), self.inside.fault(), &answer);
        answer
    }

    fn signal(&mut self, at: Moment, promise: Promise<()>) {
        self.answers.signal(at, promise.clone());
        self.inside.signal(at, promise);
    }

    fn check(&mut self, targets: &[Handle]) -> Result<()> {
        let answer = self.inside.check(targets);
        // A failure that lies on bytes is an answer too, until the device has a fault.
        if self.inside.fault().is_some() {
            self.only_the_fault("check", &answer);
        }
        answer
    }

    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        self.inside.compile(kernel, bounds)
    }

    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        let answers = self.inside.compile_together(kernels);
        if answers.len() > kernels.len() || (answers.is_empty() && !kernels.is_empty()) {
            self.violations.add(Violation::CompiledCount { asked: kernels.len(), answered: answers.len() });
        }
        answers
    }

    fn retire_kernel(&mut self, slot: u32) {
        self.inside.retire_kernel(slot);
    }

    fn compile_statistics(&self) -> CompileStatistics {
        self.inside.compile_statistics()
    }

    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        let given = deadline.remaining();
        let took = Deadline::never();
        let abandoned = self.inside.shutdown(deadline);
        let took = took.waited();
        if let Some(given) = given.filter(|given| took > given.saturating_add(*given / 5).saturating_add(GRACE)) {
            self.violations.add(Violation::EndedLate { given, took });
        }
        self.answers.end();
        abandoned
    }

    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        let is_well = self.inside.fault().is_none() && !self.answers.ended;
        let memory = self.inside.memory()?;
        if is_well {
            let (used, reported) = (memory.usage().live, memory.report(ReportScope::Device).total().live);
            if used != reported {
                self.violations.add(Violation::ReportDisagrees { reported, used });
            }
            if used > 0 && !self.caller.holds_memory() {
                self.violations.add(Violation::LiveWithoutHandles { live: used });
            }
        }
        Some(memory)
    }

    fn staging(&mut self) -> Option<&mut dyn StagingServer> {
        self.inside.staging()
    }

    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        if self.inside.access().is_some() { Some(self) } else { None }
    }

    fn foreign(&mut self) -> Option<&mut dyn ForeignServer> {
        if self.inside.foreign().is_some() { Some(self) } else { None }
    }
}

impl<S: Server + ?Sized> AccessServer for Validate<S> {
    fn open(&mut self, at: Moment, target: &Handle, access: Access, granted: Promise<Grant>) {
        self.caller.accept(Operation::Access, at);
        self.caller.access(at, target);
        self.answers.open(at, target, access, granted.clone());
        if let Some(inside) = self.inside.access() {
            inside.open(at, target, access, granted);
        }
    }

    fn close(&mut self, at: Moment, failure: Option<Error>) {
        self.answers.close(at);
        if let Some(inside) = self.inside.access() {
            inside.close(at, failure);
        }
    }
}

impl<S: Server + ?Sized> ForeignServer for Validate<S> {
    fn import(&mut self, at: Moment, memory: &Handle, foreign: &Foreign) -> Result<()> {
        self.caller.accept(Operation::Reserve, at);
        let imported = ask_foreign(&mut *self.inside, |inside| inside.import(at, memory, foreign));
        if imported.is_ok() {
            self.caller.reserve(at, memory);
        }
        imported
    }

    fn import_event(&mut self, at: Moment, event: &Foreign) -> Result<()> {
        self.caller.accept(Operation::Wait, at);
        ask_foreign(&mut *self.inside, |inside| inside.import_event(at, event))
    }

    fn export_event(&mut self, at: Moment) -> Result<Arc<dyn Any + Send + Sync>> {
        self.caller.accept(Operation::Mark, at);
        ask_foreign(&mut *self.inside, |inside| inside.export_event(at))
    }
}
