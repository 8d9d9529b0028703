//! How a device pools its memory, as data: which pools there are, what each takes, and how its pages grow.

use crate::error::{Error, Result};
use crate::report::Size;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The pools of a device in the order in which a request is offered to them: the first that takes it serves it. What none takes, and
/// what is asked for as dedicated, has a driver allocation of its own; persistent allocations have a pool that no layout governs.
///
/// A layout is checked when it is made, so one that there is can be installed: with
/// [`Client::install_memory_pools`](crate::client::Client::install_memory_pools), or in
/// [`OpenSettings`](crate::backend::OpenSettings) before the first page. Sizes are wishes: they are rounded up to what the device's
/// offsets are multiples of, or to the steps in which its pages grow, and a page is never more than an eighth of what the device and the budget
/// have, unless one request needs it.
///
/// ```
/// use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
/// let layout = PoolLayout::new(vec![
///     PoolDescription::slabs("counters", 256, PageSizes::fixed(64 << 10)),
///     PoolDescription::new("tensors", Placement::Fit, PageSizes::growing(1 << 20, 256 << 20, 10)),
/// ])?;
/// assert_eq!(layout.to_string(), "counters: slabs up to 256 B; tensors: fit");
/// let wrong = PoolLayout::new(vec![PoolDescription::new("all", Placement::Fit, PageSizes::fixed(0))]);
/// assert!(wrong.unwrap_err().to_string().contains("pool `all`: pages of 0 bytes"));
/// # Ok::<(), trunnion_runtime_core::error::Error>(())
/// ```
///
/// Equivalent to: `VmaPoolCreateInfo`, of several pools at once; the attributes of a `cudaMemPool_t`; `MemoryHints` of wgpu.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Vec<PoolDescription>", into = "Vec<PoolDescription>"))]
pub struct PoolLayout {
    pools: Vec<PoolDescription>,
}

/// One pool of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolDescription {
    /// What reports call it: 1 to 24 bytes, unlike the other pools' of the layout, not `dedicated`, `persistent` or `total`.
    pub name: String,
    /// Where in a page a request goes.
    pub placement: Placement,
    /// The largest request it takes, in bytes. `None`: as large as its largest page. Slabs need it: it is the size of a slot.
    pub takes: Option<u64>,
    /// How large its pages are.
    pub pages: PageSizes,
}

/// Where in a page of a pool a request goes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Placement {
    /// Where it fits best, neighbours merged as they are freed: for sizes of any kind.
    Fit,
    /// In a slot, all of which have one size: for many small requests. A slot is used again whatever the request's size.
    Slabs,
    /// After the one before; a page is used again when all that is in it was freed: for what dies together.
    Linear,
    /// In a page of its own, which is kept for requests of about that size. Sizes are rounded up by at most an eighth.
    Exclusive,
}

/// How large the pages of a pool are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PageSizes {
    /// The first page. With [`Placement::Exclusive`] the smallest one.
    pub first: u64,
    /// The largest page.
    pub largest: u64,
    /// The next page as a share of what the pool holds, in percent, rounded down to a multiple of `first`. That share is also about the
    /// most a pool takes ahead of need, and the number of its pages grows with the logarithm of its size. 0: every page is as `first`.
    pub growth: u32,
}

impl PageSizes {
    /// Pages of one size.
    pub const fn fixed(size: u64) -> Self {
        Self { first: size, largest: size, growth: 0 }
    }

    /// Pages that grow with the pool.
    pub const fn growing(first: u64, largest: u64, growth: u32) -> Self {
        Self { first, largest, growth }
    }
}

impl PoolDescription {
    /// A pool that takes whatever fits its largest page.
    pub fn new(name: &str, placement: Placement, pages: PageSizes) -> Self {
        Self { name: name.to_string(), placement, takes: None, pages }
    }

    /// A pool of slots of one size, for requests up to that size.
    pub fn slabs(name: &str, slot: u64, pages: PageSizes) -> Self {
        Self { takes: Some(slot), ..Self::new(name, Placement::Slabs, pages) }
    }

    /// The same pool for requests up to a size only.
    #[must_use]
    pub fn up_to(self, largest: u64) -> Self {
        Self { takes: Some(largest), ..self }
    }

    /// The largest request it takes, in bytes.
    pub fn largest_request(&self) -> u64 {
        self.takes.unwrap_or(self.pages.largest)
    }

    /// What contradicts itself, with the value and the limit.
    fn contradiction(&self) -> Option<String> {
        let PageSizes { first, largest, growth } = self.pages;
        let takes = self.largest_request();
        let (slot_limit, growth_limit) = (PoolLayout::MAX_SLOT, PoolLayout::MAX_GROWTH);
        Some(match self.placement {
            _ if first == 0 => "pages of 0 bytes, at least 1 is needed".into(),
            _ if largest < first => format!("a largest page of {largest} bytes is below the first, of {first}"),
            _ if growth > growth_limit => format!("growth by {growth} %, at most {growth_limit} % is possible"),
            _ if takes == 0 => "requests of up to 0 bytes, at least 1 is needed".into(),
            _ if takes > largest => format!("requests of up to {takes} bytes, and the largest page has {largest}"),
            Placement::Slabs if self.takes.is_none() => "slabs without the size of a slot".into(),
            Placement::Slabs if takes > slot_limit => {
                format!("slots of {takes} bytes, at most {slot_limit} are possible")
            }
            Placement::Exclusive if first > slot_limit => {
                format!("a smallest page of {first} bytes, at most {slot_limit} are possible")
            }
            _ => return None,
        })
    }
}

impl PoolLayout {
    /// The most pools in a layout.
    pub const MAX_POOLS: usize = 32;
    /// The largest slot of slabs, and the largest smallest page of exclusive ones, in bytes.
    pub const MAX_SLOT: u64 = 1 << 30;
    /// The most a pool's pages grow, in percent.
    pub const MAX_GROWTH: u32 = 1000;
    const MAX_NAME: usize = 24;
    /// Names that reports use for what no layout governs.
    const TAKEN: [&'static str; 3] = ["dedicated", "persistent", "total"];

    /// The pools in the order in which a request is offered to them.
    ///
    /// # Errors
    /// [`Error::InvalidLayout`] names the pool, the value and the limit.
    pub fn new(pools: Vec<PoolDescription>) -> Result<Self> {
        let invalid = |why: String| Err(Error::InvalidLayout { why });
        if pools.is_empty() || pools.len() > Self::MAX_POOLS {
            return invalid(format!("{} pools, a layout has 1 to {}", pools.len(), Self::MAX_POOLS));
        }
        for (index, pool) in pools.iter().enumerate() {
            let name = &pool.name;
            if name.is_empty() || name.len() > Self::MAX_NAME {
                let (begin, length) = (&name[..name.floor_char_boundary(Self::MAX_NAME)], name.len());
                let limit = Self::MAX_NAME;
                return invalid(format!("pool `{begin}`: a name of {length} bytes, it has 1 to {limit}"));
            }
            if Self::TAKEN.contains(&name.as_str()) {
                return invalid(format!("pool `{name}`: a report calls something else so"));
            }
            if let Some(why) = pool.contradiction() {
                return invalid(format!("pool `{name}`: {why}"));
            }
            for before in &pools[..index] {
                if before.name == *name {
                    return invalid(format!("pool `{name}`: two pools have this name"));
                }
                let (takes, reach) = (before.largest_request(), pool.largest_request());
                if reach <= takes {
                    let before = &before.name;
                    return invalid(format!(
                        "pool `{name}`: it takes requests of up to {reach} bytes and never sees one, since `{before}` before it takes up to {takes}"
                    ));
                }
            }
        }
        Ok(Self { pools })
    }

    /// The default: one pool for every size, whose pages are small for the first megabytes and grow with it.
    pub fn adaptive() -> Self {
        let pages = PageSizes::growing(512 * KIB, 512 * MIB, 4);
        Self { pools: alloc::vec![PoolDescription::new("general", Placement::Fit, pages)] }
    }

    /// Slots for requests up to 4 KiB, and [`adaptive`](Self::adaptive) for larger ones: where very many small buffers come and go.
    pub fn slabs() -> Self {
        let slabs = |(name, slot)| PoolDescription::slabs(name, slot, PageSizes::growing(64 * KIB, 4 * MIB, 12));
        let slots = [("256 B", 256), ("512 B", 512), ("1 KiB", KIB), ("2 KiB", 2 * KIB), ("4 KiB", 4 * KIB)];
        Self { pools: slots.into_iter().map(slabs).chain(Self::adaptive().pools).collect() }
    }

    /// A page a buffer, kept for buffers of about that size: where the driver's own tools are to see each buffer, or where buffers are few
    /// and large.
    pub fn exclusive() -> Self {
        let pages = PageSizes { first: 1, largest: u64::MAX, growth: 0 };
        Self { pools: alloc::vec![PoolDescription::new("exclusive", Placement::Exclusive, pages)] }
    }

    /// Pages of one size, for a board with little memory: what is larger than a page has memory of its own.
    ///
    /// # Errors
    /// [`Error::InvalidLayout`] for 0.
    pub fn fixed(page: u64) -> Result<Self> {
        Self::new(alloc::vec![PoolDescription::new("general", Placement::Fit, PageSizes::fixed(page))])
    }

    /// The pools in the order in which a request is offered to them.
    pub fn pools(&self) -> &[PoolDescription] {
        &self.pools
    }
}

impl Default for PoolLayout {
    fn default() -> Self {
        Self::adaptive()
    }
}

impl TryFrom<Vec<PoolDescription>> for PoolLayout {
    type Error = Error;

    fn try_from(pools: Vec<PoolDescription>) -> Result<Self> {
        Self::new(pools)
    }
}

impl From<PoolLayout> for Vec<PoolDescription> {
    fn from(layout: PoolLayout) -> Self {
        layout.pools
    }
}

/// The pools with what each takes.
impl fmt::Display for PoolLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pool) in self.pools.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", pool.name, pool.placement)?;
            if let Some(takes) = pool.takes {
                write!(f, " up to {}", Size(takes))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fit => "fit",
            Self::Slabs => "slabs",
            Self::Linear => "linear",
            Self::Exclusive => "exclusive",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn pool(name: &str) -> PoolDescription {
        PoolDescription::new(name, Placement::Fit, PageSizes::growing(MIB, 8 * MIB, 10))
    }

    #[test]
    fn the_presets_are_valid_layouts() {
        let presets =
            [PoolLayout::adaptive(), PoolLayout::slabs(), PoolLayout::exclusive(), PoolLayout::fixed(4096).unwrap()];
        for preset in presets {
            assert_eq!(PoolLayout::new(preset.pools().to_vec()).unwrap(), preset);
        }
        assert_eq!(PoolLayout::default(), PoolLayout::adaptive());
    }

    #[test]
    fn what_contradicts_itself_is_named_with_the_value_and_the_limit() {
        let pages =
            |first, largest, growth| PoolDescription { pages: PageSizes { first, largest, growth }, ..pool("a") };
        let slabs = |slot| PoolDescription { placement: Placement::Slabs, takes: slot, ..pages(MIB, 4 << 30, 0) };
        let exclusive = |first| PoolDescription { placement: Placement::Exclusive, ..pages(first, 4 << 30, 0) };
        let cases: &[(Vec<PoolDescription>, &[&str])] = &[
            (vec![], &["0 pools", "1 to 32"]),
            ((0..33).map(|i| pool(&format!("p{i}")).up_to(i + 1)).collect(), &["33 pools", "1 to 32"]),
            (vec![pool("")], &["0 bytes", "1 to 24"]),
            (vec![pool(&"x".repeat(25))], &["25 bytes", "1 to 24"]),
            (vec![pool("total")], &["`total`"]),
            (vec![pages(0, 10, 0)], &["`a`", "pages of 0 bytes"]),
            (vec![exclusive(2 << 30)], &["2147483648", "at most 1073741824"]),
            (vec![pages(10, 9, 0)], &["9 bytes", "of 10"]),
            (vec![pages(10, 10, 1001)], &["1001 %", "at most 1000 %"]),
            (vec![pool("a").up_to(0)], &["up to 0 bytes"]),
            (vec![pool("a").up_to(9 * MIB)], &["9437184 bytes", "8388608"]),
            (vec![slabs(None)], &["without the size of a slot"]),
            (vec![slabs(Some(2 << 30))], &["2147483648 bytes", "at most 1073741824"]),
            (vec![pool("a").up_to(10), pool("a")], &["two pools"]),
            (vec![pool("a"), pool("b").up_to(5)], &["`b`", "up to 5 bytes", "`a`", "8388608"]),
        ];
        for (pools, words) in cases {
            let Err(Error::InvalidLayout { why }) = PoolLayout::new(pools.clone()) else { panic!("{pools:?}") };
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
        }
    }

    #[test]
    fn a_layout_says_what_it_is_in_a_line() {
        let text = PoolLayout::slabs().to_string();
        assert!(text.starts_with("256 B: slabs up to 256 B; ") && text.ends_with("; general: fit"), "{text}");
    }
}
