//! Handles: what a program holds of device memory.
//!
//! A [`Handle`] is a range of bytes of one allocation. Clones share the allocation's control block; when the last one is dropped the
//! block is put on its server's list in constant time, without a lock, and the server frees the memory the next time somebody holds the
//! device anyway. An operation that waits in a queue holds clones of what it was given, so memory outlives everything queued before the drop.

mod account;
#[cfg(all(test, loom))]
mod loom;
mod slab;

pub(crate) use account::Account;

use crate::error::{Error, Result};
use crate::executor::Notifier;
use crate::id::{MemoryId, ServiceId};
use crate::sync::explored::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::process_wide;
use core::fmt;
use core::ops::{Bound, Range, RangeBounds};
use slab::{Slab, Slot};

process_wide! {
    static BLOCKS: Slab<Block> = Slab::new();
}
process_wide! {
    static LISTS: Slab<DropList> = Slab::new();
}

/// The control block of an allocation.
struct Block {
    index: u32,
    /// The next block of the list this one is in: the free ones, or a server's dropped ones.
    link: AtomicU32,
    generation: AtomicU32,
    service: AtomicU32,
    /// Where its server looks for dropped blocks.
    list: AtomicU32,
    handles: AtomicUsize,
    size: AtomicU64,
    /// Whose live bytes these are; 0 for nobody's who counts them.
    account: AtomicU32,
    /// Whether the server is told of the last drop at once; 0 where it sees to it the next time somebody holds the device.
    urgent: AtomicU32,
}

impl Slot for Block {
    fn new(index: u32) -> Self {
        Self {
            index,
            link: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            service: AtomicU32::new(0),
            list: AtomicU32::new(0),
            handles: AtomicUsize::new(0),
            size: AtomicU64::new(0),
            account: AtomicU32::new(0),
            urgent: AtomicU32::new(0),
        }
    }
    fn index(&self) -> u32 {
        self.index
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl Block {
    fn memory(&self) -> MemoryId {
        MemoryId { index: self.index, generation: self.generation.load(Ordering::Relaxed) }
    }

    #[cold]
    fn last_handle_dropped(&'static self) {
        let account = self.account.load(Ordering::Relaxed);
        if account != 0 {
            account::release(account, self.size.load(Ordering::Relaxed));
        }
        let list = LISTS.get(self.list.load(Ordering::Relaxed));
        let is_urgent = self.urgent.load(Ordering::Relaxed) != 0;
        self.urgent.store(0, Ordering::Relaxed);
        match list {
            Some(list) if list.owner.load(Ordering::Acquire) == self.service.load(Ordering::Relaxed) => {
                slab::push(&list.head, self);
                if is_urgent {
                    list.ring();
                }
            }
            // The server is gone, and its memory with it.
            _ => BLOCKS.give(self),
        }
    }
}

/// Where the dropped blocks of one server wait for it.
struct DropList {
    index: u32,
    link: AtomicU32,
    owner: AtomicU32,
    head: AtomicU32,
    /// Has the server look at the list.
    bell: spin::Mutex<Option<Notifier>>,
}

impl DropList {
    fn ring(&self) {
        let bell = self.bell.lock().clone();
        if let Some(bell) = bell {
            bell.notify();
        }
    }
}

impl Slot for DropList {
    fn new(index: u32) -> Self {
        Self {
            index,
            link: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            head: AtomicU32::new(0),
            bell: spin::Mutex::new(None),
        }
    }
    fn index(&self) -> u32 {
        self.index
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// A range of bytes of one allocation on one device. Cheap to clone.
///
/// Equivalent to: a `CUdeviceptr` with a length; a `VkDescriptorBufferInfo`; a `wgpu::BufferSlice`.
pub struct Handle {
    block: &'static Block,
    start: u64,
    end: u64,
}

impl Handle {
    /// The allocation.
    #[inline]
    pub fn memory(&self) -> MemoryId {
        self.block.memory()
    }

    /// The server the allocation belongs to.
    #[inline]
    pub fn service(&self) -> ServiceId {
        ServiceId::from_raw(self.block.service.load(Ordering::Relaxed))
    }

    /// The bytes of the whole allocation, as asked for.
    pub fn allocation_size(&self) -> u64 {
        self.block.size.load(Ordering::Relaxed)
    }

    /// The range of the allocation this handle is, in bytes.
    #[inline]
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// The bytes this handle covers.
    #[inline]
    pub fn size_in_used(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it covers no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The same bytes without the first `bytes`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when there are fewer.
    pub fn offset_start(&self, bytes: u64) -> Result<Self> {
        self.slice(bytes..)
    }

    /// The same bytes without the last `bytes`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when there are fewer.
    pub fn offset_end(&self, bytes: u64) -> Result<Self> {
        let size = self.size_in_used();
        match size.checked_sub(bytes) {
            Some(end) => self.slice(..end),
            None => Err(Error::OutOfRange { what: "offset from the end".into(), range: 0..bytes, size }),
        }
    }

    /// A range of these bytes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when it begins after its end or leaves these bytes.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self> {
        let size = self.size_in_used();
        let refuse = |range| Error::OutOfRange { what: "slice of a handle".into(), range, size };
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(size),
        };
        let (Some(start), Some(end)) = (start, end) else { return Err(refuse(u64::MAX..u64::MAX)) };
        if start > end || end > size {
            return Err(refuse(start..end));
        }
        let mut part = self.clone();
        part.end = self.start + end;
        part.start = self.start + start;
        Ok(part)
    }

    /// Whether both cover a byte in common.
    #[inline]
    pub fn overlap(&self, other: &Handle) -> bool {
        core::ptr::eq(self.block, other.block) && self.start.max(other.start) < self.end.min(other.end)
    }

    /// Whether both are of one allocation.
    pub fn same_allocation(&self, other: &Handle) -> bool {
        core::ptr::eq(self.block, other.block)
    }

    /// Whether nobody else, no queued operation either, holds the allocation, so that writing in place disturbs nobody.
    pub fn can_mut(&self) -> bool {
        self.block.handles.load(Ordering::Acquire) == 1
    }
}

impl AsRef<Handle> for Handle {
    #[inline]
    fn as_ref(&self) -> &Handle {
        self
    }
}

impl Clone for Handle {
    #[inline]
    fn clone(&self) -> Self {
        // A new reference is made from one that is held, so nothing needs to be ordered; `usize` cannot overflow
        // before memory does.
        self.block.handles.fetch_add(1, Ordering::Relaxed);
        Self { ..*self }
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        if self.block.handles.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.block.last_handle_dropped();
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({} of {}, bytes {}..{})", self.memory(), self.service(), self.start, self.end)
    }
}

/// The handles of one server: makes them, and knows which allocations nobody holds any more.
pub struct Handles {
    service: ServiceId,
    list: &'static DropList,
}

impl Handles {
    /// The handles of a new server. `None` when the process has run out of slots.
    pub fn new(service: ServiceId) -> Option<Self> {
        let list = LISTS.take()?;
        list.owner.store(service.get(), Ordering::Release);
        Some(Self { service, list })
    }

    /// A handle of a new allocation of `size` bytes. Nothing is reserved by this. `None` when the process has run out of slots.
    pub fn create(&self, size: u64) -> Option<Handle> {
        self.create_counted(size, 0)
    }

    /// [`create`](Self::create) for memory whose end somebody waits for: with the last handle dropped, what [`wake_with`](Self::wake_with) was
    /// given is notified.
    pub(crate) fn create_urgent(&self, size: u64) -> Option<Handle> {
        let handle = self.create(size)?;
        handle.block.urgent.store(1, Ordering::Relaxed);
        Some(handle)
    }

    /// What is notified when urgent memory is dropped.
    pub(crate) fn wake_with(&self, bell: Notifier) {
        *self.list.bell.lock() = Some(bell);
    }

    /// [`create`](Self::create), counted in an account for as long as a handle is held.
    ///
    /// # Errors
    /// [`Error::ClientMemoryLimit`] when the account has no room for it.
    pub(crate) fn create_within(&self, size: u64, account: &Account) -> Result<Option<Handle>> {
        let counted = account.hold(size)?;
        let handle = self.create_counted(size, counted);
        if handle.is_none() {
            account::release(counted, size);
        }
        Ok(handle)
    }

    #[inline]
    fn create_counted(&self, size: u64, account: u32) -> Option<Handle> {
        let block = BLOCKS.take()?;
        block.generation.fetch_add(1, Ordering::Relaxed);
        block.service.store(self.service.get(), Ordering::Relaxed);
        block.list.store(self.list.index, Ordering::Relaxed);
        block.size.store(size, Ordering::Relaxed);
        block.account.store(account, Ordering::Relaxed);
        block.handles.store(1, Ordering::Relaxed);
        Some(Handle { block, start: 0, end: size })
    }

    /// Whether an allocation may wait in the list. Free of cost.
    #[inline]
    pub fn any_dropped(&self) -> bool {
        self.list.head.load(Ordering::Relaxed) != 0
    }

    /// Takes the allocations nobody holds any more and calls `free` with each; its number may be given out again when `free` returns.
    pub fn free_dropped(&self, mut free: impl FnMut(MemoryId)) {
        let mut next = self.list.head.swap(0, Ordering::Acquire);
        while let Some(block) = next.checked_sub(1).and_then(|index| BLOCKS.get(index)) {
            next = block.link.load(Ordering::Relaxed);
            // A list is used again by a later server, and a drop may have met the change: such a block has nothing to free.
            if block.service.load(Ordering::Relaxed) == self.service.get() {
                free(block.memory());
            }
            BLOCKS.give(block);
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.list.owner.store(0, Ordering::Release);
        drop(self.list.bell.lock().take());
        self.free_dropped(|_| {});
        LISTS.give(self.list);
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles").field("service", &self.service).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn dropped(handles: &Handles) -> Vec<MemoryId> {
        let mut all = Vec::new();
        handles.free_dropped(|memory| all.push(memory));
        all
    }

    #[test]
    fn memory_is_free_when_the_last_clone_is_gone() {
        let handles = Handles::new(ServiceId::new()).unwrap();
        let a = handles.create(16).unwrap();
        let (memory, part) = (a.memory(), a.slice(4..8).unwrap());
        assert!(!a.can_mut());
        drop(a);
        assert!(!handles.any_dropped() && dropped(&handles).is_empty());
        assert!(part.can_mut());
        drop(part);
        assert!(handles.any_dropped());
        assert_eq!(dropped(&handles), [memory]);
    }

    #[test]
    fn a_number_given_out_again_has_another_generation() {
        let handles = Handles::new(ServiceId::new()).unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let memory = handles.create(1).unwrap().memory();
            dropped(&handles);
            assert!(seen.insert(memory));
        }
    }

    #[test]
    fn offsets_past_the_end_are_refused_whatever_they_add_up_to() {
        let handles = Handles::new(ServiceId::new()).unwrap();
        let a = handles.create(16).unwrap();
        assert_eq!(a.slice(4..8).unwrap().range(), 4..8);
        assert_eq!(a.slice(4..8).unwrap().slice(1..=2).unwrap().range(), 5..7);
        assert_eq!(a.offset_start(16).unwrap().size_in_used(), 0);
        assert_eq!(a.offset_start(4).unwrap().offset_end(5).unwrap().range(), 4..11);
        let reversed = Range { start: 8, end: 4 };
        for bad in [
            a.offset_start(17),
            a.offset_end(17),
            a.slice(reversed),
            a.slice(..17),
            a.slice(..=u64::MAX),
            a.slice(u64::MAX..),
        ] {
            assert!(matches!(bad, Err(Error::OutOfRange { size: 16, .. })), "{bad:?}");
        }
    }

    #[test]
    fn only_common_bytes_of_one_allocation_overlap() {
        let handles = Handles::new(ServiceId::new()).unwrap();
        let (a, b) = (handles.create(16).unwrap(), handles.create(16).unwrap());
        assert!(!a.overlap(&b));
        assert!(a.slice(0..8).unwrap().overlap(&a.slice(7..9).unwrap()));
        assert!(!a.slice(0..8).unwrap().overlap(&a.slice(8..9).unwrap()));
        assert!(!a.slice(3..3).unwrap().overlap(&a));
    }

    #[test]
    fn a_handle_that_outlives_its_server_frees_nothing_of_the_next() {
        let first = Handles::new(ServiceId::new()).unwrap();
        let old = first.create(16).unwrap();
        drop(first);
        let second = Handles::new(ServiceId::new()).unwrap();
        drop(old);
        assert!(dropped(&second).is_empty());
    }

    #[test]
    fn drops_on_many_threads_are_each_seen_once() {
        let handles = Handles::new(ServiceId::new()).unwrap();
        let total = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..2_000 {
                        let handle = handles.create(8).unwrap();
                        drop((handle.clone(), handle));
                        if handles.any_dropped() {
                            handles.free_dropped(|_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    }
                });
            }
        });
        handles.free_dropped(|_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), 8_000);
    }
}
