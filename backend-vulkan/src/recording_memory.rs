//! The host's memory that a driver records commands in: a pool's own, which goes round.
//!
//! A driver that keeps commands in small pieces takes and frees many of them a launch. The general allocator pays for that with locks
//! and lists that other threads have in their caches; here a piece that was freed is the next one of its size, for the price of a list.
//! Drivers that keep commands in buffers of their own ask for little, and get it.
//!
//! A command pool is used by one thread at a time, as Vulkan demands of whoever records or frees, and a driver calls back only from a call
//! that was made of it and on the same thread. So nothing here is locked.

use alloc::alloc::{alloc, dealloc};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ash::vk;
use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::{self, NonNull};

/// Sizes of pieces, their headers included, are multiples of this.
const STEP: usize = 32;

/// Pieces over this size, or of a larger alignment than a header's, are the general allocator's.
const LARGEST: usize = 1024;

/// Bytes that pieces are cut from at a time.
const SLAB: usize = 64 << 10;

/// What lies right before each piece.
#[repr(C, align(16))]
struct Header {
    /// Bytes from the start to the end, what lies before the piece included.
    total: usize,
    /// Bytes before the piece; also what its start is aligned to.
    before: usize,
}

const HEADER: usize = size_of::<Header>();

const SLAB_LAYOUT: Layout = match Layout::from_size_align(SLAB, HEADER) {
    Ok(layout) => layout,
    Err(_) => panic!("a slab has a size"),
};

/// A command pool's memory, which it MUST NOT outlive.
pub(crate) struct RecordingMemory {
    shelves: NonNull<Shelves>,
}

/// Pieces that are free, by size.
struct Shelves {
    free: [*mut Free; LARGEST / STEP],
    /// All slabs; pieces are cut from the last one.
    slabs: Vec<NonNull<u8>>,
    cut: usize,
}

/// A free piece, in its list.
struct Free {
    next: *mut Free,
}

// SAFETY: what the pointers lead to is this value's alone.
unsafe impl Send for RecordingMemory {}

impl RecordingMemory {
    pub(crate) fn new() -> Self {
        let shelves = Shelves { free: [ptr::null_mut(); LARGEST / STEP], slabs: Vec::new(), cut: SLAB };
        Self { shelves: NonNull::from(Box::leak(Box::new(shelves))) }
    }

    /// What a pool is made and destroyed with.
    pub(crate) fn callbacks(&self) -> vk::AllocationCallbacks<'static> {
        vk::AllocationCallbacks {
            p_user_data: self.shelves.as_ptr().cast(),
            pfn_allocation: Some(allocate),
            pfn_reallocation: Some(reallocate),
            pfn_free: Some(free),
            ..vk::AllocationCallbacks::default()
        }
    }
}

impl Drop for RecordingMemory {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak`, and the pool that called back with it is gone.
        drop(unsafe { Box::from_raw(self.shelves.as_ptr()) });
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for slab in self.slabs.drain(..) {
            // SAFETY: taken with this layout, and nobody has a piece of it any more.
            unsafe { dealloc(slab.as_ptr(), SLAB_LAYOUT) };
        }
    }
}

impl Shelves {
    /// A piece of so many bytes, aligned, a power of two; null where there is no memory.
    fn take(&mut self, size: usize, alignment: usize) -> *mut u8 {
        let before = alignment.max(HEADER);
        let Some(total) = size.checked_add(before).and_then(|total| total.checked_next_multiple_of(STEP)) else {
            return ptr::null_mut();
        };
        let start = if is_small(total, before) { self.small(total) } else { large(total, before) };
        if start.is_null() {
            return start;
        }
        // SAFETY: `before` bytes, of which the last are the header's, lie in front of the piece, in what was just taken.
        unsafe {
            let piece = start.add(before);
            piece.cast::<Header>().sub(1).write(Header { total, before });
            piece
        }
    }

    fn small(&mut self, total: usize) -> *mut u8 {
        let list = &mut self.free[total / STEP - 1];
        if let Some(first) = NonNull::new(*list) {
            // SAFETY: what is in the list is free and long enough for its link.
            *list = unsafe { first.as_ref() }.next;
            return first.as_ptr().cast();
        }
        if SLAB - self.cut < total {
            // SAFETY: the layout has a size.
            let Some(slab) = NonNull::new(unsafe { alloc(SLAB_LAYOUT) }) else { return ptr::null_mut() };
            if self.slabs.try_reserve(1).is_err() {
                // SAFETY: just taken.
                unsafe { dealloc(slab.as_ptr(), SLAB_LAYOUT) };
                return ptr::null_mut();
            }
            self.slabs.push(slab);
            self.cut = 0;
        }
        let Some(slab) = self.slabs.last() else { return ptr::null_mut() };
        // SAFETY: so many bytes are left in the slab.
        let start = unsafe { slab.as_ptr().add(self.cut) };
        self.cut += total;
        start
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// It came from [`take`](Self::take), and nobody uses it any more.
    unsafe fn give(&mut self, piece: *mut u8) {
        // SAFETY: a header lies before each piece, and the piece's start so many bytes before it.
        let (start, total, before) = unsafe {
            let Header { total, before } = piece.cast::<Header>().sub(1).read();
            (piece.sub(before), total, before)
        };
        if is_small(total, before) {
            let list = &mut self.free[total / STEP - 1];
            let freed = start.cast::<Free>();
            // SAFETY: the piece is free, long enough for a link and aligned to more than it.
            unsafe { freed.write(Free { next: *list }) };
            *list = freed;
        } else if let Ok(layout) = Layout::from_size_align(total, before) {
            // SAFETY: taken with this layout.
            unsafe { dealloc(start, layout) };
        }
    }
}

fn is_small(total: usize, before: usize) -> bool {
    total <= LARGEST && before == HEADER
}

fn large(total: usize, before: usize) -> *mut u8 {
    match Layout::from_size_align(total, before) {
        // SAFETY: the layout has a size.
        Ok(layout) => unsafe { alloc(layout) },
        Err(_) => ptr::null_mut(),
    }
}

/// # Safety
/// The data is that of [`RecordingMemory::callbacks`], and no other call with it runs.
unsafe extern "system" fn allocate(
    data: *mut c_void,
    size: usize,
    alignment: usize,
    _: vk::SystemAllocationScope,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { &mut *data.cast::<Shelves>() }.take(size, alignment).cast()
}

/// # Safety
/// As for [`allocate`]; the piece is null, or came from it and is used by nobody else.
unsafe extern "system" fn reallocate(
    data: *mut c_void,
    piece: *mut c_void,
    size: usize,
    alignment: usize,
    _: vk::SystemAllocationScope,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let shelves = unsafe { &mut *data.cast::<Shelves>() };
    let piece = piece.cast::<u8>();
    let new = if size == 0 { ptr::null_mut() } else { shelves.take(size, alignment) };
    if piece.is_null() || new.is_null() && size > 0 {
        return new.cast();
    }
    // SAFETY: a header lies before the piece; both pieces are as long as what is copied, and the old one is used no more.
    unsafe {
        if !new.is_null() {
            let Header { total, before } = piece.cast::<Header>().sub(1).read();
            ptr::copy_nonoverlapping(piece, new, size.min(total - before));
        }
        shelves.give(piece);
    }
    new.cast()
}

/// # Safety
/// As for [`reallocate`].
unsafe extern "system" fn free(data: *mut c_void, piece: *mut c_void) {
    if !piece.is_null() {
        // SAFETY: the caller's promise.
        unsafe { (*data.cast::<Shelves>()).give(piece.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::slice;

    const SCOPE: vk::SystemAllocationScope = vk::SystemAllocationScope::COMMAND;

    fn take(memory: &RecordingMemory, size: usize, alignment: usize) -> *mut u8 {
        // SAFETY: the memory's own data.
        unsafe { allocate(memory.shelves.as_ptr().cast(), size, alignment, SCOPE) }.cast()
    }

    fn give(memory: &RecordingMemory, piece: *mut u8) {
        // SAFETY: the tests give what they took, once.
        unsafe { free(memory.shelves.as_ptr().cast(), piece.cast()) };
    }

    #[test]
    fn pieces_of_all_sizes_and_alignments_keep_what_is_written_to_them() {
        let memory = RecordingMemory::new();
        let mut pieces = Vec::new();
        for i in 0..2000_usize {
            let (size, alignment) = (1 + i * 7 % 1500, 1 << (i % 9));
            let piece = take(&memory, size, alignment);
            assert_eq!(piece.addr() % alignment, 0, "{size} bytes at multiples of {alignment}");
            // SAFETY: so long is the piece.
            unsafe { piece.write_bytes(i as u8, size) };
            pieces.push((piece, size, i as u8));
            if i % 3 == 0 {
                let (piece, size, byte) = pieces.swap_remove(i % pieces.len());
                // SAFETY: as above.
                assert!(unsafe { slice::from_raw_parts(piece, size) }.iter().all(|b| *b == byte));
                give(&memory, piece);
            }
        }
        for (piece, size, byte) in pieces {
            // SAFETY: as above.
            assert!(unsafe { slice::from_raw_parts(piece, size) }.iter().all(|b| *b == byte));
            give(&memory, piece);
        }
    }

    #[test]
    fn what_was_freed_is_taken_next_and_no_further_slab() {
        let memory = RecordingMemory::new();
        let round = || {
            let pieces: Vec<_> = (0..1000).map(|i| take(&memory, 40 + i % 200, 8)).collect();
            pieces.into_iter().for_each(|piece| give(&memory, piece));
            // SAFETY: nobody else uses it just now.
            unsafe { memory.shelves.as_ref() }.slabs.len()
        };
        let first = round();
        assert!((1..20).contains(&first), "{first}");
        assert!((0..10).all(|_| round() == first));
    }

    #[test]
    fn a_piece_keeps_its_bytes_as_it_grows_and_shrinks_and_is_freed_with_a_size_of_zero() {
        let memory = RecordingMemory::new();
        let data = memory.shelves.as_ptr().cast();
        let mut piece = ptr::null_mut();
        for size in [8_usize, 100, 5000, 90, 16] {
            // SAFETY: the piece is the one of before.
            piece = unsafe { reallocate(data, piece, size, 16, SCOPE) };
            // SAFETY: eight bytes are in each.
            unsafe {
                if size == 8 {
                    piece.cast::<u64>().write(0x0123_4567_89ab_cdef);
                }
                assert_eq!(piece.cast::<u64>().read(), 0x0123_4567_89ab_cdef, "{size} bytes");
            }
        }
        // SAFETY: as above.
        assert!(unsafe { reallocate(data, piece, 0, 16, SCOPE) }.is_null());
    }

    #[test]
    fn what_no_machine_has_is_answered_with_null() {
        let memory = RecordingMemory::new();
        assert!(take(&memory, usize::MAX, 8).is_null());
        assert!(take(&memory, usize::MAX - 4096, 64).is_null());
        give(&memory, ptr::null_mut());
    }
}
