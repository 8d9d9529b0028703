//! The operations of a server that carry a number, by name.

use core::fmt;

/// A call of [`Server`](trunnion_runtime_core::server::Server), or of its access in place, that takes a number of the device's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// `reserve`.
    Reserve,
    /// `write`.
    Write,
    /// `read`.
    Read,
    /// `copy`.
    Copy,
    /// `fill`.
    Fill,
    /// `launch`.
    Launch,
    /// `mark`.
    Mark,
    /// `wait`.
    Wait,
    /// `open` of an access in place.
    Access,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Reserve,
        Self::Write,
        Self::Read,
        Self::Copy,
        Self::Fill,
        Self::Launch,
        Self::Mark,
        Self::Wait,
        Self::Access,
    ];

    /// What texts call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Write => "write",
            Self::Read => "read",
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Launch => "launch",
            Self::Mark => "mark",
            Self::Wait => "wait",
            Self::Access => "access",
        }
    }

    /// The operation of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
