//! Waiting for a device: futures that can also be waited for on the spot, with a deadline that starts again when the device gets on.

use super::Service;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::executor::{Execution, Wakers};
use crate::platform::{Deadline, block_on};
use crate::promise::Promise;
use crate::timeline::{Moment, Point};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

impl Service {
    /// Waits for something of this device. `look` is asked again whenever its waker was woken.
    ///
    /// A waiter looks a short while itself before it sleeps, since the answer is often near and being woken is not cheap.
    pub(crate) fn wait<T>(&self, point: Option<Point>, timeout: Duration, mut look: impl FnMut(&Waker) -> Poll<Result<T>>) -> Result<T> {
        let start = Deadline::never();
        let near = Deadline::after(self.settings.executor.spin);
        loop {
            let looked = self.call("wait", |core, _| core.server.progress());
            // Also when the device has ended: what it answered before stays answered.
            if let Poll::Ready(result) = look(Waker::noop()) {
                return self.told(result);
            }
            looked?;
            if near.expired() {
                break;
            }
            core::hint::spin_loop();
        }
        // Without a runner nobody else looks at the device: this thread has to, again and again.
        let slice = match self.settings.executor.execution {
            Execution::Runner => timeout,
            Execution::Inline => timeout.min(Duration::from_micros(200)),
        };
        let mut last = Deadline::after(timeout);
        let mut seen = self.shared.completions.load(Ordering::Relaxed);
        loop {
            let deadline = Deadline::after(slice);
            if let Some(result) = block_on(poll_fn(|context| look(context.waker())), &deadline) {
                return self.told(result);
            }
            if slice < timeout {
                self.call("wait", |core, _| core.server.progress())?;
            }
            let now = self.shared.completions.load(Ordering::Relaxed);
            if now != seen {
                seen = now;
                last = Deadline::after(timeout);
            } else if last.expired() {
                return Err(Error::Timeout { waited: start.waited(), point });
            }
        }
    }

    /// An answer that was waited for. It may be there before whoever gave it has released the device: where it is the device's fault,
    /// that is waited for, so that the next call meets it too.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(Error::is_device_lost) {
            self.call("wait", |_, _| ()).ok();
        }
        result
    }

    /// Whether a moment is done; else the waker is woken when it is.
    pub(crate) fn poll_moment(&self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        let waker = waker.clone();
        match self.call("wait", move |core, _| core.server.poll(at, &waker)) {
            Ok(poll) => poll,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// A future: a point of a device is done. Dropping it changes nothing.
///
/// Equivalent to: `cuEventSynchronize`; `vkWaitSemaphores`; `device.poll(PollType::Wait)`.
#[must_use = "await it, or call `wait`"]
pub struct Done {
    pub(crate) service: Arc<Service>,
    pub(crate) point: Point,
}

impl Done {
    /// The point.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Waits on this thread, at most the device's wait timeout without progress.
    ///
    /// # Errors
    /// The device's fault, [`Error::Timeout`].
    pub fn wait(self) -> Result<()> {
        let timeout = self.service.settings.wait_timeout;
        self.wait_for(timeout)
    }

    /// Waits on this thread, at most `timeout` without progress.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_for(self, timeout: Duration) -> Result<()> {
        let at = Moment::from(self.point);
        self.service.wait(Some(self.point), timeout, |waker| self.service.poll_moment(at, waker))
    }
}

impl Future for Done {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.service.poll_moment(self.point.into(), context.waker())
    }
}

impl core::fmt::Debug for Done {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Done").field(&self.point).finish()
    }
}

/// A future: bytes that are being read. Dropping it does not disturb other reads.
#[must_use = "await it, or call `wait`"]
pub struct Reading {
    pub(crate) service: Arc<Service>,
    pub(crate) point: Point,
    pub(crate) promise: Promise<Vec<Bytes>>,
}

impl Reading {
    /// When the bytes are there.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Waits on this thread, at most the device's wait timeout without progress.
    ///
    /// # Errors
    /// The failures that lie on the bytes, the device's fault, [`Error::Timeout`].
    pub fn wait(self) -> Result<Vec<Bytes>> {
        let timeout = self.service.settings.wait_timeout;
        self.wait_for(timeout)
    }

    /// Waits on this thread, at most `timeout` without progress.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_for(self, timeout: Duration) -> Result<Vec<Bytes>> {
        self.service.wait(Some(self.point), timeout, |waker| self.promise.poll(waker))
    }
}

impl Future for Reading {
    type Output = Result<Vec<Bytes>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<Bytes>>> {
        if self.service.settings.executor.execution == Execution::Inline {
            // Nobody else looks at the device. A failure to do so shows in the promise.
            self.service.call("read", |core, _| core.server.progress()).ok();
        }
        self.promise.poll(context.waker())
    }
}

impl core::fmt::Debug for Reading {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reading").field("point", &self.point).finish_non_exhaustive()
    }
}

/// A promise on its way to the server: answered with an error when the entry that carries it is dropped without running.
pub(crate) struct Owed<T: Clone> {
    promise: Option<Promise<T>>,
    service: crate::id::ServiceId,
}

impl<T: Clone> Owed<T> {
    pub(crate) fn new(promise: &Promise<T>, service: crate::id::ServiceId) -> Self {
        Self { promise: Some(promise.clone()), service }
    }

    /// Hands the promise over: the server now owes it.
    pub(crate) fn hand_over(mut self) -> Promise<T> {
        self.promise.take().unwrap_or_default()
    }
}

impl<T: Clone> Drop for Owed<T> {
    fn drop(&mut self) {
        if let Some(promise) = self.promise.take() {
            let mut wakers = Wakers::new();
            promise.fulfil(Err(Error::ShutDown { service: self.service }), &mut wakers);
            wakers.drain(..).for_each(Waker::wake);
        }
    }
}
