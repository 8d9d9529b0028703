//! How many blocks of a kernel a multiprocessor holds at once, by threads and shared memory.

use crate::device::{MOST_THREADS, RESIDENT_BLOCKS, RESIDENT_THREADS, SHARED_BYTES_ASKED};
use crate::loaded::Kernel;

/// Shared memory of each block that the system uses.
const RESERVED: u32 = 1024;
/// Shared memory of a multiprocessor.
const SHARED: u32 = 228 << 10;

/// Blocks of so many threads and so much dynamic shared memory. Registers are not counted: PTX does not say how many.
pub(crate) fn blocks(kernel: &Kernel, threads: u32, shared: u32) -> u32 {
    if threads == 0 || threads > kernel.most_threads() {
        return 0;
    }
    let fixed = kernel.function().shared_bytes as u32;
    if fixed.saturating_add(shared) > SHARED_BYTES_ASKED {
        return 0;
    }
    let by_shared = SHARED / (fixed + shared + RESERVED);
    (RESIDENT_THREADS / threads.next_multiple_of(32)).min(RESIDENT_BLOCKS).min(by_shared)
}

/// The block size that fills a multiprocessor best, of at most `limit` threads if that is not zero, and the blocks
/// that fill it then. Equivalent to: `cuOccupancyMaxPotentialBlockSize`.
pub(crate) fn best(kernel: &Kernel, limit: u32, shared: impl Fn(u32) -> u32) -> (u32, u32) {
    let most = kernel.most_threads().min(if limit == 0 { MOST_THREADS } else { limit });
    let sizes = (1..=most / 32).rev().map(|warps| warps * 32);
    let scored = sizes.map(|threads| (blocks(kernel, threads, shared(threads)) * threads, threads));
    let (_, threads) = scored.fold((0, most), |best, next| if next.0 > best.0 { next } else { best });
    (threads, blocks(kernel, threads, shared(threads)))
}

/// Dynamic shared memory each block can have if so many are to fit. Equivalent to:
/// `cuOccupancyAvailableDynamicSMemPerBlock`.
pub(crate) fn available_shared(kernel: &Kernel, count: u32) -> u32 {
    let fixed = kernel.function().shared_bytes as u32;
    (SHARED / count.max(1)).saturating_sub(RESERVED + fixed).min(SHARED_BYTES_ASKED.saturating_sub(fixed))
}
