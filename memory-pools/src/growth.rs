//! Pages that grow where they are: what a pool lacks is added behind a page it has, before another one is taken.
//!
//! One page of a pool grows at a time: of those that are not as large as they may become, the one it took last. It grows by as much as the next page would have, up to the largest page of the
//! pool's layout or an eighth of what there is: so the sizes of pages are what they are where pages stay as they are, but what would be
//! several pages is one, in which nothing is cut off in between.

use crate::pools::{MemoryPools, Placed, Request};
use crate::storage::{Storage, StorageError};
use alloc::vec::Vec;
use trunnion_runtime_core::error::Rung;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// A request that lacks more than so many times what the pool takes ahead of need has a page of its own. That goes back when it is free,
/// where a page that had grown for it would stay for whatever small block lies in it.
const AHEAD: u64 = 4;

/// A page that is to grow, and up to how many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growing {
    pub(crate) page: u32,
    pub(crate) reach: u64,
}

/// By how much a page may grow, in bytes.
pub(crate) struct Growth {
    page: u32,
    /// For the request, and at least.
    pub(crate) least: u64,
    preferred: u64,
    /// Up to what it reaches.
    most: u64,
}

impl<S: Storage> MemoryPools<S> {
    /// The size a page of at least `size` bytes begins with and what it grows to, where there is anything to grow into.
    pub(crate) fn begin_growing(&self, pool: u16, size: u64, share: u64) -> Option<(u64, u64)> {
        self.table[pool].sizes.as_ref()?.growing(size, self.config.growth_step?, share)
    }

    /// Asks the driver for a page, for one that grows up to `reach` where that is given and the size is one of its steps.
    pub(crate) fn ask(
        &self,
        storage: &mut S,
        pool: u16,
        size: u64,
        reach: Option<u64>,
    ) -> Result<S::Page, StorageError> {
        let kind = self.table[pool].kind;
        match self.reach_of(size, reach) {
            Some(reach) => storage.allocate_growing(size, reach, kind),
            None => storage.allocate(size, kind),
        }
    }

    /// Up to what a page of `size` bytes grows that was to grow up to `reach`: one that had to be smaller may have no whole steps, and stays
    /// as it is.
    pub(crate) fn reach_of(&self, size: u64, reach: Option<u64>) -> Option<u64> {
        let step = self.config.growth_step?;
        reach.filter(|_| size.is_multiple_of(step))
    }

    /// The page of a pool that grows, and by how much it may, without regard to what the budget leaves.
    fn may_grow(&self, storage: &S, pool: u16) -> Option<(u32, u64)> {
        let step = self.config.growth_step?;
        let &Growing { page, reach } = self.table[pool].growing.last()?;
        let share = self.config.share(storage.max_page());
        // A budget may have been set since the page was taken.
        let most = reach.min(share - share % step).checked_sub(self.pages.size(page)?)?;
        (most >= step).then_some((page, most))
    }

    /// What to wait for, for the pool's page to have as much free at its end as it can't grow by, where `left` bytes are to be had.
    pub(crate) fn when_grows(&self, storage: &S, pool: u16, padded: u64, left: u64) -> Option<Frontier> {
        let (page, most) = self.may_grow(storage, pool)?;
        let (step, of) = (self.config.growth_step?, &self.table[pool]);
        let ahead = of.next_page(0, self.config.share(storage.max_page())).saturating_mul(AHEAD);
        let most = most.min(ahead.max(step)).min(left);
        let room = of.taken(padded, storage).checked_sub(most - most % step).filter(|_| most >= step)?;
        of.when_room_at_end(page, room >> self.alignment_log2)
    }

    /// By how much the pool's page is to grow for a request; `None` where that would not serve it.
    pub(crate) fn growth_for(
        &self,
        storage: &S,
        pool: u16,
        request: &Request,
        padded: u64,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Growth> {
        // What is free at the end, which takes a walk, is of no use where the page can't grow.
        let (page, most) = self.may_grow(storage, pool)?;
        let (step, of) = (self.config.growth_step?, &self.table[pool]);
        let share = self.config.share(storage.max_page());
        let room = of.room_at_end(page, request.stream, timeline)? << self.alignment_log2;
        let missing = of.taken(padded, storage).checked_sub(room)?.max(1);
        let least = missing.checked_next_multiple_of(step)?;
        let (preferred, ahead) = (of.next_page(missing, share), of.next_page(0, share));
        (least <= most && missing <= ahead.saturating_mul(AHEAD).max(step)).then_some(Growth {
            page,
            least,
            preferred,
            most,
        })
    }

    /// A place behind what the pool's page had, which grows for it within the budget. An error is the driver's, to the page that was asked.
    pub(crate) fn grow_page(
        &mut self,
        storage: &mut S,
        pool: u16,
        request: &Request,
        padded: u64,
        tried: &mut Vec<Rung>,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<Option<Placed>, StorageError> {
        let Some(growth) = self.growth_for(storage, pool, request, padded, timeline) else { return Ok(None) };
        let Growth { page, least, preferred, most } = growth;
        let Some(step) = self.config.growth_step else { return Ok(None) };
        let most = most.min(self.most().saturating_sub(self.reserved));
        let most = most - most % step;
        if least > most {
            return Ok(None);
        }
        tried.push(Rung::Grow);
        tried.dedup();
        let Some((known, size)) = self.pages.get_mut(page) else { return Ok(None) };
        let mut more = preferred.checked_next_multiple_of(step).map_or(most, |preferred| preferred.clamp(least, most));
        while let Err(refused) = storage.grow(known, *size, *size + more) {
            if !refused.out_of_memory {
                self.table[pool].growing.pop();
                return Err(refused);
            }
            if more == least {
                return Err(refused);
            }
            more = least;
        }
        *size += more;
        let of = &mut self.table[pool];
        of.growing.pop_if(|growing| growing.reach == *size);
        let units = (*size >> self.alignment_log2) as u32;
        of.account.page_grown(more);
        of.extend(page, units);
        self.count(more);
        let placed = self.reuse_any(storage, pool, request, padded, timeline);
        Ok(placed.map(|placed| Placed { grown: true, ..placed }))
    }
}
