//! The backend under a shim that watches what it asks of the driver, makes calls fail, and shows devices that are not there.
//!
//! Each test runs on every device of this machine, through a client, and ends with nothing left in the driver and nothing done that the
//! API forbids.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod bench;
mod scenario;
mod subject;

mod barriers;
mod calls;
mod failures;
mod lateness;
mod memory;
mod oracle;
mod queues;
