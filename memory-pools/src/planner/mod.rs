//! Offsets for buffers whose lifetimes are known beforehand, so that together they take little more than what lives at one time.
//!
//! What a captured graph, a dry run or an inference engine needs between its steps is known before the first step runs. [`plan`] gives each
//! buffer an offset in one block of memory so that no two that live at the same time share a byte, and searches for a small block. The answer
//! depends on the lifetimes and the options only: the same on every machine, and however busy the machine is, since the search is bounded by
//! steps and not by a clock.
//!
//! ```
//! use trunnion_memory_pools::planner::{Lifetime, PlanOptions, plan};
//! let lifetimes = [
//!     Lifetime { lower: 0, upper: 2, size: 1000 },
//!     Lifetime { lower: 1, upper: 3, size: 600 },
//!     Lifetime { lower: 2, upper: 4, size: 900 },
//! ];
//! let plan = plan(&lifetimes, &PlanOptions::default())?;
//! assert_eq!((plan.size, plan.peak_live), (1792, 1792), "sizes are rounded up to 256");
//! assert_eq!(plan.offsets[0], plan.offsets[2], "the third takes the place of the first");
//! # Ok::<(), trunnion_memory_pools::planner::PlanError>(())
//! ```
//!
//! Whoever wants to look on, or to stop early, steps a [`Planner`]; whoever plans often and has little time sets [`PlanOptions::nodes`] to 0 and
//! has the greedy plan.
//!
//! Inside, `greedy` gives the first plan, `component` and `orders` decide what is searched for and in which order, `search` searches, and
//! [`overlap`] checks every plan before it is given out.

mod check;
mod component;
mod error;
mod greedy;
mod lifetime;
mod orders;
mod plan;
mod search;
mod shape;
#[cfg(test)]
mod tests;

pub use check::overlap;
pub use error::PlanError;
pub use lifetime::Lifetime;
pub use plan::{Plan, PlanOptions, Planner, Step, plan};
