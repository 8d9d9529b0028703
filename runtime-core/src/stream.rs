//! Which stream a call is on: the one entered on this thread or attached to this future, else the thread's own.

use crate::id::StreamId;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

#[cfg(feature = "std")]
mod current {
    use super::StreamId;
    use core::cell::Cell;
    std::thread_local! {
        // No destructor, so that it can be asked at any moment of a thread's life.
        static CURRENT: Cell<u64> = const { Cell::new(0) };
    }

    #[inline]
    pub(super) fn get() -> StreamId {
        CURRENT.with(|current| match current.get() {
            0 => first(current),
            raw => StreamId::from_raw(raw),
        })
    }

    #[cold]
    fn first(current: &Cell<u64>) -> StreamId {
        let stream = StreamId::new();
        current.set(stream.get());
        stream
    }

    pub(super) fn replace(stream: StreamId) -> StreamId {
        let before = get();
        CURRENT.with(|current| current.set(stream.get()));
        before
    }
}

#[cfg(not(feature = "std"))]
mod current {
    use super::StreamId;
    use crate::sync::AtomicU64;
    use core::sync::atomic::Ordering;

    // Without threads there is one.
    static CURRENT: AtomicU64 = AtomicU64::new(0);

    pub(super) fn get() -> StreamId {
        match CURRENT.load(Ordering::Relaxed) {
            0 => {
                let stream = StreamId::new();
                CURRENT.store(stream.get(), Ordering::Relaxed);
                stream
            }
            raw => StreamId::from_raw(raw),
        }
    }

    pub(super) fn replace(stream: StreamId) -> StreamId {
        let before = get();
        CURRENT.store(stream.get(), Ordering::Relaxed);
        before
    }
}

impl StreamId {
    /// The stream of a call made here by a client that is not pinned: the one entered on this thread, else the thread's own.
    #[inline]
    pub fn current() -> Self {
        current::get()
    }

    /// Makes this the thread's stream until the guard is dropped. Guards are dropped in the reverse order, as scopes end.
    #[must_use = "the stream is left when the guard is dropped"]
    pub fn enter(self) -> Entered {
        Entered { before: current::replace(self), thread: PhantomData }
    }

    /// A future during whose polls this is the thread's stream. A future that is not `Unpin` is pinned first: `Box::pin` or `pin!`.
    pub fn attach<F: Future + Unpin>(self, future: F) -> Attached<F> {
        Attached { stream: self, future }
    }
}

/// A stream is this thread's until this is dropped.
#[derive(Debug)]
pub struct Entered {
    before: StreamId,
    // A guard belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        current::replace(self.before);
    }
}

/// A future with a stream of its own.
#[derive(Debug)]
pub struct Attached<F> {
    stream: StreamId,
    future: F,
}

impl<F: Future + Unpin> Future for Attached<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = self.stream.enter();
        Pin::new(&mut self.future).poll(context)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_stream_of_its_own() {
        let here = StreamId::current();
        assert_eq!(here, StreamId::current());
        let there = std::thread::spawn(StreamId::current).join().unwrap();
        assert_ne!(here, there);
    }

    #[test]
    fn an_entered_stream_is_left_with_its_guard() {
        let (before, a, b) = (StreamId::current(), StreamId::new(), StreamId::new());
        let outer = a.enter();
        {
            let _inner = b.enter();
            assert_eq!(StreamId::current(), b);
        }
        assert_eq!(StreamId::current(), a);
        drop(outer);
        assert_eq!(StreamId::current(), before);
    }

    #[test]
    fn an_attached_future_is_polled_on_its_stream() {
        let stream = StreamId::new();
        let mut seen = core::pin::pin!(stream.attach(core::future::poll_fn(|_| Poll::Ready(StreamId::current()))));
        let mut context = Context::from_waker(core::task::Waker::noop());
        assert_eq!(seen.as_mut().poll(&mut context), Poll::Ready(stream));
        assert_ne!(StreamId::current(), stream);
    }
}
