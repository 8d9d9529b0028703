//! A map from byte ranges to values: a sorted vector of parts that do not overlap.
//!
//! Nearly always one part covers the whole buffer; it lies inline, is found without a search and changed in place.

use core::ops::Range;
use smallvec::SmallVec;

/// What an interval map holds. Neighbours that are the same become one part.
pub(crate) trait Value: Clone {
    fn same(&self, other: &Self) -> bool;
}

impl Value for () {
    fn same(&self, (): &Self) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
struct Part<V> {
    start: u64,
    end: u64,
    value: V,
}

/// Values by byte range. Every range given to a change must be non-empty.
#[derive(Clone, Debug)]
pub(crate) struct Intervals<V> {
    parts: SmallVec<[Part<V>; 1]>,
}

impl<V: Value> Intervals<V> {
    pub(crate) const fn new() -> Self {
        Self { parts: SmallVec::new_const() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The values that overlap `range`, by address, each with its whole range.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, &V)> {
        let end = range.end;
        let first =
            if range.is_empty() { self.parts.len() } else { self.parts.partition_point(|p| p.end <= range.start) };
        self.parts[first..].iter().take_while(move |p| p.start < end).map(|p| (p.start..p.end, &p.value))
    }

    /// The first value that overlaps `range`.
    pub(crate) fn first(&self, range: &Range<u64>) -> Option<&V> {
        self.overlapping(range).next().map(|(_, value)| value)
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.parts.iter().map(|p| &p.value)
    }

    /// All values with their ranges.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &V)> {
        self.parts.iter().map(|p| (p.start..p.end, &p.value))
    }

    /// The one value, when it lies on exactly `range`.
    #[inline]
    pub(crate) fn whole(&mut self, range: &Range<u64>) -> Option<&mut V> {
        match self.parts.as_mut_slice() {
            [only] if only.start == range.start && only.end == range.end => Some(&mut only.value),
            _ => None,
        }
    }

    /// Changes the values that lie in `range`, after cutting those that reach out of it.
    pub(crate) fn update(&mut self, range: &Range<u64>, mut change: impl FnMut(&mut V)) {
        let (first, last) = self.cut_out(range);
        for part in &mut self.parts[first..last] {
            change(&mut part.value);
        }
        self.merge(first, last);
    }

    /// Puts `value` on `range`, whatever was there.
    pub(crate) fn insert(&mut self, range: &Range<u64>, value: V) {
        let (first, last) = self.cut_out(range);
        let part = Part { start: range.start, end: range.end, value };
        if first < last {
            self.parts[first] = part;
            self.parts.drain(first + 1..last);
        } else {
            self.parts.insert(first, part);
        }
        self.merge(first, first + 1);
    }

    /// Puts `value` on those bytes of `range` that have none.
    pub(crate) fn fill(&mut self, range: &Range<u64>, value: &V) {
        let mut from = range.start;
        while from < range.end {
            let i = self.parts.partition_point(|p| p.end <= from);
            let (gap, next) = match self.parts.get(i) {
                Some(p) if p.start <= from => (from, p.end),
                Some(p) => (p.start.min(range.end), p.end),
                None => (range.end, range.end),
            };
            if from < gap {
                self.insert(&(from..gap), value.clone());
            }
            from = next;
        }
    }

    /// Takes away what lies in `range` where `gone` says so.
    pub(crate) fn remove(&mut self, range: &Range<u64>, gone: impl Fn(&V) -> bool) {
        let (first, last) = self.cut_out(range);
        for i in (first..last).rev() {
            if gone(&self.parts[i].value) {
                self.parts.remove(i);
            }
        }
        self.merge(first, last);
    }

    /// Whether the next cut would make the vector grow. Never true of the one inline part.
    pub(crate) fn is_crowded(&self) -> bool {
        self.parts.spilled() && self.parts.len() + 2 > self.parts.capacity()
    }

    /// Changes every value, merges neighbours that became the same, and leaves room for as many parts again.
    pub(crate) fn simplify(&mut self, change: impl FnMut(&mut V)) {
        self.parts.iter_mut().map(|p| &mut p.value).for_each(change);
        let mut kept = 0;
        for i in 1..self.parts.len() {
            let (left, right) = self.parts.split_at_mut(i);
            let (last, part) = (&mut left[kept], &mut right[0]);
            if last.end == part.start && last.value.same(&part.value) {
                last.end = part.end;
            } else {
                kept += 1;
                self.parts.swap(kept, i);
            }
        }
        self.parts.truncate(kept + 1);
        self.parts.reserve(self.parts.len() + 2);
    }

    /// Cuts so that no part crosses an end of `range`; answers the parts inside.
    fn cut_out(&mut self, range: &Range<u64>) -> (usize, usize) {
        (self.cut(range.start), self.cut(range.end))
    }

    /// Cuts the part that `at` lies inside; answers the first part at or behind `at`.
    fn cut(&mut self, at: u64) -> usize {
        let i = self.parts.partition_point(|p| p.end <= at);
        match self.parts.get_mut(i) {
            Some(part) if part.start < at => {
                let rest = Part { start: at, end: part.end, value: part.value.clone() };
                part.end = at;
                self.parts.insert(i + 1, rest);
                i + 1
            }
            _ => i,
        }
    }

    /// Merges neighbours that are the same, from the part before `first` to the one at `last`.
    fn merge(&mut self, first: usize, last: usize) {
        for i in (first.max(1)..=last).rev() {
            if i < self.parts.len() && {
                let (left, right) = (&self.parts[i - 1], &self.parts[i]);
                left.end == right.start && left.value.same(&right.value)
            } {
                self.parts[i - 1].end = self.parts[i].end;
                self.parts.remove(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    impl Value for u8 {
        fn same(&self, other: &Self) -> bool {
            self == other
        }
    }

    fn parts(map: &Intervals<u8>) -> Vec<(u64, u64, u8)> {
        map.iter().map(|(r, v)| (r.start, r.end, *v)).collect()
    }

    #[test]
    fn a_part_is_cut_where_it_changes_and_merged_again() {
        let mut map = Intervals::new();
        map.insert(&(0..100), 1);
        map.update(&(40..60), |v| *v = 2);
        assert_eq!(parts(&map), [(0, 40, 1), (40, 60, 2), (60, 100, 1)]);
        map.update(&(40..60), |v| *v = 1);
        assert_eq!(parts(&map), [(0, 100, 1)]);
    }

    #[test]
    fn filling_leaves_what_is_there() {
        let mut map = Intervals::new();
        map.insert(&(10..20), 1);
        map.insert(&(30..40), 2);
        map.fill(&(0..35), &9);
        assert_eq!(parts(&map), [(0, 10, 9), (10, 20, 1), (20, 30, 9), (30, 40, 2)]);
    }

    proptest! {
        #[test]
        fn every_byte_holds_what_a_plain_array_holds(
            steps in proptest::collection::vec((0_u8..5, 0_u64..40, 1_u64..20, 0_u8..3), 0..60)
        ) {
            let mut map = Intervals::new();
            let mut bytes = [None; 64];
            for (kind, start, length, value) in steps {
                let range = start..start + length;
                let cells = &mut bytes[start as usize..(start + length) as usize];
                match kind {
                    0 => {
                        map.insert(&range, value);
                        cells.fill(Some(value));
                    }
                    1 => {
                        map.remove(&range, |v| *v == value);
                        cells.iter_mut().filter(|c| **c == Some(value)).for_each(|c| *c = None);
                    }
                    2 => {
                        map.update(&range, |v| *v = (*v + value) % 3);
                        cells.iter_mut().flatten().for_each(|v| *v = (*v + value) % 3);
                    }
                    3 => {
                        map.fill(&range, &value);
                        cells.iter_mut().filter(|c| c.is_none()).for_each(|c| *c = Some(value));
                    }
                    _ => {
                        map.simplify(|v| *v = (*v).min(1));
                        bytes.iter_mut().flatten().for_each(|v| *v = (*v).min(1));
                    }
                }
                let mut got = [None; 64];
                let found = parts(&map);
                for (start, end, v) in &found {
                    prop_assert!(start < end);
                    for cell in &mut got[*start as usize..*end as usize] {
                        prop_assert!(cell.is_none(), "two parts on one byte");
                        *cell = Some(*v);
                    }
                }
                prop_assert_eq!(got, bytes);
                for pair in found.windows(2) {
                    prop_assert!(pair[0].1 <= pair[1].0, "sorted");
                    prop_assert!(pair[0].1 < pair[1].0 || pair[0].2 != pair[1].2, "equal neighbours are merged");
                }
                let seen: Vec<_> = map.overlapping(&range).map(|(_, v)| *v).collect();
                let mut expected: Vec<u8> = bytes[start as usize..(start + length) as usize].iter().flatten().copied().collect();
                prop_assert_eq!(map.first(&range), expected.first());
                expected.dedup();
                let mut seen = seen;
                seen.dedup();
                prop_assert_eq!(seen, expected);
            }
        }
    }
}
