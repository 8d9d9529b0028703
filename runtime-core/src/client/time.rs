//! Waiting, ordering, having the device to oneself, and the end.

use super::Client;
use crate::error::{Error, Result};
use crate::executor::{Execution, contain};
use crate::handle::Handle;
use crate::platform::Deadline;
use crate::promise::Promise;
use crate::server::Until;
use crate::service::{self, Core, Done, Owed, Service};
use crate::timeline::Point;
use alloc::sync::Arc;
use core::time::Duration;

/// What was left when a device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Operations that had been accepted and did not run to their end.
    pub abandoned: usize,
}

impl Client {
    /// Hands everything queued on the stream to the driver; does not wait for it.
    ///
    /// Equivalent to: `vkQueueSubmit`; `queue.submit`. CUDA submits by itself.
    ///
    /// # Errors
    /// The device's fault; no failure of a launch.
    pub fn flush(&self) -> Result<()> {
        let stream = self.stream();
        self.service.call("flush", move |core, _| core.server.flush(stream))?
    }

    /// All work of the stream up to now is done, when the future is. The call itself does not wait: `client.sync()?.wait()?` does, on
    /// this thread, and a program that is `async` awaits it.
    ///
    /// Equivalent to: `cuStreamSynchronize`; `vkWaitSemaphores`; `onSubmittedWorkDone`.
    ///
    /// # Errors
    /// The device's fault, now or by the future; no failure of a launch.
    pub fn sync(&self) -> Result<Done> {
        Ok(self.done_of(self.service.clone(), self.record()?))
    }

    /// [`sync`](Self::sync), waited for at most `timeout` without progress.
    ///
    /// # Errors
    /// The device's fault, [`Error::Timeout`]; [`Error::Busy`] when another thread had the device to itself that long.
    pub fn sync_timeout(&self, timeout: Duration) -> Result<()> {
        let mark = |core: &mut Core, at| core.server.mark(at);
        let point = self.service.enqueue_until(self.stream(), &Deadline::after(timeout), mark)?;
        self.done_of(self.service.clone(), point).wait_for(timeout)
    }

    /// Waits for the stream, then names the failures that lie on these bytes.
    ///
    /// # Errors
    /// The device's fault, [`Error::Timeout`], the one failure or [`Error::Several`].
    pub fn sync_buffers(&self, handles: &[&Handle]) -> Result<()> {
        handles.iter().try_for_each(|handle| self.local(handle))?;
        self.sync()?.wait()?;
        self.check(handles)
    }

    /// The failures that are known now to lie on these bytes, without waiting for anything on the device.
    ///
    /// # Errors
    /// The one failure or [`Error::Several`]; [`Error::ForeignHandle`].
    pub fn check(&self, handles: &[&Handle]) -> Result<()> {
        handles.iter().try_for_each(|handle| self.local(handle))?;
        let handles: alloc::vec::Vec<Handle> = handles.iter().map(|handle| (*handle).clone()).collect();
        self.service.call("check", move |core, _| core.server.check(&handles))?
    }

    // ---- points

    /// The moment at which everything issued on the stream up to now is done.
    ///
    /// Equivalent to: `cuEventRecord`.
    ///
    /// # Errors
    /// The device's fault.
    pub fn record(&self) -> Result<Point> {
        self.enqueue(|core, at| core.server.mark(at))
    }

    /// What the stream does next comes after `point`, which may be of any device of the process. Does not block the caller. A number the
    /// point's stream was not given yet stands for the latest it was.
    ///
    /// Equivalent to: `cuStreamWaitEvent`; a wait on a timeline semaphore.
    ///
    /// # Errors
    /// [`Error::ForeignPoint`] when the point's device is not running; the device's fault.
    pub fn wait(&self, point: Point) -> Result<Point> {
        let other = self.service_of(point)?;
        if other.id == self.service.id {
            return self.enqueue(move |core, at| core.server.wait(at, Until::Moment(point.into())));
        }
        let promise = Promise::new();
        let owed = Owed::new(&promise, &other);
        other.submit(move |core, _| core.server.signal(point.into(), owed.hand_over()))?;
        self.service.lean_on(&other, &promise);
        self.enqueue(move |core, at| core.server.wait(at, Until::Promised(promise)))
    }

    /// Whether a point, of any device of the process, is done.
    ///
    /// # Errors
    /// [`Error::ForeignPoint`] when the point's device is not running; that device's fault.
    pub fn is_done(&self, point: Point) -> Result<bool> {
        let service = self.service_of(point)?;
        let deadline = Deadline::after(service.settings.wait_timeout);
        service.look_at_leans();
        match service.poll_moment(point.into(), core::task::Waker::noop(), &deadline) {
            core::task::Poll::Ready(result) => result.map(|()| true),
            core::task::Poll::Pending => Ok(false),
        }
    }

    /// A future that is ready when the point, of any device of the process, is done.
    ///
    /// # Errors
    /// [`Error::ForeignPoint`] when the point's device is not running.
    pub fn done(&self, point: Point) -> Result<Done> {
        Ok(self.done_of(self.service_of(point)?, point))
    }

    fn done_of(&self, service: Arc<Service>, point: Point) -> Done {
        Done { service, point }
    }

    pub(super) fn service_of(&self, point: Point) -> Result<Arc<Service>> {
        if point.service == self.service.id {
            return Ok(self.service.clone());
        }
        service::running(point.service).ok_or(Error::ForeignPoint { owner: point.service })
    }

    // ---- the device to oneself

    /// Runs a task with the device to itself: what was queued before has been handed over, calls of this thread pass, those of others
    /// wait until it ends. Nested calls pass.
    ///
    /// # Errors
    /// [`Error::Busy`] when the device was not to be had within the wait timeout, or, where it has no thread of its own, at once: the
    /// task did not run, and a retry is safe. [`Error::Panicked`] when the task panicked (std); the device goes on.
    /// [`Error::Reentrant`] from inside the device's own work; the device's fault.
    pub fn exclusive<T>(&self, task: impl FnOnce() -> T) -> Result<T> {
        let settings = &self.service.settings;
        let timeout = match settings.executor.execution {
            Execution::Runner => settings.wait_timeout,
            Execution::Inline => Duration::ZERO,
        };
        self.exclusive_timeout(timeout, task)
    }

    /// [`exclusive`](Self::exclusive), waiting at most `timeout` for the device.
    ///
    /// # Errors
    /// As for [`exclusive`](Self::exclusive).
    pub fn exclusive_timeout<T>(&self, timeout: Duration, task: impl FnOnce() -> T) -> Result<T> {
        let _reserved = self.service.reserve(&Deadline::after(timeout))?;
        run(task)
    }

    // ---- the end

    /// Ends the device for every client: queued work is finished as far as the timeout allows, the rest is abandoned and counted. Calls
    /// made afterwards answer [`Error::ShutDown`]; the device can be loaded again. Any thread may call it, and again.
    pub fn shutdown(&self, timeout: Duration) -> ShutdownReport {
        ShutdownReport { abandoned: self.service.shutdown(timeout) }
    }

    /// Ends every device of the process, as [`shutdown`](Self::shutdown) ends one, within one timeout. What was abandoned is counted over
    /// all of them. A device that is opened meanwhile may go on.
    ///
    /// For whoever ends a process, or replaces it, in which others have left devices open: nothing calls a driver afterwards.
    ///
    /// Equivalent to: `cudaDeviceReset` for each device.
    pub fn shutdown_all(timeout: Duration) -> ShutdownReport {
        ShutdownReport { abandoned: service::shutdown_all(timeout) }
    }
}

/// Runs the task; what it leaves half done when it panics is the caller's affair, the device holds none of it.
fn run<T>(task: impl FnOnce() -> T) -> Result<T> {
    contain(task).map_err(|panic| {
        let message = panic.message();
        panic.discard();
        Error::Panicked { what: "an exclusive task".into(), message }
    })
}
