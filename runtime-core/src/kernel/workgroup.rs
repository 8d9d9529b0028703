//! A workgroup as a kernel that runs on the host sees it: checked views of its buffers, its parameters, its shared memory.

use crate::error::{KernelFault, Text};
use alloc::format;
use bytemuck::Pod;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::AtomicU32;

/// The bytes of one workgroup's arguments, as the device that runs it hands them out. Each workgroup has one of its own.
///
/// An implementation MUST hand out mutable bytes at most once at a time: never two overlapping slices of which one is mutable, in this
/// workgroup or in any other of the same launch.
pub trait HostBindings {
    /// A buffer that is only read.
    fn read(&self, binding: usize) -> Result<&[u8], KernelFault>;

    /// This workgroup's part of a partitioned buffer, once.
    #[allow(clippy::mut_from_ref, reason = "each part is handed out once")]
    fn part(&self, binding: usize) -> Result<&mut [u8], KernelFault>;

    /// Where this workgroup's part of a partitioned buffer lies in it, in bytes.
    fn part_range(&self, binding: usize) -> Result<Range<u64>, KernelFault>;

    /// Bytes of a buffer that no workgroup claimed before.
    #[allow(clippy::mut_from_ref, reason = "each claim is handed out once")]
    fn claim(&self, binding: usize, range: Range<u64>) -> Result<&mut [u8], KernelFault>;

    /// A buffer of atomic elements.
    fn atomic(&self, binding: usize) -> Result<&[AtomicU32], KernelFault>;

    /// How many bytes a buffer has.
    fn size(&self, binding: usize) -> Result<u64, KernelFault>;

    /// The parameters.
    fn parameters(&self) -> &[u8];

    /// The workgroup's shared memory, zeroed, once.
    #[allow(clippy::mut_from_ref, reason = "it is handed out once")]
    fn shared(&self) -> Result<&mut [u8], KernelFault>;
}

/// One workgroup of a launch.
pub struct Workgroup<'a> {
    bindings: &'a dyn HostBindings,
    id: [u32; 3],
    grid: [u32; 3],
    size: [u32; 3],
}

impl<'a> Workgroup<'a> {
    /// The workgroup `id` of a grid, with `size` invocations by axis.
    pub fn new(bindings: &'a dyn HostBindings, id: [u32; 3], grid: [u32; 3], size: [u32; 3]) -> Self {
        Self { bindings, id, grid, size }
    }

    /// Which workgroup it is.
    ///
    /// Equivalent to: `blockIdx`; `@builtin(workgroup_id)`.
    pub fn id(&self) -> [u32; 3] {
        self.id
    }

    /// How many workgroups there are.
    ///
    /// Equivalent to: `gridDim`; `@builtin(num_workgroups)`.
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// How many invocations a workgroup has.
    ///
    /// Equivalent to: `blockDim`; `@workgroup_size`.
    pub fn size(&self) -> [u32; 3] {
        self.size
    }

    /// Which workgroup it is when all are counted, x first.
    pub fn linear_id(&self) -> u64 {
        let [x, y, z] = self.id.map(u64::from);
        let [gx, gy, _] = self.grid.map(u64::from);
        x + gx * (y + gy * z)
    }

    /// The indices of the invocations along x in the whole grid: where an elementwise kernel works, to be cut at the data's end.
    pub fn span_x(&self) -> Range<usize> {
        let (id, size) = (self.id[0] as usize, self.size[0] as usize);
        let start = id.saturating_mul(size);
        start..start.saturating_add(size)
    }

    /// A buffer that is only read, as elements.
    ///
    /// # Errors
    /// [`KernelFault::WrongUse`] when the interface declares another use, [`KernelFault::WrongType`] when the bytes are no such elements.
    pub fn read<T: Pod>(&self, binding: usize) -> Result<&'a [T], KernelFault> {
        let bytes = self.bindings.read(binding)?;
        bytemuck::try_cast_slice(bytes).map_err(|_| wrong_type::<T>(buffer(binding), bytes.len(), bytes.as_ptr()))
    }

    /// This workgroup's own part of a partitioned buffer, as elements. It can be had once.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and [`KernelFault::ClaimOverlap`] the second time.
    pub fn part<T: Pod>(&self, binding: usize) -> Result<&'a mut [T], KernelFault> {
        cast_mut(self.bindings.part(binding)?, || buffer(binding))
    }

    /// Which elements of the buffer this workgroup's part is.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn part_range<T: Pod>(&self, binding: usize) -> Result<Range<usize>, KernelFault> {
        let size = size_of::<T>().max(1) as u64;
        let range = self.bindings.part_range(binding)?;
        Ok((range.start / size) as usize..(range.end / size) as usize)
    }

    /// Elements of a buffer, for this workgroup alone until the launch ends.
    ///
    /// # Errors
    /// [`KernelFault::ClaimOverlap`] when any workgroup of the launch claimed one of them before, [`KernelFault::OutOfBounds`] when they
    /// leave the buffer, and as for [`read`](Self::read).
    pub fn claim<T: Pod>(&self, binding: usize, range: Range<usize>) -> Result<&'a mut [T], KernelFault> {
        let bytes = |index: usize| (index as u64).checked_mul(size_of::<T>() as u64);
        match (bytes(range.start), bytes(range.end)) {
            (Some(start), Some(end)) if start <= end => {
                cast_mut(self.bindings.claim(binding, start..end)?, || buffer(binding))
            }
            _ => Err(KernelFault::OutOfBounds {
                binding,
                range: range.start as u64..range.end as u64,
                size: self.bindings.size(binding)?,
            }),
        }
    }

    /// A buffer of atomic elements of 32 bits.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn atomic(&self, binding: usize) -> Result<&'a [AtomicU32], KernelFault> {
        self.bindings.atomic(binding)
    }

    /// How many elements a buffer has.
    ///
    /// # Errors
    /// [`KernelFault::WrongUse`] when there is no such buffer.
    pub fn len<T: Pod>(&self, binding: usize) -> Result<usize, KernelFault> {
        Ok((self.bindings.size(binding)? / size_of::<T>().max(1) as u64) as usize)
    }

    /// The parameters.
    ///
    /// # Errors
    /// [`KernelFault::WrongType`] when `P` has another size than the interface declares.
    pub fn parameters<P: Pod>(&self) -> Result<P, KernelFault> {
        let bytes = self.bindings.parameters();
        bytemuck::try_pod_read_unaligned(bytes)
            .map_err(|_| wrong_type::<P>("the parameters".into(), bytes.len(), bytes.as_ptr()))
    }

    /// The workgroup's shared memory, its own, zeroed. It can be had once.
    ///
    /// Equivalent to: `__shared__`; `var<workgroup>`.
    ///
    /// # Errors
    /// As for [`part`](Self::part).
    pub fn shared<T: Pod>(&self) -> Result<&'a mut [T], KernelFault> {
        cast_mut(self.bindings.shared()?, || "shared memory".into())
    }
}

impl fmt::Debug for Workgroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workgroup {:?} of {:?}", self.id, self.grid)
    }
}

/// What a buffer is called where it is viewed as a type it does not fit.
fn buffer(binding: usize) -> Text {
    format!("buffer {binding}").into()
}

fn cast_mut<T: Pod>(bytes: &mut [u8], what: impl FnOnce() -> Text) -> Result<&mut [T], KernelFault> {
    let (length, address) = (bytes.len(), bytes.as_ptr());
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| wrong_type::<T>(what(), length, address))
}

fn wrong_type<T>(what: Text, bytes: usize, address: *const u8) -> KernelFault {
    KernelFault::WrongType { what, size: size_of::<T>(), alignment: align_of::<T>(), bytes, address: address as usize }
}
