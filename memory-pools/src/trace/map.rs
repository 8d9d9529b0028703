//! What lies where in the pages of pools.

use super::imagined::{Imagined, Page};
use super::replay::Held;
use crate::pools::MemoryPools;
use alloc::string::String;
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::report::PoolKind;

/// The pages that are taken from the device, those taken first before the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryMap {
    /// The pages.
    pub pages: Vec<MappedPage>,
}

/// A page and what lies in it. What no block covers is free.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MappedPage {
    /// How many pages were taken before it.
    pub number: u64,
    /// The pool it was taken for, as reports call it.
    pub pool: String,
    /// What that pool serves.
    pub kind: PoolKind,
    /// Its bytes.
    pub size: u64,
    /// The live blocks, by their place.
    pub blocks: Vec<MappedBlock>,
}

/// A live block of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MappedBlock {
    /// Where in its page it begins, in bytes.
    pub offset: u64,
    /// The bytes asked for.
    pub size: u64,
    /// The bytes behind them that nobody else can have.
    pub padding: u64,
    /// The number of its request in the trace.
    pub request: u32,
    /// The stream that asked.
    pub stream: StreamId,
}

impl MappedPage {
    /// The bytes that are live.
    pub fn live(&self) -> u64 {
        self.blocks.iter().map(|block| block.size).sum()
    }

    /// The bytes that are free: of a page that is filled from its begin, also those between live blocks.
    pub fn free(&self) -> u64 {
        self.size - self.blocks.iter().map(|block| block.size + block.padding).sum::<u64>()
    }
}

impl MemoryMap {
    pub(super) fn of(pools: &MemoryPools<Imagined>, requests: &[Held]) -> Self {
        let mapped = |(page, size, pool, kind): (&Page, u64, String, PoolKind)| MappedPage {
            number: page.number,
            pool,
            kind,
            size,
            blocks: Vec::new(),
        };
        let mut pages: Vec<_> = pools.taken_pages().map(mapped).collect();
        pages.sort_unstable_by_key(|page| page.number);
        let places: HashMap<u64, usize> = pages.iter().enumerate().map(|(i, page)| (page.number, i)).collect();
        for (held, request) in requests.iter().zip(0..) {
            let Some(memory) = held.memory else { continue };
            let Some(place) = pools.place(memory) else { continue };
            let Some(page) = places.get(&place.page.number).map(|i| &mut pages[*i]) else { continue };
            let (offset, size, padding) = (place.offset, place.size, pools.padding(memory));
            page.blocks.push(MappedBlock { offset, size, padding, request, stream: held.stream });
        }
        pages.iter_mut().for_each(|page| page.blocks.sort_unstable_by_key(|block| block.offset));
        Self { pages }
    }
}
