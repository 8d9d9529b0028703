//! What an operation does: borrowed from the caller while it can be encoded at once, kept with clones of its handles when it is parked.

use alloc::vec::Vec;
use smallvec::SmallVec;
use trunnion_resource_tracker::Use;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{Bounds, Grant, Launch, Pattern, Region};

/// The bindings of one operation.
pub(super) type Uses = SmallVec<[Use; 17]>;

/// Regions with more rows than this are tracked from their first to their last byte, gaps included.
pub(super) const ROWS_TRACKED: u64 = 32;

/// What can be encoded now.
#[derive(Clone, Copy)]
pub(super) enum Task<'a> {
    Write {
        target: &'a Region,
        data: Data<'a>,
    },
    Read {
        sources: &'a [Region],
    },
    Copy {
        source: &'a Region,
        target: &'a Region,
    },
    Fill {
        target: &'a Handle,
        pattern: Pattern,
    },
    Launch(Launch<'a>),
    /// Takes its place in the stream, and does nothing.
    Nothing,
}

/// The bytes of a write.
#[derive(Clone, Copy)]
pub(super) enum Data<'a> {
    Bytes(&'a Bytes),
    /// The caller's, for the length of the call.
    Slice(&'a [u8]),
}

impl<'a> Data<'a> {
    pub(super) fn as_slice(self) -> Result<&'a [u8]> {
        match self {
            Data::Bytes(bytes) => bytes.as_slice(),
            Data::Slice(slice) => Ok(slice),
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Slice(slice) => slice.len(),
        }
    }

    pub(super) fn to_bytes(self) -> Bytes {
        match self {
            Data::Bytes(bytes) => bytes.clone(),
            Data::Slice(slice) => Bytes::copy_from_slice(slice),
        }
    }
}

/// What was put aside.
pub(super) enum Work {
    Write {
        target: Region,
        data: Bytes,
    },
    PromisedWrite {
        target: Region,
        data: Promise<Vec<Bytes>>,
    },
    Read {
        sources: Vec<Region>,
    },
    Copy {
        source: Region,
        target: Region,
    },
    Fill {
        target: Handle,
        pattern: Pattern,
    },
    Launch {
        kernel: KernelHandle,
        grid: Grid,
        buffers: Vec<Handle>,
        parameters: Vec<u8>,
        bounds: Bounds,
    },
    /// Goes on when this is given, whatever the result.
    Promised(Promise<()>),
    /// Waits on the device, and does nothing.
    Nothing,
    /// Is over when what it waits for is done, as the host sees it.
    Settle,
    Access {
        target: Handle,
        access: Access,
        promise: Option<Promise<Grant>>,
    },
}

impl Task<'_> {
    pub(super) fn keep(&self) -> Work {
        match *self {
            Task::Write { target, data } => Work::Write { target: target.clone(), data: data.to_bytes() },
            Task::Read { sources } => Work::Read { sources: sources.to_vec() },
            Task::Copy { source, target } => Work::Copy { source: source.clone(), target: target.clone() },
            Task::Fill { target, pattern } => Work::Fill { target: target.clone(), pattern },
            Task::Launch(launch) => Work::Launch {
                kernel: launch.kernel.clone(),
                grid: launch.grid.clone(),
                buffers: launch.buffers.to_vec(),
                parameters: launch.parameters.to_vec(),
                bounds: launch.bounds,
            },
            Task::Nothing => Work::Nothing,
        }
    }
}

impl Work {
    /// What of it the driver does; for the rest, nothing.
    pub(super) fn task(&self) -> Task<'_> {
        match self {
            Work::Write { target, data } => Task::Write { target, data: Data::Bytes(data) },
            Work::Read { sources } => Task::Read { sources },
            Work::Copy { source, target } => Task::Copy { source, target },
            Work::Fill { target, pattern } => Task::Fill { target, pattern: *pattern },
            Work::Launch { kernel, grid, buffers, parameters, bounds } => {
                Task::Launch(Launch { kernel, grid, buffers, parameters, bounds: *bounds })
            }
            Work::PromisedWrite { .. } | Work::Promised(_) | Work::Nothing | Work::Settle | Work::Access { .. } => {
                Task::Nothing
            }
        }
    }

    /// Whether it counts among the operations that are put aside; the others are no work of the device.
    pub(super) fn is_counted(&self) -> bool {
        !matches!(self, Work::Settle | Work::Access { .. })
    }
}

/// Adds how a handle's bytes are used; nothing for no bytes.
#[inline]
pub(super) fn use_handle(uses: &mut Uses, handle: &Handle, access: Access) {
    if !handle.is_empty() {
        uses.push(Use { memory: handle.memory(), range: handle.range(), access });
    }
}

/// Adds how a region's bytes are used: each row by itself where there are few, so that the gaps between them stay untouched.
///
/// Where there are many, an `Overwrite` becomes a `Write`: it does not replace the gaps.
pub(super) fn use_region(uses: &mut Uses, region: &Region, access: Access) {
    let Some(rows) = region.rows.as_ref() else { return use_handle(uses, &region.handle, access) };
    if rows.size() == 0 {
        return;
    }
    let (memory, start) = (region.handle.memory(), region.handle.range().start);
    let mut add = |offset: u64, size: u64, access| {
        let from = start.saturating_add(offset);
        uses.push(Use { memory, range: from..from.saturating_add(size), access });
    };
    if rows_in(rows) <= ROWS_TRACKED {
        rows.for_each(|offset| add(offset, rows.row, access));
    } else {
        add(0, rows.extent(), if access == Access::Overwrite { Access::Write } else { access });
    }
}

fn rows_in(rows: &Rows) -> u64 {
    rows.outer.iter().fold(1, |count, (n, _)| count.saturating_mul(*n))
}
