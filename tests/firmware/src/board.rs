//! The board: its heap and, where a run asks for one, its clock.

use core::mem::MaybeUninit;
use core::num::NonZeroU64;
use core::time::Duration;
use linked_list_allocator::LockedHeap;
use semihosting::experimental::time::Instant;
use trunnion_runtime_core::platform::{self, AlreadyInstalled, Platform, ThreadToken};

/// Bytes of heap: device memory comes from it too.
pub const HEAP: usize = 2 << 20;

#[global_allocator]
static ALLOCATOR: LockedHeap = LockedHeap::empty();

/// Gives the program its heap. To be called once, before anything allocates.
pub fn start_heap(memory: &'static mut [MaybeUninit<u8>]) {
    ALLOCATOR.lock().init_from_slice(memory);
}

/// Bytes of the heap that are in use.
pub fn heap_used() -> usize {
    ALLOCATOR.lock().used()
}

/// The emulator's clock, which ticks a hundred times a second, and the board's only thread.
struct Clock(Instant);

impl Platform for Clock {
    fn now(&self) -> Option<Duration> {
        Some(self.0.elapsed())
    }

    fn thread(&self) -> ThreadToken {
        ThreadToken::new(NonZeroU64::MIN)
    }
}

/// Gives the runtime a clock. Without one it counts how often it looks.
///
/// # Errors
/// The runtime has one.
pub fn start_clock() -> Result<(), AlreadyInstalled> {
    platform::install(alloc::boxed::Box::leak(alloc::boxed::Box::new(Clock(Instant::now()))))
}
