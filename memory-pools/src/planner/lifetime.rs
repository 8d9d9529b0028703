//! What is to be placed: sizes, and the times in which they are needed.

/// A buffer to place: it lives from `lower` until just before `upper`, in any unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lifetime {
    /// The first time at which it is needed.
    pub lower: u64,
    /// The first time at which it is needed no more; where that is `lower`, it is needed at no time and meets nobody.
    pub upper: u64,
    /// Its bytes. A buffer without bytes meets nobody either.
    pub size: u64,
}

impl Lifetime {
    /// Whether it takes no place at any time.
    pub(crate) fn is_empty(&self) -> bool {
        self.size == 0 || self.lower >= self.upper
    }
}
