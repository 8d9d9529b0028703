//! [`Validate`]: a server that looks whether those around it and the one inside keep the contract, and changes nothing.
//!
//! | file | job |
//! |---|---|
//! | `violation.rs` | what a breach is, and where breaches are kept |
//! | `caller.rs` | what callers must keep: numbers, memory, arguments |
//! | `answers.rs` | what the server must keep: promises, moments, the fault |
//! | `contract.rs` | the `Server` trait, call by call |

mod answers;
mod caller;
mod contract;
mod violation;

pub use violation::{Party, Violation, Violations};

use alloc::boxed::Box;
use answers::Answers;
use caller::Caller;
use core::fmt;
use trunnion_runtime_core::properties::Limits;
use trunnion_runtime_core::server::{Opened, Server};

/// A server around a server that checks the contract of [`Server`] from both sides.
///
/// A breach is a [`Violation`]: it is logged as an error, and kept in the [`Violations`] of whoever made the layer. Nobody else is told,
/// and nothing is changed or held back: a program runs with it as it runs without.
///
/// Of the caller it checks that numbers increase (parts of one write may share one), that memory is reserved before it is used and freed
/// once, that regions lie in their handles, and that arguments are what a client should have let through. Of the server it checks
/// that promises are answered before their moment counts as done, and at the end all of them; that what is done stays done and what
/// is unfinished only falls; that failures are handed on and never read over; that every call answers the same fault; that memory
/// in use adds up; that accesses granted at the same time do not conflict; that the end keeps its time.
pub struct Validate<S: Server + ?Sized> {
    limits: Limits,
    violations: Violations,
    caller: Caller,
    answers: Answers,
    inside: Box<S>,
}

impl<S: Server + ?Sized> Validate<S> {
    /// Puts the check around a server of these limits that was not started.
    pub fn new(inside: Box<S>, limits: Limits) -> Self {
        let violations = Violations::default();
        Self {
            caller: Caller::new(violations.clone()),
            answers: Answers::new(violations.clone()),
            limits,
            violations,
            inside,
        }
    }

    /// What breaches there were, to be asked for while the server is in use.
    pub fn violations(&self) -> Violations {
        self.violations.clone()
    }
}

impl Validate<dyn Server> {
    /// Puts the check around a server as a backend opened it.
    pub fn around(opened: Opened) -> (Opened, Violations) {
        let layer = Self::new(opened.server, opened.properties.limits.clone());
        let violations = layer.violations();
        (Opened { server: Box::new(layer), ..opened }, violations)
    }
}

impl<S: Server + ?Sized> fmt::Debug for Validate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validate").field("violations", &self.violations).finish_non_exhaustive()
    }
}
