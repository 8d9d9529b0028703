//! One instruction after the other, for one thread.

use super::block::Block;
use super::thread::{State, Thread, offset};
use super::{WARP, call};
use crate::codes::{Code, Fault};
use crate::memory::Access;
use crate::ptx::inst::{Combine, Gather, Inst, LaneMask, Special, Src};
use crate::ptx::{Function, Op};

/// Instructions a thread may take before others have their turn.
const SHARE: u64 = 20_000;

/// Multiprocessors of the device that is played.
pub(crate) const MULTIPROCESSORS: u32 = 132;

/// How a thread goes on after an instruction.
pub(super) enum Next {
    /// With the one after.
    Along,
    /// With the instruction of this number.
    At(usize),
    /// Later: others have their turn first, and the thread has gone on.
    Later,
    /// When what it waits for has come. The instruction is not done.
    Waits(State),
}

impl Block<'_> {
    /// Lets a thread go on until it is done, waits or had its share; how many instructions it took.
    pub(super) fn advance(&mut self, index: usize, access: &mut Access<'_>) -> Result<u64, Fault> {
        let mut thread = core::mem::replace(&mut self.threads[index], Thread::new(0, [1; 3]));
        let taken = self.steps(&mut thread, access);
        self.threads[index] = thread;
        taken
    }

    fn steps(&mut self, thread: &mut Thread, access: &mut Access<'_>) -> Result<u64, Fault> {
        let mut function = self.function(thread);
        let mut taken = 0;
        while taken < SHARE {
            let Some(inst) = function.code.get(thread.pc) else {
                // The text ends without a return.
                if !call::leave(self, thread, access)? {
                    break;
                }
                function = self.function(thread);
                continue;
            };
            taken += 1;
            if let Some((register, negated)) = inst.guard
                && (thread.register(register) & 1 == 1) == negated
            {
                thread.pc += 1;
                continue;
            }
            match self.step(thread, function, inst, access)? {
                Next::Along => thread.pc += 1,
                Next::At(pc) => thread.pc = pc,
                Next::Later => break,
                Next::Waits(state) => {
                    thread.state = state;
                    thread.line = inst.line;
                    break;
                }
            }
            match inst.op {
                Op::Call(_) | Op::Return => {
                    if thread.state == State::Done {
                        break;
                    }
                    function = self.function(thread);
                }
                _ => {}
            }
        }
        Ok(taken)
    }

    #[inline]
    pub(super) fn value(&self, thread: &Thread, function: &Function, src: Src) -> u64 {
        match src {
            Src::Register(register) => thread.register(register),
            Src::Constant(index) => function.constants[index as usize],
            Src::Special(special) => self.special(thread, special),
        }
    }

    fn special(&self, thread: &Thread, special: Special) -> u64 {
        let launch = self.launch;
        let lane = thread.lane() as u32;
        u64::from(match special {
            Special::Thread(axis) => thread.position[axis as usize],
            Special::Threads(axis) => launch.block[axis as usize],
            Special::Block(axis) => self.at[axis as usize],
            Special::Blocks(axis) => launch.grid[axis as usize],
            Special::Lane => lane,
            Special::LaneMask(LaneMask::Equal) => 1 << lane,
            Special::LaneMask(LaneMask::Less) => (1 << lane) - 1,
            Special::LaneMask(LaneMask::LessOrEqual) => u32::MAX >> (31 - lane),
            Special::LaneMask(LaneMask::Greater) => !(u32::MAX >> (31 - lane)),
            Special::LaneMask(LaneMask::GreaterOrEqual) => u32::MAX << lane,
            Special::Warp => (thread.index / WARP) as u32,
            Special::Warps => self.threads.len().div_ceil(WARP) as u32,
            Special::Multiprocessor => (self.at[0] + launch.grid[0] * self.at[1]) % MULTIPROCESSORS,
            Special::Multiprocessors => MULTIPROCESSORS,
            Special::Grid => 1,
            // A clock that is the same in every run.
            Special::Clock => return self.executed(),
            Special::DynamicShared => launch.function().shared_bytes as u32,
            Special::DynamicSharedSize => launch.dynamic_shared,
            Special::TotalSharedSize => self.shared.len() as u32,
            Special::Local(offset) => thread.local_base as u32 + offset,
        })
    }

    #[inline]
    fn step(
        &mut self,
        thread: &mut Thread,
        function: &Function,
        inst: &Inst,
        access: &mut Access<'_>,
    ) -> Result<Next, Fault> {
        macro_rules! value {
            ($src:expr) => {
                self.value(thread, function, $src)
            };
        }
        match &inst.op {
            Op::Nothing => {}
            Op::Move { dst, src, mask } => {
                let value = value!(*src) & mask;
                thread.set(*dst, value);
            }
            Op::Unary { f, dst, a } => {
                let value = f(&[value!(*a), 0, 0, 0]);
                thread.set(*dst, value);
            }
            Op::Binary { f, dst, a, b } => {
                let value = f(&[value!(*a), value!(*b), 0, 0]);
                thread.set(*dst, value);
            }
            Op::Compute { f, dst, src } => {
                let value = f(&[value!(src[0]), value!(src[1]), value!(src[2]), value!(src[3])]);
                thread.set(*dst, value);
            }
            Op::Carry { f, dst, src, takes, leaves } => {
                let (value, carry) = f([value!(src[0]), value!(src[1]), value!(src[2])], *takes && thread.carry);
                thread.set(*dst, value);
                if *leaves {
                    thread.carry = carry;
                }
            }
            Op::Convert { conversion, dst, src } => {
                let value = conversion.apply(value!(*src));
                thread.set(*dst, value);
            }
            Op::Compare { f, combine, dst, src, negate } => {
                let found = f(&[value!(src[0]), value!(src[1]), 0, 0]) & 1;
                let met = (value!(src[2]) & 1) ^ u64::from(*negate);
                let with = |found: u64| match combine {
                    Combine::Alone => found,
                    Combine::And => found & met,
                    Combine::Or => found | met,
                    Combine::Xor => found ^ met,
                };
                thread.set(dst[0], with(found));
                thread.set(dst[1], with(found ^ 1));
            }
            Op::Select { f, dst, src, yes } => {
                let found = f(&[value!(src[0]), value!(src[1]), 0, 0]) & 1 == 1;
                thread.set(*dst, if found { *yes } else { 0 });
            }
            Op::Pack { dst, src, count, bits } => {
                let mask = (1u64 << bits) - 1;
                let parts = src[..*count as usize].iter().rev();
                let value = parts.fold(0, |value, src| value << bits | (value!(*src) & mask));
                thread.set(*dst, value);
            }
            Op::Unpack { dst, count, bits, src } => {
                let value = value!(*src);
                for (at, dst) in dst[..*count as usize].iter().enumerate() {
                    thread.set(*dst, value >> (at * *bits as usize) & ((1u64 << bits) - 1));
                }
            }
            Op::Load { dst, count, size, signed, acquire, space, at } => {
                let address = offset(value!(at.base), at);
                let (size, count) = (*size as usize, *count as usize);
                let mut bytes = [0; 32];
                self.load(thread, inst.line, *space, address, &mut bytes[..size * count], access)?;
                if *acquire {
                    self.shared.order_block();
                }
                for (at, dst) in dst[..count].iter().enumerate() {
                    let mut word = [0; 8];
                    word[..size].copy_from_slice(&bytes[at * size..(at + 1) * size]);
                    let value = u64::from_le_bytes(word);
                    let shift = 64 - size as u32 * 8;
                    thread.set(*dst, if *signed { ((value << shift) as i64 >> shift) as u64 } else { value });
                }
            }
            Op::Store { src, count, size, release, space, at } => {
                let address = offset(value!(at.base), at);
                let (size, count) = (*size as usize, *count as usize);
                let mut bytes = [0; 32];
                for (at, src) in src[..count].iter().enumerate() {
                    bytes[at * size..(at + 1) * size].copy_from_slice(&value!(*src).to_le_bytes()[..size]);
                }
                if *release {
                    self.shared.order_block();
                }
                self.store(thread, inst.line, *space, address, &bytes[..size * count], access)?;
            }
            Op::Atomic { f, dst, size, ordered, space, at, b, c } => {
                let (b, c) = (value!(*b), value!(*c));
                let target = (offset(value!(at.base), at), *size as usize);
                let old = self.atomic(thread, inst.line, *space, target, &mut |old| f(old, b, c), access)?;
                if *ordered {
                    self.shared.order_block();
                }
                thread.set(*dst, old);
            }
            Op::Branch(target) => return Ok(Next::At(*target as usize)),
            Op::BranchTable { index, targets } => {
                let index = value!(*index) as u32 as usize;
                let Some(target) = targets.get(index) else {
                    let what = format_args!("a branch by index {index} has {} targets", targets.len());
                    return Err(self.fault(thread, inst.line, Code::INVALID_PC, what));
                };
                return Ok(Next::At(*target as usize));
            }
            Op::Call(call) => return call::enter(self, thread, function, inst.line, call, access),
            Op::Return => {
                call::leave(self, thread, access)?;
                return Ok(Next::At(thread.pc));
            }
            Op::Exit => {
                call::exit(self, thread, access)?;
                return Ok(Next::Waits(State::Done));
            }
            Op::Barrier { id, threads, waits, gather, dst, predicate, negate } => {
                let id = value!(*id) as u32;
                let threads = threads.map(|threads| value!(threads) as u32);
                if id >= 16 || threads == Some(0) {
                    let what =
                        format_args!("barrier {id} of {threads:?} threads: there are 16, each of a thread at least");
                    return Err(self.fault(thread, inst.line, Code::ILLEGAL_INSTRUCTION, what));
                }
                if !waits {
                    *self.arrived.entry(id).or_default() += 1;
                    return Ok(Next::Along);
                }
                if *gather != Gather::Nothing {
                    let says = (value!(*predicate) & 1 == 1) != *negate;
                    self.said.insert(thread.index, (says, *dst, *gather));
                }
                return Ok(Next::Waits(State::Barrier { id, threads }));
            }
            Op::Warp { .. } => return Ok(Next::Waits(State::Warp)),
            Op::ActiveMask { .. } => return Ok(Next::Waits(State::Lanes)),
            Op::Fence => self.shared.order_block(),
            Op::Trap => return Err(self.fault(thread, inst.line, Code::LAUNCH_FAILED, "trap")),
            Op::Sleep => {
                thread.pc += 1;
                return Ok(Next::Later);
            }
            Op::Mbarrier { what, space, at } => {
                let address = offset(value!(at.base), at);
                return self.barrier_object(thread, function, inst.line, what, (*space, address), access);
            }
            Op::CopyAsync { .. }
            | Op::CopyCommit
            | Op::CopyWait { .. }
            | Op::CopyWaitAll
            | Op::CopyArrive { .. }
            | Op::CopyBulk { .. }
            | Op::CopyTensor(_) => self.copy(thread, function, inst, access)?,
        }
        Ok(Next::Along)
    }
}
