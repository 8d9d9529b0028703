//! What a kernel touches, as its author declares it or as it is read from its source.

use super::TensorMap;
use crate::access::Access;
use alloc::vec::Vec;

/// What a kernel touches. Made by chaining:
///
/// ```
/// use trunnion_runtime_core::kernel::Interface;
/// // reads two buffers and replaces a third, 256 bytes by each workgroup
/// let add = Interface::new().read().read().partition(256);
/// assert_eq!(add.buffers.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interface {
    /// The buffers, in the order in which arguments are given.
    pub buffers: Vec<BufferInterface>,
    /// Bytes of parameters; 0 for none.
    pub parameters: u32,
    /// Bytes of workgroup-shared memory.
    pub shared: u32,
    /// Whether the kernel works when a written buffer overlaps another argument.
    pub in_place: bool,
    /// Buffers that it takes as tensors too, in the order in which it takes them.
    pub tensor_maps: Vec<TensorMap>,
}

/// One buffer of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferInterface {
    /// What the kernel does with the bytes it is given.
    pub access: Access,
    /// How a kernel that runs on the host gets at them; other devices do not look at it.
    pub host: HostUse,
    /// The fewest bytes it works with.
    pub min_size: u64,
}

/// How a kernel that runs on the host gets at a buffer: one way a launch, so that safe code cannot race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostUse {
    /// Shared slices: for buffers that are only read, and the only way for those.
    Slice,
    /// The workgroup with linear index `i` has the bytes `i * n..(i + 1) * n`, cut at the buffer's end, for itself.
    Partition(u64),
    /// Workgroups claim the ranges they write; claims that overlap are a failure of the launch.
    Claim,
    /// Atomic elements.
    Atomic,
}

impl HostUse {
    /// What errors call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slice => "a shared slice",
            Self::Partition(_) => "a partition",
            Self::Claim => "claimed ranges",
            Self::Atomic => "atomic elements",
        }
    }

    /// Whether a buffer of this access can be used so.
    pub const fn fits(self, access: Access) -> bool {
        match self {
            Self::Slice => !access.writes(),
            Self::Partition(_) | Self::Claim | Self::Atomic => access.writes(),
        }
    }
}

impl Interface {
    /// Touches nothing.
    pub const fn new() -> Self {
        Self { buffers: Vec::new(), parameters: 0, shared: 0, in_place: false, tensor_maps: Vec::new() }
    }

    /// One more buffer.
    pub fn buffer(mut self, access: Access, host: HostUse) -> Self {
        self.buffers.push(BufferInterface { access, host, min_size: 0 });
        self
    }

    /// A buffer that is only read.
    pub fn read(self) -> Self {
        self.buffer(Access::Read, HostUse::Slice)
    }

    /// A buffer that is read and written; on the host, `bytes` of it by each workgroup. Bytes beyond what the grid covers stay as they were.
    pub fn partition(self, bytes: u64) -> Self {
        self.buffer(Access::ReadWrite, HostUse::Partition(bytes))
    }

    /// A buffer whose every byte is replaced, so that a failure which lay on it is gone; on the host, `bytes` of it by each workgroup.
    ///
    /// The kernel MUST write every byte of the buffer it is given with the grids it is launched with.
    pub fn overwrite(self, bytes: u64) -> Self {
        self.buffer(Access::Overwrite, HostUse::Partition(bytes))
    }

    /// A buffer of which workgroups claim ranges and write them.
    pub fn claim(self, access: Access) -> Self {
        self.buffer(access, HostUse::Claim)
    }

    /// A buffer of atomic elements.
    pub fn atomic(self) -> Self {
        self.buffer(Access::ReadWrite, HostUse::Atomic)
    }

    /// The buffer declared last has at least `bytes`.
    pub fn at_least(mut self, bytes: u64) -> Self {
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.min_size = bytes;
        }
        self
    }

    /// `bytes` of parameters.
    pub fn parameters(mut self, bytes: u32) -> Self {
        self.parameters = bytes;
        self
    }

    /// Parameters of type `P`.
    pub fn parameters_of<P: bytemuck::Pod>(self) -> Self {
        self.parameters(u32::try_from(size_of::<P>()).unwrap_or(u32::MAX))
    }

    /// `bytes` of workgroup-shared memory.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// One of the buffers as a tensor too, whose shape is in the parameters. Devices without
    /// [`Features::tensor_maps`](crate::properties::Features::tensor_maps) refuse the kernel.
    pub fn tensor_map(mut self, map: TensorMap) -> Self {
        self.tensor_maps.push(map);
        self
    }

    /// The kernel works when a written buffer overlaps another argument. On the host, overlapping bytes MUST then be used as
    /// atomic elements: anything else is refused when it is launched so.
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }
}
