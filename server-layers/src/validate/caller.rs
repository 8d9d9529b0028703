//! What whoever calls a server must keep: numbers, memory, arguments.

use super::violation::{Violation, Violations};
use crate::operation::Operation;
use hashbrown::HashMap;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, ServiceId};
use trunnion_runtime_core::kernel::{HostUse, KernelHandle};
use trunnion_runtime_core::properties::Limits;
use trunnion_runtime_core::server::{Launch, Pattern, Region};
use trunnion_runtime_core::timeline::Moment;

/// Who has a slot of memory.
struct Tenant {
    generation: u32,
    is_live: bool,
}

pub(super) struct Caller {
    violations: Violations,
    started: bool,
    last: Option<Moment>,
    service: Option<ServiceId>,
    tenants: HashMap<u32, Tenant>,
    live: usize,
}

impl Caller {
    pub(super) fn new(violations: Violations) -> Self {
        Self { violations, started: false, last: None, service: None, tenants: HashMap::new(), live: 0 }
    }

    pub(super) fn start(&mut self) {
        if core::mem::replace(&mut self.started, true) {
            self.violations.add(Violation::StartedTwice);
        }
    }

    /// The latest number.
    pub(super) fn last(&self) -> u64 {
        self.last.map_or(0, |at| at.seq)
    }

    /// Whether memory is reserved and not freed.
    pub(super) fn holds_memory(&self) -> bool {
        self.live > 0
    }

    /// An operation was accepted.
    pub(super) fn accept(&mut self, operation: Operation, at: Moment) {
        if !self.started {
            self.violations.add(Violation::NotStarted { operation });
        }
        // The parts of a write that comes in parts share a number, and so do the tries of a reservation.
        let is_part = matches!(operation, Operation::Write | Operation::Reserve) && self.last == Some(at);
        let last = self.last();
        if at.seq <= last && !is_part {
            self.violations.add(Violation::NotIncreasing { operation, at, last });
        }
        if at.seq >= last {
            self.last = Some(at);
        }
    }

    pub(super) fn reserve(&mut self, at: Moment, memory: &Handle) {
        self.same_service(Operation::Reserve, at, memory.service());
        let id = memory.memory();
        let tenant = Tenant { generation: id.generation, is_live: true };
        match self.tenants.insert(id.index, tenant) {
            Some(before) if before.is_live => self.violations.add(Violation::ReservedTwice { at, memory: id }),
            _ => self.live += 1,
        }
    }

    pub(super) fn free(&mut self, memory: MemoryId) {
        let freed = Tenant { generation: memory.generation, is_live: false };
        // Memory of no bytes is freed without having been reserved.
        if let Some(before) = self.tenants.insert(memory.index, freed) {
            if before.is_live {
                self.live -= 1;
            }
            if before.generation == memory.generation && !before.is_live {
                self.violations.add(Violation::FreedTwice { memory });
            }
        }
    }

    /// The operation uses a handle.
    pub(super) fn handle(&mut self, operation: Operation, at: Moment, handle: &Handle) {
        self.same_service(operation, at, handle.service());
        if handle.is_empty() {
            return;
        }
        let memory = handle.memory();
        let tenant = self.tenants.get(&memory.index).filter(|tenant| tenant.generation == memory.generation);
        if !tenant.is_some_and(|tenant| tenant.is_live) {
            self.violations.add(Violation::NotReserved { operation, at, memory, freed: tenant.is_some() });
        }
    }

    /// The operation uses a region.
    pub(super) fn region(&mut self, operation: Operation, at: Moment, region: &Region) {
        self.handle(operation, at, &region.handle);
        let (extent, size) = (region.rows().extent(), region.handle.size_in_used());
        if extent > size {
            self.violations.add(Violation::OutsideHandle { operation, at, extent, size });
        }
    }

    /// As many bytes as there must be.
    pub(super) fn length(&mut self, operation: Operation, at: Moment, got: u64, expected: u64) {
        if got != expected {
            self.bad(operation, at, Error::WrongLength { what: operation.name().into(), got, expected });
        }
    }

    pub(super) fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        self.region(Operation::Copy, at, source);
        self.region(Operation::Copy, at, target);
        self.length(Operation::Copy, at, source.size(), target.size());
        if source.handle.overlap(&target.handle) {
            self.bad(Operation::Copy, at, Error::Overlap { what: "copy".into(), first: 0, second: 1 });
        }
    }

    pub(super) fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        self.handle(Operation::Fill, at, target);
        let (value, alignment) = (target.size_in_used(), pattern.bytes().len() as u64);
        if !value.is_multiple_of(alignment) {
            self.bad(Operation::Fill, at, Error::Misaligned { what: "size of a fill".into(), value, alignment });
        }
    }

    pub(super) fn access(&mut self, at: Moment, target: &Handle) {
        self.handle(Operation::Access, at, target);
        if target.is_empty() {
            let error = Error::OutOfRange { what: "access in place".into(), range: 0..0, size: 0 };
            self.bad(Operation::Access, at, error);
        }
    }

    pub(super) fn launch(&mut self, at: Moment, launch: &Launch<'_>, limits: &Limits) {
        self.same_service(Operation::Launch, at, launch.kernel.service());
        launch.buffers.iter().for_each(|handle| self.handle(Operation::Launch, at, handle));
        if let Grid::Dynamic(counts) = launch.grid {
            self.handle(Operation::Launch, at, counts);
        }
        if let Err(error) = check_launch(launch, limits) {
            self.bad(Operation::Launch, at, error);
        }
    }

    fn same_service(&mut self, operation: Operation, at: Moment, got: ServiceId) {
        let expected = *self.service.get_or_insert(got);
        if got != expected {
            self.violations.add(Violation::AnotherService { operation, at, got, expected });
        }
    }

    fn bad(&self, operation: Operation, at: Moment, error: Error) {
        self.violations.add(Violation::BadArguments { operation, at, error });
    }
}

/// What a client should have refused.
fn check_launch(launch: &Launch<'_>, limits: &Limits) -> Result<(), Error> {
    let Launch { kernel, grid, buffers, parameters, .. } = *launch;
    let (interface, name) = (kernel.interface(), || kernel.name().into());
    grid.check(limits.max_grid)?;
    if let Grid::Dynamic(counts) = grid
        && counts.size_in_used() < 12
    {
        let got = counts.size_in_used();
        return Err(Error::WrongLength { what: "dynamic grid".into(), got, expected: 12 });
    }
    let (got, expected) = (buffers.len(), interface.buffers.len());
    if got != expected {
        return Err(Error::BufferCount { kernel: name(), got, expected });
    }
    let (got, expected) = (parameters.len(), interface.parameters as usize);
    if got != expected {
        return Err(Error::ParameterSize { kernel: name(), got, expected });
    }
    for (index, (handle, buffer)) in buffers.iter().zip(&interface.buffers).enumerate() {
        let (got, start) = (handle.size_in_used(), handle.range().start);
        if got < buffer.min_size || got > limits.max_binding {
            let why = alloc::format!("at least {} and at most {} are valid", buffer.min_size, limits.max_binding);
            return Err(Error::BufferSize { kernel: name(), index, got, why });
        }
        if !start.is_multiple_of(limits.binding_alignment) {
            let what = alloc::format!("kernel `{}`, offset of buffer {index}", kernel.name()).into();
            return Err(Error::Misaligned { what, value: start, alignment: limits.binding_alignment });
        }
    }
    for &written in kernel.written() {
        let overlaps = |other: usize| other != written && buffers[other].overlap(&buffers[written]);
        if let Some(other) = (0..buffers.len()).find(|other| overlaps(*other) && !may_overlap(kernel, *other, written))
        {
            let (first, second) = (other.min(written), other.max(written));
            return Err(Error::Overlap { what: name(), first, second });
        }
    }
    Ok(())
}

/// Whether two arguments, one of them written, may be the same bytes.
fn may_overlap(kernel: &KernelHandle, first: usize, second: usize) -> bool {
    let interface = kernel.interface();
    let is_atomic = |i: usize| interface.buffers[i].host == HostUse::Atomic;
    interface.in_place && ((is_atomic(first) && is_atomic(second)) || kernel.source().form() != SourceForm::Host)
}

/// The bytes of an operation that a failure on them concerns, and those it would write: handles without gaps between their bytes.
pub(super) fn used(
    region: &Region,
    access: Access,
    reads: &mut alloc::vec::Vec<Handle>,
    writes: &mut alloc::vec::Vec<Handle>,
) {
    let is_whole =
        region.rows.as_ref().is_none_or(|rows| rows.is_dense() && rows.size() == region.handle.size_in_used());
    if is_whole && !region.handle.is_empty() {
        if access.reads() {
            reads.push(region.handle.clone());
        }
        if access.writes() {
            writes.push(region.handle.clone());
        }
    }
}
