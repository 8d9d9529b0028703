//! One pool of the table: how it places what it holds, what it is called, and its numbers.

use crate::account::Account;
use crate::general::{Found, General};
use crate::growth::Growing;
use crate::linear_pool::LinearPool;
use crate::placer::NONE;
use crate::policy::Sizes;
use crate::slab_pool::SlabPool;
use crate::storage::Storage;
use crate::whole::Whole;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::pool_layout::{Placement, PoolDescription};
use trunnion_runtime_core::report::{PoolKind, PoolReport};
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// How many freed pages of a request's size a pool of whole pages looks at before more is tried.
const LOOKS: usize = 8;

/// Where in a page what a pool holds lies.
pub(crate) enum Placing {
    Fit(Box<General>),
    Slabs(Box<SlabPool>),
    Linear(LinearPool),
    Whole(Whole),
}

/// What becomes of a page that is free as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It is kept until a clean-up, or until the memory is needed.
    Kept,
    /// It is returned when its last use is done.
    Returned,
    /// As `Returned`, and there is no new one: the pool's layout was replaced.
    Retired,
}

/// A pool.
pub(crate) struct Pool {
    pub(crate) placing: Placing,
    pub(crate) account: Account,
    pub(crate) kind: PoolKind,
    pub(crate) keeping: Keeping,
    /// What made it; `None` where no layout did, and where the place in the table is vacant.
    pub(crate) description: Option<PoolDescription>,
    /// The sizes of its pages; `None` where a page is as large as the request.
    pub(crate) sizes: Option<Sizes>,
    /// The pages that are not as large as they may become. The last one grows before another one is taken; when it is returned, or can grow no
    /// more, the one before does.
    pub(crate) growing: Vec<Growing>,
}

impl Pool {
    /// A pool of whole pages that no layout governs.
    pub(crate) fn ungoverned(kind: PoolKind, keeping: Keeping) -> Self {
        let placing = Placing::Whole(Whole::new());
        Self {
            placing,
            account: Account::default(),
            kind,
            keeping,
            description: None,
            sizes: None,
            growing: Vec::new(),
        }
    }

    /// The pool of a description, over offsets that are multiples of `alignment`.
    pub(crate) fn new(description: &PoolDescription, alignment: u64) -> Self {
        let sizes = Sizes::new(description, alignment);
        let kind = match description.placement {
            Placement::Slabs => PoolKind::Slabs,
            Placement::Linear => PoolKind::Linear,
            Placement::Exclusive => PoolKind::Exclusive,
            _ => PoolKind::General,
        };
        let mut pool = Self {
            placing: Placing::Whole(Whole::new()),
            account: Account::default(),
            kind,
            keeping: Keeping::Kept,
            description: Some(description.clone()),
            sizes: Some(sizes),
            growing: Vec::new(),
        };
        pool.clear(alignment);
        pool
    }

    /// Forgets everything but the counters.
    pub(crate) fn clear(&mut self, alignment: u64) {
        self.account.emptied();
        self.growing.clear();
        self.placing = match (self.kind, &self.sizes) {
            (PoolKind::General, _) => Placing::Fit(Box::new(General::new())),
            (PoolKind::Slabs, Some(sizes)) => Placing::Slabs(Box::new(SlabPool::new((sizes.takes / alignment) as u32))),
            (PoolKind::Linear, _) => Placing::Linear(LinearPool::new()),
            _ => Placing::Whole(Whole::new()),
        };
    }

    /// What a request of this size, with padding, takes up of the pool.
    #[inline]
    pub(crate) fn taken(&self, padded: u64, storage: &impl Storage) -> u64 {
        match &self.sizes {
            Some(sizes) if self.kind != PoolKind::General => sizes.taken(padded, storage.max_page()),
            _ => padded,
        }
    }

    /// Whether a request, with padding, may lie in the pool.
    pub(crate) fn takes(&self, padded: u64) -> bool {
        self.sizes.as_ref().is_none_or(|sizes| padded <= sizes.takes)
    }

    /// A page of so many bytes was returned.
    pub(crate) fn page_returned(&mut self, page: u32, size: u64) {
        self.account.page_returned(size);
        self.growing.retain(|growing| growing.page != page);
    }

    /// Whether an allocation is a page.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.placing, Placing::Whole(_))
    }

    /// The size of the next page, for a request that takes up so much of it; without need not above `share`.
    pub(crate) fn next_page(&self, taken: u64, share: u64) -> u64 {
        self.sizes.as_ref().map_or(taken, |sizes| sizes.next_page(self.account.reserved, taken, share))
    }

    /// Memory that `stream` may have at once, in constant time.
    #[inline]
    pub(crate) fn reuse(
        &mut self,
        units: u32,
        taken: u64,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Found> {
        match &mut self.placing {
            Placing::Fit(general) => general.reuse(units, stream, timeline),
            Placing::Slabs(slabs) => slabs.reuse(stream, timeline),
            Placing::Linear(linear) => linear.reuse(units, stream, timeline),
            Placing::Whole(whole) => whole.reuse(taken, LOOKS, stream, timeline).map(Found::page),
        }
    }

    /// Memory that `stream` may have at once, if there is any.
    pub(crate) fn reuse_any(
        &mut self,
        units: u32,
        taken: u64,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Found> {
        match &mut self.placing {
            Placing::Fit(general) => general.reuse_any(units, stream, timeline),
            Placing::Slabs(slabs) => slabs.reuse_any(stream, timeline),
            Placing::Linear(linear) => linear.reuse_any(units, stream, timeline),
            Placing::Whole(whole) => whole.reuse(taken, usize::MAX, stream, timeline).map(Found::page),
        }
    }

    /// A place in a page that was just taken from the driver. `None` never happens for a page as large as the request.
    pub(crate) fn grow(
        &mut self,
        page: u32,
        page_units: u32,
        units: u32,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Found> {
        match &mut self.placing {
            Placing::Fit(general) => general.grow(page, page_units, units),
            Placing::Slabs(slabs) => slabs.grow(page, page_units),
            Placing::Linear(linear) => linear.grow(page, page_units, units, stream, timeline),
            Placing::Whole(_) => Some(Found::page(page)),
        }
    }

    /// The units at the end of a page that `stream` may have at once together with what comes behind them. `None` where the stream could not
    /// have that.
    pub(crate) fn room_at_end(&self, page: u32, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<u64> {
        match &self.placing {
            Placing::Fit(general) => general.room_at_end(page, stream, timeline),
            Placing::Slabs(slabs) => slabs.room_at_end(page),
            Placing::Linear(linear) => linear.room_at_end(page, stream, timeline),
            Placing::Whole(_) => None,
        }
    }

    /// What to wait for, for the end of a page to have so many units free, if what was freed makes that. A slot is never part of another.
    pub(crate) fn when_room_at_end(&self, page: u32, units: u64) -> Option<Frontier> {
        match &self.placing {
            Placing::Fit(general) => general.when_room_at_end(page, units),
            Placing::Linear(linear) => linear.when_room_at_end(page, units),
            Placing::Slabs(_) | Placing::Whole(_) => None,
        }
    }

    /// A page has become larger at its end.
    pub(crate) fn extend(&mut self, page: u32, page_units: u32) {
        match &mut self.placing {
            Placing::Fit(general) => general.extend(page, page_units),
            Placing::Slabs(slabs) => slabs.extend(page, page_units),
            Placing::Linear(linear) => linear.extend(page, page_units),
            Placing::Whole(_) => {}
        }
    }

    /// Frees what lies at `node` or is `page`, whose last uses are `frontier`. The page, where it is to be returned now.
    #[inline]
    pub(crate) fn free(
        &mut self,
        node: u32,
        page: u32,
        taken: u64,
        frontier: Frontier,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<u32> {
        match &mut self.placing {
            Placing::Fit(general) => general.free(node, frontier, timeline),
            Placing::Slabs(slabs) => slabs.free(node, frontier, timeline),
            Placing::Linear(linear) => linear.free(node, frontier, timeline),
            Placing::Whole(_) if self.keeping != Keeping::Kept && frontier.is_done(timeline) => return Some(page),
            Placing::Whole(whole) => whole.put(page, taken, frontier),
        }
        if self.keeping == Keeping::Retired { self.take_page_if_free(page) } else { None }
    }

    #[cold]
    fn take_page_if_free(&mut self, page: u32) -> Option<u32> {
        match &mut self.placing {
            Placing::Fit(general) => general.take_page_if_free(page),
            Placing::Slabs(slabs) => slabs.take_page_if_free(page),
            Placing::Linear(linear) => linear.take_page_if_free(page),
            Placing::Whole(_) => None,
        }
    }

    /// Does a bounded part of merging and looking for a page to return: that page.
    pub(crate) fn settle_in_turn(&mut self, timeline: &(impl Timeline + ?Sized)) -> Option<u32> {
        match &mut self.placing {
            Placing::Fit(general) => general.settle_in_turn(timeline),
            Placing::Slabs(slabs) => slabs.settle_in_turn(timeline),
            Placing::Linear(linear) => linear.settle_in_turn(timeline),
            Placing::Whole(whole) => whole.take_done_in_turn(timeline),
        }
    }

    /// Makes everything whose last use is done anyone's.
    pub(crate) fn merge_done(&mut self, timeline: &(impl Timeline + ?Sized)) {
        match &mut self.placing {
            Placing::Fit(general) => general.merge_done(timeline),
            Placing::Slabs(slabs) => slabs.merge_done(timeline),
            Placing::Linear(linear) => linear.merge_done(timeline),
            Placing::Whole(_) => {}
        }
    }

    /// Takes out one page that is free as a whole. `from`, at first `None`, is where the pool goes on looking.
    pub(crate) fn take_free_page(
        &mut self,
        from: &mut Option<usize>,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<u32> {
        match &mut self.placing {
            Placing::Fit(general) => general.take_free_page(from),
            Placing::Slabs(slabs) => slabs.take_free_page(from),
            Placing::Linear(linear) => linear.take_free_page(from),
            Placing::Whole(whole) => whole.take_done(from, timeline),
        }
    }

    /// What to wait for, for memory of this size to be free, if what was freed makes that.
    pub(crate) fn when_fits(&self, units: u32, taken: u64) -> Option<Frontier> {
        match &self.placing {
            Placing::Fit(general) => general.when_fits(units),
            Placing::Slabs(slabs) => slabs.when_fits(),
            Placing::Linear(linear) => linear.when_fits(units),
            Placing::Whole(whole) => whole.when_fits(taken),
        }
    }

    /// The pages in which nothing is in use: their bytes, and what is to be done before they may be returned.
    pub(crate) fn emptying(&self, alignment_log2: u32, mut each: impl FnMut(u64, Frontier)) {
        let units = |units: u64, frontier| each(units << alignment_log2, frontier);
        match &self.placing {
            Placing::Fit(general) => general.emptying(units),
            Placing::Slabs(slabs) => slabs.emptying(units),
            Placing::Linear(linear) => linear.emptying(units),
            Placing::Whole(whole) => whole.emptying(each),
        }
    }

    /// The largest block that is anyone's, and the largest free one of all, in bytes.
    pub(crate) fn largest(&self, alignment_log2: u32) -> (u64, u64) {
        let (anyone, any) = match &self.placing {
            Placing::Fit(general) => general.largest(),
            Placing::Slabs(slabs) => slabs.largest(),
            Placing::Linear(linear) => linear.largest(),
            Placing::Whole(whole) => return (0, whole.largest()),
        };
        (u64::from(anyone) << alignment_log2, u64::from(any) << alignment_log2)
    }

    pub(crate) fn name(&self) -> String {
        self.description.as_ref().map_or_else(|| self.kind.to_string(), |description| description.name.clone())
    }

    pub(crate) fn report(&self, alignment_log2: u32) -> PoolReport {
        let retired = self.keeping == Keeping::Retired;
        self.account.report(self.name(), self.kind, self.largest(alignment_log2).1, retired)
    }
}

impl Found {
    /// A page as a whole.
    pub(crate) fn page(page: u32) -> Self {
        Self { node: NONE, page, offset: 0 }
    }
}
