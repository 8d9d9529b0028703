//! Failure as something that lies on bytes: what a mark holds and how it is handed on.

use crate::error::{Error, Link};
use crate::timeline::Moment;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A failure that lies on bytes which were not written, with the way it came. Cheap to clone; equal when it began with the same event.
#[derive(Clone, Debug)]
pub struct Failure(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Moment,
    cause: Error,
    chain: Vec<Link>,
    dropped: u32,
}

impl Failure {
    /// How many operations of the way are kept.
    pub const LINKS: usize = 8;

    /// A failure that begins with the operation at `origin`.
    pub fn new(origin: Moment, cause: Error) -> Self {
        Self(Arc::new(Inner { origin, cause, chain: Vec::new(), dropped: 0 }))
    }

    /// The failure as an operation that was skipped because of it hands it on to what it would have written.
    pub fn through(&self, operation: &str, at: Moment) -> Self {
        let mut chain = self.0.chain.clone();
        let mut dropped = self.0.dropped;
        if chain.len() < Self::LINKS {
            chain.push(Link { operation: String::from(operation), at });
        } else {
            dropped = dropped.saturating_add(1);
        }
        Self(Arc::new(Inner { origin: self.0.origin, cause: self.0.cause.clone(), chain, dropped }))
    }

    /// The failure as it lay on the bytes when the operation `at` came upon it: without that operation's own link.
    pub fn before(&self, at: Moment) -> Self {
        let (mut chain, mut dropped) = (self.0.chain.clone(), self.0.dropped);
        if chain.last().is_some_and(|link| link.at == at) {
            chain.pop();
        } else {
            dropped = dropped.saturating_sub(1);
        }
        Self(Arc::new(Inner { origin: self.0.origin, cause: self.0.cause.clone(), chain, dropped }))
    }

    /// The operation it began with: two failures with the same origin are one.
    pub fn origin(&self) -> Moment {
        self.0.origin
    }

    /// What happened first.
    pub fn cause(&self) -> &Error {
        &self.0.cause
    }

    /// The failure as a call answers it.
    pub fn to_error(&self) -> Error {
        if self.0.chain.is_empty() {
            return self.0.cause.clone();
        }
        Error::Inherited { cause: Box::new(self.0.cause.clone()), chain: self.0.chain.clone(), dropped: self.0.dropped }
    }
}

/// Collects failures so that each distinct one is named once, in the order found.
#[derive(Debug, Default)]
pub struct Failures(Vec<Failure>);

impl Failures {
    /// None yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a failure unless one with the same origin is there.
    pub fn add(&mut self, failure: &Failure) {
        if !self.0.iter().any(|known| known.origin() == failure.origin()) {
            self.0.push(failure.clone());
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first one found.
    pub fn first(&self) -> Option<&Failure> {
        self.0.first()
    }

    /// Nothing, the one failure, or [`Error::Several`].
    pub fn into_result(self) -> Result<(), Error> {
        match self.0.as_slice() {
            [] => Ok(()),
            [one] => Err(one.to_error()),
            several => Err(Error::Several(several.iter().map(Failure::to_error).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::StreamId;

    fn at(seq: u64) -> Moment {
        Moment { stream: StreamId::from_raw(1), seq }
    }

    fn lost(cause: &str) -> Error {
        Error::DeviceLost { cause: cause.into() }
    }

    #[test]
    fn a_chain_keeps_eight_links_and_counts_the_rest() {
        let mut failure = Failure::new(at(1), lost("x"));
        for k in 0..11 {
            failure = failure.through("step", at(2 + k));
        }
        let Error::Inherited { cause, chain, dropped } = failure.to_error() else { panic!("inherited") };
        assert_eq!((*cause, chain.len(), dropped), (lost("x"), 8, 3));
        assert_eq!(chain[0].at, at(2));
    }

    #[test]
    fn an_operation_can_name_what_it_came_upon_without_itself() {
        let mut failure = Failure::new(at(1), lost("x"));
        assert_eq!(failure.through("read", at(2)).before(at(2)).to_error(), lost("x"));
        for k in 0..9 {
            failure = failure.through("step", at(2 + k));
        }
        assert_eq!(failure.through("read", at(20)).before(at(20)).to_error(), failure.to_error());
    }

    #[test]
    fn one_failure_on_several_buffers_is_named_once() {
        let first = Failure::new(at(1), lost("a"));
        let mut all = Failures::new();
        all.add(&first);
        all.add(&first.through("step", at(5)));
        all.add(&Failure::new(at(2), lost("b")));
        assert_eq!(all.into_result(), Err(Error::Several(alloc::vec![lost("a"), lost("b")])));
        let mut one = Failures::new();
        one.add(&first);
        assert_eq!(one.into_result(), Err(lost("a")));
    }
}
