//! A thread: where it is in the code, its registers, its calls and its own memory.

use super::WARP;
use crate::ptx::Function;
use crate::ptx::inst::Address;

/// What registers hold before they are written.
const UNWRITTEN: u64 = 0xDEAD_BEEF_DEAD_BEEF;

/// Calls within calls, after which a thread's stack counts as used up.
pub(super) const DEEPEST: usize = 512;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Running,
    /// A barrier of the block: which, and how many threads it takes if not all.
    Barrier {
        id: u32,
        threads: Option<u32>,
    },
    /// The other lanes that the instruction names.
    Warp,
    /// To know which lanes come along.
    Lanes,
    Done,
}

/// A call that is not over: who called, and from where.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) function: usize,
    pub(super) pc: usize,
    pub(super) base: usize,
    pub(super) local_base: usize,
    pub(super) parameters: Vec<u8>,
}

/// A small copy into shared memory that was asked for and need not be done yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingCopy {
    pub(super) shared: u64,
    pub(super) global: u64,
    pub(super) size: usize,
    pub(super) given: usize,
    pub(super) line: u32,
}

/// One thread of a block.
#[derive(Debug)]
pub(super) struct Thread {
    /// Its number in the block.
    pub(super) index: usize,
    pub(super) position: [u32; 3],
    pub(super) state: State,
    pub(super) function: usize,
    pub(super) pc: usize,
    /// Where the registers of the function it is in begin.
    pub(super) base: usize,
    pub(super) registers: Vec<u64>,
    /// Where the local memory of the function it is in begins.
    pub(super) local_base: usize,
    pub(super) local: Vec<u8>,
    /// Parameters of the function it is in, and of the calls that makes.
    pub(super) parameters: Vec<u8>,
    pub(super) callers: Vec<Caller>,
    pub(super) carry: bool,
    /// Groups of small copies that were closed, oldest first, and the one that is open.
    pub(super) groups: Vec<Vec<PendingCopy>>,
    pub(super) open_group: Vec<PendingCopy>,
    /// The line it waits on, for reports.
    pub(super) line: u32,
}

impl Thread {
    pub(super) fn new(index: usize, block: [u32; 3]) -> Self {
        let (index32, [x, y, _]) = (index as u32, block);
        Self {
            index,
            position: [index32 % x, index32 / x % y, index32 / x / y],
            state: State::Done,
            function: 0,
            pc: 0,
            base: 0,
            registers: Vec::new(),
            local_base: 0,
            local: Vec::new(),
            parameters: Vec::new(),
            callers: Vec::new(),
            carry: false,
            groups: Vec::new(),
            open_group: Vec::new(),
            line: 0,
        }
    }

    /// Puts the thread at the beginning of a kernel.
    pub(super) fn begin(&mut self, kernel: usize, function: &Function, parameters: &[u8]) {
        self.state = State::Running;
        (self.function, self.pc, self.base, self.local_base) = (kernel, 0, 0, 0);
        self.registers.clear();
        self.registers.resize(function.registers, UNWRITTEN);
        self.local.clear();
        self.local.resize(function.local_bytes, 0xA5);
        self.parameters.clear();
        self.parameters.extend_from_slice(parameters);
        self.parameters.resize(function.frame_bytes, 0);
        self.callers.clear();
        self.groups.clear();
        self.open_group.clear();
    }

    /// Enters a function whose parameters lie ready; it returns to the instruction after this one.
    pub(super) fn enter(&mut self, index: usize, function: &Function, mut parameters: Vec<u8>) {
        parameters.resize(function.frame_bytes, 0);
        self.callers.push(Caller {
            function: self.function,
            pc: self.pc,
            base: self.base,
            local_base: self.local_base,
            parameters: core::mem::replace(&mut self.parameters, parameters),
        });
        (self.function, self.pc) = (index, 0);
        self.base = self.registers.len();
        self.registers.resize(self.base + function.registers, UNWRITTEN);
        self.local_base = self.local.len();
        self.local.resize(self.local_base + function.local_bytes, 0xA5);
    }

    /// Leaves the function it is in, if that was called; the parameters of what is left, and where the call stands.
    pub(super) fn leave(&mut self) -> Option<Vec<u8>> {
        let caller = self.callers.pop()?;
        self.registers.truncate(self.base);
        self.local.truncate(self.local_base);
        (self.function, self.pc) = (caller.function, caller.pc);
        (self.base, self.local_base) = (caller.base, caller.local_base);
        Some(core::mem::replace(&mut self.parameters, caller.parameters))
    }

    #[inline]
    pub(super) fn register(&self, register: u32) -> u64 {
        self.registers[self.base + register as usize]
    }

    #[inline]
    pub(super) fn set(&mut self, register: u32, value: u64) {
        self.registers[self.base + register as usize] = value;
    }

    pub(super) fn lane(&self) -> usize {
        self.index % WARP
    }
}

/// The distance of an address, added.
#[inline]
pub(super) fn offset(base: u64, address: &Address) -> u64 {
    base.wrapping_add_signed(address.offset)
}
