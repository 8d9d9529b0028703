//! A shim: its entry, and what it saw.

use core::sync::atomic::Ordering;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;

use crate::calls::Failure;
use crate::objects::Alive;
use crate::plan::Plan;
use crate::record::Submission;
use crate::slots;
use crate::state::{State, locked};

/// Why there is no shim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShimError {
    /// There is no Vulkan loader.
    #[error("no Vulkan loader: {why}")]
    NoLoader {
        /// What the system said.
        why: String,
    },
    /// There are as many shims as there can be.
    #[error("{limit} shims are there at a time, and no more can be")]
    Full {
        /// How many there can be.
        limit: usize,
    },
}

/// Stands between a program and the Vulkan loader.
///
/// What it saw can be asked of it at any time, also after everything was destroyed. When it is dropped, its entry makes no new
/// instances; those there are work on, and another shim may be given the same entry.
#[derive(Debug)]
pub struct Shim {
    state: Arc<State>,
    slot: usize,
}

impl Shim {
    /// A shim that follows a plan.
    ///
    /// # Errors
    /// [`ShimError`]: there is no loader, or there are too many shims.
    pub fn new(plan: Plan) -> Result<Self, ShimError> {
        slots::loader().map_err(|why| ShimError::NoLoader { why })?;
        let state = Arc::new(State::new(plan));
        let slot = slots::take(&state)?;
        Ok(Self { state, slot })
    }

    /// The entry to give to the program.
    ///
    /// Equivalent to: a `vkGetInstanceProcAddr` that a layer answers first.
    pub fn entry(&self) -> ash::Entry {
        slots::entry(self.slot)
    }

    /// How often a function was called, failures that were planned included.
    pub fn calls(&self, function: &str) -> u32 {
        locked(&self.state.calls).of(function)
    }

    /// Every function that was called, by name, and how often.
    pub fn all_calls(&self) -> Vec<(&'static str, u32)> {
        locked(&self.state.calls).all()
    }

    /// The `nth` call of `function` from now on, counted from 1, answers `code` and does nothing. See [`Plan::fail`].
    pub fn fail(&self, function: &str, nth: u32, code: vk::Result) {
        locked(&self.state.calls).plan(function, nth, code);
    }

    /// The `nth` allocation of memory of a type from now on, counted from 1, answers `code`: so that what a program allocates for
    /// one purpose can be refused whatever else it allocates. The type is one that the plan's devices have.
    pub fn fail_allocation(&self, memory_type: u32, nth: u32, code: vk::Result) {
        locked(&self.state.calls).plan_allocation(memory_type, nth, code);
    }

    /// The host sees no progress of timeline semaphores from now on, until what this gives is dropped. The device works on.
    pub fn hold(&self) -> Held<'_> {
        self.state.held.store(true, Ordering::Release);
        Held(&self.state)
    }

    /// The planned failures that happened, in their order.
    pub fn fired(&self) -> Vec<Failure> {
        locked(&self.state.calls).fired()
    }

    /// What the driver took, in order.
    pub fn submissions(&self) -> Vec<Submission> {
        locked(&self.state.submissions).clone()
    }

    /// What the driver took since this was last asked, in order; it is forgotten.
    pub fn take_submissions(&self) -> Vec<Submission> {
        core::mem::take(&mut locked(&self.state.submissions))
    }

    /// Every object that was created and not destroyed.
    pub fn alive(&self) -> Vec<Alive> {
        locked(&self.state.objects).all()
    }

    /// What a program did that Vulkan forbids and the shim can see: one object used from two threads at once, destroyed twice, used
    /// after its end, left behind by its device; flushes beside what is mapped; a wait that nothing fulfils.
    pub fn complaints(&self) -> Vec<String> {
        locked(&self.state.complaints).clone()
    }
}

/// The host sees no progress while it is there. See [`Shim::hold`].
#[derive(Debug)]
pub struct Held<'a>(&'a State);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        slots::give_back(self.slot);
    }
}
