//! Proves the conformance suite: servers and drivers that are broken in one way each, and the rows of the contract that must notice.
//!
//! A mutant is the host backend inside two wrappers that hand everything on, a [`server`] around `DriverServer` around a [`driver`]
//! around the host's, and a [`Fault`]: the one thing that one of the wrappers does wrong. The suite must fail on it, in the rows it
//! breaks; and it must pass on the twin, the same wrappers with nothing broken. What is proven this way is that a row's tests can
//! fail, not that the host keeps the row.
//!
//! ```sh
//! cargo test -p trunnion-mutants                                             # each mutant, with the tests that must notice it
//! TRUNNION_MUTANTS=full cargo test -p trunnion-mutants                       # each with the whole suite: all that notice
//! cargo test -p trunnion-mutants --test mutants -- --backend wait_dropped    # the suite on one mutant, with the suite's arguments
//! ```
//!
//! Every test runs in a process of its own with a time limit, since some mutants break what memory safety rests on.

#![deny(unsafe_code)]

extern crate alloc;

// What is wrong, and the list of what must notice it.
pub mod fault;
pub mod list;

// The wrappers.
pub mod driver;
pub mod server;
mod stream;

// How the suite gets at them.
pub mod factory;
pub mod proof;

pub use fault::Fault;
pub use list::{Base, MUTANTS, Mutant};
pub use proof::run;
