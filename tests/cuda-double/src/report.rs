//! What the double noticed: one line each, with its kind.

use core::fmt;
use std::sync::Mutex;

use crate::sync::lock;

/// What kind of mistake a report tells of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ReportKind {
    /// Two operations touch the same bytes, one of them writes, and nothing orders them.
    StreamRace,
    /// Threads of a block touch the same shared memory without a barrier between.
    SharedRace,
    /// Bytes are read that nobody wrote.
    Uninitialised,
    /// Threads of a block wait at different barriers, or at one that others never reach.
    DivergentBarrier,
    /// Work failed: the error code and why.
    Fault,
    /// Memory was given back twice, or while it is still used.
    BadFree,
    /// A launch was refused, and why.
    BadLaunch,
    /// A call was refused for another reason than its launch parameters.
    BadCall,
    /// Something the double does not know was asked for: an opcode, an attribute, a form of a call.
    Unsupported,
    /// What a kernel printed.
    Printed,
}

impl ReportKind {
    const ALL: [(Self, &str); 10] = [
        (Self::StreamRace, "stream race"),
        (Self::SharedRace, "shared race"),
        (Self::Uninitialised, "uninitialised"),
        (Self::DivergentBarrier, "divergent barrier"),
        (Self::Fault, "fault"),
        (Self::BadFree, "bad free"),
        (Self::BadLaunch, "bad launch"),
        (Self::BadCall, "bad call"),
        (Self::Unsupported, "unsupported"),
        (Self::Printed, "printed"),
    ];

    /// How reports of this kind begin.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// One thing the double noticed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// What kind of thing.
    pub kind: ReportKind,
    /// What, where, and by whom; in one line.
    pub text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

impl Report {
    /// Reads what [`Display`](fmt::Display) wrote.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        ReportKind::ALL.iter().find_map(|(kind, name)| {
            let text = line.strip_prefix(name)?.strip_prefix(": ")?;
            Some(Self { kind: *kind, text: text.to_owned() })
        })
    }
}

/// The reports of one device, oldest first, until somebody takes them.
#[derive(Default, Debug)]
pub(crate) struct Reports(Mutex<Vec<Report>>);

/// How many reports are kept; what comes after is as good as said.
const KEPT: usize = 1000;

impl Reports {
    pub(crate) fn add(&self, kind: ReportKind, text: impl Into<String>) {
        let mut kept = lock(&self.0);
        if kept.len() < KEPT {
            // A line each, whatever a kernel printed.
            kept.push(Report { kind, text: text.into().replace('\n', "\\n") });
        }
    }

    pub(crate) fn take(&self) -> Vec<Report> {
        core::mem::take(&mut lock(&self.0))
    }

    pub(crate) fn put_back(&self, reports: Vec<Report>) {
        let mut kept = lock(&self.0);
        let later = core::mem::replace(&mut *kept, reports);
        kept.extend(later);
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, ReportKind};

    #[test]
    fn a_report_survives_its_line() {
        for (kind, _) in ReportKind::ALL {
            let report = Report { kind, text: "thread 1: wrote".to_owned() };
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
        assert_eq!(Report::parse("nothing of the kind"), None);
    }
}
