//! Instructions as they are executed: every name resolved, every opcode decided.

use super::compute::convert::Conversion;
use super::types::Space;

/// Register that is written by what nobody wants; never read.
pub(crate) const SINK: u32 = 0;

/// A computation without effects, from up to four registers' bits to one's.
pub(crate) type Compute = fn(&[u64; 4]) -> u64;

/// A computation that takes and gives the carry bit.
pub(crate) type Carrying = fn([u64; 3], bool) -> (u64, bool);

/// What an atomic operation leaves, of what was there and its two operands.
pub(crate) type Atomic = fn(u64, u64, u64) -> u64;

/// What a thread or block knows of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    Thread(u8),
    Threads(u8),
    Block(u8),
    Blocks(u8),
    Lane,
    LaneMask(LaneMask),
    Warp,
    Warps,
    Multiprocessor,
    Multiprocessors,
    Grid,
    Clock,
    /// Where shared memory whose size the launch gives begins.
    DynamicShared,
    DynamicSharedSize,
    TotalSharedSize,
    /// Where this call's local memory begins, and how far in.
    Local(u32),
}

/// Which lanes beside one's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LaneMask {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Src {
    Register(u32),
    /// Index among the function's constants.
    Constant(u32),
    Special(Special),
}

/// Where an access goes: a value and a distance from it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) base: Src,
    pub(crate) offset: i64,
}

/// How a comparison's result meets a further predicate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Combine {
    Alone,
    And,
    Or,
    Xor,
}

/// Which lane a shuffle reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What the lanes of a warp agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Together {
    /// Nothing but that all came.
    Barrier,
    Shuffle(Shuffle),
    All,
    Any,
    Uniform,
    Ballot,
    MatchAny(u8),
    MatchAll(u8),
    /// The operation and whether its operands carry a sign.
    Reduce(Reduce, bool),
    Elect,
}

/// Reductions of integers across a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduce {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// What a barrier of the block does beside waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gather {
    Nothing,
    Count,
    All,
    Any,
}

/// What a barrier object in shared memory is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mbarrier {
    Initialise {
        count: Src,
    },
    Invalidate,
    /// Arrives `count` times; first expects `bytes` more.
    Arrive {
        state: u32,
        count: Src,
        bytes: Option<Src>,
    },
    /// Drops out of the phases to come.
    ArriveDrop {
        state: u32,
        count: Src,
    },
    ExpectBytes {
        bytes: Src,
    },
    CompleteBytes {
        bytes: Src,
    },
    /// Whether the phase of a state is over.
    TestState {
        done: u32,
        state: Src,
    },
    /// Whether the phase of a parity is over.
    TestParity {
        done: u32,
        parity: Src,
    },
    /// How many were still to come, of a state.
    Pending {
        found: u32,
        state: Src,
    },
}

/// The tensor-map copies.
#[derive(Clone, Debug)]
pub(crate) struct TensorCopy {
    pub(crate) rank: u8,
    pub(crate) map: Src,
    pub(crate) coordinates: [Src; 5],
    pub(crate) shared: Address,
    /// The barrier that counts the bytes of a load; a store has none.
    pub(crate) barrier: Option<Address>,
}

/// Who is called.
#[derive(Clone, Debug)]
pub(crate) enum Callee {
    Function(u32),
    /// The address of a function, computed.
    Address(Src),
    Print,
    AssertFail,
}

/// A call: where the caller's frame holds what goes in and what comes out.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    pub(crate) inputs: Vec<FramePart>,
    pub(crate) outputs: Vec<FramePart>,
}

/// A part of a call frame's parameter bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FramePart {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Nothing,
    Move {
        dst: u32,
        src: Src,
        mask: u64,
    },
    Unary {
        f: Compute,
        dst: u32,
        a: Src,
    },
    Binary {
        f: Compute,
        dst: u32,
        a: Src,
        b: Src,
    },
    Compute {
        f: Compute,
        dst: u32,
        src: [Src; 4],
    },
    Carry {
        f: Carrying,
        dst: u32,
        src: [Src; 3],
        takes: bool,
        leaves: bool,
    },
    Convert {
        conversion: Conversion,
        dst: u32,
        src: Src,
    },
    Compare {
        f: Compute,
        combine: Combine,
        dst: [u32; 2],
        src: [Src; 3],
        negate: bool,
    },
    /// A comparison whose result is `yes` or zero.
    Select {
        f: Compute,
        dst: u32,
        src: [Src; 2],
        yes: u64,
    },
    Pack {
        dst: u32,
        src: [Src; 4],
        count: u8,
        bits: u8,
    },
    Unpack {
        dst: [u32; 4],
        count: u8,
        bits: u8,
        src: Src,
    },
    Load {
        dst: [u32; 4],
        count: u8,
        size: u8,
        signed: bool,
        acquire: bool,
        space: Space,
        at: Address,
    },
    Store {
        src: [Src; 4],
        count: u8,
        size: u8,
        release: bool,
        space: Space,
        at: Address,
    },
    Atomic {
        f: Atomic,
        dst: u32,
        size: u8,
        ordered: bool,
        space: Space,
        at: Address,
        b: Src,
        c: Src,
    },
    Branch(u32),
    BranchTable {
        index: Src,
        targets: Vec<u32>,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Barrier {
        id: Src,
        threads: Option<Src>,
        waits: bool,
        gather: Gather,
        dst: u32,
        predicate: Src,
        negate: bool,
    },
    Warp {
        what: Together,
        dst: [u32; 2],
        src: [Src; 3],
        negate: bool,
        mask: Src,
    },
    ActiveMask {
        dst: u32,
    },
    Fence,
    Trap,
    Mbarrier {
        what: Mbarrier,
        space: Space,
        at: Address,
    },
    /// A small copy from global to shared memory; `given` bytes are read, the rest of `size` is zero.
    CopyAsync {
        size: u8,
        given: Option<Src>,
        shared: Address,
        global: Address,
    },
    /// Makes one group of the small copies since the last.
    CopyCommit,
    /// Waits until at most so many groups are unfinished.
    CopyWait {
        groups: Src,
    },
    /// Waits for every small copy.
    CopyWaitAll,
    /// Arrives at a barrier object once the thread's small copies are done.
    CopyArrive {
        counted: bool,
        space: Space,
        at: Address,
    },
    /// A large copy, into shared memory with a barrier, or out of it.
    CopyBulk {
        size: Src,
        shared: Address,
        global: Address,
        barrier: Option<Address>,
    },
    CopyTensor(Box<TensorCopy>),
    Sleep,
}

/// One instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    /// A predicate register, and whether it is negated; without one it is always executed.
    pub(crate) guard: Option<(u32, bool)>,
    pub(crate) op: Op,
    /// The line of the text.
    pub(crate) line: u32,
}
