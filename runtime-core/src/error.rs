//! What can go wrong, as values: every error names what was asked for and what would have been valid.
//!
//! Errors own their text and hold no handle, so that keeping one keeps no memory alive.

use crate::elem::ElemType;
use crate::id::{BackendName, DeviceId, MemoryId, ServiceId};
use crate::kernel::LaunchMode;
use crate::timeline::{Moment, Point};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

/// Text that is usually a literal, and owned after it was read back from a file.
pub type Text = Cow<'static, str>;

/// The result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a call failed, or why bytes were not written.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Error {
    // ---- arguments: nothing was submitted
    /// A handle of one device was given to another.
    #[error(
        "the handle belongs to {owner}, this client to {service}; while {owner} runs, its client can copy the bytes over with `to_client`"
    )]
    ForeignHandle {
        /// The server the handle belongs to.
        owner: ServiceId,
        /// The server it was given to.
        service: ServiceId,
    },
    /// A point of another device where only this device's can be used.
    #[error("the point belongs to {owner}, which is not running")]
    ForeignPoint {
        /// The server the point belongs to.
        owner: ServiceId,
    },
    /// A range that leaves the bytes it is a range of.
    #[error("{what}: bytes {}..{} of {size}", range.start, range.end)]
    OutOfRange {
        /// What was asked for.
        what: Text,
        /// The range asked for, in bytes.
        range: Range<u64>,
        /// How many bytes there are.
        size: u64,
    },
    /// A host slice or `Bytes` of another length than the device bytes it is for.
    #[error("{what}: {got} bytes given, {expected} expected")]
    WrongLength {
        /// The call.
        what: Text,
        /// The bytes given.
        got: u64,
        /// The bytes expected.
        expected: u64,
    },
    /// An offset or size that the operation needs aligned.
    #[error("{what}: {value} is not a multiple of {alignment}")]
    Misaligned {
        /// What was misaligned.
        what: Text,
        /// Its value.
        value: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// More bytes than a 64-bit count, or than this machine's addresses, can hold.
    #[error("{what}: the size overflows")]
    SizeOverflow {
        /// What was being sized.
        what: Text,
    },
    /// Shape and strides that do not belong together, or a layout this device cannot move.
    #[error("strides {strides:?} for shape {shape:?}: {why}")]
    UnsupportedStrides {
        /// The shape, in elements, outermost first.
        shape: Vec<u64>,
        /// The strides, in elements, outermost first.
        strides: Vec<u64>,
        /// What is wrong with them.
        why: Text,
    },
    /// A grid over the device's limit.
    #[error(
        "{requested} workgroups on axis {axis}, the device takes {limit}; `Grid::spread` splits a count over the axes"
    )]
    GridTooLarge {
        /// The axis: x, y or z.
        axis: char,
        /// The workgroups asked for.
        requested: u64,
        /// The device's limit on that axis.
        limit: u64,
    },
    /// A kernel that needs more than the device has.
    #[error("kernel `{kernel}` needs {requested} {resource}, the device has {max}")]
    TooManyResources {
        /// The kernel's name.
        kernel: String,
        /// What there is too little of.
        resource: Resource,
        /// How much was asked for.
        requested: u64,
        /// How much there is.
        max: u64,
    },
    /// Another number of buffers than the kernel's interface declares.
    #[error("kernel `{kernel}` takes {expected} buffers, {got} given")]
    BufferCount {
        /// The kernel's name.
        kernel: String,
        /// The buffers given.
        got: usize,
        /// The buffers expected.
        expected: usize,
    },
    /// Parameters of another size than the kernel's interface declares.
    #[error("kernel `{kernel}` takes {expected} bytes of parameters, {got} given")]
    ParameterSize {
        /// The kernel's name.
        kernel: String,
        /// The bytes given.
        got: usize,
        /// The bytes expected.
        expected: usize,
    },
    /// A buffer whose size the kernel's interface does not allow.
    #[error("kernel `{kernel}`, buffer {index}: {got} bytes, {why}")]
    BufferSize {
        /// The kernel's name.
        kernel: String,
        /// Which buffer, from 0.
        index: usize,
        /// Its bytes.
        got: u64,
        /// What the interface or the device asks for.
        why: String,
    },
    /// Two arguments of one operation that may not overlap, one of them written.
    #[error("{what}: arguments {first} and {second} overlap and one is written")]
    Overlap {
        /// The kernel's name or the call.
        what: String,
        /// One argument, from 0.
        first: usize,
        /// The other, from 0.
        second: usize,
    },
    /// An interface or a kernel that contradicts itself.
    #[error("kernel `{kernel}`: {why}")]
    InvalidKernel {
        /// The kernel's name.
        kernel: String,
        /// What is wrong with it.
        why: String,
    },
    /// A kernel prepared by another device.
    #[error("kernel `{kernel}` was prepared by {owner}, this client is of {service}")]
    ForeignKernel {
        /// The kernel's name.
        kernel: String,
        /// The server that prepared it.
        owner: ServiceId,
        /// The server it was given to.
        service: ServiceId,
    },
    /// A kernel that has no source this device takes.
    #[error("kernel `{kernel}` has no source for {backend}: it has {has:?}, the device takes {takes:?}")]
    NoSource {
        /// The kernel's name.
        kernel: String,
        /// The device's backend.
        backend: BackendName,
        /// The forms the kernel has, as far as it says.
        has: Vec<SourceForm>,
        /// The forms the device takes.
        takes: Vec<SourceForm>,
    },
    /// An element type the device does not have.
    #[error("{elem:?} is not supported by {backend}")]
    UnsupportedElem {
        /// The type.
        elem: ElemType,
        /// The backend.
        backend: BackendName,
    },
    /// A call the backend does not have.
    #[error("{what} is not supported by {backend}")]
    Unsupported {
        /// The call.
        what: Text,
        /// The backend.
        backend: BackendName,
    },
    /// A resource of another type than the server has.
    #[error("the server holds {found}, not {expected}")]
    ServiceMismatch {
        /// The type asked for.
        expected: Text,
        /// The type there is.
        found: Text,
    },
    /// Memory or an event of somebody else that this device cannot use: of another device, or of a kind it does not have.
    #[error("{what} cannot be used by this device: {why}")]
    Incompatible {
        /// What was given.
        what: Text,
        /// Why it cannot be used, with both values.
        why: String,
    },
    /// Scoped settings closed in another order than they were opened.
    #[error("{what}: closed out of order, {open} still open inside")]
    ScopeOrder {
        /// The setting.
        what: Text,
        /// How many scopes opened later are still open.
        open: usize,
    },

    /// A scope of a launch mode that would reach some of the same launches as an open scope of another mode.
    #[error("launch mode `{asked}` for {of}: a scope of {by} is open, and its mode is `{open}`")]
    LaunchModeConflict {
        /// The mode asked for.
        asked: LaunchMode,
        /// What it was to hold for: the process, or a stream of a device.
        of: Text,
        /// The mode of the open scope.
        open: LaunchMode,
        /// What that holds for.
        by: Text,
    },

    // ---- memory
    /// No memory for a request, after everything was tried.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// A request larger than the device can ever give.
    #[error("{requested} bytes requested, the device gives at most {limit} at once")]
    TooLarge {
        /// The bytes asked for.
        requested: u64,
        /// The largest allocation.
        limit: u64,
    },
    /// Pools of memory that contradict themselves, or that this device cannot have.
    #[error("invalid layout of memory pools: {why}")]
    InvalidLayout {
        /// The pool, the value and the limit.
        why: String,
    },
    /// More bytes than one client and its clones may hold live. Nobody was asked for memory.
    #[error("{requested} bytes requested, this client and its clones hold {live} live of the {limit} they may")]
    ClientMemoryLimit {
        /// The bytes asked for.
        requested: u64,
        /// The bytes they hold live.
        live: u64,
        /// The most they may hold live.
        limit: u64,
    },
    /// More staging memory than may be in use at once: more than the limit, or earlier staging did not end in time.
    #[error(
        "{requested} bytes of staging memory requested, {in_use} of at most {limit} are in use{}",
        DisplayWaited(*waited)
    )]
    StagingFull {
        /// The bytes asked for.
        requested: u64,
        /// The bytes in use.
        in_use: u64,
        /// The most that may be in use.
        limit: u64,
        /// How long it was waited for others to end theirs; zero for a request over the limit.
        waited: Duration,
    },
    /// A handle whose memory is gone: its device was shut down.
    #[error("{memory} is gone, the device was shut down")]
    StaleHandle {
        /// The memory.
        memory: MemoryId,
    },

    // ---- work
    /// A kernel that does not compile.
    #[error("kernel `{kernel}` does not compile{}: {message}", DisplayLine(*line))]
    Compile {
        /// The kernel's name.
        kernel: String,
        /// The compiler's message.
        message: String,
        /// The line of the source, from 1, where the compiler names one.
        line: Option<u32>,
    },
    /// A kernel that failed while it ran.
    #[error("kernel `{kernel}`, workgroup {workgroup:?}: {fault}")]
    KernelFailed {
        /// The kernel's name.
        kernel: String,
        /// The workgroup that failed first.
        workgroup: [u32; 3],
        /// What happened.
        fault: KernelFault,
    },
    /// A panic inside a backend or a task, caught.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// Where.
        what: String,
        /// The panic's message.
        message: String,
    },
    /// A call of the driver that failed.
    #[error("{call} failed with {code}: {message}")]
    Driver {
        /// The driver's function.
        call: String,
        /// Its result code.
        code: i64,
        /// Its message.
        message: String,
    },
    /// Bytes that were never written because what they depend on failed.
    #[error("{cause}{}", DisplayChain(chain, *dropped))]
    Inherited {
        /// The failure it began with.
        #[source]
        cause: Box<Error>,
        /// The operations the failure came through, the first after the cause first.
        chain: Vec<Link>,
        /// How many operations between the kept ones and these bytes are not listed.
        dropped: u32,
    },
    /// Several distinct failures, each once.
    #[error("{} failures: {}", .0.len(), DisplayList(.0))]
    Several(Vec<Error>),

    // ---- devices
    /// A backend this process does not have.
    #[error("there is no backend `{name}`; {}", DisplayKnown(known))]
    UnknownBackend {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A backend that is built in and cannot start here.
    #[error("backend {backend} is not available: {why}")]
    BackendUnavailable {
        /// The backend.
        backend: BackendName,
        /// Why, and what would help.
        why: String,
    },
    /// An option of its own that a backend does not have.
    #[error("backend {backend} has no option `{option}`; there are: {}", known.join(", "))]
    UnknownOption {
        /// The backend.
        backend: BackendName,
        /// The option's name, as it was given.
        option: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A value that an option of a backend's own cannot have.
    #[error("backend {backend}, option `{option}`: `{value}` is not {valid}")]
    BadOption {
        /// The backend.
        backend: BackendName,
        /// The option's name.
        option: String,
        /// The value, as it was given.
        value: String,
        /// What it can be, such as `a count of at least 1`.
        valid: String,
    },
    /// A device the backend does not have.
    #[error("there is no device {device}: the backend has {count}")]
    NoDevice {
        /// The device asked for.
        device: DeviceId,
        /// How many there are.
        count: u32,
    },
    /// A server for a device that already runs one.
    #[error("device {device} already runs a server")]
    AlreadyRunning {
        /// The device.
        device: DeviceId,
    },
    /// A server on a device that was shut down.
    #[error("{service} is shut down")]
    ShutDown {
        /// The server.
        service: ServiceId,
    },
    /// The device is gone; every pending and later operation answers this with the same cause.
    #[error("the device is lost: {cause}")]
    DeviceLost {
        /// What was seen first.
        cause: String,
    },

    // ---- time
    /// A blocking call ended by its deadline. What it waited for goes on.
    #[error("timed out after {waited:?}{}", DisplayPoint(*point))]
    Timeout {
        /// How long it waited.
        waited: Duration,
        /// What it waited for, where that has a point.
        point: Option<Point>,
    },
    /// Somebody else holds what the call needs; nothing ran, and a retry is safe.
    #[error("busy: {what}")]
    Busy {
        /// What is held.
        what: Text,
    },
    /// A blocking call from inside the device's own work, which would wait for itself.
    #[error("{what} called from inside the device's own work")]
    Reentrant {
        /// The call.
        what: Text,
    },
    /// Reading, mapping or writing a file failed.
    #[error("{path}: {message}")]
    File {
        /// The file.
        path: String,
        /// The system's message.
        message: String,
    },
}

impl Error {
    /// Whether the call was refused for its arguments: nothing was submitted, and the same call would be refused again.
    pub fn is_refusal(&self) -> bool {
        use Error::*;
        match self {
            ForeignHandle { .. }
            | ForeignPoint { .. }
            | OutOfRange { .. }
            | WrongLength { .. }
            | Misaligned { .. }
            | SizeOverflow { .. }
            | UnsupportedStrides { .. }
            | GridTooLarge { .. }
            | TooManyResources { .. }
            | BufferCount { .. }
            | ParameterSize { .. }
            | BufferSize { .. }
            | Overlap { .. }
            | InvalidKernel { .. }
            | ForeignKernel { .. }
            | NoSource { .. }
            | UnsupportedElem { .. }
            | Unsupported { .. }
            | ServiceMismatch { .. }
            | Incompatible { .. }
            | ScopeOrder { .. }
            | LaunchModeConflict { .. }
            | UnknownBackend { .. }
            | UnknownOption { .. }
            | BadOption { .. }
            | NoDevice { .. }
            | AlreadyRunning { .. }
            | Reentrant { .. } => true,
            StagingFull { requested, limit, .. } => requested > limit,
            other => other.any_cause(Error::is_refusal),
        }
    }

    /// Whether memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Error::OutOfMemory(_) | Error::TooLarge { .. } | Error::ClientMemoryLimit { .. } => true,
            other => other.any_cause(Error::is_out_of_memory),
        }
    }

    /// Whether the device is gone. Only a new server, where the driver can start one, goes on.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Error::DeviceLost { .. }) || self.any_cause(Error::is_device_lost)
    }

    /// Whether a deadline passed.
    pub fn is_timeout(&self) -> bool {
        match self {
            Error::Timeout { .. } => true,
            Error::StagingFull { requested, limit, .. } => requested <= limit,
            other => other.any_cause(Error::is_timeout),
        }
    }

    /// Whether somebody else held what the call needs, so that a retry is safe.
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Busy { .. })
    }

    /// The failure this one began with: itself, unless it was inherited.
    pub fn root(&self) -> &Error {
        match self {
            Error::Inherited { cause, .. } => cause.root(),
            other => other,
        }
    }

    fn any_cause(&self, class: fn(&Error) -> bool) -> bool {
        match self {
            Error::Inherited { cause, .. } => class(cause),
            Error::Several(errors) => errors.iter().any(class),
            _ => false,
        }
    }
}

/// An operation a failure came through.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Link {
    /// The kernel's name, or the call: `copy`, `fill`, `write`.
    pub operation: String,
    /// When it was issued.
    pub at: Moment,
}

/// What a kernel can need too much of.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Resource {
    /// The workgroup's size on axis x.
    WorkgroupSizeX,
    /// The workgroup's size on axis y.
    WorkgroupSizeY,
    /// The workgroup's size on axis z.
    WorkgroupSizeZ,
    /// Invocations in a workgroup, the product of the axes.
    Invocations,
    /// Bytes of workgroup-shared memory.
    SharedMemory,
    /// Buffers.
    Buffers,
    /// Bytes of parameters.
    Parameters,
    /// Bytes of all that a launch hands over by value: addresses of buffers, tensor maps and parameters.
    Arguments,
}

impl core::fmt::Display for Resource {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::WorkgroupSizeX => "invocations a workgroup on axis x",
            Self::WorkgroupSizeY => "invocations a workgroup on axis y",
            Self::WorkgroupSizeZ => "invocations a workgroup on axis z",
            Self::Invocations => "invocations a workgroup",
            Self::SharedMemory => "bytes of shared memory",
            Self::Buffers => "buffers",
            Self::Parameters => "bytes of parameters",
            Self::Arguments => "bytes of arguments",
        })
    }
}

/// The form a kernel's source has.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SourceForm {
    /// A Rust function over a workgroup.
    Host,
    /// WGSL text, the portable form.
    Wgsl,
    /// A SPIR-V module.
    SpirV,
    /// CUDA C++ text.
    CudaC,
    /// PTX text.
    Ptx,
    /// A CUDA binary.
    Cubin,
}

/// What a kernel that runs on the host can answer instead of finishing.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum KernelFault {
    /// Two workgroups, or one twice, claimed bytes that overlap.
    #[error("buffer {binding}: claim of bytes {}..{} overlaps an earlier claim", range.start, range.end)]
    ClaimOverlap {
        /// The buffer, from 0.
        binding: usize,
        /// The bytes claimed.
        range: Range<u64>,
    },
    /// A range outside the buffer.
    #[error("buffer {binding}: bytes {}..{} of {size}", range.start, range.end)]
    OutOfBounds {
        /// The buffer, from 0.
        binding: usize,
        /// The bytes asked for.
        range: Range<u64>,
        /// How many there are.
        size: u64,
    },
    /// A buffer used in another way than the interface declares.
    #[error("buffer {binding}: used as {used}, declared {declared}")]
    WrongUse {
        /// The buffer, from 0.
        binding: usize,
        /// How it was used.
        used: Text,
        /// What the interface declares.
        declared: Text,
    },
    /// A buffer, parameters or shared memory viewed as a type they do not fit.
    #[error("{what} viewed as a type of {size} bytes aligned to {alignment}: {bytes} bytes at {address:#x}")]
    WrongType {
        /// What was viewed.
        what: Text,
        /// The type's size.
        size: usize,
        /// The type's alignment.
        alignment: usize,
        /// How many bytes there are.
        bytes: usize,
        /// Where they begin.
        address: usize,
    },
    /// Something the kernel's author reports.
    #[error("{0}")]
    Message(String),
    /// The kernel panicked.
    #[error("panicked: {0}")]
    Panicked(String),
}

/// Everything known at the moment a request found no memory.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OutOfMemory {
    /// The bytes asked for.
    pub requested: u64,
    /// Bytes in use.
    pub live: u64,
    /// Bytes taken from the driver.
    pub reserved: u64,
    /// Bytes of alignment and rounding inside what is in use.
    pub padding: u64,
    /// The largest block that is free now.
    pub largest_free: u64,
    /// The budget, where one is set.
    pub budget: Option<u64>,
    /// What the driver says it has free, where it says.
    pub driver_free: Option<u64>,
    /// What was tried, in order.
    pub tried: Vec<Rung>,
    /// The driver's own error, where it was asked.
    pub driver: Option<String>,
}

/// A step taken before a request for memory is refused.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Rung {
    /// Looked for a free block that may be reused.
    Reuse,
    /// Merged blocks whose last use is done.
    Merge,
    /// Waited for work that the driver has.
    Wait,
    /// Returned empty pages to the driver.
    Trim,
    /// Asked the driver for a page, or for more behind one.
    Grow,
    /// Asked the hooks of the program, which may have given something back.
    Hook,
}

impl core::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "out of memory: {} bytes requested; live {}, reserved {}, padding {}, largest free block {}",
            self.requested, self.live, self.reserved, self.padding, self.largest_free
        )?;
        match self.budget {
            Some(budget) => write!(f, ", budget {budget}")?,
            None => f.write_str(", no budget")?,
        }
        match self.driver_free {
            Some(free) => write!(f, ", driver has {free} free")?,
            None => f.write_str(", driver does not say what it has free")?,
        }
        write!(f, "; tried {:?}", self.tried)?;
        match &self.driver {
            Some(driver) => write!(f, "; the driver: {driver}"),
            None => Ok(()),
        }
    }
}

struct DisplayKnown<'a>(&'a [String]);
impl core::fmt::Display for DisplayKnown<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            [] => f.write_str(
                "none is registered: `trunnion` registers those it is built with when a device is opened through it",
            ),
            known => write!(f, "there are: {}", known.join(", ")),
        }
    }
}

struct DisplayLine(Option<u32>);
impl core::fmt::Display for DisplayLine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, " (line {line})"))
    }
}

struct DisplayWaited(Duration);
impl core::fmt::Display for DisplayWaited {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.0.is_zero() { Ok(()) } else { write!(f, " after a wait of {:?}", self.0) }
    }
}

struct DisplayPoint(Option<Point>);
impl core::fmt::Display for DisplayPoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.map_or(Ok(()), |point| write!(f, " waiting for {point}"))
    }
}

struct DisplayChain<'a>(&'a [Link], u32);
impl core::fmt::Display for DisplayChain<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, link) in self.0.iter().enumerate() {
            write!(f, "{}`{}`", if i == 0 { "; came through " } else { ", " }, link.operation)?;
        }
        if self.1 > 0 { write!(f, " and {} more", self.1) } else { Ok(()) }
    }
}

struct DisplayList<'a>(&'a [Error]);
impl core::fmt::Display for DisplayList<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
