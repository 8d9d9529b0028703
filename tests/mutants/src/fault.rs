//! What can be wrong with a mutant.

/// The one thing a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the unbroken twin.
    None,

    // ---- order
    /// The driver drops waits between streams.
    WaitDropped,
    /// The driver ignores barriers; matters where it reorders what no barrier separates.
    BarrierIgnored,
    /// Copies do not keep their place on their stream: they are put on another.
    StreamSplit,
    /// All operations are put on one stream.
    StreamsMerged,
    /// A wait for a point of another device is over at once.
    ForeignPointIgnored,
    /// The driver reports what it was given as finished when it was submitted, reads apart.
    CompletedEarly,
    /// The driver carries reads out when they are encoded, before what is ahead of them on the stream.
    ReadEarly,
    /// The driver carries writes out when they are encoded.
    WriteEarly,
    /// An access in place is over for the others as soon as it is granted.
    AccessEndedEarly,

    // ---- memory
    /// Memory is given out again, to whatever stream, before the work that used it last is done.
    ReusedEarly,
    /// Memory that only the queue holds is freed before the launch that uses it.
    FreedBeforeLaunch,
    /// The budget is not enforced.
    BudgetIgnored,
    /// A reservation that fails marks the buffer reserved before it as well.
    OomMarksNeighbour,
    /// Every allocation goes to the general pools.
    ModeIgnored,
    /// The host bytes of a write are held for good.
    PayloadKept,
    /// A clean-up does nothing.
    CleanupIgnored,
    /// The driver keeps the memory it is given back.
    PageLeaked,
    /// A layout of pools is taken and not installed.
    LayoutIgnored,
    /// A report leaves out the pools of earlier layouts.
    RetiredHidden,
    /// A report counts a byte that nobody asked for.
    ReportOff,
    /// A request that finds no memory is refused at once, whoever has something to give back.
    HooksUnasked,
    /// Memory that was refused in the end carries no failure.
    RefusalForgotten,
    /// The process is said to use no memory.
    BudgetOff,
    /// Once the driver has refused to lock memory, it is never asked again.
    LockGivenUp,
    /// A dry run is a real one.
    DryRunRuns,
    /// A recording of the memory leaves out what is freed.
    FreesUnrecorded,
    /// A recording of the memory leaves out snapshots.
    SnapshotLost,
    /// A recording whose sink failed says that it is whole.
    RecordingFaultHidden,

    // ---- bytes
    /// A kernel's buffers begin where their allocations do.
    OffsetIgnored,
    /// A fill repeats the first half of its pattern.
    PatternHalved,
    /// The driver writes rows one after another, whatever their pitch.
    PitchIgnored,
    /// The first two axes of a grid are swapped.
    AxesSwapped,
    /// A grid in a buffer is one workgroup.
    GridUnread,
    /// The last byte of a kernel's parameters is zero.
    ParametersCut,
    /// A kernel keeps the parameters of its first launch.
    ParametersKept,
    /// The bytes of a read of several handles are answered in another order.
    PiecesSwapped,
    /// A fill of single bytes touches the byte before its range too.
    FillSpills,
    /// A copy leaves out its last byte.
    CopyCut,
    /// A write in place leaves out its last byte.
    GrantCut,
    /// Imported memory is other memory.
    ImportCopied,
    /// Imported memory is never let go of.
    ImportKept,
    /// A fill with zeros does nothing.
    ZerosSkipped,
    /// A launch over a buffer of no bytes fails.
    NothingRefused,

    // ---- failure
    /// A write into a part of failed bytes makes all of them well.
    MarkCleared,
    /// A copy of failed bytes makes its target well.
    TaintLost,
    /// A failure that was named stays, whatever replaces the bytes.
    FailureKept,
    /// A failure is named twice.
    NamedTwice,
    /// A launch that fails while it runs is not told of.
    NeverNamed,
    /// A check finds nothing.
    CheckSilent,
    /// A failure names the operations it came through in the wrong order.
    ChainReversed,
    /// A flush reports the failure of a launch.
    FlushTells,
    /// A transfer that fails leaves its target well.
    TransferUnmarked,
    /// A kernel that panics takes the device with it.
    PanicFatal,
    /// The server does not say that its device is lost.
    FaultHidden,
    /// Calls on a lost device do not say why it was lost.
    CauseForgotten,
    /// The backend's own way to its resources takes handles of other devices.
    ForeignAccepted,

    // ---- kernels
    /// A kernel that does not compile is compiled again for each launch.
    FailureRecompiled,
    /// A kernel is compiled again for each launch.
    Recompiled,
    /// A compilation that is asked for finds nothing wrong.
    CompileSilent,
    /// A compile error has lost its line.
    LineLost,
    /// Every kernel is read as one that works in place.
    InterfaceMisread,

    // ---- time
    /// Who waits for a point is not woken.
    WakerLost,
    /// The driver does not say when it has finished something.
    NoticeLost,
    /// A shutdown takes seconds longer than it was given.
    ShutdownLate,
    /// A shutdown abandons work and does not say so.
    ShutdownUncounted,
    /// A waiter never learns that the device gets on.
    ProgressUnseen,

    // ---- servers of one process
    /// Writes reach the device only on the thread that wrote first: whoever comes from another thread has no context.
    ThreadBound,
    /// Servers share one context, which ends with the first of them that is dropped without having been started.
    ContextShared,

    // ---- what the device says of itself
    /// The description does not say which API the device is reached through.
    DescriptionEmpty,
    /// A device that does not exist is the first one.
    IndexIgnored,
    /// Devices are numbered from 1 where they are listed.
    ListingOff,
    /// The limits are those every device has, not this one's.
    LimitsAssumed,
    /// The hardware's identity is another in every process.
    IdentityChanging,
}
