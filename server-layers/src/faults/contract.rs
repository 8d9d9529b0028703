//! The `Server` trait, call by call.

use super::FaultInjector;
use super::failing::Doomed;
use super::owed::Owed;
use super::plan::FaultKind;
use crate::operation::Operation;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::any::Any;
use core::mem;
use core::task::{Poll, Waker};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::{Notifier, Wakers};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, ServiceId, StreamId};
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, ReportScope};
use trunnion_runtime_core::server::{
    AccessServer, Bounds, CompileStatistics, ForeignServer, Grant, Launch, MemoryServer, Pattern, Payload, Region,
    Server, StagingServer, Until,
};
use trunnion_runtime_core::staging::PinnedMemory;
use trunnion_runtime_core::timeline::Moment;

/// Wakers that are kept before all of them are woken to ask again.
const WAITERS: usize = 256;

struct Ringing(Notifier);

impl Wake for Ringing {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify();
    }
}

/// The memory of a lost device: there is none.
#[derive(Default)]
pub(super) struct Gone(Option<Error>);

impl Gone {
    pub(super) fn lose(&mut self, error: &Error) {
        self.0 = Some(error.clone());
    }
}

impl MemoryServer for Gone {
    fn usage(&self) -> MemoryUsage {
        MemoryUsage::default()
    }

    fn report(&self, _: ReportScope) -> MemoryReport {
        MemoryReport::default()
    }

    fn cleanup(&mut self) -> Result<()> {
        self.0.clone().map_or(Ok(()), Err)
    }

    fn install_pools(&mut self, _: &PoolLayout) -> Option<Result<()>> {
        Some(self.cleanup())
    }
}

impl StagingServer for Gone {
    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>> {
        let none = || Error::Driver { call: "pin".into(), code: 0, message: format!("{size} bytes: no device") };
        Err(self.0.clone().unwrap_or_else(none))
    }
}

impl<S: Server + ?Sized> FaultInjector<S> {
    pub(super) fn is_lost(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Owes a promise: what the server inside is to answer.
    fn owe<T: Clone>(&mut self, at: Moment, promise: Promise<T>, owed: fn(Promise<T>) -> Owed) -> Promise<T> {
        if self.pace.is_none() {
            self.owing.owe(at, owed(promise.clone()), None);
            return promise;
        }
        let stand = Promise::new();
        // Nobody waits for it but the layer.
        if stand.poll(&self.ringing).is_pending() {
            self.owing.owe(at, owed(promise), Some(owed(stand.clone())));
        }
        stand
    }

    /// Tells what is due.
    fn hand_on(&mut self) {
        let Some(pace) = &mut self.pace else { return self.owing.forget_given() };
        if self.inside.fault().is_some() {
            self.owing.hand_on_all(&mut self.wakers);
            self.wakers.extend(self.waiters.drain(..));
            return self.owing.forget_given();
        }
        let (told, next_moment) = pace.advance();
        let (handed_on, next_answer) = self.owing.hand_on_due(|| pace.draw(), &mut self.wakers);
        if let Some(seq) = handed_on {
            pace.tell(seq);
        }
        if told || handed_on.is_some() {
            self.wakers.extend(self.waiters.drain(..));
        }
        if let Some(next) = next_moment.into_iter().chain(next_answer).min()
            && let Some(notifier) = &self.notifier
        {
            self.alarm.ring_after(next, notifier);
        }
    }

    /// Whether a moment that is done can be told.
    fn is_told(&mut self, at: Moment) -> bool {
        self.pace.as_mut().is_none_or(|pace| pace.is_told(at))
    }

    fn keep_waiter(&mut self, waker: &Waker) {
        if self.waiters.len() >= WAITERS {
            // Whoever still waits asks again.
            self.wakers.extend(self.waiters.drain(..));
        }
        if !self.waiters.iter().any(|known| known.will_wake(waker)) {
            self.waiters.push(waker.clone());
        }
    }
}

impl<S: Server + ?Sized> Server for FaultInjector<S> {
    fn as_any(&mut self) -> &mut dyn Any {
        self.inside.as_any()
    }

    fn start(&mut self, notifier: Notifier) {
        self.ringing = Waker::from(Arc::new(Ringing(notifier.clone())));
        self.notifier = Some(notifier.clone());
        self.inside.start(notifier);
    }

    fn enter(&mut self) {
        self.inside.enter();
    }

    fn progress(&mut self) {
        self.reveal();
        self.inside.progress();
        self.hand_on();
    }

    fn leave(&mut self) -> Wakers {
        // What was answered during the call is seen here.
        self.hand_on();
        let mut wakers = mem::take(&mut self.wakers);
        wakers.extend(self.inside.leave());
        wakers
    }

    fn panicked(&mut self, seq: u64, message: &str) {
        if !mem::take(&mut self.panicking) {
            self.inside.panicked(seq, message);
        }
    }

    fn fault(&self) -> Option<&Error> {
        self.lost.as_ref().or_else(|| self.inside.fault())
    }

    fn unfinished(&self, up_to: u64) -> usize {
        if self.lost.is_some() { 0 } else { self.inside.unfinished(up_to) }
    }

    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        if self.lost.is_some() {
            return;
        }
        self.service.get_or_insert(memory.service());
        match self.turn(Operation::Reserve, at) {
            Some(FaultKind::Lost) => {
                self.passes(Some(FaultKind::Lost), Doomed::new(Operation::Reserve, at));
            }
            fault => {
                self.inside.reserve(at, memory, mode);
                if let Some(kind) = fault {
                    self.fail_reservation(at, memory, kind);
                }
            }
        }
    }

    fn try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()> {
        if self.lost.is_some() {
            return Ok(());
        }
        self.service.get_or_insert(memory.service());
        match self.turn(Operation::Reserve, at) {
            None => self.inside.try_reserve(at, memory, mode),
            // Nothing is reserved, so that whoever has memory to give back is asked as if there were none.
            Some(FaultKind::OutOfMemory) => Err(self.no_memory(at, memory)),
            Some(FaultKind::Lost) => {
                self.passes(Some(FaultKind::Lost), Doomed::new(Operation::Reserve, at));
                Ok(())
            }
            Some(kind) => {
                self.inside.reserve(at, memory, mode);
                self.fail_reservation(at, memory, kind);
                Ok(())
            }
        }
    }

    fn refuse(&mut self, at: Moment, memory: &Handle, cause: Error) {
        if self.lost.is_none() {
            self.inside.refuse(at, memory, cause);
        }
    }

    fn free(&mut self, memory: MemoryId) {
        self.unplaced.remove(&memory);
        self.inside.free(memory);
    }

    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        if self.lost.is_some() {
            return;
        }
        let fault = self.turn(Operation::Write, at);
        if self.is_plain(fault) || self.passes(fault, Doomed::new(Operation::Write, at).uses(target, Access::Overwrite))
        {
            self.inside.write(at, target, data);
        }
    }

    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        if let Some(lost) = &self.lost {
            return into.fulfil(Err(lost.clone()), &mut self.wakers);
        }
        let fault = self.turn(Operation::Read, at);
        let doomed = || {
            let doomed = Doomed::new(Operation::Read, at).owing(Owed::Read(into.clone()));
            sources.iter().fold(doomed, |doomed, source| doomed.uses(source, Access::Read))
        };
        if self.is_plain(fault) || self.passes(fault, doomed()) {
            let into = self.owe(at, into, Owed::Read);
            self.inside.read(at, sources, into);
        }
    }

    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        if self.lost.is_some() {
            return;
        }
        let fault = self.turn(Operation::Copy, at);
        let doomed = || Doomed::new(Operation::Copy, at).uses(source, Access::Read).uses(target, Access::Overwrite);
        if self.is_plain(fault) || self.passes(fault, doomed()) {
            self.inside.copy(at, source, target);
        }
    }

    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        if self.lost.is_some() {
            return;
        }
        let fault = self.turn(Operation::Fill, at);
        let doomed = || Doomed::new(Operation::Fill, at).uses(&Region::whole(target), Access::Overwrite);
        if self.is_plain(fault) || self.passes(fault, doomed()) {
            self.inside.fill(at, target, pattern);
        }
    }

    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        if self.lost.is_some() {
            return;
        }
        let fault = self.turn(Operation::Launch, at);
        if self.is_plain(fault) || self.passes(fault, doomed_launch(at, launch)) {
            self.inside.launch(at, launch);
        }
    }

    fn mark(&mut self, at: Moment) {
        if self.lost.is_some() {
            return;
        }
        let fault = self.turn(Operation::Mark, at);
        if fault.is_none() || self.passes(fault, Doomed::new(Operation::Mark, at)) {
            self.inside.mark(at);
        }
    }

    fn wait(&mut self, at: Moment, until: Until) {
        if self.lost.is_some() {
            return;
        }
        match self.turn(Operation::Wait, at) {
            None => self.inside.wait(at, until),
            // What it orders stays ordered.
            Some(FaultKind::Panic) => {
                self.inside.wait(at, until);
                self.panic_on_purpose(Operation::Wait);
            }
            fault => {
                if self.passes(fault, Doomed::new(Operation::Wait, at)) {
                    self.inside.wait(at, until);
                }
            }
        }
    }

    fn flush(&mut self, stream: StreamId) -> Result<()> {
        self.is_lost()?;
        self.inside.flush(stream)
    }

    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        if let Some(lost) = &self.lost {
            return Poll::Ready(Err(lost.clone()));
        }
        self.reveal();
        let mut polled = self.inside.poll(at, waker);
        if polled == Poll::Ready(Ok(())) && !self.is_told(at) {
            self.hand_on();
            if !self.is_told(at) {
                polled = Poll::Pending;
            }
        }
        if polled == Poll::Ready(Ok(())) {
            self.owing.hand_on_up_to(at, &mut self.wakers);
        }
        if polled.is_pending() {
            self.keep_waiter(waker);
        }
        polled
    }

    fn signal(&mut self, at: Moment, promise: Promise<()>) {
        if let Some(lost) = &self.lost {
            return promise.fulfil(Err(lost.clone()), &mut self.wakers);
        }
        let promise = self.owe(at, promise, Owed::Signal);
        self.inside.signal(at, promise);
    }

    fn check(&mut self, targets: &[Handle]) -> Result<()> {
        self.is_lost()?;
        self.inside.check(targets)
    }

    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        self.is_lost()?;
        self.inside.compile(kernel, bounds)
    }

    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        match &self.lost {
            Some(lost) => kernels.iter().map(|_| Err(lost.clone())).collect(),
            None => self.inside.compile_together(kernels),
        }
    }

    fn retire_kernel(&mut self, slot: u32) {
        self.inside.retire_kernel(slot);
    }

    fn compile_statistics(&self) -> CompileStatistics {
        self.inside.compile_statistics()
    }

    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        self.reveal();
        let abandoned = self.inside.shutdown(deadline);
        let shut_down = Error::ShutDown { service: self.service.unwrap_or(ServiceId::from_raw(0)) };
        let error = self.lost.clone().unwrap_or(shut_down);
        self.owing.hand_on_all(&mut self.wakers);
        self.owing.fail_all(&error, &mut self.wakers);
        self.wakers.extend(self.waiters.drain(..));
        self.let_go(&error);
        // Of a lost device everything was answered before.
        if self.lost.is_some() { 0 } else { abandoned }
    }

    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        let lost = self.lost.is_some();
        match self.inside.memory() {
            Some(_) if lost => Some(&mut self.gone),
            memory => memory,
        }
    }

    fn staging(&mut self) -> Option<&mut dyn StagingServer> {
        let lost = self.lost.is_some();
        match self.inside.staging() {
            Some(_) if lost => Some(&mut self.gone),
            staging => staging,
        }
    }

    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        if self.inside.access().is_some() { Some(self) } else { None }
    }

    fn foreign(&mut self) -> Option<&mut dyn ForeignServer> {
        if self.inside.foreign().is_some() { Some(self) } else { None }
    }
}

impl<S: Server + ?Sized> AccessServer for FaultInjector<S> {
    fn open(&mut self, at: Moment, target: &Handle, access: Access, granted: Promise<Grant>) {
        if let Some(lost) = &self.lost {
            self.unopened.push(at);
            return granted.fulfil(Err(lost.clone()), &mut self.wakers);
        }
        let fault = self.turn(Operation::Access, at);
        let doomed = || {
            let doomed = Doomed::new(Operation::Access, at).owing(Owed::Grant(granted.clone()));
            doomed.uses(&Region::whole(target), access)
        };
        if self.is_plain(fault) || self.passes(fault, doomed()) {
            let granted = self.owe(at, granted, Owed::Grant);
            if let Some(inside) = self.inside.access() {
                inside.open(at, target, access, granted);
            }
        }
    }

    fn close(&mut self, at: Moment, failure: Option<Error>) {
        if let Some(i) = self.unopened.iter().position(|open| *open == at) {
            self.unopened.swap_remove(i);
            return;
        }
        let late = self.failing_accesses.iter().position(|(open, _)| *open == at);
        let late = late.map(|i| self.failing_accesses.swap_remove(i).1);
        if let Some(inside) = self.inside.access() {
            inside.close(at, failure.or(late));
        }
    }
}

/// A launch with what it reads and would write.
fn doomed_launch<'a>(at: Moment, launch: &Launch<'a>) -> Doomed<'a> {
    let mut doomed = Doomed::new(Operation::Launch, at).named(launch.kernel.name());
    if launch.grid.is_empty() {
        return doomed;
    }
    for (buffer, handle) in launch.kernel.interface().buffers.iter().zip(launch.buffers) {
        doomed = doomed.uses(&Region::whole(handle), buffer.access);
    }
    match launch.grid {
        Grid::Dynamic(counts) => doomed.uses(&Region::whole(counts), Access::Read),
        Grid::Static(..) => doomed,
    }
}
