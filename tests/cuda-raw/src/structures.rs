//! The structures that functions of the driver read, as its headers lay them out.

use crate::Address;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

/// Equivalent to: `CU_MEMORYTYPE_HOST`, and `CU_MEMORYTYPE_DEVICE`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// Rows of bytes, and where they are copied to. Equivalent to: `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2D {
    source_x: usize,
    source_y: usize,
    source_kind: c_uint,
    source_host: *const c_void,
    source: Address,
    source_array: *mut c_void,
    source_pitch: usize,
    target_x: usize,
    target_y: usize,
    target_kind: c_uint,
    target_host: *mut c_void,
    target: Address,
    target_array: *mut c_void,
    target_pitch: usize,
    width: usize,
    height: usize,
}

impl Copy2D {
    /// `height` rows of `width` bytes within a device: each side begins at an address and has a distance between its rows, in bytes.
    pub fn within_device(
        (source, source_pitch): (Address, usize),
        (target, target_pitch): (Address, usize),
        width: usize,
        height: usize,
    ) -> Self {
        Self {
            source_x: 0,
            source_y: 0,
            source_kind: DEVICE,
            source_host: ptr::null(),
            source,
            source_array: ptr::null_mut(),
            source_pitch,
            target_x: 0,
            target_y: 0,
            target_kind: DEVICE,
            target_host: ptr::null_mut(),
            target,
            target_array: ptr::null_mut(),
            target_pitch,
            width,
            height,
        }
    }

    /// The same from the program's memory to a device.
    pub fn to_device(
        (source, source_pitch): (*const c_void, usize),
        target: (Address, usize),
        width: usize,
        height: usize,
    ) -> Self {
        let within = Self::within_device((0, source_pitch), target, width, height);
        Self { source_kind: HOST, source_host: source, ..within }
    }

    /// The same from a device to the program's memory.
    pub fn to_host(
        source: (Address, usize),
        (target, target_pitch): (*mut c_void, usize),
        width: usize,
        height: usize,
    ) -> Self {
        let within = Self::within_device(source, (0, target_pitch), width, height);
        Self { target_kind: HOST, target_host: target, ..within }
    }
}

/// Where memory is. Equivalent to: `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    kind: c_uint,
    index: c_int,
}

impl Location {
    /// The memory of a device. Equivalent to: `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub fn device(index: c_int) -> Self {
        Self { kind: 1, index }
    }
}

/// How memory is made that is mapped later. Equivalent to: `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    kind: c_uint,
    handles: c_uint,
    location: Location,
    metadata: *mut c_void,
    flags: [u8; 8],
}

impl Placement {
    /// In the memory of a device, for this process alone. Equivalent to: `CU_MEM_ALLOCATION_TYPE_PINNED`.
    pub fn on_device(index: c_int) -> Self {
        Self { kind: 1, handles: 0, location: Location::device(index), metadata: ptr::null_mut(), flags: [0; 8] }
    }
}

/// Who may use memory that is mapped, and how. Equivalent to: `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    location: Location,
    flags: c_uint,
}

impl Access {
    /// A device may read and write. Equivalent to: `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    pub fn read_write(index: c_int) -> Self {
        Self { location: Location::device(index), flags: 3 }
    }
}
