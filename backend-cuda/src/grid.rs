//! Launches whose counts are in device memory, which the host does not know when it encodes them.
//!
//! CUDA takes counts from the host only. So they are copied to page-locked memory in the stream's order, with an event behind them, and what
//! the stream was given after them stays with the host until that event has happened. The stream's own thread then launches as many
//! workgroups as were found, and hands the rest over ([`lane`](crate::lane)): other streams and whoever drives the device wait for nothing.
//! Counts over a limit are a failure of the launch, which then ran nothing; zeros run nothing and are no failure.

use crate::blocks::{Arena, Blocks, Piece};
use crate::device::Device;
use crate::launch::{Arguments, Launch};
use crate::storage::CudaPage;
use cudarc::driver::sys;
use trunnion_backend_core::driver::Place;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::grid::Grid;

/// Whether counts in device memory are read there, without the host.
pub(crate) const READS_COUNTS_ON_DEVICE: bool = false;

/// Bytes of counts.
const COUNTS: usize = 12;

/// A launch whose counts are in memory.
pub(crate) struct Counted {
    launch: Launch,
    /// Where the counts are, and where they are put for the host.
    from: sys::CUdeviceptr,
    to: Piece,
    most: [u32; 3],
}

impl Counted {
    /// A launch with as many workgroups as are found at a place, up to `most` by axis.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a place of too few bytes; no memory for the counts.
    pub(crate) fn new(
        arena: &mut Arena,
        blocks: &mut Blocks,
        launch: Launch,
        place: Place<'_, CudaPage>,
        most: [u32; 3],
    ) -> Result<Self> {
        let size = COUNTS as u64;
        if place.size < size {
            return Err(Error::OutOfRange { what: "grid in memory".into(), range: 0..size, size: place.size });
        }
        let from = place.page.address().wrapping_add(place.offset);
        Ok(Self { launch, from, to: arena.take(blocks, COUNTS)?, most })
    }

    /// Has the counts copied to the host. The context is current.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn fetch(&self, device: &Device, stream: sys::CUstream) -> Result<()> {
        let to = self.to.start().as_ptr().cast();
        // SAFETY: the counts stay until the batch is finished, by the promise under which it was encoded, and so does the piece, which is its.
        let code = unsafe { (device.functions().cuMemcpyDtoHAsync_v2)(to, self.from, COUNTS, stream) };
        device.check("cuMemcpyDtoHAsync_v2", code)
    }

    /// Hands the launch to the stream, with the counts that were fetched. The context is current.
    ///
    /// # Errors
    /// [`Error::GridTooLarge`] for counts over the limit; what the driver answers.
    pub(crate) fn issue(&self, device: &Device, stream: sys::CUstream, arguments: &Arguments) -> Result<()> {
        let mut bytes = [0; COUNTS];
        // SAFETY: the piece is the batch's, which is not finished; the copy is.
        unsafe { self.to.read(&mut bytes) };
        let counts: [u32; 3] =
            core::array::from_fn(|axis| u32::from_ne_bytes(core::array::from_fn(|i| bytes[4 * axis + i])));
        let [x, y, z] = counts;
        let grid = Grid::Static(x, y, z);
        grid.check(self.most)?;
        match grid.is_empty() {
            true => Ok(()),
            false => self.launch.with_grid(counts).issue(device, stream, arguments),
        }
    }
}
