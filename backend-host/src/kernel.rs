//! Kernels: host functions run workgroup by workgroup, over checked views of their buffers.
//!
//! Invariants the unsafe code rests on, beside those of `storage.rs`:
//!
//! 1. Two buffers of a launch overlap only if both are used as atomic elements (`LaunchJob::new` refuses the rest), and a buffer is used
//!    only as its interface declares (`Bindings::buffer`). What a buffer declared as read only is used for cannot write (`HostCode::new`).
//! 2. A workgroup number is run once (`LaunchJob::take_turn` gives each out once), so parts are disjoint between workgroups; within one the
//!    mask `Bindings::taken` gives each out once. Claims are disjoint through `Claims`. Shared memory is the thread's, which runs one
//!    workgroup at a time, and is given out once by the same mask.
//! 3. What is handed out lives as long as the `Bindings` it came from, which is one call of the kernel's function.

#![allow(unsafe_code)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::ops::Range;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use smallvec::SmallVec;
use trunnion_runtime_core::error::{Error, KernelFault, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::grid::workgroups;
use trunnion_runtime_core::kernel::{HostBindings, HostFunction, HostUse, KernelHandle, Workgroup};
use trunnion_runtime_core::sync::AtomicU64;

use crate::claims::Claims;
use crate::lock::Lock;
use crate::pool::{self, Crew, Shift, Team, Work};
use crate::storage::{HostPage, Span};
use crate::unwind::contain;

/// Work in nanoseconds that is worth waking a thread for, and worth sharing with one that is awake.
pub(crate) const WORTH_WAKING: u64 = 50_000;
const WORTH_SHARING: u64 = 6_000;

/// How long the workgroups that a thread takes at once should run, in nanoseconds.
const TURN: u64 = 5_000;

/// The bit of shared memory in the mask of what was taken; buffers have the bits below.
const SHARED: u32 = 64;

/// A kernel ready to run: its function, and what its interface says.
#[derive(Clone)]
pub struct HostCode(Arc<Code>);

struct Code {
    kernel: KernelHandle,
    function: HostFunction,
    uses: SmallVec<[HostUse; 8]>,
    shared: usize,
    claims: bool,
    /// What a workgroup took last, in nanoseconds; 0 when that is not known.
    cost: AtomicU64,
}

impl HostCode {
    /// # Errors
    /// [`Error::NoSource`] for a kernel without a host function; [`Error::InvalidKernel`] for an interface that safe code could misuse.
    pub(crate) fn new(kernel: &KernelHandle) -> Result<Self> {
        let Some(function) = kernel.source().as_host() else {
            let (has, takes) =
                (alloc::vec![kernel.source().form()], alloc::vec![trunnion_runtime_core::error::SourceForm::Host]);
            return Err(Error::NoSource { kernel: kernel.name().into(), backend: crate::NAME, has, takes });
        };
        let interface = kernel.interface();
        for (index, buffer) in interface.buffers.iter().enumerate() {
            // Atomic elements can always be stored to, so a device that runs readers side by side cannot take them for read only.
            let stores = buffer.host == HostUse::Atomic && !buffer.access.writes();
            if stores || !buffer.host.fits(buffer.access) {
                let why =
                    alloc::format!("buffer {index} is declared {:?} and used as {}", buffer.access, buffer.host.name());
                return Err(Error::InvalidKernel { kernel: kernel.name().into(), why });
            }
        }
        Ok(Self(Arc::new(Code {
            kernel: kernel.clone(),
            function: function.clone(),
            uses: interface.buffers.iter().map(|buffer| buffer.host).collect(),
            shared: interface.shared as usize,
            claims: interface.buffers.iter().any(|buffer| buffer.host == HostUse::Claim),
            cost: AtomicU64::new(0),
        })))
    }
}

impl fmt::Debug for HostCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostCode").field(&self.0.kernel).finish()
    }
}

/// Where a launch has its counts from.
pub(crate) enum Counts {
    Known([u32; 3]),
    /// Three `u32` in device memory, and the limits they are checked against when they are read.
    InMemory(Span, [u32; 3]),
}

/// One launch, from its encoding to its end.
pub(crate) struct LaunchJob {
    code: Arc<Code>,
    counts: Counts,
    buffers: SmallVec<[Span; 8]>,
    parameters: SmallVec<[u8; 32]>,
    /// The distinct pages of the buffers.
    _pages: SmallVec<[HostPage; 4]>,
    claims: Vec<Claims>,
    /// The counts once they are known. Written before others join the work.
    grid: [AtomicU32; 3],
    total: AtomicU64,
    /// How many workgroups were given out; of those, how many to the owner and how many to helpers.
    next: AtomicU64,
    front: AtomicU64,
    back: AtomicU64,
    /// How many workgroups are taken at once.
    turn: AtomicU64,
    stop: AtomicBool,
    /// The fault of the workgroup with the lowest number, of those that were run.
    fault: Lock<Option<Fault>>,
    crew: Crew,
}

struct Fault {
    linear: u64,
    workgroup: [u32; 3],
    fault: KernelFault,
}

impl LaunchJob {
    /// # Errors
    /// [`Error::BufferCount`], [`Error::ParameterSize`]; [`Error::Overlap`] when two buffers overlap that are not both atomic elements or
    /// both only read.
    pub(crate) fn new(
        code: &HostCode,
        counts: Counts,
        buffers: SmallVec<[Span; 8]>,
        parameters: &[u8],
        pages: SmallVec<[HostPage; 4]>,
    ) -> Result<Self> {
        let code = &code.0;
        let name = || code.kernel.name().into();
        if buffers.len() != code.uses.len() {
            return Err(Error::BufferCount { kernel: name(), got: buffers.len(), expected: code.uses.len() });
        }
        let expected = code.kernel.interface().parameters as usize;
        if parameters.len() != expected {
            return Err(Error::ParameterSize { kernel: name(), got: parameters.len(), expected });
        }
        for (second, b) in buffers.iter().enumerate() {
            for (first, a) in buffers[..second].iter().enumerate() {
                let harmless = matches!(
                    (code.uses[first], code.uses[second]),
                    (HostUse::Slice, HostUse::Slice) | (HostUse::Atomic, HostUse::Atomic)
                );
                if !harmless && a.overlaps(*b) {
                    return Err(Error::Overlap { what: name(), first, second });
                }
            }
        }
        let mut claims = Vec::new();
        if code.claims {
            claims.resize_with(buffers.len(), Claims::default);
        }
        Ok(Self {
            code: code.clone(),
            counts,
            buffers,
            parameters: SmallVec::from_slice(parameters),
            _pages: pages,
            claims,
            grid: Default::default(),
            total: AtomicU64::new(0),
            next: AtomicU64::new(0),
            front: AtomicU64::new(0),
            back: AtomicU64::new(0),
            turn: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            fault: Lock::new(None),
            crew: Crew::new(),
        })
    }

    /// Runs it, on up to `threads` threads: the caller and a team, to which a thread was `called` already.
    pub(crate) fn run(self: Arc<Self>, threads: usize, team: &Team, called: bool) -> Result<()> {
        let grid = match self.counts {
            Counts::Known(grid) => grid,
            Counts::InMemory(span, limits) => {
                let mut bytes = [0; 12];
                span.copy_to_slice(&mut bytes);
                let grid: [u32; 3] =
                    core::array::from_fn(|axis| u32::from_ne_bytes(core::array::from_fn(|i| bytes[4 * axis + i])));
                Grid::Static(grid[0], grid[1], grid[2]).check(limits)?;
                grid
            }
        };
        let total = workgroups(grid);
        if total == 0 {
            return Ok(());
        }
        self.grid.iter().zip(grid).for_each(|(axis, count)| axis.store(count, Ordering::Relaxed));
        self.total.store(total, Ordering::Relaxed);
        self.run_all(total, threads, team, called);
        match self.fault.lock().take() {
            None => Ok(()),
            Some(Fault { workgroup, fault, .. }) => {
                Err(Error::KernelFailed { kernel: self.code.kernel.name().into(), workgroup, fault })
            }
        }
    }

    /// How long it takes in nanoseconds, as far as that is known and others can help: 0 where not.
    pub(crate) fn to_share(&self) -> u64 {
        match self.counts {
            Counts::Known(counts) => {
                let total = workgroups(counts);
                if total > 1 { self.code.cost.load(Ordering::Relaxed).saturating_mul(total) } else { 0 }
            }
            Counts::InMemory(..) => 0,
        }
    }

    /// Runs all workgroups: with others where the last launch of the kernel says that it is worth it, or where this one turns out so.
    fn run_all(self: &Arc<Self>, total: u64, threads: usize, team: &Team, called: bool) {
        let cost = self.code.cost.load(Ordering::Relaxed);
        let all = threads;
        let threads = all.min(usize::try_from(total).unwrap_or(usize::MAX));
        let fair = (total / (threads as u64 * 4)).max(1);
        let unknown = total / (threads as u64 * 16) + 1;
        let turn = TURN.checked_div(cost).unwrap_or(unknown).clamp(1, fair);
        self.turn.store(turn, Ordering::Relaxed);
        if threads == 1 {
            self.turn.store(total, Ordering::Relaxed);
            return self.work(&Shift::owner());
        }
        let worth =
            || if called || team.is_attended() || pool::has_idle_thread() { WORTH_SHARING } else { WORTH_WAKING };
        let expected = cost.saturating_mul(total);
        if cost != 0 && expected < worth() {
            let start = pool::now();
            loop {
                if !self.take_turn(true) {
                    return self.learn(start, total);
                }
                // Dearer than last time: the rest with the others.
                if pool::nanoseconds_since(start) > 2 * WORTH_WAKING {
                    break;
                }
            }
        }
        // The team stays for the launches that follow, which may want more helpers than this one.
        team.share(self.clone(), all - 1);
    }

    /// Runs the next workgroups; false when there are none. The owner goes from the front and helpers from the back, so that in a chain of
    /// launches over the same buffers each thread meets the parts it had before, in its core's own cache.
    fn take_turn(&self, is_owner: bool) -> bool {
        let total = self.total.load(Ordering::Relaxed);
        let turn = self.turn.load(Ordering::Relaxed);
        if self.is_taken() {
            return false;
        }
        let start = self.next.fetch_add(turn, Ordering::Relaxed);
        if start >= total {
            return false;
        }
        // Who took so many of all may have as many from its side: the two sides never meet.
        let count = turn.min(total - start);
        let first = if is_owner {
            self.front.fetch_add(count, Ordering::Relaxed)
        } else {
            total - self.back.fetch_add(count, Ordering::Relaxed) - count
        };
        self.run_range(first..first + count);
        true
    }

    /// Remembers what a workgroup costs.
    fn learn(&self, start: pool::Instant, workgroups: u64) {
        let cost = pool::nanoseconds_since(start).checked_div(workgroups);
        if let Some(cost) = cost {
            self.code.cost.store(cost.max(1), Ordering::Relaxed);
        }
    }

    fn run_range(&self, range: Range<u64>) {
        let grid = [0, 1, 2].map(|axis| self.grid[axis].load(Ordering::Relaxed));
        let size = self.code.kernel.workgroup_size();
        let mut scratch = Scratch::of_thread(self.code.shared);
        let at = Cell::new((range.start, position(range.start, grid)));
        let result = contain(|| {
            let Ok(scratch) = &mut scratch else { return Err(no_shared_memory(self.code.shared)) };
            let (mut linear, mut id) = at.get();
            loop {
                let bindings = Bindings { job: self, linear, taken: Cell::new(0), shared: scratch.first() };
                (self.code.function)(&Workgroup::new(&bindings, id, grid, size))?;
                linear += 1;
                if linear == range.end {
                    return Ok(());
                }
                id = following(id, grid);
                at.set((linear, id));
            }
        });
        if let Ok(scratch) = scratch {
            scratch.give_back();
        }
        let fault = match result {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault,
            Err(message) => KernelFault::Panicked(message),
        };
        self.stop.store(true, Ordering::Relaxed);
        let (linear, workgroup) = at.get();
        let mut known = self.fault.lock();
        if known.as_ref().is_none_or(|known| linear < known.linear) {
            *known = Some(Fault { linear, workgroup, fault });
        }
    }
}

impl Work for LaunchJob {
    fn work(&self, shift: &Shift<'_>) {
        let start = pool::now();
        let mut turns = 0;
        while !shift.is_over() && self.take_turn(shift.is_owner()) {
            turns += 1;
        }
        if turns > 0 {
            let turn = self.turn.load(Ordering::Relaxed).min(self.total.load(Ordering::Relaxed));
            self.learn(start, turns * turn);
        }
    }

    fn is_taken(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.next.load(Ordering::Relaxed) >= self.total.load(Ordering::Relaxed)
    }

    fn crew(&self) -> &Crew {
        &self.crew
    }
}

/// Where the workgroup with this number is, x first.
fn position(linear: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(x), u64::from(y));
    // Each is below its count.
    [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
}

fn following([x, y, z]: [u32; 3], grid: [u32; 3]) -> [u32; 3] {
    if x + 1 < grid[0] {
        [x + 1, y, z]
    } else if y + 1 < grid[1] {
        [0, y + 1, z]
    } else {
        [0, 0, z + 1]
    }
}

fn no_shared_memory(bytes: usize) -> KernelFault {
    KernelFault::Message(alloc::format!("the allocator has no {bytes} bytes of workgroup-shared memory"))
}

/// Memory for one workgroup at a time, aligned for every element type. Kept by the thread between launches.
struct Scratch(Vec<u128>);

#[cfg(feature = "std")]
std::thread_local! {
    static SCRATCH: Cell<Vec<u128>> = const { Cell::new(Vec::new()) };
}

impl Scratch {
    fn of_thread(bytes: usize) -> Result<Self, ()> {
        if bytes == 0 {
            return Ok(Self(Vec::new()));
        }
        #[cfg(feature = "std")]
        let mut words = SCRATCH.take();
        #[cfg(not(feature = "std"))]
        let mut words = Vec::new();
        let count = bytes.div_ceil(size_of::<u128>());
        if words.len() < count {
            words.try_reserve(count - words.len()).map_err(|_| ())?;
            words.resize(count, 0);
        }
        Ok(Self(words))
    }

    fn first(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    fn give_back(self) {
        #[cfg(feature = "std")]
        if !self.0.is_empty() {
            SCRATCH.set(self.0);
        }
    }
}

/// The arguments of one workgroup.
struct Bindings<'a> {
    job: &'a LaunchJob,
    linear: u64,
    /// What was handed out for this workgroup alone.
    taken: Cell<u128>,
    shared: *mut u8,
}

impl Bindings<'_> {
    /// A buffer, when it is declared for this use.
    #[inline]
    fn buffer(
        &self,
        binding: usize,
        used: &'static str,
        fits: impl FnOnce(HostUse) -> bool,
    ) -> Result<(Span, HostUse), KernelFault> {
        match (self.job.buffers.get(binding), self.job.code.uses.get(binding)) {
            (Some(span), Some(declared)) if fits(*declared) => Ok((*span, *declared)),
            (_, declared) => {
                let declared = declared.map_or("nothing: there is no such buffer", |declared| declared.name());
                Err(KernelFault::WrongUse { binding, used: used.into(), declared: declared.into() })
            }
        }
    }

    /// Whether this is the first time.
    #[inline]
    fn take(&self, bit: u32) -> bool {
        let mask = 1_u128 << bit;
        self.taken.replace(self.taken.get() | mask) & mask == 0
    }

    #[inline]
    fn part_of(&self, binding: usize) -> Result<(Span, Range<u64>), KernelFault> {
        let (span, declared) =
            self.buffer(binding, "a partition", |declared| matches!(declared, HostUse::Partition(_)))?;
        let HostUse::Partition(bytes) = declared else { return Ok((span, 0..0)) };
        let size = span.size() as u64;
        let start = self.linear.saturating_mul(bytes).min(size);
        Ok((span, start..start.saturating_add(bytes).min(size)))
    }
}

impl HostBindings for Bindings<'_> {
    #[inline]
    fn read(&self, binding: usize) -> Result<&[u8], KernelFault> {
        let (span, _) = self.buffer(binding, "a shared slice", |declared| declared == HostUse::Slice)?;
        // SAFETY: initialized bytes of the span (storage), which nobody writes during the launch (invariant 1).
        Ok(unsafe { slice::from_raw_parts(span.first(), span.size()) })
    }

    #[inline]
    fn part(&self, binding: usize) -> Result<&mut [u8], KernelFault> {
        let (span, range) = self.part_of(binding)?;
        if !self.take(binding as u32) {
            return Err(KernelFault::ClaimOverlap { binding, range });
        }
        let part = span.part(range.start as usize, (range.end - range.start) as usize);
        // SAFETY: initialized bytes of the span, of this workgroup alone, given out once (invariants 1 and 2).
        Ok(unsafe { slice::from_raw_parts_mut(part.first(), part.size()) })
    }

    fn part_range(&self, binding: usize) -> Result<Range<u64>, KernelFault> {
        Ok(self.part_of(binding)?.1)
    }

    fn claim(&self, binding: usize, range: Range<u64>) -> Result<&mut [u8], KernelFault> {
        let (span, _) = self.buffer(binding, "claimed ranges", |declared| declared == HostUse::Claim)?;
        let size = span.size() as u64;
        if range.start > range.end || range.end > size {
            return Err(KernelFault::OutOfBounds { binding, range, size });
        }
        if !self.job.claims.get(binding).is_some_and(|claims| claims.claim(&range)) {
            return Err(KernelFault::ClaimOverlap { binding, range });
        }
        let part = span.part(range.start as usize, (range.end - range.start) as usize);
        // SAFETY: initialized bytes of the span, which nobody claimed before (invariants 1 and 2).
        Ok(unsafe { slice::from_raw_parts_mut(part.first(), part.size()) })
    }

    fn atomic(&self, binding: usize) -> Result<&[AtomicU32], KernelFault> {
        let (span, _) = self.buffer(binding, "atomic elements", |declared| declared == HostUse::Atomic)?;
        let (size, alignment, address) = (size_of::<AtomicU32>(), align_of::<AtomicU32>(), span.first() as usize);
        if !span.size().is_multiple_of(size) || (!address.is_multiple_of(alignment) && span.size() > 0) {
            return Err(KernelFault::WrongType {
                what: alloc::format!("buffer {binding}, of atomic elements").into(),
                size,
                alignment,
                bytes: span.size(),
                address,
            });
        }
        if span.size() == 0 {
            return Ok(&[]);
        }
        // SAFETY: initialized bytes of the span, aligned, and used during the launch as atomic elements only (invariant 1).
        Ok(unsafe { slice::from_raw_parts(span.first().cast(), span.size() / size) })
    }

    #[inline]
    fn size(&self, binding: usize) -> Result<u64, KernelFault> {
        self.buffer(binding, "a buffer", |_| true).map(|(span, _)| span.size() as u64)
    }

    #[inline]
    fn parameters(&self) -> &[u8] {
        &self.job.parameters
    }

    fn shared(&self) -> Result<&mut [u8], KernelFault> {
        let size = self.job.code.shared;
        if !self.take(SHARED) {
            return Err(KernelFault::ClaimOverlap { binding: self.job.buffers.len(), range: 0..size as u64 });
        }
        if size == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the scratch has at least `size` bytes and belongs to this workgroup as long as it runs (invariant 2).
        unsafe {
            self.shared.write_bytes(0, size);
            Ok(slice::from_raw_parts_mut(self.shared, size))
        }
    }
}
