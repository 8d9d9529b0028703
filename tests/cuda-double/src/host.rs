//! Memory of the program, and functions of it, as work on a stream touches them.
//!
//! Every address here was given to a driver's function by its caller, who promised as CUDA asks that it stays valid
//! until the work is done. Memory that is freed through the driver is taken out of the address space first.

#![allow(unsafe_code, reason = "the program's memory is reached by address, as a device reaches it")]

use core::ffi::c_void;
use core::ptr;

/// Copies from the program's memory.
pub(crate) fn read(from: usize, out: &mut [u8]) {
    // SAFETY: the caller of the driver promised that the bytes are readable until the work is done; `out` is our own.
    unsafe { ptr::copy_nonoverlapping(ptr::with_exposed_provenance::<u8>(from), out.as_mut_ptr(), out.len()) }
}

/// Copies into the program's memory.
pub(crate) fn write(to: usize, data: &[u8]) {
    // SAFETY: the caller of the driver promised that the bytes are writable until the work is done; `data` is our own.
    unsafe { ptr::copy_nonoverlapping(data.as_ptr(), ptr::with_exposed_provenance_mut::<u8>(to), data.len()) }
}

/// Replaces a few bytes of the program's memory by what `f` makes of them, and gives what was there.
pub(crate) fn replace(at: usize, size: usize, f: &mut dyn FnMut(u64) -> u64) -> u64 {
    let mut word = [0; 8];
    read(at, &mut word[..size]);
    let old = u64::from_le_bytes(word);
    write(at, &f(old).to_le_bytes()[..size]);
    old
}

/// A function of the program and what it is called with. Equivalent to: `CUhostFn` and its `userData`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    function: unsafe extern "C" fn(*mut c_void),
    argument: usize,
}

impl HostFunction {
    pub(crate) fn new(function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) -> Self {
        Self { function, argument: argument.expose_provenance() }
    }

    pub(crate) fn call(self) {
        // SAFETY: the caller of the driver promised that the function may be called with this, from any thread.
        unsafe { (self.function)(ptr::with_exposed_provenance_mut(self.argument)) }
    }
}

/// Page-locked memory that the driver hands out, zeroed; `None` where there is none left.
pub(crate) fn allocate(size: usize) -> Option<usize> {
    let layout = layout(size)?;
    // SAFETY: the layout has at least one byte.
    let found = unsafe { alloc::alloc::alloc_zeroed(layout) };
    (!found.is_null()).then(|| found.expose_provenance())
}

/// Gives back what [`allocate`] gave for the same size.
pub(crate) fn free(address: usize, size: usize) {
    if let Some(layout) = layout(size) {
        // SAFETY: the address space hands an address and its size out once, and they came from `allocate`.
        unsafe { alloc::alloc::dealloc(ptr::with_exposed_provenance_mut(address), layout) }
    }
}

fn layout(size: usize) -> Option<core::alloc::Layout> {
    core::alloc::Layout::from_size_align(size.max(1), 4096).ok()
}
