//! Where each page is drawn: the pages of a pool side by side on shelves, areas in proportion to bytes.

use super::{MARGIN, WIDTH};
use crate::trace::map::{MappedPage, MemoryMap};
use alloc::vec::Vec;
use trunnion_runtime_core::report::{MemoryReport, PoolKind};

/// What is between pages, and the least a page is wide.
const GAP: f64 = 5.0;
const LEAST: f64 = 3.0;

/// The most shelves there are; pages that find no place are counted.
const SHELVES: usize = 60;

/// The pools with their shelves.
pub(super) struct Shelves<'a> {
    pub(super) pools: Vec<Pool<'a>>,
}

/// A pool's pages.
pub(super) struct Pool<'a> {
    pub(super) name: &'a str,
    pub(super) kind: PoolKind,
    /// All of them.
    pub(super) pages: Vec<&'a MappedPage>,
    /// Where pages are drawn: on which shelf, from where, how wide.
    pub(super) placed: Vec<(&'a MappedPage, usize, f64, f64)>,
    pub(super) shelves: usize,
}

impl<'a> Shelves<'a> {
    /// The pools in the order of the report, whichever took a page first.
    pub(super) fn of(map: &'a MemoryMap, report: &MemoryReport) -> Self {
        let mut pools: Vec<Pool<'_>> = Vec::new();
        for page in &map.pages {
            match pools.iter_mut().find(|pool| pool.name == page.pool) {
                Some(pool) => pool.pages.push(page),
                None => {
                    let (name, kind, pages) = (&*page.pool, page.kind, alloc::vec![page]);
                    pools.push(Pool { name, kind, pages, placed: Vec::new(), shelves: 0 });
                }
            }
        }
        let place = |name: &str| report.pools.iter().position(|known| known.name == name).unwrap_or(usize::MAX);
        pools.sort_by_key(|pool| place(pool.name));
        let largest = map.pages.iter().map(|page| page.size).max().unwrap_or(1).max(1);
        let mut left = SHELVES;
        for pool in &mut pools {
            pool.place(largest, left);
            left -= pool.shelves;
        }
        Self { pools }
    }
}

impl Pool<'_> {
    /// Puts the pages on at most so many shelves; the largest page of all is as wide as a shelf.
    fn place(&mut self, largest: u64, most: usize) {
        let whole = WIDTH - 2.0 * MARGIN;
        let (mut shelf, mut x) = (0, 0.0);
        for page in &self.pages {
            let width = (whole * (page.size as f64 / largest as f64)).max(LEAST);
            if x > 0.0 && x + width > whole + 0.01 {
                (shelf, x) = (shelf + 1, 0.0);
            }
            if shelf >= most {
                break;
            }
            self.placed.push((*page, shelf, MARGIN + x, width));
            self.shelves = shelf + 1;
            x += width + GAP;
        }
    }

    /// The pages that found no place.
    pub(super) fn unplaced(&self) -> &[&MappedPage] {
        &self.pages[self.placed.len()..]
    }
}
