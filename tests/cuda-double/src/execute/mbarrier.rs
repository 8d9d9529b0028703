//! Barrier objects in shared memory: phases that end when enough threads arrived and enough bytes came.

use super::block::Block;
use super::shared::Use;
use super::step::Next;
use super::thread::Thread;
use crate::codes::{Code, Fault};
use crate::memory::Access;
use crate::ptx::Function;
use crate::ptx::inst::Mbarrier;
use crate::ptx::types::{Space, resolve};

/// Arrivals a barrier object can count.
const MOST: u64 = (1 << 20) - 1;

/// A barrier object. Equivalent to: `cuda::barrier`, `mbarrier`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BarrierObject {
    /// Arrivals of a phase.
    expected: i64,
    pending: i64,
    /// Bytes that are announced and have not come.
    bytes: i64,
    /// Phases that are over.
    phase: u64,
}

impl BarrierObject {
    /// Ends the phase if nothing is missing; whether it did.
    fn settle(&mut self) -> bool {
        let over = self.pending <= 0 && self.bytes == 0;
        if over {
            self.phase += 1;
            self.pending = self.expected;
        }
        over
    }
}

/// What an arrival gives back: the phase, and how many were missing.
fn state(object: &BarrierObject) -> u64 {
    object.phase << 24 | (object.pending as u64 & MOST)
}

impl Block<'_> {
    fn object_at(&self, thread: &Thread, line: u32, space: Space, address: u64) -> Result<u64, Fault> {
        let (space, at) = if space == Space::Generic { resolve(address) } else { (space, address) };
        if space != Space::Shared || at % 8 != 0 || at + 8 > self.shared.len() as u64 {
            let what =
                format_args!("a barrier object at 0x{at:x} ({space:?}): it takes 8 aligned bytes of shared memory");
            return Err(self.fault(thread, line, Code::ILLEGAL_ADDRESS, what));
        }
        Ok(at)
    }

    fn object(&mut self, thread: &Thread, line: u32, at: u64) -> Result<&mut BarrierObject, Fault> {
        if !self.objects.contains_key(&at) {
            let what = format_args!("the barrier object at byte {at} of shared memory was not initialised");
            return Err(self.fault(thread, line, Code::ILLEGAL_INSTRUCTION, what));
        }
        // Present, as was just seen.
        Ok(self.objects.entry(at).or_insert(BarrierObject { expected: 1, pending: 1, bytes: 0, phase: 0 }))
    }

    /// Lets an object count `count` arrivals and `bytes` that came; everything before is ordered before what follows a phase.
    fn arrive(&mut self, thread: &Thread, line: u32, at: u64, count: i64, bytes: i64) -> Result<u64, Fault> {
        let object = self.object(thread, line, at)?;
        let before = state(object);
        object.bytes += bytes;
        object.pending -= count;
        if object.pending < 0 {
            let what = format_args!("the barrier object at byte {at} has {} arrivals too many", -object.pending);
            return Err(self.fault(thread, line, Code::ILLEGAL_INSTRUCTION, what));
        }
        if object.settle() {
            self.shared.order_block();
        }
        Ok(before)
    }

    /// Counts bytes that a copy brought.
    pub(super) fn bytes_came(&mut self, thread: &Thread, line: u32, address: u64, bytes: u64) -> Result<(), Fault> {
        let at = self.object_at(thread, line, Space::Shared, address)?;
        let object = self.object(thread, line, at)?;
        object.bytes -= bytes as i64;
        if object.settle() {
            self.shared.order_block();
        }
        Ok(())
    }

    /// Arrives once for a thread's copies.
    pub(super) fn copies_arrive(
        &mut self,
        thread: &Thread,
        line: u32,
        space: Space,
        address: u64,
        counted: bool,
    ) -> Result<(), Fault> {
        let at = self.object_at(thread, line, space, address)?;
        // The counted form first makes room for its own arrival.
        let count = if counted { 0 } else { 1 };
        self.arrive(thread, line, at, count, 0).map(|_| ())
    }

    pub(super) fn barrier_object(
        &mut self,
        thread: &mut Thread,
        function: &Function,
        line: u32,
        what: &Mbarrier,
        (space, address): (Space, u64),
        access: &mut Access<'_>,
    ) -> Result<Next, Fault> {
        if let Mbarrier::Pending { found, state } = what {
            let value = self.value(thread, function, *state) & MOST;
            thread.set(*found, value);
            return Ok(Next::Along);
        }
        let at = self.object_at(thread, line, space, address)?;
        let read = |block: &Self, src| block.value(thread, function, src);
        match *what {
            Mbarrier::Initialise { count } => {
                let count = read(self, count) & 0xFFFF_FFFF;
                if count == 0 || count > MOST {
                    let what = format_args!("a barrier object of {count} arrivals: between 1 and {MOST} are possible");
                    return Err(self.fault(thread, line, Code::ILLEGAL_INSTRUCTION, what));
                }
                self.shared.touch(thread.index, at as usize, 8, Use::Atomic);
                let count = count as i64;
                self.objects.insert(at, BarrierObject { expected: count, pending: count, bytes: 0, phase: 0 });
            }
            Mbarrier::Invalidate => {
                self.object(thread, line, at)?;
                self.objects.remove(&at);
            }
            Mbarrier::Arrive { state, count, bytes } => {
                let count = (read(self, count) & MOST) as i64;
                let bytes = bytes.map_or(0, |bytes| (read(self, bytes) & 0xFFFF_FFFF) as i64);
                let before = self.arrive(thread, line, at, count, bytes)?;
                thread.set(state, before);
            }
            Mbarrier::ArriveDrop { state, count } => {
                let count = (read(self, count) & MOST) as i64;
                self.object(thread, line, at)?.expected -= count;
                let before = self.arrive(thread, line, at, count, 0)?;
                thread.set(state, before);
            }
            Mbarrier::ExpectBytes { bytes } => {
                let bytes = (read(self, bytes) & 0xFFFF_FFFF) as i64;
                self.object(thread, line, at)?.bytes += bytes;
            }
            Mbarrier::CompleteBytes { bytes } => {
                let bytes = read(self, bytes) & 0xFFFF_FFFF;
                self.bytes_came(thread, line, at, bytes)?;
            }
            Mbarrier::TestState { done, state } => {
                let phase = read(self, state) >> 24;
                let over = self.object(thread, line, at)?.phase != phase;
                return Ok(self.tested(thread, done, over, access));
            }
            Mbarrier::TestParity { done, parity } => {
                let parity = read(self, parity) & 1;
                let over = self.object(thread, line, at)?.phase & 1 != parity;
                return Ok(self.tested(thread, done, over, access));
            }
            Mbarrier::Pending { .. } => {}
        }
        Ok(Next::Along)
    }

    /// Gives the answer; who must ask again lets others have their turn.
    fn tested(&mut self, thread: &mut Thread, done: u32, over: bool, _access: &Access<'_>) -> Next {
        thread.set(done, u64::from(over));
        if over {
            return Next::Along;
        }
        thread.pc += 1;
        Next::Later
    }
}
