//! Launches: arguments, and counts that lie in memory.

use crate::blocks::Piece;
use crate::device::Device;
use crate::driver::CudaDriver;
use crate::operation::Operation;
use crate::stream::{CudaStream, Supplies};

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr;
use cudarc::driver::sys;
use smallvec::SmallVec;
use trunnion_backend_core::driver::{DriverGrid, DriverLaunch};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::grid::Grid;

/// Whether counts of a grid in memory are read by the device itself. They go to the host and back.
pub(crate) const READS_COUNTS_ON_DEVICE: bool = false;

/// Bytes of counts in memory: three `u32`.
const COUNTS: usize = 12;

/// The arguments of a batch's launches.
#[derive(Default)]
pub(crate) struct Arguments(Vec<u64>);

impl Arguments {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A launch with known counts.
pub(crate) struct Launch {
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    /// Where its arguments begin among those of the batch, in words, and where each of them begins behind that.
    start: usize,
    offsets: SmallVec<[u16; 16]>,
}

impl Launch {
    /// Hands it to the stream. The context is current.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn issue(&self, device: &Device, stream: sys::CUstream, arguments: &Arguments) -> Result<()> {
        self.issue_with(device, stream, arguments, self.grid)
    }

    fn issue_with(
        &self,
        device: &Device,
        stream: sys::CUstream,
        arguments: &Arguments,
        [x, y, z]: [u32; 3],
    ) -> Result<()> {
        let at = |offset: &u16| match arguments.0.get(self.start + usize::from(*offset)) {
            Some(word) => ptr::from_ref(word).cast_mut().cast::<c_void>(),
            None => ptr::null_mut(),
        };
        let mut pointers: SmallVec<[*mut c_void; 16]> = self.offsets.iter().map(at).collect();
        let [across, down, deep] = self.block;
        // SAFETY: the function takes these arguments, and what they point to stays until the batch is finished.
        let code = unsafe {
            (device.functions().cuLaunchKernel)(
                self.function,
                x,
                y,
                z,
                across,
                down,
                deep,
                self.shared,
                stream,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        device.check("cuLaunchKernel", code)
    }
}

/// A launch whose counts lie in memory.
pub(crate) struct Counted {
    launch: Launch,
    place: sys::CUdeviceptr,
    found: Piece,
}

impl Counted {
    /// Has the counts copied to the host. The context is current.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn fetch(&self, device: &Device, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the counts stay until the batch is finished, and so does what they are copied to, which is as long.
        let code = unsafe {
            (device.functions().cuMemcpyDtoHAsync_v2)(self.found.start().as_ptr().cast(), self.place, COUNTS, stream)
        };
        device.check("cuMemcpyDtoHAsync_v2", code)
    }

    /// Launches with the counts that were found. Nothing runs where one of them is zero.
    ///
    /// # Errors
    /// [`Error::GridTooLarge`] for counts over a limit; what the driver answers.
    pub(crate) fn issue(&self, device: &Device, stream: sys::CUstream, arguments: &Arguments) -> Result<()> {
        let mut bytes = [0; COUNTS];
        // SAFETY: the copy was waited for.
        unsafe { self.found.read(&mut bytes) };
        let counts @ [x, y, z] =
            core::array::from_fn(|axis| u32::from_ne_bytes(core::array::from_fn(|i| bytes[4 * axis + i])));
        Grid::Static(x, y, z).check(device.properties.limits.max_grid)?;
        if counts.contains(&0) {
            return Ok(());
        }
        self.launch.issue_with(device, stream, arguments, counts)
    }
}

impl CudaStream {
    /// Encodes a launch as operation `seq`.
    ///
    /// # Safety
    /// As for [`Driver::launch`](trunnion_backend_core::driver::Driver::launch).
    ///
    /// # Errors
    /// What the driver answers; nothing was then encoded.
    pub(crate) unsafe fn launch(
        &mut self,
        supplies: &mut Supplies,
        seq: u64,
        launch: &DriverLaunch<'_, CudaDriver>,
    ) -> Result<()> {
        let DriverLaunch { code, grid, buffers, parameters, .. } = launch;
        let block = launch.kernel.workgroup_size();
        let found = match grid {
            DriverGrid::Static(_) => None,
            DriverGrid::Dynamic(place) if place.size < COUNTS as u64 => {
                let size = place.size;
                return Err(Error::OutOfRange { what: "grid in memory".into(), range: 0..COUNTS as u64, size });
            }
            DriverGrid::Dynamic(place) => {
                Some((place.page.address() + place.offset, self.open.arena.take(&mut supplies.blocks, COUNTS)?))
            }
        };
        let words = &mut self.open.arguments.0;
        let start = words.len();
        let mut offsets = SmallVec::new();
        for place in *buffers {
            offsets.push((words.len() - start) as u16);
            words.push(match place.size {
                0 => supplies.nothing.address(),
                _ => place.page.address() + place.offset,
            });
        }
        if !parameters.is_empty() {
            offsets.push((words.len() - start) as u16);
            for chunk in parameters.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                words.push(u64::from_ne_bytes(word));
            }
        }
        for place in *buffers {
            offsets.push((words.len() - start) as u16);
            words.push(place.size);
        }
        let counts = if let DriverGrid::Static(counts) = grid { *counts } else { [0; 3] };
        let launch = Launch { function: code.0.raw(), grid: counts, block, shared: 0, start, offsets };
        self.open.hold(&code.0);
        self.open.push(
            seq,
            match found {
                None => Operation::Launch(launch),
                Some((place, found)) => Operation::Counted(Counted { launch, place, found }),
            },
        );
        Ok(())
    }
}
