//! Proves the barrier tests of the Vulkan backend: its driver with one thing wrong, whose emitted commands those tests must not accept.
//!
//! The tests are the backend's own, over a driver that hands everything on. As they stand here it does so rightly: all must pass. Each
//! mutant is a process that runs one of them with a fault, and must fail.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod driver;
mod mutants;
mod subject;

// The backend's tests of what is emitted.
#[path = "../../../../backend-vulkan/tests/shimmed/barriers.rs"]
mod barriers;
#[path = "../../../../backend-vulkan/tests/shimmed/bench.rs"]
mod bench;
#[path = "../../../../backend-vulkan/tests/shimmed/oracle.rs"]
mod oracle;
#[path = "../../../../backend-vulkan/tests/shimmed/queues.rs"]
mod queues;
