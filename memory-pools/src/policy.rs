//! The choices: how the pools are set up, and how large the next page is.

use crate::placer::MAX_SPAN;
use crate::storage::Storage;
use trunnion_runtime_core::pool_layout::{Placement, PoolDescription, PoolLayout};

/// A page is at most this part of what there is to have, unless a request needs more: else the first page of a small device would be
/// all of it, and nothing would be left for whatever needs a page of its own.
const SHARE: u64 = 8;
/// The largest step in which the sizes of exclusive pages grow.
const STEP: u64 = 1 << 30;

/// How the pools are set up. An alignment that is no power of two is rounded up to one by
/// [`MemoryPools::new`](crate::MemoryPools::new), and the step in which pages grow to a multiple of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolsConfig {
    /// The most bytes all pools together may take from the driver.
    pub budget: Option<u64>,
    /// Which pools there are and how their pages grow.
    pub layout: PoolLayout,
    /// The most bytes one allocation may have.
    pub max_allocation: u64,
    /// What offsets are multiples of, and sizes are rounded up to, in bytes.
    pub alignment: u64,
    /// In what steps pages grow, in bytes, where the storage's do: see [`Storage::growth_step`].
    pub growth_step: Option<u64>,
}

impl Default for PoolsConfig {
    /// The adaptive layout, alignment 256, no budget, no limit, pages that stay as they are.
    fn default() -> Self {
        let layout = PoolLayout::adaptive();
        Self { budget: None, layout, max_allocation: u64::MAX, alignment: 256, growth_step: None }
    }
}

impl PoolsConfig {
    /// The defaults, within what `storage` can do.
    pub fn fitting(storage: &impl Storage) -> Self {
        let (alignment, growth_step) = (storage.alignment(), storage.growth_step());
        Self { alignment, max_allocation: storage.max_page(), growth_step, ..Self::default() }
    }

    pub(crate) fn in_line(self) -> Self {
        let alignment = self.alignment.clamp(1, 1 << 31).next_power_of_two();
        let growth_step = self.growth_step.and_then(|step| step.max(1).checked_next_multiple_of(alignment));
        Self { alignment, growth_step, ..self }
    }

    /// The size with padding, or `None` when it is more than can be counted.
    #[inline(always)]
    pub(crate) fn padded(&self, size: u64) -> Option<u64> {
        Some(size.max(1).checked_add(self.alignment - 1)? & !(self.alignment - 1))
    }

    /// The largest page that is taken without need, of a driver that gives at most `max_page` at once.
    pub(crate) fn share(&self, max_page: u64) -> u64 {
        self.budget.unwrap_or(u64::MAX).min(max_page) / SHARE
    }
}

/// The sizes of a description in bytes this device can count: multiples of its alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    placement: Placement,
    alignment: u64,
    first: u64,
    largest: u64,
    growth: u64,
    /// The largest request, with padding.
    pub(crate) takes: u64,
}

impl Sizes {
    pub(crate) fn new(description: &PoolDescription, alignment: u64) -> Self {
        let down = |bytes: u64| bytes - bytes % alignment;
        // What is placed must be countable in units of the alignment.
        let longest = match description.placement {
            Placement::Exclusive => down(u64::MAX),
            _ => alignment * u64::from(MAX_SPAN),
        };
        let up = |bytes: u64| bytes.checked_next_multiple_of(alignment).unwrap_or(longest).min(longest);
        let first = up(description.pages.first);
        let largest = down(description.pages.largest).clamp(first, longest);
        let takes = up(description.largest_request()).min(largest);
        let growth = description.pages.growth.into();
        Self { placement: description.placement, alignment, first, largest, growth, takes }
    }

    /// What a request, with padding, takes up. Not above `max_page` unless the request is.
    pub(crate) fn taken(&self, padded: u64, max_page: u64) -> u64 {
        match self.placement {
            Placement::Slabs => self.takes,
            Placement::Exclusive => {
                let step = (1u64 << padded.max(1).ilog2()) / 8;
                let rounded = padded.checked_next_multiple_of(step.clamp(self.alignment, STEP.max(self.alignment)));
                let rounded = rounded.unwrap_or(padded).max(self.first);
                rounded.min(self.largest).min(max_page - max_page % self.alignment).max(padded)
            }
            _ => padded,
        }
    }

    /// The size of the next page of a pool that holds `reserved` bytes, where no page is above `share` without need.
    pub(crate) fn next_page(&self, reserved: u64, taken: u64, share: u64) -> u64 {
        if self.placement == Placement::Exclusive {
            return taken;
        }
        let grown = (u128::from(reserved) * u128::from(self.growth) / 100).min(u128::from(self.largest)) as u64;
        let grown = (grown - grown % self.first).clamp(self.first, self.largest).min(share).max(taken);
        // A slot that is cut off at the end of a page would be lost.
        let unit = if self.placement == Placement::Slabs { self.takes } else { self.alignment };
        grown - grown % unit
    }

    /// The size that a page of at least `size` bytes begins with, where pages grow in steps of `step`, and what it grows to: the largest
    /// page, or `share` where that is less. `None` where there is nothing to grow into.
    pub(crate) fn growing(&self, size: u64, step: u64, share: u64) -> Option<(u64, u64)> {
        let reach = self.largest.min(share);
        let (size, reach) = (size.checked_next_multiple_of(step)?, reach - reach % step);
        (self.placement != Placement::Exclusive && size < reach).then_some((size, reach))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_runtime_core::pool_layout::PageSizes;

    const MIB: u64 = 1 << 20;

    fn sizes(placement: Placement, pages: PageSizes) -> Sizes {
        Sizes::new(&PoolDescription::new("a", placement, pages), 256)
    }

    #[test]
    fn alignment_is_a_power_of_two_and_sizes_are_multiples_of_it() {
        let config = PoolsConfig { alignment: 100, ..PoolsConfig::default() }.in_line();
        assert_eq!((config.alignment, config.padded(1), config.padded(129)), (128, Some(128), Some(256)));
        assert_eq!(PoolsConfig { alignment: 0, ..PoolsConfig::default() }.in_line().alignment, 1);
        let odd = sizes(Placement::Fit, PageSizes::growing(5000, 9999, 10));
        assert_eq!((odd.first, odd.largest, odd.takes), (5120, 9984, 9984));
        let below = sizes(Placement::Fit, PageSizes::fixed(100));
        assert_eq!((below.first, below.largest, below.takes), (256, 256, 256));
        let vast = sizes(Placement::Fit, PageSizes::fixed(u64::MAX));
        assert_eq!(vast.largest, 256 * u64::from(u32::MAX));
    }

    #[test]
    fn pages_grow_with_the_pool_and_stop_at_the_largest() {
        let sizes = sizes(Placement::Fit, PageSizes::growing(2 * MIB, 512 * MIB, 12));
        let next = |reserved, taken| sizes.next_page(reserved, taken, u64::MAX);
        assert_eq!(next(0, 256), 2 * MIB);
        assert_eq!(next(0, 10 * MIB), 10 * MIB, "a request is never cut");
        assert_eq!(next(1 << 30, 256), 122 * MIB);
        assert_eq!(next(u64::MAX, 256), 512 * MIB);
    }

    #[test]
    fn a_page_is_no_more_than_an_eighth_of_what_there_is_unless_a_request_needs_it() {
        let config = PoolsConfig { budget: Some(MIB), ..PoolsConfig::default() };
        let share = config.share(64 * MIB);
        assert_eq!((share, PoolsConfig::default().share(64 * MIB)), (MIB / 8, 8 * MIB));
        let sizes = sizes(Placement::Fit, PageSizes::fixed(2 * MIB));
        assert_eq!((sizes.next_page(0, 256, share), sizes.next_page(0, MIB, share)), (MIB / 8, MIB));
    }

    #[test]
    fn a_page_of_slabs_has_whole_slots() {
        let slabs = Sizes::new(&PoolDescription::slabs("a", 700, PageSizes::fixed(4096)), 256);
        assert_eq!((slabs.taken(256, MIB), slabs.next_page(0, 768, MIB), slabs.next_page(0, 768, 0)), (768, 3840, 768));
    }

    #[test]
    fn a_page_grows_to_the_largest_or_to_an_eighth_of_what_there_is() {
        let fit = sizes(Placement::Fit, PageSizes::growing(MIB / 2, 9 * MIB, 4));
        let growing = |size, share| fit.growing(size, 2 * MIB, share);
        assert_eq!(growing(MIB / 2, u64::MAX), Some((2 * MIB, 8 * MIB)));
        assert_eq!(growing(5 * MIB, 7 * MIB), None, "rounded up, it is as large as it may become");
        assert_eq!((growing(MIB, 4 * MIB), growing(MIB, 3 * MIB)), (Some((2 * MIB, 4 * MIB)), None));
        assert_eq!(growing(u64::MAX, u64::MAX), None);
        assert_eq!(sizes(Placement::Fit, PageSizes::fixed(8 * MIB)).growing(8 * MIB, MIB, u64::MAX), None);
        let exclusive = sizes(Placement::Exclusive, PageSizes::growing(1, u64::MAX, 0));
        assert_eq!(exclusive.growing(MIB, MIB, u64::MAX), None);
    }

    #[test]
    fn a_step_is_a_multiple_of_the_alignment_or_there_is_none() {
        let step = |step| PoolsConfig { growth_step: Some(step), ..PoolsConfig::default() }.in_line().growth_step;
        assert_eq!((step(0), step(257), step(4096), step(u64::MAX)), (Some(256), Some(512), Some(4096), None));
    }

    #[test]
    fn exclusive_pages_are_rounded_up_by_at_most_an_eighth() {
        let exclusive = sizes(Placement::Exclusive, PageSizes::growing(1, u64::MAX, 0));
        for padded in [256, 1024, 4864, 5000 * 256, 513 * MIB, 100 << 30, 255 << 40] {
            let taken = exclusive.taken(padded, u64::MAX);
            assert!(taken >= padded && taken - padded <= (padded / 8).max(256) && taken.is_multiple_of(256));
            assert_eq!((exclusive.taken(taken, u64::MAX), exclusive.next_page(0, taken, 0)), (taken, taken));
        }
        assert_eq!(exclusive.taken(1000 * 1024, 1001 * 1024), 1001 * 1024, "not above the largest page");
        assert_eq!(sizes(Placement::Exclusive, PageSizes::fixed(MIB)).taken(256, 64 * MIB), MIB);
    }
}
