//! Rows as drivers check them, and walk two sets of them at once to copy between them.

use smallvec::SmallVec;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::layout::Rows;

/// Whether rows lie within a place of `size` bytes.
///
/// # Errors
/// [`Error::OutOfRange`] names `what` they are of.
pub fn check_extent(what: &'static str, rows: &Rows, size: u64) -> Result<()> {
    match rows.extent() {
        extent if extent <= size => Ok(()),
        extent => Err(Error::OutOfRange { what: what.into(), range: 0..extent, size }),
    }
}

/// Whether rows have as many bytes together as there are.
///
/// # Errors
/// [`Error::WrongLength`] names `what` they are of.
pub fn check_length(what: &'static str, got: u64, rows: &Rows) -> Result<()> {
    match rows.size() {
        expected if expected == got => Ok(()),
        expected => Err(Error::WrongLength { what: what.into(), got, expected }),
    }
}

/// Calls `piece` with source offset, target offset and length, in bytes, of each run that lies in one row of both, in order.
pub fn for_each_pair(source: &Rows, target: &Rows, mut piece: impl FnMut(u64, u64, u64)) {
    if source.outer.is_empty() && target.outer.is_empty() {
        if let length @ 1.. = source.row.min(target.row) {
            piece(0, 0, length);
        }
        return;
    }
    let (mut from, mut to) = (Cursor::new(source), Cursor::new(target));
    while !from.done && !to.done {
        let length = from.left().min(to.left());
        piece(from.at(), to.at(), length);
        from.advance(length);
        to.advance(length);
    }
}

/// A place in a set of rows.
struct Cursor<'a> {
    rows: &'a Rows,
    /// The row's index by dimension, outermost first.
    index: SmallVec<[u64; 4]>,
    /// Where the row begins.
    row: u64,
    /// How far into the row.
    inside: u64,
    done: bool,
}

impl<'a> Cursor<'a> {
    fn new(rows: &'a Rows) -> Self {
        let done = rows.row == 0 || rows.outer.iter().any(|(count, _)| *count == 0);
        Self { rows, index: SmallVec::from_elem(0, rows.outer.len()), row: 0, inside: 0, done }
    }

    fn at(&self) -> u64 {
        self.row + self.inside
    }

    fn left(&self) -> u64 {
        self.rows.row - self.inside
    }

    fn advance(&mut self, length: u64) {
        self.inside += length;
        if self.inside < self.rows.row {
            return;
        }
        self.inside = 0;
        for (index, (count, stride)) in self.index.iter_mut().zip(&self.rows.outer).rev() {
            *index += 1;
            self.row += stride;
            if *index < *count {
                return;
            }
            self.row -= *index * stride;
            *index = 0;
        }
        self.done = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn pieces(source: &Rows, target: &Rows) -> Vec<(u64, u64, u64)> {
        let mut all = Vec::new();
        for_each_pair(source, target, |from, to, length| all.push((from, to, length)));
        all
    }

    #[test]
    fn rows_of_different_lengths_are_cut_where_either_ends() {
        let dense = Rows::single(12);
        let padded = Rows { row: 6, outer: vec![(2, 8)] };
        let narrow = Rows { row: 4, outer: vec![(3, 16)] };
        assert_eq!(pieces(&dense, &padded), [(0, 0, 6), (6, 8, 6)]);
        assert_eq!(pieces(&padded, &narrow), [(0, 0, 4), (4, 16, 2), (8, 18, 2), (10, 32, 4)]);
        assert_eq!(pieces(&dense, &dense), [(0, 0, 12)]);
    }

    #[test]
    fn nested_rows_are_met_in_order() {
        let nested = Rows { row: 2, outer: vec![(2, 100), (3, 10)] };
        let mut offsets = Vec::new();
        nested.for_each(|offset| offsets.push(offset));
        let met: Vec<_> = pieces(&nested, &Rows::single(12)).into_iter().map(|(from, _, _)| from).collect();
        assert_eq!(met, offsets);
    }

    #[test]
    fn empty_rows_are_nothing() {
        assert!(pieces(&Rows::single(0), &Rows::single(0)).is_empty());
        assert!(pieces(&Rows { row: 4, outer: vec![(0, 8)] }, &Rows::single(0)).is_empty());
    }
}
