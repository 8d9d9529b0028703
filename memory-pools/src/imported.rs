//! Pages that are somebody else's: placed where they are, never given to anybody else, and let go of with their last use.

use crate::general::Found;
use crate::layouts::Table;
use crate::pools::{MemoryPools, Placed, Request};
use crate::storage::Storage;
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::id::{MemoryId, StreamId};

/// A page over memory of somebody else.
#[derive(Debug)]
pub struct ImportedPage<P> {
    /// The page.
    pub page: P,
    /// Where in the page the memory begins, in bytes.
    pub offset: u64,
    /// What is held until nothing uses the memory.
    pub foreign: Foreign,
}

/// What is held for imported pages.
#[derive(Default)]
pub(crate) struct Imports {
    by_page: HashMap<u32, Foreign>,
    over: Vec<Foreign>,
}

impl Imports {
    /// The page was returned.
    pub(crate) fn returned(&mut self, page: u32) {
        self.over.extend(self.by_page.remove(&page));
    }

    /// Every page was returned.
    pub(crate) fn all_returned(&mut self) {
        self.over.extend(self.by_page.drain().map(|(_, foreign)| foreign));
    }
}

impl<S: Storage> MemoryPools<S> {
    /// Records memory of somebody else, of `size` bytes, under an id whose slot is free. It is placed where it is: nobody else ever gets a
    /// part of it, no clean-up returns it, and it counts for no budget. [`free`](Self::free) frees it like any other; when its last uses are
    /// done the page is returned, and what was held for it is among those that [`take_over`](Self::take_over) answers.
    ///
    /// # Errors
    /// The page, where the slot is not free.
    pub fn import(
        &mut self,
        memory: MemoryId,
        size: u64,
        stream: StreamId,
        imported: ImportedPage<S::Page>,
    ) -> Result<(), ImportedPage<S::Page>> {
        if self.make_slot(memory).is_err() {
            return Err(imported);
        }
        let ImportedPage { page, offset, foreign } = imported;
        let page = self.pages.insert(page, size, Table::IMPORTED);
        self.table[Table::IMPORTED].account.page_taken(size);
        self.imported.by_page.insert(page, foreign);
        let request = Request { memory, size, stream, mode: AllocationMode::Auto };
        let found = Found::page(page);
        self.record(&request, &Placed { pool: Table::IMPORTED, found, taken: size, grown: true });
        self.move_to(memory, offset);
        Ok(())
    }

    /// What was held for imported pages that were returned since this was asked last.
    pub fn take_over(&mut self) -> Vec<Foreign> {
        core::mem::take(&mut self.imported.over)
    }

    /// Whether [`take_over`](Self::take_over) has something to answer.
    #[inline]
    pub fn is_any_over(&self) -> bool {
        !self.imported.over.is_empty()
    }
}
