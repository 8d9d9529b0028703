//! How much staging memory is in use, who waits for room, and page-locked memory that is kept for the next of its size.

use super::PinnedMemory;
use crate::executor::let_go;
use crate::report::Size;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::task::{Poll, Waker};

/// What staging did since the device started, in bytes and requests.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StagingUsage {
    /// The most bytes that may be in use or kept at once; no limit if `None`.
    pub limit: Option<u64>,
    /// Bytes in use.
    pub in_use: u64,
    /// Page-locked bytes that nobody uses, kept for a request of the same size.
    pub kept: u64,
    /// The most bytes that were in use at once.
    pub peak: u64,
    /// Buffers served with page-locked memory.
    pub pinned: u64,
    /// Those of them that were kept from an earlier use.
    pub reused: u64,
    /// Buffers served with plain memory because the driver has no other.
    pub plain: u64,
    /// Buffers served with plain memory because the driver refused to lock more.
    pub refused: u64,
    /// Requests that waited for earlier staging to end.
    pub waits: u64,
}

/// One line.
impl fmt::Display for StagingUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "staging: {} in use", Size(self.in_use))?;
        if let Some(limit) = self.limit {
            write!(f, " of {}", Size(limit))?;
        }
        write!(f, ", {} kept, peak {}; ", Size(self.kept), Size(self.peak))?;
        write!(f, "{} pinned ({} reused), {} plain, ", self.pinned, self.reused, self.plain)?;
        write!(f, "{} refused, {} waits", self.refused, self.waits)
    }
}

/// What a buffer of a request is made of: memory that was kept, or room for new.
pub(crate) type Found = Option<Box<dyn PinnedMemory>>;

/// What a device's staging buffers share.
pub(crate) struct StagingPool {
    state: spin::Mutex<State>,
}

struct State {
    usage: StagingUsage,
    /// Oldest first.
    kept: VecDeque<Box<dyn PinnedMemory>>,
    /// Who waits for room, in the order in which they came: the first is served first, so that a large request is not overtaken for ever.
    turns: VecDeque<(u64, Option<Waker>)>,
    next_turn: u64,
    /// How often bytes were given back.
    returns: u64,
    /// The driver has no page-locked memory.
    is_plain: bool,
    ended: bool,
}

impl State {
    fn has_room(&self, bytes: u64) -> bool {
        let wanted = self.usage.in_use.checked_add(bytes);
        wanted.is_some_and(|wanted| self.usage.limit.is_none_or(|limit| wanted <= limit))
    }

    /// Memory that was kept longest.
    fn take_oldest(&mut self) -> Found {
        let oldest = self.kept.pop_front()?;
        self.usage.kept -= oldest.as_slice().len() as u64;
        Some(oldest)
    }

    fn first_in_line(&mut self) -> Option<Waker> {
        self.turns.front_mut().and_then(|(_, waker)| waker.take())
    }
}

impl StagingPool {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let state = State {
            usage: StagingUsage { limit, ..StagingUsage::default() },
            kept: VecDeque::new(),
            turns: VecDeque::new(),
            next_turn: 0,
            returns: 0,
            is_plain: false,
            ended: false,
        };
        Self { state: spin::Mutex::new(state) }
    }

    pub(crate) fn usage(&self) -> StagingUsage {
        self.state.lock().usage
    }

    /// How often bytes were given back.
    pub(crate) fn returns(&self) -> u64 {
        self.state.lock().returns
    }

    /// Whether the driver is known to have no page-locked memory.
    pub(crate) fn is_plain(&self) -> bool {
        self.state.lock().is_plain
    }

    /// A place in the line of those who want room.
    pub(crate) fn queue(self: &Arc<Self>) -> Turn {
        let mut state = self.state.lock();
        let number = state.next_turn;
        state.next_turn += 1;
        state.turns.push_back((number, None));
        Turn { pool: self.clone(), number }
    }

    /// A buffer was served with new page-locked memory, or a kept one.
    pub(crate) fn served_pinned(&self, reused: bool) {
        let usage = &mut self.state.lock().usage;
        usage.pinned += 1;
        usage.reused += u64::from(reused);
    }

    /// A buffer was served with plain memory; `refused` where the driver has page-locked memory and gave none.
    pub(crate) fn served_plain(&self, refused: bool) {
        let state = &mut *self.state.lock();
        state.is_plain = !refused;
        state.usage.plain += u64::from(!refused);
        state.usage.refused += u64::from(refused);
    }

    /// Bytes are no longer in use. Page-locked memory is kept unless the device has ended.
    pub(crate) fn give_back(&self, size: u64, memory: Found) {
        if size == 0 {
            // Nobody has room by this, and nobody's wait begins again.
            return let_go(memory);
        }
        let (next, dropped) = {
            let state = &mut *self.state.lock();
            state.usage.in_use = state.usage.in_use.saturating_sub(size);
            state.returns += 1;
            let dropped = match memory {
                Some(memory) if !state.ended => {
                    state.usage.kept += size;
                    state.kept.push_back(memory);
                    None
                }
                dropped => dropped,
            };
            (state.first_in_line(), dropped)
        };
        // Both are others' code, so not under the lock. Whoever waits is a thread in a blocking call, and waking it runs nothing of its own.
        let_go(dropped);
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// Gives kept memory back to the driver, the oldest first, until that was as many bytes; whether there was any.
    pub(crate) fn shrink(&self, bytes: u64) -> bool {
        let mut gone = Vec::new();
        {
            let state = &mut *self.state.lock();
            let enough = state.usage.kept.saturating_sub(bytes);
            while state.usage.kept > enough {
                let Some(oldest) = state.take_oldest() else { break };
                gone.push(oldest);
            }
        }
        let is_any = !gone.is_empty();
        let_go(gone);
        is_any
    }

    /// The device has ended: nothing is kept any more.
    pub(crate) fn end(&self) {
        let (kept, wakers) = {
            let state = &mut *self.state.lock();
            state.ended = true;
            state.usage.kept = 0;
            let wakers: Vec<Waker> = state.turns.iter_mut().filter_map(|(_, waker)| waker.take()).collect();
            (core::mem::take(&mut state.kept), wakers)
        };
        let_go(kept);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A place in the line, left when this is dropped.
pub(crate) struct Turn {
    pool: Arc<StagingPool>,
    number: u64,
}

impl Turn {
    /// Takes room for buffers of these sizes, all or none; once it is this turn, and there is that much.
    pub(crate) fn poll(&self, sizes: &[usize], waker: &Waker) -> Poll<Vec<Found>> {
        let mut evicted = Vec::new();
        let found = {
            let state = &mut *self.pool.state.lock();
            let needed = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size as u64));
            if state.turns.front().is_none_or(|(first, _)| *first != self.number) || !state.has_room(needed) {
                if let Some((_, place)) = state.turns.iter_mut().find(|(number, _)| *number == self.number) {
                    *place = Some(waker.clone());
                }
                return Poll::Pending;
            }
            let mut take = |size: &usize| -> Found {
                let same = state.kept.iter().position(|kept| *size > 0 && kept.as_slice().len() == *size)?;
                state.usage.kept -= *size as u64;
                state.kept.remove(same)
            };
            let found: Vec<Found> = sizes.iter().map(&mut take).collect();
            state.usage.in_use += needed;
            state.usage.peak = state.usage.peak.max(state.usage.in_use);
            while !state.has_room(state.usage.kept) {
                let Some(oldest) = state.take_oldest() else { break };
                evicted.push(oldest);
            }
            found
        };
        let_go(evicted);
        Poll::Ready(found)
    }

    /// It has to be waited for.
    pub(crate) fn waits(&self) {
        self.pool.state.lock().usage.waits += 1;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let state = &mut *self.pool.state.lock();
            state.turns.retain(|(number, _)| *number != self.number);
            state.first_in_line()
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;
    use crate::bytes::HostBuffer;
    use crate::staging::StagingBuffer;
    use alloc::vec;

    struct Locked(Vec<u8>);

    impl PinnedMemory for Locked {
        fn as_slice(&self) -> &[u8] {
            &self.0
        }
        fn as_mut_slice(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    fn take(pool: &Arc<StagingPool>, sizes: &[usize]) -> Option<Vec<StagingBuffer>> {
        let Poll::Ready(found) = pool.queue().poll(sizes, Waker::noop()) else { return None };
        let buffer = |(memory, size): (Found, &usize)| match memory {
            Some(memory) => StagingBuffer::pinned(memory, pool),
            None => StagingBuffer::pinned(Box::new(Locked(vec![0; *size])), pool),
        };
        Some(found.into_iter().zip(sizes).map(buffer).collect())
    }

    #[test]
    fn no_more_is_in_use_than_the_limit_and_a_request_gets_all_or_nothing() {
        let pool = Arc::new(StagingPool::new(Some(100)));
        let first = take(&pool, &[60]).unwrap();
        assert!(take(&pool, &[30, 20]).is_none());
        assert_eq!(pool.usage().in_use, 60);
        let second = take(&pool, &[30, 10]).unwrap();
        assert!(take(&pool, &[1]).is_none());
        assert!(take(&pool, &[0]).is_some());
        drop(first);
        assert_eq!(pool.usage().in_use, 40);
        drop(second);
        assert_eq!((pool.usage().in_use, pool.usage().peak, pool.returns()), (0, 100, 3), "no bytes are no return");
    }

    #[test]
    fn locked_memory_is_kept_for_its_size_and_makes_room_for_others() {
        let pool = Arc::new(StagingPool::new(Some(100)));
        let first = take(&pool, &[60]).unwrap();
        let address = first[0].as_slice().as_ptr() as usize;
        drop(first);
        assert_eq!((pool.usage().in_use, pool.usage().kept), (0, 60));
        let again = take(&pool, &[60]).unwrap();
        assert_eq!(again[0].as_slice().as_ptr() as usize, address);
        drop(again);
        let other = take(&pool, &[41]).unwrap();
        assert_eq!((pool.usage().in_use, pool.usage().kept), (41, 0), "both together would be over the limit");
        pool.end();
        drop(other);
        assert_eq!((pool.usage().in_use, pool.usage().kept), (0, 0));
    }

    #[test]
    fn a_large_request_is_not_overtaken_by_small_ones() {
        let pool = Arc::new(StagingPool::new(Some(100)));
        let held = take(&pool, &[50]).unwrap();
        let large = pool.queue();
        assert!(large.poll(&[80], Waker::noop()).is_pending());
        let small = pool.queue();
        assert!(small.poll(&[10], Waker::noop()).is_pending(), "there is room, but it is not its turn");
        drop(held);
        assert!(large.poll(&[80], Waker::noop()).is_ready());
        assert!(small.poll(&[10], Waker::noop()).is_pending());
        drop(large);
        assert!(small.poll(&[10], Waker::noop()).is_ready());
    }

    #[test]
    fn whoever_waits_is_woken_when_there_may_be_room() {
        use alloc::task::Wake;
        use core::sync::atomic::{AtomicUsize, Ordering};
        #[derive(Default)]
        struct Woken(AtomicUsize);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let pool = Arc::new(StagingPool::new(Some(100)));
        let (held, woken) = (take(&pool, &[50]).unwrap(), Arc::new(Woken::default()));
        let (first, second) = (pool.queue(), pool.queue());
        let waker = Waker::from(woken.clone());
        assert!(first.poll(&[100], Waker::noop()).is_pending() && second.poll(&[1], &waker).is_pending());
        // The first gives up, and the second is first then.
        drop(first);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(second.poll(&[60], &waker).is_pending());
        drop(held);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(second.poll(&[60], &waker).is_ready());
    }

    #[test]
    fn plain_memory_counts_and_is_not_kept() {
        let pool = Arc::new(StagingPool::new(None));
        let Poll::Ready(found) = pool.queue().poll(&[7], Waker::noop()) else { panic!("no limit") };
        assert!(found[0].is_none());
        let mut buffer = StagingBuffer::plain(HostBuffer::zeroed(7).unwrap(), &pool);
        buffer.as_mut_slice().copy_from_slice(b"staging");
        let bytes = buffer.into_bytes();
        let view = bytes.slice(1..4).unwrap();
        drop(bytes);
        assert_eq!((view.as_slice().unwrap(), pool.usage().in_use), (&b"tag"[..], 7));
        drop(view);
        assert_eq!((pool.usage().in_use, pool.usage().kept), (0, 0));
    }
}
