//! The calls of the driver that are unsafe, all of them.
//!
//! What every call rests on:
//! - A place is looked up in the pools as it is encoded, and the pools keep a page, and give no part of it to anybody else, until the
//!   frontier the tracker answered when the memory was closed is done; that frontier holds every operation the tracker resolved
//!   over it, this one included, and a moment is done only when the driver said that it finished the operation.
//! - Nothing that conflicts runs at the same time: the tracker resolved the operation, the driver was told to wait for what it must wait
//!   for on other streams, and a barrier lies between it and what it conflicts with on its own.
//! - Pages go back to the driver at the end only when it is drained and no access is granted; otherwise they are leaked.

use super::DriverServer;
use super::operations::GRID_BYTES;
use super::tasks::Task;
use crate::driver::{Driver, DriverGrid, DriverLaunch, Place};
use alloc::boxed::Box;
use smallvec::SmallVec;
use trunnion_memory_pools::{MemoryPools, Storage};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::HostBuffer;
use trunnion_runtime_core::error::{Error, OutOfMemory, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::INLINE_BUFFERS;
use trunnion_runtime_core::server::{Grant, Launch};
use trunnion_runtime_core::timeline::Moment;

/// Bytes that are written at once sooner than a batch is made of them.
const AT_ONCE: usize = 16 << 10;

impl<D: Driver> DriverServer<D> {
    /// Encodes on the stream of `lane`, which is open.
    ///
    /// On an error nothing was encoded, but for a read: that keeps its place once a part of it was.
    pub(super) fn encode(&mut self, lane: usize, at: Moment, task: &Task<'_>) -> Result<()> {
        if let Task::Launch(launch) = task {
            return self.encode_launch(lane, at.seq, launch);
        }
        if let Task::Read { sources } = task {
            return self.encode_read(lane, at, sources);
        }
        let Some(stream) = &mut self.lanes.slots[lane].stream else { return Ok(()) };
        let (driver, pools, seq) = (&mut self.hardware.driver, &self.pools, at.seq);
        match task {
            Task::Write { target, data } => {
                let place = place(pools, &target.handle)?;
                // SAFETY: see the file's head.
                unsafe { driver.write(stream, seq, data.to_bytes(), place, &target.rows()) }
            }
            Task::Copy { source, target } => {
                let (from, to) = (place(pools, &source.handle)?, place(pools, &target.handle)?);
                // SAFETY: see the file's head.
                unsafe { driver.copy(stream, seq, from, &source.rows(), to, &target.rows()) }
            }
            Task::Fill { target, pattern } => {
                let place = place(pools, target)?;
                // SAFETY: see the file's head.
                unsafe { driver.fill(stream, seq, place, *pattern) }
            }
            Task::Launch(_) | Task::Read { .. } | Task::Nothing => Ok(()),
        }
    }

    /// Carries out a short write at once, where the operation has nothing to wait for, on its own stream neither, and the driver can.
    /// It then comes before what is in flight on the stream, which shows to nobody, since that has other bytes.
    ///
    /// Nothing unfinished touches the bytes: what conflicts with them, here or on other streams, is done, or the operation would wait for
    /// it; and so is what this stream waited for, which the operation is not told of again.
    pub(super) fn write_at_once(&mut self, lane: usize, task: &Task<'_>) -> bool {
        let Task::Write { target, data } = task else { return false };
        if data.len() > AT_ONCE || self.lanes.slots[lane].is_waiting() {
            return false;
        }
        let (Ok(bytes), Ok(place)) = (data.as_slice(), place(&self.pools, &target.handle)) else { return false };
        // SAFETY: the place is allocated as long as its handle is held, and nothing unfinished touches it, as said above.
        unsafe { self.hardware.driver.write_now(bytes, place, &target.rows()) }
    }

    fn encode_launch(&mut self, lane: usize, seq: u64, launch: &Launch<'_>) -> Result<()> {
        if launch.buffers.iter().any(Handle::is_empty) {
            self.make_nothing()?;
        }
        let Some(stream) = &mut self.lanes.slots[lane].stream else { return Ok(()) };
        let mut buffers: SmallVec<[Place<'_, D::Page>; INLINE_BUFFERS]> = SmallVec::new();
        for handle in launch.buffers {
            buffers.push(match &self.nothing {
                Some(page) if handle.is_empty() => Place { page, offset: 0, size: 0 },
                _ => place(&self.pools, handle)?,
            });
        }
        let grid = match launch.grid {
            Grid::Static(x, y, z) => DriverGrid::Static([*x, *y, *z]),
            Grid::Dynamic(counts) => DriverGrid::Dynamic(Place { size: GRID_BYTES, ..place(&self.pools, counts)? }),
        };
        let code = self.code.get(launch.kernel, launch.bounds)?;
        let (kernel, parameters, bounds) = (launch.kernel, launch.parameters, launch.bounds);
        let launch = DriverLaunch { code, kernel, grid, buffers: &buffers, parameters, bounds };
        // SAFETY: see the file's head.
        unsafe { self.hardware.driver.launch(stream, seq, launch) }
    }

    fn encode_read(
        &mut self,
        lane: usize,
        at: Moment,
        sources: &[trunnion_runtime_core::server::Region],
    ) -> Result<()> {
        let Some(stream) = &mut self.lanes.slots[lane].stream else { return Ok(()) };
        let mut encoded = false;
        for (index, region) in sources.iter().enumerate().filter(|(_, region)| region.size() > 0) {
            let size = usize::try_from(region.size()).map_err(|_| Error::SizeOverflow { what: "read".into() });
            let piece = size.and_then(HostBuffer::zeroed).and_then(|into| {
                let place = place(&self.pools, &region.handle)?;
                let driver = &mut self.hardware.driver;
                // SAFETY: see the file's head.
                unsafe { driver.read(stream, at.seq, index, place, &region.rows(), into) }
            });
            match piece {
                Ok(()) => encoded = true,
                Err(error) if encoded => {
                    let failure = trunnion_runtime_core::failure::Failure::new(at, error);
                    self.fail_read(at.seq, &failure);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives out a place in place.
    pub(super) fn encode_grant(&mut self, target: &Handle, access: Access) -> Result<Grant> {
        if target.is_empty() {
            self.make_nothing()?;
        }
        let place = match &self.nothing {
            Some(page) if target.is_empty() => Place { page, offset: 0, size: 0 },
            _ => place(&self.pools, target)?,
        };
        // SAFETY: see the file's head; the parked access holds the handle until it is closed, which its contract puts behind the last
        // use of the grant.
        Ok(unsafe { self.hardware.driver.grant(place, access) })
    }

    /// Makes the page that stands for buffers of zero bytes.
    fn make_nothing(&mut self) -> Result<()> {
        if self.nothing.is_none() {
            let size = self.hardware.driver.page_alignment();
            match self.hardware.driver.allocate(size) {
                Ok(page) => self.nothing = Some(page),
                Err(refusal) => {
                    let numbers =
                        OutOfMemory { requested: size, driver: Some(refusal.message), ..OutOfMemory::default() };
                    return Err(Error::OutOfMemory(Box::new(numbers)));
                }
            }
        }
        Ok(())
    }
}

/// Where the bytes of a handle are.
#[inline]
fn place<'a, S: Storage>(pools: &'a MemoryPools<S>, handle: &Handle) -> Result<Place<'a, S::Page>> {
    match pools.place(handle.memory()) {
        Some(place) => {
            let offset = place.offset + handle.range().start;
            Ok(Place { page: place.page, offset, size: handle.size_in_used() })
        }
        None => Err(Error::StaleHandle { memory: handle.memory() }),
    }
}
