//! Memory that is not a device's: a test has it, and lends it to devices.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

/// What memory of the host must begin at for every driver to take it.
pub const PAGE: usize = 4096;

#[repr(align(4096))]
struct Page([AtomicU8; PAGE]);

/// Bytes that begin at a page of the host, and are looked at and changed in pieces of one byte while others have their address.
#[derive(Clone)]
pub struct Outside(Arc<[Page]>);

impl Outside {
    /// Memory of at least `size` bytes, all zero: as many pages as that takes.
    pub fn new(size: usize) -> Self {
        let page = || Page([const { AtomicU8::new(0) }; PAGE]);
        Self((0..size.div_ceil(PAGE).max(1)).map(|_| page()).collect())
    }

    /// Where it begins. The bytes stay there as long as there is a clone of this.
    pub fn pointer(&self) -> *mut u8 {
        self.bytes().next().map_or(core::ptr::null_mut(), AtomicU8::as_ptr)
    }

    /// How many bytes there are.
    pub fn size(&self) -> usize {
        self.0.len() * PAGE
    }

    /// The first `count` bytes, as they are now.
    pub fn read(&self, count: usize) -> Vec<u8> {
        self.bytes().take(count).map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// Puts bytes in, from the first on.
    pub fn write(&self, bytes: &[u8]) {
        self.bytes().zip(bytes).for_each(|(byte, value)| byte.store(*value, Ordering::Relaxed));
    }

    fn bytes(&self) -> impl Iterator<Item = &AtomicU8> {
        self.0.iter().flat_map(|page| page.0.iter())
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outside({} bytes)", self.size())
    }
}

/// What a device holds for as long as it uses memory that was lent.
pub type Owner = Box<dyn Any + Send>;

/// An owner that does something when it is dropped.
pub fn when_dropped(act: impl FnOnce() + Send + 'static) -> Owner {
    Box::new(WhenDropped(Some(act)))
}

struct WhenDropped<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for WhenDropped<F> {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}
