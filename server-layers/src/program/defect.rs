//! What can be wrong with a program, or with the text of one.

use super::{MAX_DIMENSIONS, MAX_LINE, MAX_SIZE, MAX_TEXT, MAX_VIEWS, VERSION};
use alloc::string::String;
use core::ops::Range;

/// Why text is not a program, and on which line.
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
    /// The first line is not that of a program.
    #[error("`{found}` is not the first line of a program, `trunnion-program {VERSION}`")]
    NotAProgram {
        /// The line, cut where it is long.
        found: String,
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
    /// A range that ends before it begins, or leaves what it is a range of.
    #[error("{what}: bytes {}..{} of {size}", range.start, range.end)]
    OutOfRange {
        /// What it is a range of.
        what: &'static str,
        /// The range.
        range: Range<u64>,
        /// How many bytes there are.
        size: u64,
    },
    /// Something is named that the program does not have here.
    #[error("{what} {number} is not known here")]
    NotKnown {
        /// What.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// Something is given a second time.
    #[error("{what} {number} is there already")]
    Twice {
        /// What.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// An operation's number is smaller than that of the one before it.
    #[error("number {number} comes after {before}; numbers never fall")]
    Order {
        /// The number.
        number: u64,
        /// The number before it.
        before: u64,
    },
    /// Two things that belong together differ in size.
    #[error("{what}: {got}, where {expected} belong")]
    Size {
        /// What.
        what: &'static str,
        /// What was given.
        got: u64,
        /// What belongs there.
        expected: u64,
    },
    /// Rows that cannot be: too many dimensions, or longer than any number of bytes.
    #[error("the rows have more than {MAX_DIMENSIONS} dimensions, none of some kind, or more than {MAX_SIZE} bytes")]
    Rows,
    /// More views than one call may have.
    #[error("a call has more than {MAX_VIEWS} views")]
    TooManyViews,
    /// A quoted text that is longer than any may be.
    #[error("a text has more than {MAX_TEXT} bytes")]
    TextTooLong,
    /// Bytes that a line refers to are not in the text.
    #[error("the bytes @{number} of this line are nowhere")]
    NoBytes {
        /// Their number.
        number: u32,
    },
    /// The text ends before the program does: it has no `end` line.
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
