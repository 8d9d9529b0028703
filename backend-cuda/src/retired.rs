//! Memory and code that nobody uses any more: given back by a thread of the device's own.
//!
//! The driver's functions that give such things back wait for everything in the device's context, which is everybody's of the process: for
//! work of somebody else as long as for our own, and that may wait for us. So who drops something only hands it over. The thread gives it
//! back when our own work is done, so that streams do not run dry for it; sooner where much is kept, or somebody is short of memory; and never
//! while a stream waits for an event of somebody else.
//!
//! What is kept is bounded: memory of a device is by what the device has, since who is short of it waits here before it is refused, and
//! memory of the host by [`MOST`].

use crate::device::Device;
use crate::mapping::{self, Mapping};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::mem;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use cudarc::driver::sys;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::error::{Error, OutOfMemory, Result};

/// The longest that who is short of memory, or ends a driver, waits for what is given back.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of the host's that may be kept. Where there are more, no more are page-locked.
const MOST: u64 = 256 << 20;

/// Bytes of the host's, and how many things, beyond which nothing is kept that can be given back.
const MUCH: (u64, usize) = (64 << 20, 256);

/// Memory of the driver's, and how it is given back.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Of a device, from `cuMemAlloc`.
    Allocated(sys::CUdeviceptr),
    /// Of a device, mapped to addresses that were reserved.
    Mapped(Mapping),
    /// Of a device, mapped nowhere.
    Made(sys::CUmemGenericAllocationHandle),
    /// Of the host, from `cuMemHostAlloc`.
    Host(NonNull<u8>),
    /// What code takes, which is in no sum.
    Code(sys::CUmodule),
}

// SAFETY: memory that nobody uses, which may be given back on any thread.
unsafe impl Send for Memory {}

/// What is kept for a while, and the thread that gives it back.
pub(crate) struct Retired {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread has something to look at.
    handed: Condvar,
    /// Something was given back.
    given: Condvar,
    /// How many things are kept or being given back.
    count: AtomicUsize,
    /// Their bytes, of the device's and of the host's.
    device_bytes: AtomicU64,
    host_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    kept: VecDeque<Kept>,
    /// How many were given back.
    given: u64,
    /// How many wait for that.
    waiting: usize,
    /// How many were given back when somebody waited in vain for the thread, which stands in the driver: until there are more, nobody else
    /// waits for the same.
    futile: Option<u64>,
    /// The thread is to end, or has: the device is gone, or the process exits.
    is_over: bool,
}

/// Something that is kept, which keeps the device's context.
struct Kept {
    device: Arc<Device>,
    memory: Memory,
    size: u64,
}

impl Retired {
    /// Nothing, and a thread for what is to come.
    ///
    /// # Errors
    /// [`Error::Driver`] when the system gives no thread.
    pub(crate) fn new() -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let started = thread::Builder::new().name("trunnion-free".into()).spawn(move || of_thread.attend());
        let thread = started.map_err(|error| {
            let message = format!("the thread that gives memory back: {error}");
            Error::Driver { call: "spawn".into(), code: i64::from(error.raw_os_error().unwrap_or(0)), message }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What is kept may be due: of the device's work, or of that which waits for others, there is none any more, or the device is lost.
    #[inline]
    pub(crate) fn look(&self) {
        // What is handed over after this the thread looks at anyway.
        if self.shared.count.load(Ordering::SeqCst) > 0 {
            self.shared.look();
        }
    }

    /// Bytes of the device's that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.device_bytes.load(Ordering::Relaxed)
    }

    /// Whether memory of the host may be page-locked.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] while [`MOST`] are kept.
    pub(crate) fn check_host(&self) -> Result<()> {
        let kept = self.shared.host_bytes.load(Ordering::Relaxed);
        if kept < MOST {
            return Ok(());
        }
        let driver = Some(format!("{kept} page-locked bytes wait to be given back, at most {MOST} may"));
        Err(Error::OutOfMemory(Box::new(OutOfMemory { driver, ..OutOfMemory::default() })))
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // What is kept has the device, so there is nothing.
        self.shared.state().is_over = true;
        self.shared.handed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn look(&self) {
        // The thread has not looked yet, or waits.
        drop(self.state());
        self.handed.notify_one();
    }

    fn bytes_of(&self, memory: &Memory) -> &AtomicU64 {
        if matches!(memory, Memory::Host(_)) { &self.host_bytes } else { &self.device_bytes }
    }

    /// What the thread does.
    fn attend(&self) {
        while let Some(kept) = self.next() {
            let Some(_inside) = Inside::try_new() else {
                // The process exits, and what it has is given back with it.
                mem::forget(kept);
                self.state().is_over = true;
                self.given.notify_all();
                return;
            };
            let Kept { device, memory, size } = kept;
            let bytes = self.bytes_of(&memory);
            device.free(memory);
            // Before anybody who waits for that goes on: the device may end with it.
            drop(device);
            bytes.fetch_sub(size, Ordering::Relaxed);
            let mut state = self.state();
            self.count.fetch_sub(1, Ordering::SeqCst);
            state.given += 1;
            drop(state);
            self.given.notify_all();
        }
    }

    /// Waits for something that can be given back; `None` at the end. One at a time: by the next one a stream may wait for somebody else.
    fn next(&self) -> Option<Kept> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if self.is_due(&state)
                && let Some(kept) = state.kept.pop_front()
            {
                return Some(kept);
            }
            state = self.handed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_due(&self, state: &State) -> bool {
        let Some(Kept { device, .. }) = state.kept.front() else { return false };
        let (bytes, things) = MUCH;
        let is_much = self.host_bytes.load(Ordering::Relaxed) > bytes || state.kept.len() > things;
        let is_idle = device.unfinished.load(Ordering::SeqCst) == 0 || device.is_dead();
        device.may_wait() && (is_idle || is_much || state.waiting > 0)
    }
}

impl Device {
    /// Hands over what nobody uses any more, `size` bytes of memory or none that count.
    pub(crate) fn retire(&self, memory: Memory, size: u64) {
        // Whoever retires something of the device has it.
        let Some(device) = self.this.upgrade() else { return };
        let shared = &self.retired.shared;
        shared.bytes_of(&memory).fetch_add(size, Ordering::Relaxed);
        let mut state = shared.state();
        shared.count.fetch_add(1, Ordering::SeqCst);
        state.kept.push_back(Kept { device, memory, size });
        drop(state);
        shared.handed.notify_one();
    }

    /// Has what is kept given back, though work may be under way, and waits for that, at most [`PATIENCE`]. Whether anything was given back
    /// since so many things were. Who waits for an event of somebody else is not waited for, nor what was waited for in vain already: one
    /// request may ask the driver many times.
    pub(crate) fn reclaim(&self, since: u64) -> bool {
        let shared = &self.retired.shared;
        let mut state = shared.state();
        if self.may_wait() && state.futile != Some(state.given) {
            let before = state.given;
            state.waiting += 1;
            shared.handed.notify_one();
            let goes_on = |state: &mut State| shared.count.load(Ordering::SeqCst) > 0 && !state.is_over;
            state = shared.given.wait_timeout_while(state, PATIENCE, goes_on).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            // The thread has something in hand. Where it only keeps things, it gives them back as soon as somebody waits and it may.
            if state.given == before && shared.count.load(Ordering::SeqCst) > state.kept.len() {
                state.futile = Some(before);
            }
        }
        state.given != since
    }

    /// Does what takes memory of `size` bytes. Where that has run short, it is done again when what is kept was given back.
    ///
    /// # Errors
    /// What it answers; [`Error::OutOfMemory`] with the size.
    pub(crate) fn with_memory<T>(&self, size: u64, mut take: impl FnMut() -> Result<T>) -> Result<T> {
        // Some may be given back between the refusal and the look at what is kept.
        let given = self.retired.shared.state().given;
        let taken = match take() {
            Err(Error::OutOfMemory(_)) if self.reclaim(given) => take(),
            taken => taken,
        };
        taken.map_err(|error| match error {
            Error::OutOfMemory(short) => Error::OutOfMemory(Box::new(OutOfMemory { requested: size, ..*short })),
            error => error,
        })
    }

    fn free(&self, memory: Memory) {
        // Without a context nothing is left of its memory either.
        let Ok(_current) = self.enter() else { return };
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
            Memory::Mapped(mapping) => mapping.give_back(self),
            Memory::Made(memory) => mapping::release(self, memory),
        }
    }
}

impl fmt::Debug for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retired")
            .field("device_bytes", &self.shared.device_bytes)
            .field("host_bytes", &self.shared.host_bytes)
            .finish_non_exhaustive()
    }
}
