//! Device memory: pages with their shadows, regions of the one address space, and checked access to them.

mod access;
mod page;
mod region;
mod space;

pub(crate) use access::{Access, Place, Visitor};
pub(crate) use region::{Backing, Kind, Protection, Region};
pub(crate) use space::{AddressSpace, GRANULARITY};
