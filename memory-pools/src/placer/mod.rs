//! Where in a span of memory a block goes, as arithmetic over offsets: one contract, and the placers that keep it.
//!
//! A placer knows numbers only, so it is usable alone, for whatever is handed out by the range: device memory, descriptors, rows of an
//! atlas. It works in units, the caller's smallest block and alignment in one. A span is a range of units, and there may be any
//! number of them.
//!
//! | placer | for | a block costs |
//! |---|---|---|
//! | [`SegregatedFit`] | any sizes, any order of frees | constant time; what is left over is merged at once |
//! | [`Slabs`] | many blocks of one size, or of sizes below it | constant time, the least of all; the rest of its slot |
//! | [`Linear`] | blocks that die together | constant time; its span, until the last block in it dies |
//!
//! ```
//! use trunnion_memory_pools::placer::{Linear, PlaceError, Placer, SegregatedFit, Slabs};
//!
//! let mut placers: [Box<dyn Placer>; 3] =
//!     [Box::new(SegregatedFit::new()), Box::new(Slabs::new(100)), Box::new(Linear::new())];
//! for placer in &mut placers {
//!     let span = placer.add_span(7, 1000);
//!     let (a, b) = (placer.allocate(100)?, placer.allocate(80)?);
//!     assert_eq!((a.span, b.span), (7, 7));
//!     assert!(a.offset + a.size <= b.offset || b.offset + b.size <= a.offset);
//!     assert!(matches!(placer.allocate(1001), Err(PlaceError::Full { size: 1001, .. } | PlaceError::TooLarge { .. })));
//!     assert!(placer.free(a.key) && placer.free(b.key));
//!     assert!(!placer.free(a.key), "a stale key is noticed");
//!     assert!(placer.remove_span(span).is_ok());
//! }
//! # Ok::<(), PlaceError>(())
//! ```

mod classes;
mod linear;
mod nodes;
mod segregated;
mod slabs;

pub use linear::Linear;
pub(crate) use nodes::NOBODY;
pub use segregated::SegregatedFit;
pub(crate) use segregated::{ANYONE, APART};
pub use slabs::Slabs;

/// In place of an index: there is none.
pub(crate) const NONE: u32 = u32::MAX;

/// The most units a span has; with units of 256 bytes, a tebibyte.
pub const MAX_SPAN: u32 = u32::MAX;

/// Places blocks in spans.
///
/// A placer MUST give out no unit twice, and stay inside its spans. A request MUST NOT be refused as [`Full`](PlaceError::Full) while
/// a free piece of a span has room for it, as its kind of placer counts free pieces. Nothing a caller passes makes it panic.
///
/// Equivalent to: `VmaVirtualBlock` with one span, `offset-allocator` with one span that begins at 0.
pub trait Placer {
    /// Adds a span of `size` units, free, under a tag the caller chooses. A span too small for any block holds nothing.
    fn add_span(&mut self, tag: u32, size: u32) -> SpanKey;

    /// Makes a span `size` units long, at its end. What is placed in it stays. A size that is not above the one it has changes nothing.
    fn grow_span(&mut self, span: &SpanKey, size: u32);

    /// Removes a span.
    ///
    /// # Errors
    /// The key, when something in the span is in use.
    fn remove_span(&mut self, span: SpanKey) -> Result<(), SpanKey>;

    /// Whether nothing in the span is in use. False for a key of another placer.
    fn is_span_free(&self, span: &SpanKey) -> bool;

    /// Places `size` units that begin at a multiple of `alignment` units, counted from the begin of the span. The alignment is a
    /// power of two.
    ///
    /// # Errors
    /// [`PlaceError`], with nothing changed.
    fn allocate_aligned(&mut self, size: u32, alignment: u32) -> Result<Block, PlaceError>;

    /// Places `size` units.
    ///
    /// # Errors
    /// [`PlaceError`], with nothing changed.
    fn allocate(&mut self, size: u32) -> Result<Block, PlaceError> {
        self.allocate_aligned(size, 1)
    }

    /// Frees an allocation; false for a key that is none.
    fn free(&mut self, key: BlockKey) -> bool;

    /// The allocation of a key; `None` for a key that is none.
    fn block(&self, key: BlockKey) -> Option<Block>;

    /// The most units that one request could have now.
    fn largest_free(&self) -> u32;
}

/// Names an allocation of one placer; a stale key is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    index: u32,
    generation: u32,
}

/// Names a span of one placer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SpanKey(u32);

/// A placed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Names the allocation.
    pub key: BlockKey,
    /// The tag of the span it lies in.
    pub span: u32,
    /// Where it begins in the span, in units.
    pub offset: u32,
    /// Its length in units: what was asked for, or more where the placer keeps no smaller remainder.
    pub size: u32,
}

/// Why a block was not placed.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No span has that many units free in one piece, at that alignment.
    #[error("{size} units at a multiple of {alignment}: no span has them free in one piece")]
    Full {
        /// The units asked for.
        size: u32,
        /// The alignment asked for, in units.
        alignment: u32,
    },
    /// More than any span of this placer could ever hold in one block.
    #[error("{size} units: a block of this placer has at most {limit}")]
    TooLarge {
        /// The units asked for.
        size: u32,
        /// The most it gives.
        limit: u32,
    },
    /// A request for nothing.
    #[error("0 units: a block has at least 1")]
    Empty,
    /// An alignment that is no power of two, or above what this placer can keep.
    #[error("alignment {alignment}: must be a power of two and at most {limit}")]
    Alignment {
        /// The alignment asked for, in units.
        alignment: u32,
        /// The largest that is possible here, in units.
        limit: u32,
    },
}
