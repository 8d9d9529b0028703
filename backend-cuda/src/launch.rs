//! Launches: encoded with their arguments in words of the batch, and handed to the stream as the driver takes them.
//!
//! The arguments of a launch lie one after the other: the buffers' addresses, tensor maps, the parameters, the buffers' lengths, as many of them as the
//! function takes. The batch keeps its words, so that a launch allocates nothing. The driver copies them when it is called.

use crate::device::Device;
use crate::driver::CudaDriver;
use crate::grid::Counted;
use crate::kernel::Function;
use crate::operation::Operation;
use crate::storage::CudaPage;
use crate::stream::{CudaStream, Supplies};
use crate::tensor;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr;
use cudarc::driver::sys;
use smallvec::SmallVec;
use trunnion_backend_core::driver::{DriverGrid, DriverLaunch, Place};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::kernel::INLINE_BUFFERS;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// The arguments of a batch's launches.
#[derive(Debug, Default)]
pub(crate) struct Arguments(Vec<u64>);

/// A launch whose batch holds its code and has its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    raw: sys::CUfunction,
    grid: [u32; 3],
    workgroup: [u32; 3],
    shared: u32,
    /// The first of its arguments' words.
    start: usize,
    buffers: usize,
    maps: usize,
    parameter_words: usize,
    lengths: usize,
}

impl Arguments {
    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds those of a launch, whose buffers of no bytes are at `nothing`.
    ///
    /// # Errors
    /// [`Error::BufferCount`] and [`Error::ParameterSize`] for others than the code was compiled for, [`Error::BufferSize`] for tensors that do
    /// not lie in their buffers; what the driver answers. Nothing was then added.
    fn add(
        &mut self,
        code: &Function,
        buffers: &[Place<'_, CudaPage>],
        parameters: &[u8],
        nothing: sys::CUdeviceptr,
    ) -> Result<Launch> {
        if buffers.len() != code.buffers() {
            let (kernel, got, expected) = (code.name().into(), buffers.len(), code.buffers());
            return Err(Error::BufferCount { kernel, got, expected });
        }
        if parameters.len() != code.parameters() {
            let (kernel, got, expected) = (code.name().into(), parameters.len(), code.parameters());
            return Err(Error::ParameterSize { kernel, got, expected });
        }
        let (words, lengths) = (&mut self.0, code.lengths());
        let start = words.len();
        words.extend(buffers.iter().map(|place| match place.size {
            0 => nothing,
            _ => place.page.address().wrapping_add(place.offset),
        }));
        if !code.maps().is_empty() {
            add_maps(code, buffers, parameters, words).inspect_err(|_| words.truncate(start))?;
        }
        words.extend(parameters.chunks(WORD).map(|chunk| {
            let mut word = [0; WORD];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        }));
        words.extend(buffers.iter().take(lengths).map(|place| place.size));
        Ok(Launch {
            raw: code.raw(),
            grid: [0; 3],
            workgroup: code.workgroup(),
            shared: code.shared(),
            start,
            buffers: buffers.len(),
            maps: code.maps().len(),
            parameter_words: parameters.len().div_ceil(WORD),
            lengths,
        })
    }
}

/// Adds the tensor maps of a launch.
fn add_maps(code: &Function, buffers: &[Place<'_, CudaPage>], parameters: &[u8], words: &mut Vec<u64>) -> Result<()> {
    let _current = code.device().enter_to_work()?;
    for map in code.maps() {
        let missing =
            || Error::BufferCount { kernel: code.name().into(), got: buffers.len(), expected: map.buffer + 1 };
        let place = buffers.get(map.buffer).ok_or_else(missing)?;
        let shape = map.shape(code.name(), parameters, place.size)?;
        let address = place.page.address().wrapping_add(place.offset);
        words.extend(tensor::encode(code.device(), map, &shape, address)?);
    }
    Ok(())
}

impl CudaStream {
    /// Encodes a launch as operation `seq`.
    ///
    /// # Safety
    /// As for [`Driver::launch`](trunnion_backend_core::driver::Driver::launch).
    ///
    /// # Errors
    /// [`Error::BufferCount`], [`Error::ParameterSize`]; [`Error::OutOfRange`] for counts in less memory than they have; no memory for them
    /// on the host. Nothing was then encoded.
    pub(crate) unsafe fn launch(
        &mut self,
        supplies: &mut Supplies,
        seq: u64,
        launch: &DriverLaunch<'_, CudaDriver>,
    ) -> Result<()> {
        let DriverLaunch { code, grid, buffers, parameters, .. } = launch;
        let (code, open) = (&code.0, &mut *self.open);
        let added = open.arguments.add(code, buffers, parameters, supplies.nothing.address())?;
        let operation = match grid {
            DriverGrid::Static(grid) => Operation::Launch(added.with_grid(*grid)),
            DriverGrid::Dynamic(place) => {
                let most = supplies.device.properties.limits.max_grid;
                Operation::Counted(Counted::new(&mut open.arena, &mut supplies.blocks, added, *place, most)?)
            }
        };
        open.hold(code);
        open.push(seq, operation);
        Ok(())
    }
}

impl Launch {
    /// The launch with so many workgroups.
    pub(crate) fn with_grid(self, grid: [u32; 3]) -> Self {
        Self { grid, ..self }
    }

    /// Hands it to the stream. The context is current, no count is zero and all are within the limits, and these are the arguments of its
    /// batch.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn issue(&self, device: &Device, stream: sys::CUstream, arguments: &Arguments) -> Result<()> {
        let words = arguments.0.get(self.start..).unwrap_or_default();
        let mut pointers: SmallVec<[*mut c_void; 2 * INLINE_BUFFERS + 1]> = SmallVec::new();
        // The driver only reads there, whatever its types say.
        let pointer = |word: &u64| ptr::from_ref(word).cast_mut().cast();
        let parameters = self.buffers + self.maps * tensor::WORDS;
        let lengths = parameters + self.parameter_words;
        pointers.extend(words.iter().take(self.buffers).map(pointer));
        if self.maps > 0 {
            pointers.extend(words.iter().skip(self.buffers).step_by(tensor::WORDS).take(self.maps).map(pointer));
        }
        pointers.extend(words.iter().skip(parameters).take(usize::from(self.parameter_words > 0)).map(pointer));
        pointers.extend(words.iter().skip(lengths).take(self.lengths).map(pointer));
        let ([x, y, z], [width, height, depth]) = (self.grid, self.workgroup);
        // SAFETY: there is a pointer for each argument that the function declares, which was seen when it was loaded, to as many bytes as it has,
        // for the words were not changed since; what they point to stays until the batch is finished, by the promise under which it was
        // encoded, and so does the function, which the batch holds.
        let code = unsafe {
            (device.functions().cuLaunchKernel)(
                self.raw,
                x,
                y,
                z,
                width,
                height,
                depth,
                self.shared,
                stream,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        device.check("cuLaunchKernel", code)
    }
}
