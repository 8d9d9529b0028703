//! Waiting for a device: futures that can also be waited for on the spot, with a deadline that starts again when the device gets on.

use super::{Service, Shared};
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
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// A waiter looks this often a timeout whether the device gets on, and is late by at most two such parts.
pub(super) const LOOKS: u32 = 16;
/// How long a waiter sleeps where nobody but it looks at the device.
pub(super) const ALONE: Duration = Duration::from_micros(200);
/// The first look waits this long for another thread that has the device just now, however little time there is: what is done is
/// then found done.
const FIRST_LOOK: Duration = Duration::from_millis(100);

impl Service {
    /// Waits until what is accepted up to `point` has brought an answer. `look` is asked again whenever its waker was woken; it may
    /// wait for the device until the deadline it is given, and says no more than that there is no answer where that passes.
    ///
    /// The deadline starts again while operations accepted up to `point` are finished. There are finitely many of them, so that others
    /// who keep the device busy keep nobody waiting for ever.
    ///
    /// A waiter looks a short while itself before it sleeps, since the answer is often near and being woken is not cheap.
    pub(crate) fn wait<T>(
        &self,
        point: Point,
        timeout: Duration,
        mut look: impl FnMut(&Waker, &Deadline) -> Poll<Result<T>>,
    ) -> Result<T> {
        let start = Deadline::after(timeout);
        let first_look = Deadline::after(timeout.max(FIRST_LOOK));
        let near = Deadline::after(self.settings.executor.spin.min(timeout));
        let mut progress = None;
        let mut left = loop {
            // Also when the device has ended: what it answered before stays answered.
            if let Poll::Ready(result) = look(Waker::noop(), &first_look) {
                return self.told(result, timeout);
            }
            if let Some(left) = progress.transpose()?
                && near.expired()
            {
                break left;
            }
            progress = Some(self.progress(point.seq, &first_look));
            self.look_at_leans();
            crate::platform::give_way();
        };
        let slice = if self.executor.is_left_to_caller() { ALONE.min(timeout) } else { timeout / LOOKS };
        let mut deadline = start;
        loop {
            let look_until = Deadline::after(slice);
            loop {
                // Of a device that has nobody else to look at it nobody is woken.
                let nap = if self.look_at_leans() { Deadline::after(ALONE.min(slice)) } else { look_until };
                if let Some(result) = block_on(poll_fn(|context| look(context.waker(), &nap)), &nap) {
                    return self.told(result, timeout);
                }
                if look_until.expired() {
                    break;
                }
            }
            match self.progress(point.seq, &Deadline::after(timeout / LOOKS)) {
                Ok(now) => {
                    if now.zip(left).is_some_and(|(now, left)| now < left) {
                        deadline = Deadline::after(timeout);
                    }
                    left = now.or(left);
                }
                Err(error) => match look(Waker::noop(), &look_until) {
                    Poll::Ready(result) => return self.told(result, timeout),
                    Poll::Pending => return Err(error),
                },
            }
            if deadline.expired() {
                return Err(Error::Timeout { waited: start.waited(), point: Some(point) });
            }
        }
    }

    /// Has the server look what is finished, and says how much up to the number is not; nothing where the device was not to be had.
    pub(super) fn progress(&self, up_to: u64, deadline: &Deadline) -> Result<Option<usize>> {
        let answer = self.call_until("wait", deadline, move |core, _| {
            core.server.progress();
            core.server.unfinished(up_to)
        });
        match answer {
            Ok(left) => Ok(Some(left)),
            Err(error) if is_late(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An answer that was waited for. It may be there before whoever gave it has released the device: where it is the device's fault,
    /// that is waited for, as long as the wait itself may take, so that the next call meets it too.
    fn told<T>(&self, result: Result<T>, timeout: Duration) -> Result<T> {
        if result.as_ref().is_err_and(Error::is_device_lost) {
            self.call_until("wait", &Deadline::after(timeout.max(FIRST_LOOK)), |_, _| ()).ok();
        }
        result
    }

    /// Whether a moment is done; else the waker is woken when it is.
    pub(crate) fn poll_moment(&self, at: Moment, waker: &Waker, deadline: &Deadline) -> Poll<Result<()>> {
        let waker = waker.clone();
        match self.call_until("wait", deadline, move |core, _| core.server.poll(at, &waker)) {
            Ok(poll) => poll,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// A task found no answer. Inline nobody else looks at the device, or at one that it waits for, so the task asks to be polled again,
    /// where that does not keep a page's event loop from running.
    fn poll_again(&self, context: &Context<'_>) {
        let is_alone = self.look_at_leans() || self.settings.executor.execution == Execution::Inline;
        if is_alone && cfg!(not(target_family = "wasm")) {
            context.waker().wake_by_ref();
        }
    }
}

/// The device was not to be had in time.
fn is_late(error: &Error) -> bool {
    matches!(error, Error::Busy { .. } | Error::Timeout { .. })
}

/// A future: a point of a device is done. Dropping it changes nothing. A poll is a call: it waits while another thread has the device
/// to itself.
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

    /// Waits on this thread, at most the device's wait timeout without progress on what was accepted up to the point.
    ///
    /// # Errors
    /// The device's fault, [`Error::Timeout`]: then it can be waited for again.
    pub fn wait(&self) -> Result<()> {
        let timeout = self.service.settings.wait_timeout;
        self.wait_for(timeout)
    }

    /// Waits on this thread, at most `timeout` without progress, and a tenth of a second where another thread keeps the device to
    /// itself that long. Of no time at all, it asks whether it is done.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_for(&self, timeout: Duration) -> Result<()> {
        let at = Moment::from(self.point);
        self.service.wait(self.point, timeout, |waker, deadline| match self.service.poll_moment(at, waker, deadline) {
            Poll::Ready(Err(error)) if is_late(&error) => Poll::Pending,
            answer => answer,
        })
    }
}

impl Future for Done {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let deadline = Deadline::after(self.service.settings.wait_timeout);
        let answer = self.service.poll_moment(self.point.into(), context.waker(), &deadline);
        if answer.is_pending() {
            self.service.poll_again(context);
        }
        answer
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

    /// Waits on this thread, at most the device's wait timeout without progress on what was accepted up to the point.
    ///
    /// # Errors
    /// The failures that lie on the bytes, the device's fault, [`Error::Timeout`]: then it can be waited for again.
    pub fn wait(&self) -> Result<Vec<Bytes>> {
        let timeout = self.service.settings.wait_timeout;
        self.wait_for(timeout)
    }

    /// Waits on this thread, at most `timeout` without progress, and a tenth of a second where another thread keeps the device to
    /// itself that long. Of no time at all, it asks whether it is done.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_for(&self, timeout: Duration) -> Result<Vec<Bytes>> {
        self.service.wait(self.point, timeout, |waker, _| self.promise.poll(waker))
    }
}

impl Future for Reading {
    type Output = Result<Vec<Bytes>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<Bytes>>> {
        if self.service.settings.executor.execution == Execution::Inline {
            // Nobody else looks at the device. A failure to do so shows in the promise.
            self.service.call("read", |core, _| core.server.progress()).ok();
        }
        let answer = self.promise.poll(context.waker());
        if answer.is_pending() {
            self.service.poll_again(context);
        }
        answer
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
    shared: Arc<Shared>,
}

impl<T: Clone> Owed<T> {
    pub(crate) fn new(promise: &Promise<T>, service: &Service) -> Self {
        Self { promise: Some(promise.clone()), shared: service.shared.clone() }
    }

    /// Hands the promise over: the server now owes it.
    pub(crate) fn hand_over(mut self) -> Promise<T> {
        self.promise.take().unwrap_or_default()
    }

    /// Answers it: nobody will owe it. For inside an entry.
    pub(crate) fn fail(mut self, error: Error) {
        self.answer(error);
    }

    fn answer(&mut self, error: Error) {
        if let Some(promise) = self.promise.take() {
            let mut wakers = Wakers::new();
            promise.fulfil(Err(error), &mut wakers);
            // The entry is run or dropped with the device held, and is woken when that is released. Where it was never queued
            // nobody knows the promise but the caller.
            if !wakers.is_empty() {
                self.shared.leave_late(|late| late.wakers.append(&mut wakers));
            }
        }
    }
}

impl<T: Clone> Drop for Owed<T> {
    fn drop(&mut self) {
        let error = self.shared.end_error();
        self.answer(error);
    }
}
