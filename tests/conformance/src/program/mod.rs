//! Random programs: made from a seed, run by several threads on several streams, compared with a sequential model, made small when they
//! differ, and kept as reproducers.

mod check;
mod generate;
mod keep;
mod model;
mod shrink;
mod threads;
mod variant;

pub use check::{mismatch, prove};
pub use generate::{Random, Recipe};
pub use keep::{keep, with_expectations};
pub use model::model;
pub use shrink::{Budget, shrink};
pub use threads::replay_on_threads;
pub use variant::{set_variant, variant_of};

/// The setting of a program that says by how many threads it is issued.
pub const THREADS: &str = "threads";
