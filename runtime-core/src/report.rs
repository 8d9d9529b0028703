//! What a device says about its memory.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
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

/// The memory of a device, pool by pool: those of the layout in the order in which a request is offered to them, then dedicated and
/// persistent allocations, then pools of earlier layouts that hold pages yet. For each pool, and so in sum,
/// `reserved = live + padding + free`. Last, where there ever was any, memory of somebody else ([`PoolKind::Imported`]), which no sum has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryReport {
    /// The pools.
    pub pools: Vec<PoolReport>,
    /// The budget in bytes, where one is set.
    pub budget: Option<u64>,
    /// The most bytes that were reserved at once in all pools together; 0 in the report of a stream. The pools' peaks need not be of
    /// the same moment, and a pool whose layout was replaced takes its own along when its last page is returned.
    pub peak_reserved: u64,
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
    /// Requests for which the pool took a page from the driver, or more behind one.
    pub grown: u64,
    /// Whether the pool's layout was replaced: it takes no page any more, and is gone with its last.
    pub retired: bool,
}

impl PoolReport {
    /// How scattered the free bytes are: 1 − the largest free block over all free bytes. 0 where they are one block, or none; near 1
    /// where there are many and each is small beside their sum. Blocks in different pages count as scattered, since none spans two.
    ///
    /// ```
    /// use trunnion_runtime_core::report::PoolReport;
    /// let pool = PoolReport { free: 1000, largest_free: 250, ..PoolReport::default() };
    /// assert_eq!(pool.fragmentation(), 0.75);
    /// ```
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest_free.min(self.free) as f64 / self.free as f64 }
    }
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
    /// Small allocations, each in a slot of one size.
    Slabs,
    /// Allocations that die together, one after the other in a page.
    Linear,
    /// Allocations that each have a page, which is kept for others of about the size.
    Exclusive,
    /// Memory of somebody else that is used in place. The device gave none of it: it counts for no sum and no budget.
    Imported,
}

impl fmt::Display for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::General => "general",
            Self::Persistent => "persistent",
            Self::Dedicated => "dedicated",
            Self::Slabs => "slabs",
            Self::Linear => "linear",
            Self::Exclusive => "exclusive",
            Self::Imported => "imported",
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
    /// The pools' sums, without imported memory. `peak_live` is the sum of the pools' peaks, so at least the device's; `peak_reserved` is the
    /// device's; the largest free block is the largest of all pools.
    pub fn total(&self) -> PoolReport {
        let mut total = PoolReport { name: "total".into(), ..PoolReport::default() };
        for pool in self.pools.iter().filter(|pool| pool.kind != PoolKind::Imported) {
            total.allocations += pool.allocations;
            total.live += pool.live;
            total.padding += pool.padding;
            total.free += pool.free;
            total.reserved += pool.reserved;
            total.largest_free = total.largest_free.max(pool.largest_free);
            total.pages += pool.pages;
            total.peak_live += pool.peak_live;
            total.reused += pool.reused;
            total.grown += pool.grown;
        }
        total.peak_reserved = self.peak_reserved.max(total.reserved);
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

/// A table: a row a pool, one for the sums, one for imported memory where there ever was any, and a line for the budget.
impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "pool",
            "kind",
            "allocs",
            "live",
            "padding",
            "free",
            "reserved",
            "largest",
            "frag",
            "pages",
            "peak live",
            "peak res.",
            "reused",
            "grown",
        ];
        row(f, &head.map(Cow::Borrowed))?;
        let total = self.total();
        let (imported, summed): (Vec<_>, Vec<_>) = self.pools.iter().partition(|pool| pool.kind == PoolKind::Imported);
        for pool in summed.into_iter().chain([&total]).chain(imported) {
            let kind = if core::ptr::eq(pool, &total) { String::new() } else { pool.kind.to_string() };
            let name = if pool.retired { format!("{} (retired)", pool.name).into() } else { pool.name.as_str().into() };
            row(
                f,
                &[
                    name,
                    kind.into(),
                    pool.allocations.to_string().into(),
                    Size(pool.live).to_string().into(),
                    Size(pool.padding).to_string().into(),
                    Size(pool.free).to_string().into(),
                    Size(pool.reserved).to_string().into(),
                    Size(pool.largest_free).to_string().into(),
                    format!("{:.0} %", pool.fragmentation() * 100.0).into(),
                    pool.pages.to_string().into(),
                    Size(pool.peak_live).to_string().into(),
                    Size(pool.peak_reserved).to_string().into(),
                    pool.reused.to_string().into(),
                    pool.grown.to_string().into(),
                ],
            )?;
        }
        match self.budget {
            Some(budget) => write!(f, "budget {}", Size(budget)),
            None => f.write_str("no budget"),
        }
    }
}

fn row(f: &mut fmt::Formatter<'_>, cells: &[Cow<'_, str>; 14]) -> fmt::Result {
    const WIDTHS: [usize; 14] = [20, 10, 7, 11, 11, 11, 11, 11, 5, 6, 11, 11, 9, 6];
    for (index, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        let separator = if index == 0 { "" } else { " " };
        match index {
            0 | 1 => write!(f, "{separator}{cell:<width$}")?,
            _ => write!(f, "{separator}{cell:>width$}")?,
        }
    }
    f.write_str("\n")
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
