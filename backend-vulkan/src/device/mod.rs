//! A device: what an adapter says, whether it can be used, what it is to the runtime, and the logical device that is driven.

mod adapter;
mod features;
mod logical;
mod properties;

pub(crate) use adapter::{Adapter, adapters};
pub(crate) use logical::Device;
