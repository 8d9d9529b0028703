//! The choices: how large pages are, and what gets a page of its own.

use crate::placer::MAX_SPAN;
use crate::storage::Storage;

/// How the pools are set up. Values that contradict each other are brought into line by
/// [`MemoryPools::new`](crate::MemoryPools::new): alignment is rounded up to a power of two, page sizes down to multiples of it, and
/// `page_size_max` is at least `page_size_min`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolsConfig {
    /// The most bytes all pools together may take from the driver.
    pub budget: Option<u64>,
    /// The first page's size, in bytes.
    pub page_size_min: u64,
    /// The largest page's size, in bytes. A larger request gets a driver allocation of its own.
    pub page_size_max: u64,
    /// The most bytes one allocation may have.
    pub max_allocation: u64,
    /// What offsets are multiples of, and sizes are rounded up to, in bytes.
    pub alignment: u64,
}

impl Default for PoolsConfig {
    /// Pages of 2 MiB to 512 MiB, alignment 256, no budget, no limit.
    fn default() -> Self {
        Self {
            budget: None,
            page_size_min: 2 << 20,
            page_size_max: 512 << 20,
            max_allocation: u64::MAX,
            alignment: 256,
        }
    }
}

impl PoolsConfig {
    /// The defaults, within what `storage` can do.
    pub fn fitting(storage: &impl Storage) -> Self {
        Self { alignment: storage.alignment(), max_allocation: storage.max_page(), ..Self::default() }
    }

    pub(crate) fn in_line(self) -> Self {
        // A page must be countable in units of the alignment, and a limit that is no multiple of it is rounded down.
        let alignment = self.alignment.clamp(1, 1 << 31).next_power_of_two();
        let down = |bytes: u64| bytes - bytes % alignment;
        let longest = alignment * u64::from(MAX_SPAN);
        let page_size_min = down(self.page_size_min).clamp(alignment, longest);
        let page_size_max = down(self.page_size_max).clamp(page_size_min, longest);
        Self { alignment, page_size_min, page_size_max, ..self }
    }

    /// The size with padding, or `None` when it is more than can be counted.
    pub(crate) fn padded(&self, size: u64) -> Option<u64> {
        Some(size.max(1).checked_add(self.alignment - 1)? & !(self.alignment - 1))
    }

    /// Whether a request, with padding, is placed inside a page.
    pub(crate) fn is_placed(&self, padded: u64) -> bool {
        padded <= self.page_size_max
    }

    /// The size of the next page. Pages grow with the pool, an eighth of it at a time, so that their number grows with the
    /// logarithm of its size while at most about an eighth is taken ahead of need.
    pub(crate) fn next_page(&self, reserved: u64, padded: u64) -> u64 {
        let eighth = reserved / 8;
        let grown = (eighth - eighth % self.page_size_min).clamp(self.page_size_min, self.page_size_max);
        (grown - grown % self.alignment).max(padded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contradictory_configuration_is_brought_into_line() {
        let config =
            PoolsConfig { alignment: 100, page_size_min: 5000, page_size_max: 10, ..PoolsConfig::default() }.in_line();
        assert_eq!((config.alignment, config.page_size_min, config.page_size_max), (128, 4992, 4992));
        let zero = PoolsConfig { alignment: 0, page_size_min: 0, page_size_max: 0, ..PoolsConfig::default() }.in_line();
        assert_eq!((zero.alignment, zero.page_size_min, zero.page_size_max), (1, 1, 1));
    }

    #[test]
    fn pages_grow_with_the_pool_and_stop_at_the_largest() {
        let config = PoolsConfig::default().in_line();
        assert_eq!(config.next_page(0, 256), 2 << 20);
        assert_eq!(config.next_page(0, 10 << 20), 10 << 20, "a request is never cut");
        assert_eq!(config.next_page(1 << 30, 256), 128 << 20);
        assert_eq!(config.next_page(1 << 40, 256), 512 << 20);
    }
}
