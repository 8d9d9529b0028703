//! Bytes that are loaded on first access, once, without a lock held while they load.

use super::HostBuffer;
use crate::error::{Error, Result};
use alloc::sync::Arc;

/// Where lazily read bytes come from: a device's memory, usually.
///
/// [`load`](Self::load) MUST return exactly the number of bytes that [`Bytes::lazy`](super::Bytes::lazy) was told, and
/// MUST NOT look at the `Bytes` it loads. It may be called again after it failed, and by several threads at once. It
/// keeps alive what it reads from; it is dropped when the bytes have been loaded, or with the last view of them.
pub trait LazySource: Send + Sync {
    /// Copies the bytes to the host. May block.
    ///
    /// # Errors
    /// Whatever kept the bytes from being read. The next access calls again.
    fn load(&self) -> Result<HostBuffer>;
}

/// A place for bytes that are set once.
///
/// Accessors that find it empty load by themselves and the first to finish wins: nobody waits for somebody else's load,
/// so a load may take locks, or need a thread that itself looks at these bytes, without a deadlock.
pub(super) struct LoadOnce {
    loaded: spin::Once<HostBuffer>,
}

impl LoadOnce {
    pub(super) const fn new() -> Self {
        Self { loaded: spin::Once::new() }
    }

    pub(super) fn get(&self) -> Option<&[u8]> {
        self.loaded.get().map(HostBuffer::as_slice)
    }

    /// Stores what was loaded, unless another accessor was first, and answers what is stored.
    pub(super) fn set(&self, loaded: HostBuffer) -> &[u8] {
        // Others wait for this closure only, and it only moves a value.
        self.loaded.call_once(|| loaded).as_slice()
    }
}

/// Bytes a [`LazySource`] loads.
pub(super) struct Lazy {
    len: usize,
    loaded: LoadOnce,
    // Emptied after `loaded` is set, so that bytes which have been copied do not keep device memory in use.
    source: spin::Mutex<Option<Arc<dyn LazySource>>>,
}

impl Lazy {
    pub(super) fn new(len: usize, source: Arc<dyn LazySource>) -> Self {
        Self { len, loaded: LoadOnce::new(), source: spin::Mutex::new(Some(source)) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self) -> Result<&[u8]> {
        loop {
            if let Some(bytes) = self.loaded.get() {
                return Ok(bytes);
            }
            // The lock is held for the clone only. No source means that another accessor has just stored the bytes.
            let source = self.source.lock().clone();
            let Some(source) = source else { continue };
            let loaded = source.load()?;
            if loaded.len() != self.len {
                return Err(Error::WrongLength {
                    what: "bytes read lazily".into(),
                    got: loaded.len() as u64,
                    expected: self.len as u64,
                });
            }
            let bytes = self.loaded.set(loaded);
            // Dropped here, after the lock: the source's own drop may do anything.
            let done = self.source.lock().take();
            drop(done);
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicUsize, Ordering};

    struct Scripted {
        calls: AtomicUsize,
        answers: Vec<Result<usize>>,
    }

    impl LazySource for Scripted {
        fn load(&self) -> Result<HostBuffer> {
            let call = self.calls.fetch_add(1, Ordering::SeqCst);
            HostBuffer::zeroed(self.answers[call].clone()?)
        }
    }

    fn scripted(answers: Vec<Result<usize>>) -> Arc<Scripted> {
        Arc::new(Scripted { calls: AtomicUsize::new(0), answers })
    }

    #[test]
    fn a_failed_load_is_returned_and_the_next_access_tries_again() {
        let lost = Error::DeviceLost { cause: "unplugged".into() };
        let source = scripted(vec![Err(lost.clone()), Ok(8)]);
        let lazy = Lazy::new(8, source.clone());
        assert_eq!(lazy.get(), Err(lost));
        let first = lazy.get().unwrap();
        assert_eq!(first, [0; 8]);
        assert!(core::ptr::eq(first, lazy.get().unwrap()));
        assert_eq!(source.calls.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_source_that_loads_another_length_is_an_error_and_is_not_kept() {
        let lazy = Lazy::new(8, scripted(vec![Ok(7), Ok(9), Ok(8)]));
        for got in [7, 9] {
            let expected = Error::WrongLength { what: "bytes read lazily".into(), got, expected: 8 };
            assert_eq!(lazy.get(), Err(expected));
        }
        assert_eq!(lazy.get().unwrap().len(), 8);
    }

    #[test]
    fn the_source_is_kept_until_the_bytes_are_loaded_and_let_go_then() {
        let failed = Error::Busy { what: "device".into() };
        let source = scripted(vec![Err(failed), Ok(4)]);
        let lazy = Lazy::new(4, source.clone());
        assert!(lazy.get().is_err());
        assert_eq!(Arc::strong_count(&source), 2);
        assert!(lazy.get().is_ok());
        assert_eq!(Arc::strong_count(&source), 1);
    }

    #[cfg(feature = "std")]
    #[test]
    fn threads_that_race_on_the_first_access_all_see_the_same_bytes() {
        use std::sync::Barrier;
        use std::thread;

        const THREADS: usize = 4;
        // Every load gives other bytes and ends only when all threads are inside one, so all of them do load.
        struct Racing {
            next: AtomicUsize,
            all_inside: Barrier,
        }
        impl LazySource for Racing {
            fn load(&self) -> Result<HostBuffer> {
                self.all_inside.wait();
                let value = self.next.fetch_add(1, Ordering::SeqCst) as u8;
                Ok(HostBuffer::copy_from_slice(&[value; 64]))
            }
        }
        for _ in 0..50 {
            let source = Arc::new(Racing { next: AtomicUsize::new(1), all_inside: Barrier::new(THREADS) });
            let lazy = Lazy::new(64, source.clone());
            let seen: Vec<(usize, Vec<u8>)> = thread::scope(|scope| {
                let read = || {
                    let bytes = lazy.get().unwrap();
                    (bytes.as_ptr() as usize, bytes.to_vec())
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(read)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(source.next.load(Ordering::SeqCst), THREADS + 1);
            assert!(seen.iter().all(|bytes| *bytes == seen[0]));
            assert_eq!(Arc::strong_count(&source), 1);
        }
    }

    #[cfg(feature = "std")]
    #[test]
    fn a_load_that_panics_leaves_the_bytes_to_be_loaded_by_the_next_access() {
        use core::panic::AssertUnwindSafe;
        struct PanicsOnce(AtomicUsize);
        impl LazySource for PanicsOnce {
            fn load(&self) -> Result<HostBuffer> {
                assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "first load");
                HostBuffer::zeroed(3)
            }
        }
        let lazy = Lazy::new(3, Arc::new(PanicsOnce(AtomicUsize::new(0))));
        assert!(std::panic::catch_unwind(AssertUnwindSafe(|| lazy.get().is_ok())).is_err());
        assert_eq!(lazy.get().unwrap(), [0; 3]);
    }
}
