//! A Vulkan entry that observes, fails on purpose and changes what a device says, for tests of the Vulkan backend.
//!
//! A [`Shim`] stands between a program and the Vulkan loader, as a layer in the same process does: it gives an [`ash::Entry`] whose
//! functions do what its [`Plan`] says and hand the rest on. The backend under test is given that entry and has no code for tests in it.
//!
//! ```no_run
//! use ash::vk;
//! use trunnion_vulkan_shim::{Plan, Shim};
//!
//! let shim = Shim::new(Plan::new().fail("vkAllocateMemory", 3, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY))?;
//! let entry = shim.entry();
//! // ... run a program on `entry` ...
//! assert_eq!(shim.calls("vkQueueSubmit"), 1);
//! assert!(shim.alive().is_empty() && shim.complaints().is_empty());
//! # Ok::<(), trunnion_vulkan_shim::ShimError>(())
//! ```
//!
//! # How a call finds its shim
//!
//! Everything a shim knows is its own, so tests run beside each other. A function that is given a dispatchable handle (an instance, a
//! physical device, a device, a queue, a command buffer) finds the shim by it, in one table of the process (`registry`). The five
//! functions that are given none are compiled once for each of 64 slots, and a shim has a slot while it lives (`slots`).
//!
//! # What is not wrapped
//!
//! Functions of graphics and of extensions a compute backend has no use for are handed on as they are. Functions that would go around
//! the record, since the shim does not read them, are not there: `vkQueueSubmit2`, `vkCmdPipelineBarrier2`, `vkCmdCopyBuffer2` and their
//! like. The loader's own objects are used throughout, except queues that a plan makes up: those are handles of the shim's own.

extern crate alloc;

// What is asked for, and what was seen.
mod calls;
mod objects;
mod plan;
mod record;
mod shim;

// What a run demands.
mod require;

// What is known of what there is.
mod exclusive;
mod memory;
mod registry;
mod state;
mod timeline;

// The functions handed out.
mod functions;
mod slots;

pub use calls::Failure;
pub use objects::{Alive, Object};
pub use plan::Plan;
pub use record::{Barrier, Bound, Command, Moment, Region, Submission};
pub use require::{is_required, require, turn};
pub use shim::{Held, Shim, ShimError};
