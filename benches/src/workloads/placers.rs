//! Bare placers: what a free and a request take, and how much of one arena they waste. Beside `offset-allocator`, and beside an exact
//! best fit over offsets, the reference for waste.

mod best_fit;
mod churn;
mod waste;

pub use churn::{churn, counted};
pub use waste::waste;
