//! Memory and code that nobody uses any more: given back when that keeps nobody waiting.
//!
//! The driver's functions that give such things back wait for everything the device does, and a call that waits for the device may be one that
//! the device waits for. So what is given back while work is under way is kept, until all of it is finished, or until memory runs short.

use crate::device::Device;
use crate::failure::status;
use alloc::vec::Vec;
use core::mem;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use cudarc::driver::sys;
use std::sync::{Mutex, PoisonError};
use trunnion_backend_core::exit::Inside;

/// Memory of the driver's, and how it is given back.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Of a device, from `cuMemAlloc`.
    Allocated(sys::CUdeviceptr),
    /// Of a device, mapped: where, how much, and the memory itself. What has not come about is `None`.
    Mapped {
        address: sys::CUdeviceptr,
        size: usize,
        memory: Option<sys::CUmemGenericAllocationHandle>,
        is_mapped: bool,
    },
    /// Of the host, from `cuMemHostAlloc`.
    Host(NonNull<u8>),
    /// What code takes, which is in no sum.
    Code(sys::CUmodule),
}

// SAFETY: memory that nobody uses, which may be given back on any thread.
unsafe impl Send for Memory {}

/// What is kept for a while.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    state: Mutex<State>,
    /// Bytes of the device's that are kept.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody drives the device, who will see when it is idle.
    is_driven: bool,
    memory: Vec<(Memory, u64)>,
}

impl Retired {
    /// Bytes of the device's that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<(Memory, u64)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.bytes.store(0, Ordering::Relaxed);
        mem::take(&mut state.memory)
    }
}

impl Device {
    /// Gives memory of `size` bytes back: now, or when the device is idle.
    pub(crate) fn retire(&self, memory: Memory, size: u64) {
        let mut state = self.retired.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(memory, Memory::Host(_)) {
            self.retired.bytes.fetch_add(size, Ordering::Relaxed);
        }
        state.memory.push((memory, size));
        let is_kept = state.is_driven && self.unfinished.load(Ordering::Acquire) > 0;
        drop(state);
        if !is_kept {
            self.free_retired();
        }
    }

    /// Somebody drives the device, or does so no more.
    pub(crate) fn set_driven(&self, is_driven: bool) {
        self.retired.state.lock().unwrap_or_else(PoisonError::into_inner).is_driven = is_driven;
    }

    /// Whether memory is kept.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.state.lock().unwrap_or_else(PoisonError::into_inner).memory.is_empty()
    }

    /// Gives back what is kept. Waits for what the device does.
    pub(crate) fn free_retired(&self) {
        let memory = self.retired.take();
        if memory.is_empty() {
            return;
        }
        let _inside = Inside::new();
        // Without a context nothing is left of its memory either.
        let Ok(_current) = self.enter() else { return };
        for (memory, _) in memory {
            self.free(memory);
        }
    }

    fn free(&self, memory: Memory) {
        let functions = self.functions();
        match memory {
            // SAFETY: nobody uses it any more, and the context is current. So for the others.
            Memory::Allocated(address) => self.note("cuMemFree_v2", unsafe { (functions.cuMemFree_v2)(address) }),
            Memory::Host(start) => {
                // SAFETY: as above.
                self.note("cuMemFreeHost", unsafe { (functions.cuMemFreeHost)(start.as_ptr().cast()) });
            }
            Memory::Code(module) => {
                // SAFETY: as above.
                self.note("cuModuleUnload", unsafe { (functions.cuModuleUnload)(module) });
            }
            Memory::Mapped { address, size, memory, is_mapped } => {
                if let (Some(unmap), true) = (functions.cuMemUnmap, is_mapped) {
                    // SAFETY: as above.
                    let code = unsafe { unmap(address, size) };
                    self.note("cuMemUnmap", code);
                    if code != status::SUCCESS {
                        // It is still mapped there.
                        return;
                    }
                }
                if let (Some(release), Some(memory)) = (functions.cuMemRelease, memory) {
                    // SAFETY: as above.
                    self.note("cuMemRelease", unsafe { release(memory) });
                }
                if let Some(give_back) = functions.cuMemAddressFree {
                    // SAFETY: as above.
                    self.note("cuMemAddressFree", unsafe { give_back(address, size) });
                }
            }
        }
    }
}
