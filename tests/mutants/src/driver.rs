//! A driver around the host's that hands everything on, one thing wrongly.
//!
//! On the base [`Base::Loose`](crate::Base::Loose) it also does what the contract of a driver allows and the host's does not: it runs
//! what lies between two barriers of a stream in the opposite order. A server that leaves out a barrier is then found out.
//!
//! `unsafe` here is the trait's signature: every call hands on what its own caller promised. A mutant whose fault is one of order
//! breaks that promise on purpose. What it can do is a data race on device memory, which the host reaches through raw pointers only, in
//! a process that runs one test and ends.

#![allow(unsafe_code)]

use crate::fault::Fault;
use crate::stream::{Held, HeldPlace, MutantStream};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::fmt;
use trunnion_backend_core::driver::{
    Compiled, Driver, DriverGrid, DriverLaunch, DriverMemory, DriverRefusal, Imported, Outcome, Place,
};
use trunnion_backend_host::{HostCode, HostDriver, HostOptions, HostPage, HostStream};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, KernelFault, Result};
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::kernel::{KernelHandle, KernelReader};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::{DeviceProperties, Limits};
use trunnion_runtime_core::server::{Bounds, Grant, HostMemory, Pattern};
use trunnion_runtime_core::staging::PinnedMemory;

/// An operation on its way to the host.
pub(crate) type HostOperation = Box<dyn FnOnce(&mut HostDriver, &mut HostStream) -> Result<()> + Send>;

/// A driver around the host's.
pub struct MutantDriver {
    host: HostDriver,
    properties: DeviceProperties,
    fault: Fault,
    is_loose: bool,
    /// The parameters a kernel was launched with first, by its slot.
    parameters: BTreeMap<u32, Vec<u8>>,
    /// Why memory was not locked, where it never will be again.
    refused: Option<DriverRefusal>,
    /// The server's wrapper wants waits dropped just now.
    pub(crate) drops_waits: bool,
    /// Where the buffers of the launch under way begin in their allocations.
    pub(crate) starts: Vec<u64>,
}

impl MutantDriver {
    /// A driver over a host device with these options. One that is loose runs what lies between two barriers backwards.
    ///
    /// # Errors
    /// As for [`HostDriver::new`].
    pub fn new(options: &HostOptions, fault: Fault, is_loose: bool) -> Result<Self> {
        let host = HostDriver::new(0, options)?;
        let mut properties = host.properties().clone();
        match fault {
            Fault::LimitsAssumed => properties.limits = assumed(&properties.limits),
            Fault::DescriptionEmpty => properties.info.api.clear(),
            Fault::IdentityChanging => properties.info.driver.push_str(&format!(" {}", std::process::id())),
            _ => {}
        }
        let parameters = BTreeMap::new();
        let (refused, drops_waits, starts) = (None, false, Vec::new());
        Ok(Self { host, properties, fault, is_loose, parameters, refused, drops_waits, starts })
    }

    /// Encodes now, or as soon as nothing may come between.
    fn encode(
        &mut self,
        stream: &mut MutantStream,
        seq: u64,
        operation: impl FnOnce(&mut HostDriver, &mut HostStream) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        if self.is_loose {
            stream.held.push(Held { seq, operation: Box::new(operation) });
            return Ok(());
        }
        operation(&mut self.host, &mut stream.host)
    }

    /// Encodes what is held back, the newest first.
    fn release_held(&mut self, stream: &mut MutantStream) {
        for Held { seq, operation } in core::mem::take(&mut stream.held).into_iter().rev() {
            if let Err(error) = operation(&mut self.host, &mut stream.host) {
                stream.told.failed.push((seq, error));
            }
        }
    }

    fn written(&self, rows: &Rows) -> Rows {
        if self.fault == Fault::PitchIgnored { dense(rows) } else { rows.clone() }
    }

    fn passed(&mut self, kernel: &KernelHandle, parameters: &[u8]) -> Vec<u8> {
        let mut passed = parameters.to_vec();
        match (self.fault, passed.last_mut()) {
            (Fault::ParametersCut, Some(last)) => *last = 0,
            (Fault::ParametersKept, _) => passed = self.parameters.entry(kernel.slot()).or_insert(passed).clone(),
            _ => {}
        }
        passed
    }
}

// SAFETY: what is encoded runs on the bytes it was encoded with, in an order the contract allows; a fault of order breaks that on
// purpose, as the file's head says.
unsafe impl Driver for MutantDriver {
    type Page = HostPage;
    type Stream = MutantStream;
    type Code = HostCode;

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        self.host.reader()
    }

    fn start(&mut self, notifier: Notifier) {
        if self.fault != Fault::NoticeLost {
            self.host.start(notifier);
        }
    }

    fn enter(&mut self) {
        self.host.enter();
    }

    fn allocate(&mut self, size: u64) -> Result<HostPage, DriverRefusal> {
        self.host.allocate(size)
    }

    fn release(&mut self, page: HostPage) {
        if self.fault == Fault::PageLeaked {
            core::mem::forget(page.clone());
        }
        self.host.release(page);
    }

    fn page_alignment(&self) -> u64 {
        self.host.page_alignment()
    }

    fn free_memory(&self) -> Option<u64> {
        self.host.free_memory()
    }

    fn memory(&self) -> DriverMemory {
        self.host.memory()
    }

    fn has_pinned(&self) -> bool {
        self.host.has_pinned()
    }

    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let given = self.host.pin(size);
        if self.fault == Fault::LockGivenUp {
            self.refused = given.as_ref().err().cloned();
        }
        given
    }

    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds, stored: Option<&[u8]>) -> Result<Compiled<HostCode>> {
        self.host.compile(kernel, bounds, stored)
    }

    fn compiler_identity(&self) -> &str {
        self.host.compiler_identity()
    }

    fn open_stream(&mut self) -> Result<MutantStream> {
        self.host.open_stream().map(MutantStream::new)
    }

    fn close_stream(&mut self, stream: MutantStream) {
        self.host.close_stream(stream.host);
    }

    fn barrier(&mut self, stream: &mut MutantStream) {
        if self.fault != Fault::BarrierIgnored {
            self.release_held(stream);
        }
        self.host.barrier(&mut stream.host);
    }

    fn wait(&mut self, stream: &mut MutantStream, other: &mut MutantStream, seq: u64) {
        if self.fault != Fault::WaitDropped && !self.drops_waits {
            self.host.wait(&mut stream.host, &mut other.host, seq);
        }
    }

    fn submit(&mut self, stream: &mut MutantStream, seq: u64) -> Result<()> {
        self.release_held(stream);
        let reads = core::mem::take(&mut stream.reads);
        self.host.submit(&mut stream.host, seq)?;
        if self.fault == Fault::CompletedEarly && !reads {
            stream.claimed = seq;
        }
        Ok(())
    }

    fn poll(&mut self, stream: &mut MutantStream, outcome: &mut Outcome) -> Result<u64> {
        outcome.failed.append(&mut stream.told.failed);
        outcome.read.append(&mut stream.told.read);
        let finished = self.host.poll(&mut stream.host, outcome)?;
        match self.fault {
            Fault::NeverNamed => outcome.failed.clear(),
            Fault::PanicFatal if outcome.failed.iter().any(|(_, error)| is_panic(error)) => {
                return Err(Error::DeviceLost { cause: "a kernel panicked".into() });
            }
            Fault::PiecesSwapped => swap_pieces(&mut outcome.read),
            _ => {}
        }
        Ok(finished.max(stream.claimed))
    }

    unsafe fn launch(&mut self, stream: &mut MutantStream, seq: u64, launch: DriverLaunch<'_, Self>) -> Result<()> {
        let (code, kernel, bounds) = (launch.code.clone(), launch.kernel.clone(), launch.bounds);
        let parameters = self.passed(&kernel, launch.parameters);
        let mut buffers: Vec<HeldPlace> = launch.buffers.iter().copied().map(HeldPlace::of).collect();
        if self.fault == Fault::OffsetIgnored {
            for (buffer, start) in buffers.iter_mut().zip(&self.starts) {
                buffer.offset = buffer.offset.saturating_sub(*start);
            }
        }
        if self.fault == Fault::NothingRefused
            && let Some(index) = buffers.iter().position(|buffer| buffer.size == 0)
        {
            return Err(Error::BufferSize { kernel: kernel.name().into(), index, got: 0, why: "no bytes".into() });
        }
        let grid = match launch.grid {
            DriverGrid::Static([x, y, z]) if self.fault == Fault::AxesSwapped => Ok([y, x, z]),
            DriverGrid::Static(counts) => Ok(counts),
            DriverGrid::Dynamic(_) if self.fault == Fault::GridUnread => Ok([1; 3]),
            DriverGrid::Dynamic(place) => Err(HeldPlace::of(place)),
        };
        self.encode(stream, seq, move |host, stream| {
            let buffers: Vec<_> = buffers.iter().map(HeldPlace::place).collect();
            let grid = match &grid {
                Ok(counts) => DriverGrid::Static(*counts),
                Err(place) => DriverGrid::Dynamic(place.place()),
            };
            let (kernel, code) = (&kernel, &code);
            let launch = DriverLaunch { code, kernel, grid, buffers: &buffers, parameters: &parameters, bounds };
            // SAFETY: the caller's promise, handed on.
            unsafe { host.launch(stream, seq, launch) }
        })
    }

    unsafe fn copy(
        &mut self,
        stream: &mut MutantStream,
        seq: u64,
        source: Place<'_, HostPage>,
        source_rows: &Rows,
        target: Place<'_, HostPage>,
        target_rows: &Rows,
    ) -> Result<()> {
        let (source, target) = (HeldPlace::of(source), HeldPlace::of(target));
        let (mut source_rows, mut target_rows) = (source_rows.clone(), target_rows.clone());
        if self.fault == Fault::CopyCut && source_rows.is_dense() && target_rows.is_dense() {
            (source_rows, target_rows) = (Rows::single(source_rows.row - 1), Rows::single(target_rows.row - 1));
        }
        self.encode(stream, seq, move |host, stream| {
            // SAFETY: the caller's promise, handed on.
            unsafe { host.copy(stream, seq, source.place(), &source_rows, target.place(), &target_rows) }
        })
    }

    unsafe fn fill(
        &mut self,
        stream: &mut MutantStream,
        seq: u64,
        target: Place<'_, HostPage>,
        mut pattern: Pattern,
    ) -> Result<()> {
        let mut target = HeldPlace::of(target);
        if self.fault == Fault::FillSpills && pattern.bytes().len() == 1 && target.offset > 0 {
            (target.offset, target.size) = (target.offset - 1, target.size + 1);
        }
        if self.fault == Fault::PatternHalved {
            pattern = Pattern::new(&pattern.bytes()[..pattern.bytes().len().div_ceil(2)])?;
        }
        self.encode(stream, seq, move |host, stream| {
            // SAFETY: the caller's promise, handed on.
            unsafe { host.fill(stream, seq, target.place(), pattern) }
        })
    }

    unsafe fn write(
        &mut self,
        stream: &mut MutantStream,
        seq: u64,
        data: Bytes,
        target: Place<'_, HostPage>,
        rows: &Rows,
    ) -> Result<()> {
        let rows = self.written(rows);
        if self.fault == Fault::WriteEarly {
            // SAFETY: the place is allocated. That nothing unfinished touches it is what the fault breaks.
            if unsafe { self.host.write_now(data.as_slice()?, target, &rows) } {
                return Ok(());
            }
        }
        let target = HeldPlace::of(target);
        self.encode(stream, seq, move |host, stream| {
            // SAFETY: the caller's promise, handed on.
            unsafe { host.write(stream, seq, data, target.place(), &rows) }
        })
    }

    unsafe fn write_now(&mut self, data: &[u8], target: Place<'_, HostPage>, rows: &Rows) -> bool {
        let rows = self.written(rows);
        // SAFETY: the caller's promise, handed on.
        unsafe { self.host.write_now(data, target, &rows) }
    }

    unsafe fn read(
        &mut self,
        stream: &mut MutantStream,
        seq: u64,
        index: usize,
        source: Place<'_, HostPage>,
        rows: &Rows,
        mut into: HostBuffer,
    ) -> Result<()> {
        stream.reads = true;
        if self.fault == Fault::ReadEarly {
            // SAFETY: the place is allocated, and the grant is used here and dropped. That nobody writes the bytes meanwhile is what
            // the fault breaks.
            let grant = unsafe { self.host.grant(source, Access::Read) };
            if let Some(memory) = grant.host {
                let mut rest = into.as_mut_slice();
                rows.for_each(|offset| {
                    let (row, after) = core::mem::take(&mut rest).split_at_mut(rows.row as usize);
                    memory.read(offset, row);
                    rest = after;
                });
                stream.told.read.push((seq, index, into));
                return Ok(());
            }
        }
        let (source, rows) = (HeldPlace::of(source), rows.clone());
        self.encode(stream, seq, move |host, stream| {
            // SAFETY: the caller's promise, handed on.
            unsafe { host.read(stream, seq, index, source.place(), &rows, into) }
        })
    }

    unsafe fn grant(&mut self, place: Place<'_, HostPage>, access: Access) -> Grant {
        // SAFETY: the caller's promise, handed on.
        let grant = unsafe { self.host.grant(place, access) };
        match grant.host {
            Some(host) if self.fault == Fault::GrantCut => Grant { host: Some(Arc::new(CutMemory(host))), ..grant },
            host => Grant { host, ..grant },
        }
    }

    fn import(&mut self, foreign: &Foreign) -> Result<Imported<HostPage>> {
        let mut imported = self.host.import(foreign)?;
        match self.fault {
            Fault::ImportCopied => {
                let size = imported.page.size().next_multiple_of(self.host.page_alignment());
                let refused =
                    |refusal: DriverRefusal| Error::Driver { call: "import".into(), code: 0, message: refusal.message };
                imported.page = self.host.allocate(size).map_err(refused)?;
            }
            Fault::ImportKept => core::mem::forget(imported.page.clone()),
            _ => {}
        }
        Ok(imported)
    }

    fn drain(&mut self, deadline: &Deadline) -> bool {
        self.host.drain(deadline)
    }
}

impl fmt::Debug for MutantDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutantDriver").field("fault", &self.fault).field("host", &self.host).finish_non_exhaustive()
    }
}

/// What an API guarantees of any device, in place of what this one has.
fn assumed(own: &Limits) -> Limits {
    let mut limits = Limits::default();
    (limits.memory, limits.max_allocation, limits.max_binding) = (own.memory, own.max_allocation, own.max_binding);
    (limits.binding_alignment, limits.copy_alignment) = (own.binding_alignment, own.copy_alignment);
    limits
}

/// Rows of the same size without gaps.
fn dense(rows: &Rows) -> Rows {
    let mut rows = rows.clone();
    let mut size = rows.row;
    for (count, stride) in rows.outer.iter_mut().rev() {
        *stride = size;
        size *= *count;
    }
    rows
}

fn is_panic(error: &Error) -> bool {
    matches!(error, Error::KernelFailed { fault: KernelFault::Panicked(_), .. })
}

/// Swaps the first two pieces of each read.
fn swap_pieces(pieces: &mut [(u64, usize, HostBuffer)]) {
    for read in pieces.chunk_by_mut(|a, b| a.0 == b.0) {
        if let [(_, first, _), (_, second, _), ..] = read {
            core::mem::swap(first, second);
        }
    }
}

/// Device memory in which a write does not reach its last byte.
struct CutMemory(Arc<dyn HostMemory>);

impl HostMemory for CutMemory {
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.0.read(offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.0.write(offset, from.split_last().map_or(from, |(_, before)| before));
    }
}
