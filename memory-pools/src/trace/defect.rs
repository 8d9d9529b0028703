//! What can be wrong with a text that should be a trace.

use super::{MAX_LINE, MAX_TEXT, VERSION};
use alloc::string::String;

/// Why text is not a trace, and on which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {defect}")]
pub struct ParseError {
    /// The line, from 1. What is missing at the end is missing on the line after the last.
    pub line: usize,
    /// What is wrong with it.
    pub defect: Defect,
}

/// What is wrong.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The first line is not the one that is needed.
    #[error("`{found}` is not the first line of {what}; valid: {valid}")]
    FirstLine {
        /// What was to be read.
        what: &'static str,
        /// The line, cut where it is long.
        found: String,
        /// What would be valid.
        valid: &'static str,
    },
    /// A version this library does not read.
    #[error("version {found} is not known; this library reads {VERSION}")]
    UnknownVersion {
        /// The version.
        found: String,
    },
    /// A line that is longer than any may be.
    #[error("the line has {length} bytes, at most {MAX_LINE} are allowed")]
    LineTooLong {
        /// Its bytes.
        length: usize,
    },
    /// A word that stands for nothing here.
    #[error("`{found}` is no {what}; valid: {valid}")]
    Unknown {
        /// What it should be.
        what: &'static str,
        /// The word, cut where it is long.
        found: String,
        /// What would be valid.
        valid: &'static str,
    },
    /// The line ends where something more is needed.
    #[error("the line ends where {what} is needed")]
    Missing {
        /// What is needed.
        what: &'static str,
    },
    /// The line goes on where it should end.
    #[error("`{found}` is too much")]
    TooMuch {
        /// What comes next, cut where it is long.
        found: String,
    },
    /// A number over its limit.
    #[error("{what} is {value}, at most {limit} is allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// Something that is counted does not have the next number.
    #[error("{what}: {got}, where {expected} belongs")]
    Count {
        /// What.
        what: &'static str,
        /// What was given.
        got: u64,
        /// What belongs there.
        expected: u64,
    },
    /// Something is named that is not there.
    #[error("{what} {name} is not live here")]
    NotLive {
        /// What.
        what: &'static str,
        /// Its name or number.
        name: String,
    },
    /// Something is given a second time.
    #[error("{what} {name} is there already")]
    Twice {
        /// What.
        what: &'static str,
        /// Its name or number.
        name: String,
    },
    /// Something that describes the whole trace stands behind an event.
    #[error("`{what}` stands behind the first event")]
    Late {
        /// What.
        what: &'static str,
    },
    /// Something that belongs to another line stands before it.
    #[error("`{what}` stands before `{before}`")]
    Early {
        /// What.
        what: &'static str,
        /// Behind which it belongs.
        before: &'static str,
    },
    /// The pools up to this line are no layout.
    #[error("{why}")]
    Layout {
        /// The pool, the value and the limit.
        why: String,
    },
    /// A lifetime that does not end after it began.
    #[error("the lifetime of `{id}` is from {lower} to {upper}; it must end after it began")]
    Lifetime {
        /// Whose.
        id: String,
        /// Where it begins.
        lower: u64,
        /// Where it ends.
        upper: u64,
    },
    /// Memory is freed with another size than it was allocated with.
    #[error("{name} is freed with {got} bytes, it was allocated with {expected}")]
    Size {
        /// What is freed.
        name: String,
        /// The bytes it is freed with.
        got: u64,
        /// The bytes it was allocated with.
        expected: u64,
    },
    /// A quoted text that is longer than any may be.
    #[error("a text has more than {MAX_TEXT} bytes")]
    TextTooLong,
    /// The text ends before the trace does: it has no `end` line.
    #[error("the text ends before its `end` line")]
    Truncated,
    /// Something stands behind the `end` line.
    #[error("something stands behind the `end` line")]
    BehindTheEnd,
}

/// Text as errors quote it: cut where it is long.
pub(super) fn cut(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => alloc::format!("{}…", &text[..end]),
        None => text.into(),
    }
}
