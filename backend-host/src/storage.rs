//! Device memory, which here is host memory: pages, spans of them, and what a grant gives.
//!
//! Invariants the unsafe code rests on:
//!
//! 1. A `Block` has `size` bytes from `first` until it is dropped: inside an allocation of its own, or in memory that its `Foreign` keeps
//!    there, as whoever made that vouched for. The bytes are initialized from the start, and reached only through raw pointers: no reference
//!    to them outlives the call or the workgroup that made it.
//! 2. A `Span` lies inside a block, or inside host bytes, that outlive it. Whoever makes one vouches for that, and that nothing which
//!    conflicts with its use runs at the same time: it is what the callers of the driver's encoding functions promise.

#![allow(unsafe_code)]

use crate::foreign::HostImport;
use alloc::alloc::{alloc_zeroed, dealloc};
use alloc::format;
use alloc::sync::Arc;
use core::alloc::Layout;
use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering;
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::{Foreign, ForeignMemory};
use trunnion_runtime_core::server::HostMemory;
use trunnion_runtime_core::sync::AtomicU64;

/// What pages, and places inside them, are multiples of: a cache line.
pub(crate) const ALIGNMENT: u64 = 64;

/// What the ranges that kernels are bound to begin at a multiple of, in memory: enough for every element type.
pub(crate) const BINDING_ALIGNMENT: u64 = 16;

/// The alignment that allocators give without effort; with it, large zeroed memory comes untouched from the operating system.
const NATURAL: usize = 2 * align_of::<usize>();

/// A page: zeroed memory that begins at a multiple of 64 bytes. It is freed when nothing that was encoded uses it any more, even if it
/// was released before.
#[derive(Clone)]
pub struct HostPage(pub(crate) Arc<Block>);

/// The bytes of a page.
pub(crate) struct Block {
    first: *mut u8,
    size: usize,
    owner: Owner,
}

/// What keeps a block's bytes there.
enum Owner {
    Allocated {
        origin: *mut u8,
        layout: Layout,
        account: Arc<Account>,
    },
    /// Somebody else, as long as this is held.
    Foreign { _held: Foreign },
}

// SAFETY: the memory stays (invariant 1), and any use of it is ordered by those who make spans of it (invariant 2).
unsafe impl Send for Block {}
// SAFETY: as above; a shared block gives out nothing but raw pointers.
unsafe impl Sync for Block {}

/// How much memory a device has, and how much is out.
#[derive(Debug)]
pub(crate) struct Account {
    limit: u64,
    used: AtomicU64,
}

/// A kind of memory, by how it is placed and what is in it at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// A power of two.
    pub(crate) alignment: usize,
    /// How far behind a multiple of the alignment it begins.
    pub(crate) shift: usize,
    /// What its bytes are.
    pub(crate) fill: u8,
}

impl Account {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Bytes that are not out.
    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Bytes that can be out at once.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes bytes out, where there are as many.
    pub(crate) fn take(&self, size: u64) -> bool {
        let fits = |used: u64| used.checked_add(size).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Bytes come back.
    pub(crate) fn give(&self, size: u64) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }
}

impl Kind {
    /// The kind of the page number `count`, of `kinds`.
    pub(crate) fn of(count: u64, kinds: u32) -> Self {
        match (count % u64::from(kinds.max(1))) as usize {
            0 if kinds <= 1 => Self { alignment: ALIGNMENT as usize, shift: 0, fill: 0 },
            0 => Self { alignment: 4096, shift: 0, fill: 0 },
            kind => Self { alignment: 4096, shift: kind * ALIGNMENT as usize, fill: 0xA5 },
        }
    }
}

impl HostPage {
    /// Memory of `size` bytes.
    ///
    /// # Errors
    /// A refusal when the account or the allocator has no such memory.
    pub(crate) fn allocate(size: u64, kind: Kind, account: &Arc<Account>) -> Result<Self, DriverRefusal> {
        if !account.take(size) {
            let message = format!("{size} bytes requested, {} of {} are free", account.free(), account.limit);
            return Err(DriverRefusal { message, out_of_memory: true });
        }
        Self::of_system(size, kind, account).ok_or_else(|| {
            account.give(size);
            DriverRefusal { message: format!("the allocator has no {size} bytes"), out_of_memory: true }
        })
    }

    fn of_system(size: u64, kind: Kind, account: &Arc<Account>) -> Option<Self> {
        let size = usize::try_from(size).ok()?;
        let slack = kind.alignment.checked_add(kind.shift)?;
        let layout = Layout::from_size_align(size.checked_add(slack)?, NATURAL).ok()?;
        // SAFETY: the size is not zero, there is slack.
        let origin = unsafe { alloc_zeroed(layout) };
        if origin.is_null() {
            return None;
        }
        let gap = origin.align_offset(kind.alignment).checked_add(kind.shift).filter(|gap| *gap <= slack);
        let Some(gap) = gap else {
            // SAFETY: just allocated with this layout, and used by nobody. Happens only where addresses cannot be looked at.
            unsafe { dealloc(origin, layout) };
            return None;
        };
        // SAFETY: `gap <= slack`, so that `gap + size` is inside the allocation.
        let first = unsafe { origin.add(gap) };
        if kind.fill != 0 {
            // SAFETY: the bytes are inside the allocation and used by nobody else yet.
            unsafe { ptr::write_bytes(first, kind.fill, size) };
        }
        let owner = Owner::Allocated { origin, layout, account: account.clone() };
        Some(Self(Arc::new(Block { first, size, owner })))
    }

    /// Memory of somebody else.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] unless it is a [`HostImport`]; [`Error::Misaligned`].
    pub(crate) fn import(foreign: &Foreign) -> Result<Self> {
        let memory: &HostImport = foreign.get()?;
        let (first, size) = (memory.first(), memory.size() as usize);
        let address = first.addr() as u64;
        if !address.is_multiple_of(BINDING_ALIGNMENT) {
            let what = "address of imported memory".into();
            return Err(Error::Misaligned { what, value: address, alignment: BINDING_ALIGNMENT });
        }
        Ok(Self(Arc::new(Block { first, size, owner: Owner::Foreign { _held: foreign.clone() } })))
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.0.size as u64
    }

    /// A part of it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the part leaves the page.
    ///
    /// # Safety
    /// The second invariant of this module.
    pub(crate) unsafe fn span(&self, offset: u64, size: u64) -> Result<Span> {
        self.check(offset, size)?;
        // SAFETY: the offset is inside the block, as was just checked.
        Ok(Span { first: unsafe { self.0.first.add(offset as usize) }, size: size as usize })
    }

    fn check(&self, offset: u64, size: u64) -> Result<()> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size() => Ok(()),
            end => {
                let range = offset..end.unwrap_or(u64::MAX);
                Err(Error::OutOfRange { what: "page".into(), range, size: self.size() })
            }
        }
    }
}

impl fmt::Debug for HostPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPage").field("size", &self.0.size).finish_non_exhaustive()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Owner::Allocated { origin, layout, account } = &self.owner {
            // SAFETY: allocated with this layout, and nobody has a span of it any more (invariant 2).
            unsafe { dealloc(*origin, *layout) };
            account.give(self.size as u64);
        }
    }
}

/// Bytes that somebody vouches for; see the module's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    first: *mut u8,
    size: usize,
}

// SAFETY: a span is an address; its use is vouched for by whoever made it (invariant 2), on any thread.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// Host bytes that are only read.
    ///
    /// # Safety
    /// The bytes outlive the span, and nothing is written through it.
    pub(crate) unsafe fn of_slice(bytes: &[u8]) -> Self {
        Self { first: bytes.as_ptr().cast_mut(), size: bytes.len() }
    }

    /// Host bytes.
    ///
    /// # Safety
    /// The bytes outlive the span, and nobody else uses them meanwhile.
    pub(crate) unsafe fn of_slice_mut(bytes: &mut [u8]) -> Self {
        Self { first: bytes.as_mut_ptr(), size: bytes.len() }
    }

    pub(crate) fn first(self) -> *mut u8 {
        self.first
    }

    pub(crate) fn size(self) -> usize {
        self.size
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.first as usize, other.first as usize);
        self.size > 0 && other.size > 0 && a < b + other.size && b < a + self.size
    }

    /// A part of the span, cut at its end.
    pub(crate) fn part(self, offset: usize, size: usize) -> Self {
        let offset = offset.min(self.size);
        // SAFETY: not behind the span's end.
        Self { first: unsafe { self.first.add(offset) }, size: size.min(self.size - offset) }
    }

    /// Copies as many bytes as both have.
    pub(crate) fn copy_to(self, target: Self) {
        let size = self.size.min(target.size);
        // SAFETY: both have `size` bytes (invariant 2); `copy` allows them to overlap.
        unsafe { ptr::copy(self.first, target.first, size) };
    }

    /// Copies in as many bytes as both have.
    pub(crate) fn copy_from_slice(self, bytes: &[u8]) {
        let size = self.size.min(bytes.len());
        // SAFETY: both have `size` bytes (invariant 2), and host bytes do not overlap device memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.first, size) };
    }

    /// Copies out as many bytes as both have.
    pub(crate) fn copy_to_slice(self, bytes: &mut [u8]) {
        let size = self.size.min(bytes.len());
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(self.first, bytes.as_mut_ptr(), size) };
    }

    /// Repeats a pattern from the span's start.
    pub(crate) fn fill(self, pattern: &[u8]) {
        if let [byte] = pattern {
            // SAFETY: the span's own bytes (invariant 2).
            unsafe { ptr::write_bytes(self.first, *byte, self.size) };
            return;
        }
        // What is filled is copied behind itself, in pieces that stay in the cache.
        const PIECE: usize = 16 << 10;
        self.copy_from_slice(pattern);
        let mut filled = pattern.len().min(self.size);
        while filled > 0 && filled < self.size {
            let piece = filled.min(PIECE).min(self.size - filled);
            self.part(0, piece).copy_to(self.part(filled, piece));
            filled += piece;
        }
    }
}

/// The backend's resource in a [`Grant`](trunnion_runtime_core::server::Grant): where the bytes are. It keeps the page's memory allocated.
pub struct HostResource {
    block: HostPage,
    offset: usize,
    size: usize,
    writes: bool,
}

impl HostResource {
    /// Where a place lies; `None` when it leaves the page.
    pub(crate) fn new(page: &HostPage, offset: u64, size: u64, access: Access) -> Option<Self> {
        page.check(offset, size).ok()?;
        Some(Self { block: page.clone(), offset: offset as usize, size: size as usize, writes: access.writes() })
    }

    /// The address of the first byte. What is done with it MUST stay in the range, be of the kind that was granted, and end before the
    /// access is closed.
    pub fn pointer(&self) -> *mut u8 {
        // SAFETY: the offset is inside the block, as was checked when the resource was made.
        unsafe { self.block.0.first.add(self.offset) }
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Whether the access granted writes.
    pub fn is_writable(&self) -> bool {
        self.writes
    }

    fn part(&self, offset: u64, size: usize) -> Option<Span> {
        let offset = usize::try_from(offset).ok()?;
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.size);
        inside.then(|| Span { first: self.pointer(), size: self.size }.part(offset, size))
    }
}

impl HostMemory for HostResource {
    fn read(&self, offset: u64, into: &mut [u8]) {
        if let Some(part) = self.part(offset, into.len()) {
            part.copy_to_slice(into);
        }
    }

    fn write(&self, offset: u64, from: &[u8]) {
        if let Some(part) = self.part(offset, from.len()).filter(|_| self.writes) {
            part.copy_from_slice(from);
        }
    }
}

impl fmt::Debug for HostResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostResource")
            .field("pointer", &self.pointer())
            .field("size", &self.size)
            .field("writes", &self.writes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn span(page: &HostPage) -> Span {
        // SAFETY: the page outlives the span in each test, and one thread uses it.
        unsafe { page.span(0, page.size()) }.unwrap()
    }

    fn bytes(page: &HostPage) -> Vec<u8> {
        let mut bytes = vec![1; page.size() as usize];
        span(page).copy_to_slice(&mut bytes);
        bytes
    }

    #[test]
    fn a_page_is_zeroed_aligned_and_counted_until_it_is_dropped() {
        let account = Arc::new(Account::new(1 << 20));
        for size in [64, 4096, 100_032] {
            let page = HostPage::allocate(size, Kind::of(0, 1), &account).unwrap();
            assert_eq!(span(&page).first() as usize % 64, 0);
            assert!(bytes(&page).iter().all(|byte| *byte == 0));
            assert_eq!(account.free(), (1 << 20) - size);
        }
        assert_eq!(account.free(), 1 << 20);
    }

    #[test]
    fn what_neither_account_nor_allocator_has_is_a_refusal() {
        let account = Arc::new(Account::new(1000));
        let refusal = HostPage::allocate(1001, Kind::of(0, 1), &account).unwrap_err();
        assert!(
            refusal.out_of_memory && refusal.message.contains("1001") && refusal.message.contains("1000"),
            "{refusal:?}"
        );
        let account = Arc::new(Account::new(u64::MAX));
        assert!(HostPage::allocate(u64::MAX - 1, Kind::of(0, 1), &account).unwrap_err().out_of_memory);
        assert!(HostPage::allocate(1 << 60, Kind::of(0, 1), &account).unwrap_err().out_of_memory);
        assert_eq!(account.free(), u64::MAX);
    }

    #[test]
    fn kinds_of_memory_differ_in_place_and_content() {
        let account = Arc::new(Account::new(1 << 20));
        for count in 0..6 {
            let page = HostPage::allocate(256, Kind::of(count, 3), &account).unwrap();
            let kind = count % 3;
            assert_eq!(span(&page).first() as u64 % 4096, 64 * kind);
            assert!(bytes(&page).iter().all(|byte| *byte == if kind == 0 { 0 } else { 0xA5 }));
        }
    }

    #[test]
    fn a_part_outside_the_page_is_refused() {
        let page = HostPage::allocate(64, Kind::of(0, 1), &Arc::new(Account::new(64))).unwrap();
        for (offset, size) in [(0, 65), (64, 1), (65, 0), (u64::MAX, 2)] {
            // SAFETY: nothing is done with the span.
            assert!(matches!(unsafe { page.span(offset, size) }, Err(Error::OutOfRange { .. })));
            assert!(HostResource::new(&page, offset, size, Access::Read).is_none());
        }
    }

    #[test]
    fn a_fill_repeats_every_length_of_pattern() {
        let account = Arc::new(Account::new(1 << 20));
        for length in [1, 2, 4, 8, 16] {
            let pattern: Vec<u8> = (1..=length).collect();
            let page = HostPage::allocate(80_000, Kind::of(0, 1), &account).unwrap();
            span(&page).part(16, 79_968).fill(&pattern);
            let bytes = bytes(&page);
            assert!(bytes[16..79_984].iter().enumerate().all(|(i, byte)| *byte == pattern[i % pattern.len()]));
            assert!(bytes[..16].iter().chain(&bytes[79_984..]).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_resource_outlives_its_page_and_keeps_to_its_range_and_access() {
        let account = Arc::new(Account::new(64));
        let page = HostPage::allocate(64, Kind::of(0, 1), &account).unwrap();
        let writer = HostResource::new(&page, 16, 16, Access::Write).unwrap();
        let reader = HostResource::new(&page, 16, 16, Access::Read).unwrap();
        drop(page);
        assert_eq!(account.free(), 0);
        writer.write(0, &[1; 16]);
        writer.write(9, &[2; 8]);
        reader.write(0, &[3; 16]);
        let mut into = [0; 16];
        reader.read(0, &mut into);
        assert_eq!(into, [1; 16]);
        let mut outside = [7; 8];
        reader.read(9, &mut outside);
        assert_eq!(outside, [7; 8]);
        drop((writer, reader));
        assert_eq!(account.free(), 64);
    }
}
