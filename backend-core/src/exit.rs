//! The end of the process: devices are ended before the library of their driver is torn down.
//!
//! Drivers and layers are C++ libraries, whose static objects are destroyed while the process exits, on the thread that exits. A thread
//! of ours that is in the driver then crashes the process, and so does the driver's own that still runs a kernel. So the process is asked
//! to call us first. It calls in the reverse of the order in which it was asked, and a library may make static objects whenever something
//! is done for the first time: it is asked anew after a [`Step`], ever more rarely.
//!
//! When it calls, every device is shut down, and who is [`Inside`] a library is waited for. Who comes later stays outside: a thread that
//! is parked until the process is gone harms nobody, unless somebody waits for it. A compiler cannot be interrupted, so one at work is
//! waited for longer, and a device that it kept from being shut down is shut down after it.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::panic::catch_unwind;
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::sync::AtomicU64;

/// The longest that the process is kept for what its devices have begun, and then for threads that are ending one already.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest that the process is kept for compilers at work: what drivers need for the largest kernel that is accepted, and more.
const COMPILING: Duration = Duration::from_secs(20);

static GATE: Mutex<Gate> = Mutex::new(Gate { inside: 0, compiling: 0, is_closed: false, compiles: true });
static LEFT: Condvar = Condvar::new();

/// The process that opened a device last. One that was forked from it has its memory and none of its threads: who ended a device there
/// would wait for them for ever.
static OWNER: AtomicU32 = AtomicU32::new(0);

struct Gate {
    /// How many are inside.
    inside: usize,
    /// How many of them compile.
    compiling: usize,
    /// Nobody goes in any more.
    is_closed: bool,
    /// Whether a compilation may begin.
    compiles: bool,
}

std::thread_local! {
    /// Whether the thread is the one that exits, which nobody else could harm.
    static EXITS: Cell<bool> = const { Cell::new(false) };
}

/// A driver's library works for somebody as long as this lives: what makes, uses or destroys something of a device holds one.
#[derive(Debug)]
pub struct Inside {
    compiles: bool,
}

impl Inside {
    /// Goes in. Once the process exits, it does not return.
    #[expect(clippy::new_without_default, reason = "it may not return, which nobody expects of a default")]
    pub fn new() -> Self {
        loop {
            match Self::try_new() {
                Some(inside) => return inside,
                None => thread::park(),
            }
        }
    }

    /// Goes in, unless the process exits: for a thread that others wait for.
    pub fn try_new() -> Option<Self> {
        let mut gate = locked();
        if gate.is_closed && !EXITS.get() {
            return None;
        }
        gate.inside += 1;
        Some(Self { compiles: false })
    }

    /// Goes in to compile.
    ///
    /// # Errors
    /// [`Error::Busy`] once the process exits: nothing is begun then that cannot be interrupted.
    pub fn compiling() -> Result<Self> {
        let mut gate = locked();
        if !gate.compiles && !EXITS.get() {
            return Err(Error::Busy { what: "the process exits, and no compilation is begun any more".into() });
        }
        gate.inside += 1;
        gate.compiling += 1;
        Ok(Self { compiles: true })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut gate = locked();
        gate.inside -= 1;
        gate.compiling -= usize::from(self.compiles);
        if gate.inside == 0 || self.compiles && gate.compiling == 0 {
            LEFT.notify_all();
        }
    }
}

fn locked() -> MutexGuard<'static, Gate> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something after which a library may have static objects that it had not before.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A device was opened.
    Opened,
    /// A kernel was compiled.
    Compiled,
    /// Work was submitted.
    Submitted,
    /// Work was finished.
    Finished,
}

unsafe extern "C" {
    /// Of the C library.
    fn atexit(callback: extern "C" fn()) -> c_int;
}

/// A step was made: devices are ended before whatever it left behind is destroyed. Of a million steps of a kind, twenty ask the process.
#[inline]
pub fn after(step: Step) {
    static MADE: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    if matches!(step, Step::Opened) {
        OWNER.store(process::id(), Ordering::Relaxed);
    }
    if (MADE[step as usize].fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two() {
        ask();
    }
}

#[cold]
fn ask() {
    // SAFETY: the callback is a function of this crate, and catches its panics.
    if unsafe { atexit(end) } != 0 {
        log::warn!("the system calls nobody when this process exits; it should shut its devices down before");
    }
}

extern "C" fn end() {
    static ENDED: Once = Once::new();
    if OWNER.load(Ordering::Relaxed) != process::id() {
        return;
    }
    ENDED.call_once(|| {
        // A panic may not leave for the C library.
        drop(catch_unwind(|| {
            EXITS.set(true);
            Client::shutdown_all(TIMEOUT);
            let mut gate = locked();
            gate.compiles = false;
            if gate.compiling > 0 {
                drop(wait(gate, COMPILING, |gate| gate.compiling > 0));
                Client::shutdown_all(TIMEOUT);
                gate = locked();
            }
            wait(gate, TIMEOUT, |gate| gate.inside > 0).is_closed = true;
        }));
    });
}

/// Waits, at most so long, while something is so.
fn wait(
    gate: MutexGuard<'static, Gate>,
    longest: Duration,
    is_so: impl Fn(&Gate) -> bool,
) -> MutexGuard<'static, Gate> {
    LEFT.wait_timeout_while(gate, longest, |gate| is_so(gate)).unwrap_or_else(PoisonError::into_inner).0
}
