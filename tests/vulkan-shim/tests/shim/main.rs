//! The shim, against whatever Vulkan driver there is, with programs in plain `ash`.
//!
//! Without a driver each test says that it did not run, and fails where `TRUNNION_REQUIRE` names `vulkan`.

#![allow(clippy::undocumented_unsafe_blocks, reason = "plain Vulkan calls with objects that the test made just above")]

extern crate alloc;

mod increment;
mod program;

mod changes;
mod exclusion;
mod failures;
mod lateness;
mod memory;
mod observation;
mod queues;
