//! The stream of a mutant: the host's, with what is encoded and held back, and what is told too early.

use crate::driver::HostOperation;
use trunnion_backend_core::driver::{Outcome, Place};
use trunnion_backend_host::{HostPage, HostStream};

/// A stream of a [`MutantDriver`](crate::driver::MutantDriver).
#[derive(Debug)]
pub struct MutantStream {
    pub(crate) host: HostStream,
    /// What was encoded since the last barrier, on a driver that reorders.
    pub(crate) held: Vec<Held>,
    /// What the next `poll` tells besides what the host does.
    pub(crate) told: Outcome,
    /// Whether the batch holds a read.
    pub(crate) reads: bool,
    /// What is reported as finished whatever the host says.
    pub(crate) claimed: u64,
}

impl MutantStream {
    pub(crate) fn new(host: HostStream) -> Self {
        Self { host, held: Vec::new(), told: Outcome::default(), reads: false, claimed: 0 }
    }
}

/// An operation that is not with the host yet.
pub(crate) struct Held {
    pub(crate) seq: u64,
    pub(crate) operation: HostOperation,
}

impl core::fmt::Debug for Held {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Held").field(&self.seq).finish()
    }
}

/// A place that holds its page.
#[derive(Clone, Debug)]
pub(crate) struct HeldPlace {
    pub(crate) page: HostPage,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl HeldPlace {
    pub(crate) fn of(place: Place<'_, HostPage>) -> Self {
        Self { page: place.page.clone(), offset: place.offset, size: place.size }
    }

    pub(crate) fn place(&self) -> Place<'_, HostPage> {
        Place { page: &self.page, offset: self.offset, size: self.size }
    }
}
