//! What a run of a program gave, and where two runs differ.

use super::content::Content;
use super::step::{Call, Program};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::ops::Range;
use trunnion_runtime_core::error::Result;

/// What a run of a program gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// What was read, in the order in which it was asked for.
    pub reads: Vec<(Place, Observed)>,
    /// What is in each buffer that was not freed, by its number.
    pub buffers: Vec<(Place, Observed)>,
}

/// What was seen of some bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The bytes; those a failure lies on are 0.
    pub bytes: Vec<u8>,
    /// The failures, each with the bytes it lies on, by address.
    pub failures: Vec<(Range<u64>, String)>,
}

/// Which bytes were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Those of a read.
    Read {
        /// The step's place in the program.
        step: usize,
        /// Its number.
        number: u64,
        /// Which of the read's sources, from 0.
        source: usize,
    },
    /// A buffer's at the end.
    Buffer {
        /// The buffer.
        buffer: u32,
    },
}

/// Where two runs differ first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which bytes were looked at.
    pub place: Place,
    /// How many bytes there are.
    pub size: u64,
    /// How many differ.
    pub count: u64,
    /// The first that differ, at most [`Difference::FIRST`]: where, and what each run has; `None` where a failure lies.
    pub first: Vec<(u64, Option<u8>, Option<u8>)>,
    /// The first failure of each run.
    pub failures: [Option<String>; 2],
}

impl Observed {
    /// These bytes.
    pub fn well(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), failures: Vec::new() }
    }

    /// No bytes: a failure lies on all of them.
    pub fn failed(size: u64, why: impl Into<String>) -> Self {
        let bytes = alloc::vec![0; usize::try_from(size).unwrap_or(0)];
        Self { bytes, failures: Vec::from([(0..size, why.into())]) }
    }

    /// The byte at an offset; `None` where a failure lies.
    pub fn at(&self, offset: u64) -> Option<u8> {
        let failed = self.failures.iter().any(|(range, _)| range.contains(&offset));
        let byte = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset)).copied();
        byte.filter(|_| !failed)
    }

    fn is_like(&self, other: &Self) -> bool {
        let marked = |observed: &Self| {
            // Failures that lie side by side are one piece of the bytes, however they were found.
            let mut merged: Vec<Range<u64>> = Vec::new();
            for (range, _) in observed.failures.iter().filter(|(range, _)| !range.is_empty()) {
                match merged.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => merged.push(range.clone()),
                }
            }
            merged
        };
        self.bytes == other.bytes && marked(self) == marked(other)
    }
}

impl Difference {
    /// How many of the bytes that differ are kept.
    pub const FIRST: usize = 16;

    fn of(place: Place, left: &Observed, right: &Observed) -> Option<Self> {
        if left.is_like(right) {
            return None;
        }
        let size = left.bytes.len().max(right.bytes.len()) as u64;
        let (mut count, mut first) = (0, Vec::new());
        for offset in 0..size {
            let (a, b) = (left.at(offset), right.at(offset));
            if a != b {
                count += 1;
                if first.len() < Self::FIRST {
                    first.push((offset, a, b));
                }
            }
        }
        let why = |observed: &Observed| observed.failures.first().map(|(_, why)| why.clone());
        (count > 0).then(|| Self { place, size, count, first, failures: [why(left), why(right)] })
    }

    /// The difference as a table for people, with the names of the two runs.
    pub fn table(&self, left: &str, right: &str) -> String {
        let width = left.len().max(right.len()).max(4);
        let byte = |byte: Option<u8>| byte.map_or(String::from("--"), |byte| format!("{byte:02x}"));
        let mut table = format!("{}: {} of {} bytes differ\n", self.place, self.count, self.size);
        writeln!(table, "{:>12}  {left:>width$}  {right:>width$}", "offset").ok();
        for (offset, a, b) in &self.first {
            writeln!(table, "{offset:>12}  {:>width$}  {:>width$}", byte(*a), byte(*b)).ok();
        }
        let rest = self.count.saturating_sub(self.first.len() as u64);
        if rest > 0 {
            writeln!(table, "{:>12}  and {rest} more", "…").ok();
        }
        for (name, failure) in [left, right].iter().zip(&self.failures) {
            if let Some(failure) = failure {
                writeln!(table, "{name}, where it has --: {failure}").ok();
            }
        }
        table
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { step, number, source } => write!(f, "read {number} (step {step}), source {source}"),
            Self::Buffer { buffer } => write!(f, "buffer b{buffer}"),
        }
    }
}

impl Replayed {
    /// Where two runs of one program differ first: the first read, else the first buffer. Places that only one of them has do not count.
    pub fn difference(&self, other: &Replayed) -> Option<Difference> {
        let pairs = |ours: &[(Place, Observed)], theirs: &[(Place, Observed)]| {
            let theirs: alloc::collections::BTreeMap<_, _> =
                theirs.iter().map(|(place, seen)| (*place, seen)).collect();
            ours.iter().find_map(|(place, ours)| Difference::of(*place, ours, theirs.get(place)?))
        };
        pairs(&self.reads, &other.reads).or_else(|| pairs(&self.buffers, &other.buffers))
    }
}

impl Program {
    /// What the program says its reads brought where it was recorded.
    ///
    /// # Errors
    /// As for [`Content::bytes`].
    pub fn expected(&self) -> Result<Replayed> {
        let mut expected = Replayed::default();
        for (place, step) in self.steps.iter().enumerate() {
            let Call::Read { sources } = &step.call else { continue };
            for (source, (view, content)) in sources.iter().enumerate() {
                let place = Place::Read { step: place, number: step.number, source };
                let observed = match content {
                    Some(Content::Failed(why)) => Observed::failed(view.size(), why.clone()),
                    Some(content) => match content.bytes(view.size())? {
                        Some(bytes) => Observed::well(bytes.to_vec::<u8>()?),
                        None => continue,
                    },
                    None => continue,
                };
                expected.reads.push((place, observed));
            }
        }
        Ok(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn run(buffers: Vec<Observed>) -> Replayed {
        let place = |(buffer, observed)| (Place::Buffer { buffer }, observed);
        Replayed { reads: Vec::new(), buffers: (0..).zip(buffers).map(place).collect() }
    }

    #[test]
    fn the_first_buffer_that_differs_is_named_with_its_bytes() {
        let left = run(vec![Observed::well([1, 2, 3]), Observed::well([4, 5, 6, 7])]);
        let right = run(vec![Observed::well([1, 2, 3]), Observed::well([4, 9, 6, 8])]);
        assert_eq!(left.difference(&left), None);
        let difference = left.difference(&right).unwrap();
        assert_eq!(difference.place, Place::Buffer { buffer: 1 });
        assert_eq!((difference.count, difference.size), (2, 4));
        assert_eq!(difference.first, [(1, Some(5), Some(9)), (3, Some(7), Some(8))]);
        let table = difference.table("host", "other");
        assert!(table.starts_with("buffer b1: 2 of 4 bytes differ\n"), "{table}");
        assert!(table.contains("           1     05     09"), "{table}");
    }

    #[test]
    fn a_failure_on_one_side_differs_from_bytes_and_not_from_a_failure_found_otherwise() {
        let whole = run(vec![Observed::failed(4, "broken")]);
        let halves = Observed { bytes: vec![0; 4], failures: vec![(0..2, "a".into()), (2..4, "b".into())] };
        assert_eq!(whole.difference(&run(vec![halves])), None);
        let difference = whole.difference(&run(vec![Observed::well([0; 4])])).unwrap();
        assert_eq!(difference.first[0], (0, None, Some(0)));
        assert_eq!(difference.failures, [Some("broken".into()), None]);
        assert!(difference.table("a", "b").contains("a, where it has --: broken"));
    }
}
