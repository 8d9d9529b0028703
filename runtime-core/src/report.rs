//! What a device says about its memory.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What a report covers.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ReportScope {
    /// Everything on the device.
    Device,
    /// Only the bytes that this stream allocated and that are live.
    Stream(crate::id::StreamId),
}

/// The memory of a device, pool by pool in the order a request meets them. For each pool, and so in sum,
/// `reserved = live + padding + free`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryReport {
    /// The pools.
    pub pools: Vec<PoolReport>,
    /// The budget in bytes, where one is set.
    pub budget: Option<u64>,
}

/// One pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolReport {
    /// What the pool is called.
    pub name: String,
    /// What it serves.
    pub kind: PoolKind,
    /// Allocations in use.
    pub allocations: u64,
    /// Bytes asked for and in use.
    pub live: u64,
    /// Bytes of alignment and rounding inside what is in use.
    pub padding: u64,
    /// Bytes that can be given out, some only when the work that last used them is done.
    pub free: u64,
    /// Bytes taken from the driver.
    pub reserved: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// Pages taken from the driver and held now.
    pub pages: u64,
    /// The most bytes that were live at once.
    pub peak_live: u64,
    /// The most bytes that were reserved at once.
    pub peak_reserved: u64,
    /// Requests served from memory the pool held.
    pub reused: u64,
    /// Requests for which the pool took a page from the driver.
    pub grown: u64,
}

/// What a pool serves.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PoolKind {
    /// Whatever comes, placed inside pages.
    #[default]
    General,
    /// Allocations kept for good: exact fit, never trimmed.
    Persistent,
    /// Allocations that each have a driver allocation of their own.
    Dedicated,
}

impl fmt::Display for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::General => "general",
            Self::Persistent => "persistent",
            Self::Dedicated => "dedicated",
        })
    }
}

/// The few numbers of a device's memory that are asked for often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryUsage {
    /// Allocations in use.
    pub allocations: u64,
    /// Bytes asked for and in use.
    pub live: u64,
    /// Bytes of alignment and rounding inside what is in use.
    pub padding: u64,
    /// Bytes taken from the driver.
    pub reserved: u64,
}

impl MemoryReport {
    /// The pools' sums: peaks add up to at least the device's peak, and the largest free block is the largest of all pools.
    pub fn total(&self) -> PoolReport {
        let mut total = PoolReport { name: "total".into(), ..PoolReport::default() };
        for pool in &self.pools {
            total.allocations += pool.allocations;
            total.live += pool.live;
            total.padding += pool.padding;
            total.free += pool.free;
            total.reserved += pool.reserved;
            total.largest_free = total.largest_free.max(pool.largest_free);
            total.pages += pool.pages;
            total.peak_live += pool.peak_live;
            total.peak_reserved += pool.peak_reserved;
            total.reused += pool.reused;
            total.grown += pool.grown;
        }
        total
    }

    /// The sums that are asked for often.
    pub fn usage(&self) -> MemoryUsage {
        let total = self.total();
        MemoryUsage {
            allocations: total.allocations,
            live: total.live,
            padding: total.padding,
            reserved: total.reserved,
        }
    }
}

/// A table, a row a pool and one for the sums.
impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:<10} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>5} {:>11} {:>9} {:>6}",
            "pool",
            "kind",
            "allocs",
            "live",
            "padding",
            "free",
            "reserved",
            "largest",
            "pages",
            "peak live",
            "reused",
            "grown"
        )?;
        let total = self.total();
        for (pool, kind) in self.pools.iter().map(|p| (p, Some(p.kind))).chain([(&total, None)]) {
            let kind = kind.map_or(String::new(), |kind| alloc::format!("{kind}"));
            writeln!(
                f,
                "{:<12} {:<10} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>5} {:>11} {:>9} {:>6}",
                pool.name,
                kind,
                pool.allocations,
                Size(pool.live),
                Size(pool.padding),
                Size(pool.free),
                Size(pool.reserved),
                Size(pool.largest_free),
                pool.pages,
                Size(pool.peak_live),
                pool.reused,
                pool.grown
            )?;
        }
        match self.budget {
            Some(budget) => write!(f, "budget {}", Size(budget)),
            None => f.write_str("no budget"),
        }
    }
}

/// A number of bytes, shown with the unit that keeps it short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return f.pad(&alloc::format!("{} B", self.0));
        }
        let (mut tenths, mut unit) = (u128::from(self.0) * 10 / 1024, 0);
        while tenths >= 10240 && unit + 1 < UNITS.len() {
            tenths /= 1024;
            unit += 1;
        }
        f.pad(&alloc::format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]))
    }
}
