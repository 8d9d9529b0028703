//! Vector clocks: what happened before what, by what was asked and not by when it ran.

/// A moment of a line of work: which line, and its count there. The count 0 is before everything.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) line: u32,
    pub(crate) tick: u32,
}

/// For each line of work, the last moment that is known to be over.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Clock(Vec<u32>);

impl Clock {
    /// Learns everything another clock knows.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, known) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*known);
        }
    }

    /// The next moment of a line, which is known from here on.
    pub(crate) fn tick(&mut self, line: u32) -> Stamp {
        let at = line as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
        Stamp { line, tick: self.0[at] }
    }

    /// Whether a moment is over as far as this clock knows.
    #[inline]
    pub(crate) fn knows(&self, stamp: Stamp) -> bool {
        stamp.tick == 0 || self.0.get(stamp.line as usize).is_some_and(|known| *known >= stamp.tick)
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Stamp};

    #[test]
    fn a_clock_knows_what_it_ticked_and_what_it_joined() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let first = a.tick(3);
        assert!(a.knows(first) && !b.knows(first));
        b.join(&a);
        let second = a.tick(3);
        assert!(b.knows(first) && !b.knows(second));
        assert!(b.knows(Stamp::default()));
    }
}
