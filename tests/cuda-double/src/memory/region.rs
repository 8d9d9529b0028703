//! A region of addresses and what lies behind it.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, RwLock};

use super::page::{PAGE, Page};
use crate::clock::Stamp;
use crate::context as contexts;
use crate::device::Device;
use crate::sync::{lock, read, write};

/// Bytes that regions show: pages of the double, or memory of the program.
pub(crate) struct Backing {
    /// The device whose memory it counts as.
    pub(crate) device: u32,
    pub(crate) size: u64,
    store: Store,
    /// The device whose budget has the bytes back when the last who shows them is gone.
    charged: Option<Arc<Device>>,
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Some(device) = &self.charged {
            device.give(self.size);
        }
    }
}

enum Store {
    /// Made when they are first touched.
    Pages(Vec<Mutex<Option<Box<Page>>>>),
    /// Memory of the program, by its address there.
    Host(usize),
}

impl Backing {
    pub(crate) fn new(device: u32, size: u64) -> Self {
        let pages = (0..size.div_ceil(PAGE as u64)).map(|_| Mutex::new(None)).collect();
        Self { device, size, store: Store::Pages(pages), charged: None }
    }

    /// Memory of a device that lives as long as it is shown anywhere; its bytes were taken from the budget.
    pub(crate) fn charged(device: Arc<Device>, size: u64) -> Self {
        let mut backing = Self::new(device.ordinal, size);
        backing.charged = Some(device);
        backing
    }

    /// Memory of the program, which whoever frees it takes away here first.
    pub(crate) fn of_host(device: u32, address: usize, size: u64) -> Self {
        Self { device, size, store: Store::Host(address), charged: None }
    }

    /// The program's address of the byte at `offset`, where it has one.
    pub(super) fn host(&self, offset: u64) -> Option<usize> {
        match self.store {
            Store::Host(address) => Some(address + offset as usize),
            Store::Pages(_) => None,
        }
    }

    /// Calls `f` with the page that holds a byte, which is made if need be.
    pub(super) fn with_page<R>(&self, index: usize, f: impl FnOnce(&mut Page) -> R) -> Option<R> {
        let Store::Pages(pages) = &self.store else { return None };
        Some(f(lock(pages.get(index)?).get_or_insert_with(Page::new)))
    }

    /// Calls `f` with every page that was ever touched.
    pub(super) fn for_each_page(&self, mut f: impl FnMut(usize, &mut Page)) {
        let Store::Pages(pages) = &self.store else { return };
        for (index, page) in pages.iter().enumerate() {
            if let Some(page) = lock(page).as_mut() {
                f(index, page);
            }
        }
    }

    /// Forgets what it held.
    pub(crate) fn clear(&self) {
        if let Store::Pages(pages) = &self.store {
            for page in pages {
                *lock(page) = None;
            }
        }
    }
}

/// Where a region came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocAsync`, from a pool.
    Pooled { pool: usize },
    /// `cuMemMap`.
    Mapped,
    /// `cuMemHostAlloc` or `cuMemHostRegister`: memory of the program.
    Host { registered: bool },
    /// `cuMemAllocManaged`.
    Managed,
    /// A variable of a module.
    Variable,
    /// Memory of a graph, which lives from one of its nodes to another.
    Graph,
}

/// What a device may do with a mapped region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Protection {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// Addresses and the bytes they show.
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    /// The context it was made in; zero for what is of no context.
    pub(crate) context: usize,
    pub(crate) backing: Arc<Backing>,
    /// Where in the backing the first byte lies.
    pub(crate) offset: u64,
    freed: AtomicBool,
    /// The operation that makes it usable, where that is one of a stream.
    birth: Mutex<Stamp>,
    /// What each device may do, of a mapped region.
    protections: RwLock<HashMap<u32, Protection>>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("base", &self.base)
            .field("size", &self.size)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Region {
    pub(crate) fn new(base: u64, size: u64, kind: Kind, backing: Arc<Backing>, offset: u64) -> Self {
        let (freed, birth) = (AtomicBool::new(false), Mutex::default());
        // What is mapped, of a pool or of a graph is a device's, whichever context asked for it.
        let is_of_none = matches!(kind, Kind::Mapped | Kind::Pooled { .. } | Kind::Graph);
        let context = if is_of_none { 0 } else { contexts::current_handle() };
        Self { base, size, kind, context, backing, offset, freed, birth, protections: RwLock::default() }
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.size
    }

    #[inline]
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Marks it as given back; whether it was not yet.
    pub(crate) fn free(&self) -> bool {
        !self.freed.swap(true, Ordering::AcqRel)
    }

    /// Makes it usable again, from an operation on. Only memory of graphs comes back.
    pub(crate) fn revive(&self, birth: Stamp) {
        *lock(&self.birth) = birth;
        self.freed.store(false, Ordering::Release);
    }

    pub(crate) fn birth(&self) -> Stamp {
        *lock(&self.birth)
    }

    pub(crate) fn set_birth(&self, stamp: Stamp) {
        *lock(&self.birth) = stamp;
    }

    pub(crate) fn protection(&self, device: u32) -> Option<Protection> {
        read(&self.protections).get(&device).copied()
    }

    pub(crate) fn protect(&self, device: u32, protection: Protection) {
        write(&self.protections).insert(device, protection);
    }
}
