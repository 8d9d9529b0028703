//! An operation that fails: what of it still reaches the server inside, and what lies on the bytes it would have written.

use super::owed::Owed;
use super::plan::{Fault, FaultKind};
use super::record::Fired;
use super::{FaultInjector, Held, Late};
use crate::operation::Operation;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use smallvec::SmallVec;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, OutOfMemory};
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::report::ReportScope;
use trunnion_runtime_core::server::{Payload, Region, Server, Until};
use trunnion_runtime_core::timeline::Moment;

/// An operation that may not come to its end.
pub(super) struct Doomed<'a> {
    pub(super) at: Moment,
    pub(super) operation: Operation,
    /// What failures that come through it call it.
    name: &'a str,
    /// What it reads.
    inputs: SmallVec<[Handle; 4]>,
    /// What it would write.
    outputs: SmallVec<[Region; 2]>,
    /// What its caller waits for, where that is not its bytes.
    owed: Option<Owed>,
}

impl<'a> Doomed<'a> {
    pub(super) fn new(operation: Operation, at: Moment) -> Self {
        Self { at, operation, name: operation.name(), inputs: SmallVec::new(), outputs: SmallVec::new(), owed: None }
    }

    pub(super) fn named(mut self, name: &'a str) -> Self {
        self.name = name;
        self
    }

    pub(super) fn owing(mut self, owed: Owed) -> Self {
        self.owed = Some(owed);
        self
    }

    /// It uses these bytes so.
    pub(super) fn uses(mut self, region: &Region, access: Access) -> Self {
        if access.reads() && !region.handle.is_empty() {
            self.inputs.push(region.handle.clone());
        }
        if access.writes() && !region.handle.is_empty() {
            self.outputs.push(region.clone());
        }
        self
    }
}

impl<S: Server + ?Sized> FaultInjector<S> {
    /// Counts an operation: how it fails, if it does.
    pub(super) fn turn(&mut self, operation: Operation, at: Moment) -> Option<FaultKind> {
        let count = &mut self.counts[operation as usize];
        *count += 1;
        let (count, total) = (*count, self.counts.iter().sum::<u64>());
        self.record.counted(total);
        let is_due = |fault: &Fault| match fault.operation {
            None => fault.number == total,
            Some(named) => named == operation && fault.number == count,
        };
        let i = (0..self.fired.len()).find(|i| !self.fired[*i] && is_due(&self.plan.faults()[*i]))?;
        let fault = self.plan.faults()[i];
        self.fired[i] = true;
        self.record.came(Fired { fault, operation, at });
        Some(fault.kind)
    }

    /// Nothing is to fail, and nothing has failed that others must know of.
    pub(super) fn is_plain(&self, fault: Option<FaultKind>) -> bool {
        fault.is_none() && self.unplaced.is_empty()
    }

    /// Whether the operation is carried out inside. Otherwise it has failed, and its place in its stream is taken.
    pub(super) fn passes(&mut self, fault: Option<FaultKind>, mut doomed: Doomed<'_>) -> bool {
        if fault == Some(FaultKind::Lost) {
            self.lose(doomed.operation);
            self.answer(&doomed, self.lost.clone());
            return false;
        }
        if !doomed.inputs.is_empty() && self.inside.check(&doomed.inputs).is_err() {
            // It is skipped, and what it would have written marked.
            return true;
        }
        let reserved = |region: &Region| self.unplaced.get(&region.handle.memory());
        if let Some(failure) = doomed.outputs.iter().find_map(reserved) {
            // What was never there carries its failure for good.
            let error = failure.through(doomed.name, doomed.at).to_error();
            let mut outputs = core::mem::take(&mut doomed.outputs);
            outputs.retain(|region| !self.unplaced.contains_key(&region.handle.memory()));
            self.mark(doomed.at, &outputs, &error);
            self.answer(&doomed, Some(error));
            return false;
        }
        let Some(kind) = fault else { return true };
        let nothing_to_mark = doomed.outputs.is_empty() && doomed.owed.is_none();
        let error = self.error_of(kind, &doomed);
        match kind {
            FaultKind::OutOfMemory | FaultKind::Refused | FaultKind::Late if nothing_to_mark => return true,
            FaultKind::Late if doomed.operation == Operation::Access && !doomed.outputs.is_empty() => {
                self.failing_accesses.push((doomed.at, error));
                return true;
            }
            FaultKind::Late => {
                let held = self.hold(doomed.at, &doomed.outputs);
                self.late.push(Late { held, owed: doomed.owed.clone(), error });
                self.owe_to_caller(doomed);
                if let Some(notifier) = &self.notifier {
                    notifier.notify();
                }
            }
            FaultKind::Never => {
                let held = self.hold(doomed.at, &doomed.outputs);
                self.stuck.push(held);
                self.owe_to_caller(doomed);
            }
            _ => {
                self.mark(doomed.at, &doomed.outputs, &error);
                self.answer(&doomed, Some(error));
                if kind == FaultKind::Panic {
                    self.panic_on_purpose(doomed.operation);
                }
            }
        }
        false
    }

    /// A reservation, made inside, whose failure lies on all of it.
    pub(super) fn fail_reservation(&mut self, at: Moment, memory: &Handle, kind: FaultKind) {
        let whole = Region::whole(memory);
        let doomed = Doomed::new(Operation::Reserve, at).uses(&whole, Access::Overwrite);
        let error = self.error_of(kind, &doomed);
        match kind {
            FaultKind::Late | FaultKind::Never => {
                self.passes(Some(kind), doomed);
            }
            _ => self.mark(at, &[whole], &error),
        }
        if kind != FaultKind::Never {
            self.unplaced.insert(memory.memory(), Failure::new(at, error));
        }
        if kind == FaultKind::Panic {
            self.panic_on_purpose(Operation::Reserve);
        }
    }

    /// The error of a reservation that finds no memory.
    pub(super) fn no_memory(&mut self, at: Moment, memory: &Handle) -> Error {
        let doomed = Doomed::new(Operation::Reserve, at).uses(&Region::whole(memory), Access::Overwrite);
        self.error_of(FaultKind::OutOfMemory, &doomed)
    }

    /// The panic that is planned: nothing is half done.
    pub(super) fn panic_on_purpose(&mut self, operation: Operation) -> ! {
        self.panicking = true;
        panic!("{}", self.purpose(operation));
    }

    /// What is late comes to light.
    pub(super) fn reveal(&mut self) {
        if self.late.is_empty() {
            return;
        }
        for late in core::mem::take(&mut self.late) {
            if let Some(owed) = &late.owed {
                owed.fail(&late.error, &mut self.wakers);
            }
            late.held.give(&late.error, &mut self.wakers);
        }
        self.inside.progress();
    }

    /// From here on everything is answered with the same error, and nothing but what was begun goes on inside.
    #[cold]
    fn lose(&mut self, operation: Operation) {
        let error = Error::DeviceLost { cause: self.purpose(operation) };
        log::error!("{error}");
        self.gone.lose(&error);
        self.lost = Some(error.clone());
        self.owing.fail_all(&error, &mut self.wakers);
        self.wakers.extend(self.waiters.drain(..));
        self.let_go(&error);
    }

    /// What is held up inside goes on, so that the server inside can come to rest.
    pub(super) fn let_go(&mut self, error: &Error) {
        self.failing_accesses.clear();
        for late in core::mem::take(&mut self.late) {
            late.held.give(error, &mut self.wakers);
        }
        for held in core::mem::take(&mut self.stuck) {
            held.give(error, &mut self.wakers);
        }
    }

    /// Takes the operation's place inside, where its bytes carry the error.
    fn mark(&mut self, at: Moment, outputs: &[Region], error: &Error) {
        if outputs.is_empty() {
            return self.inside.mark(at);
        }
        let promise = Promise::new();
        promise.fulfil(Err(error.clone()), &mut Wakers::new());
        for region in outputs {
            self.inside.write(at, region, Payload::Promised(promise.clone()));
        }
    }

    /// Takes the operation's place inside, until what is answered is given.
    fn hold(&mut self, at: Moment, outputs: &[Region]) -> Held {
        if outputs.is_empty() {
            let promise = Promise::new();
            self.inside.wait(at, Until::Promised(promise.clone()));
            return Held::Wait(promise);
        }
        let promise = Promise::new();
        for region in outputs {
            self.inside.write(at, region, Payload::Promised(promise.clone()));
        }
        Held::Write(promise)
    }

    /// Answers what the caller waits for: nobody else will.
    fn answer(&mut self, doomed: &Doomed<'_>, error: Option<Error>) {
        if let (Some(owed), Some(error)) = (&doomed.owed, error) {
            owed.fail(&error, &mut self.wakers);
        }
        self.leave_unopened(doomed);
    }

    /// What the caller waits for is answered later.
    fn owe_to_caller(&mut self, doomed: Doomed<'_>) {
        self.leave_unopened(&doomed);
        if let Some(owed) = doomed.owed {
            self.owing.owe(doomed.at, owed, None);
        }
    }

    fn leave_unopened(&mut self, doomed: &Doomed<'_>) {
        if doomed.operation == Operation::Access {
            self.unopened.push(doomed.at);
        }
    }

    fn purpose(&self, operation: Operation) -> String {
        format!("on purpose, in {operation} {}", self.counts[operation as usize])
    }

    pub(super) fn error_of(&mut self, kind: FaultKind, doomed: &Doomed<'_>) -> Error {
        let purpose = self.purpose(doomed.operation);
        let driver = |message| Error::Driver { call: doomed.operation.name().to_string(), code: 0, message };
        match kind {
            FaultKind::OutOfMemory => {
                let requested = doomed.outputs.iter().map(Region::size).sum();
                let total = self.inside.memory().map(|memory| memory.report(ReportScope::Device).total());
                let mut numbers = OutOfMemory { requested, driver: Some(purpose), ..OutOfMemory::default() };
                if let Some(total) = total {
                    numbers.live = total.live;
                    numbers.reserved = total.reserved;
                    numbers.padding = total.padding;
                    numbers.largest_free = total.largest_free;
                }
                Error::OutOfMemory(Box::new(numbers))
            }
            FaultKind::Panic => Error::Panicked { what: "the device's server".into(), message: purpose },
            FaultKind::Late => driver(format!("failed late, {purpose}")),
            _ => driver(format!("refused {purpose}")),
        }
    }
}
