//! Using device memory from outside the runtime: the backend's own resource, ordered like an operation.

use super::Client;
use crate::access::Access;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::id::StreamId;
use crate::promise::Promise;
use crate::server::Grant;
use crate::service::Owed;
use crate::timeline::{Moment, Point};
use alloc::sync::Arc;
use core::any::{Any, type_name};
use core::fmt;
use core::ops::Deref;

impl Client {
    /// The backend's own resource behind a handle, of the type its documentation names. The memory stays alive and where it is while the
    /// resource is held; nothing orders its use against the device's work, for that there is [`with_resource`](Self::with_resource).
    ///
    /// Waits until what was issued on the bytes is done.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] when the server's resource is of another type, [`Error::Unsupported`], [`Error::ForeignHandle`], the
    /// failures that lie on the bytes, [`Error::Timeout`].
    pub fn get_resource<R: Any + Send + Sync>(&self, handle: &Handle) -> Result<Resource<R>> {
        self.resource_for(handle, Access::Read)
    }

    /// The resource that an access is given, when everything that the access must come after is done.
    pub(super) fn resource_for<R: Any + Send + Sync>(&self, handle: &Handle, access: Access) -> Result<Resource<R>> {
        let (open, resource) = self.open_as(handle, access)?;
        open.close(None)?;
        Ok(Resource { resource, handle: handle.clone() })
    }

    /// Runs `task` with the backend's own resource behind a handle. Everything that must come before such an access is done when it
    /// starts, and everything that must come after waits until it ends: the point answered. `task` is given the stream of the access.
    ///
    /// A panic inside ends the access and goes on. Where the access writes, nobody knows how far it came: the bytes are then marked
    /// with [`Error::Panicked`], until they are replaced.
    ///
    /// # Errors
    /// As for [`get_resource`](Self::get_resource). Then `task` did not run, and the bytes are as they were; but an
    /// [`Overwrite`](Access::Overwrite) of bytes that carried a failure may leave its own error on them instead.
    pub fn with_resource<R: Any + Send + Sync, T>(
        &self,
        handle: &Handle,
        access: Access,
        task: impl FnOnce(&R, StreamId) -> T,
    ) -> Result<(T, Point)> {
        let (mut open, resource) = match access {
            // Bytes that carry no failure need none taken away, and so lose nothing when the task does not run after all.
            Access::Overwrite => match self.open_as(handle, Access::Write) {
                Err(error) if !error.is_timeout() && self.check(&[handle]).is_err() => self.open_as(handle, access)?,
                opened => opened?,
            },
            access => self.open_as(handle, access)?,
        };
        if access.writes() {
            open.when_dropped = Some(Error::Panicked {
                what: "a task with a resource".into(),
                message: alloc::format!("it had {handle:?}"),
            });
        }
        let output = task(&resource, open.at.stream);
        Ok((output, open.close(None)?))
    }

    /// An access that was granted, and its resource. Where there is none, bytes it would have replaced carry the error.
    fn open_as<R: Any + Send + Sync>(&self, handle: &Handle, access: Access) -> Result<(OpenAccess, Arc<R>)> {
        let open = self.open_access(handle, access)?;
        match open.wait().and_then(downcast::<R>) {
            Ok(resource) => Ok((open, resource)),
            Err(error) => {
                open.close((access == Access::Overwrite).then(|| error.clone())).ok();
                Err(error)
            }
        }
    }

    /// Asks for device memory in place.
    pub(super) fn open_access(&self, handle: &Handle, access: Access) -> Result<OpenAccess> {
        self.local(handle)?;
        if handle.is_empty() {
            return Err(Error::OutOfRange { what: "access in place".into(), range: 0..0, size: 0 });
        }
        let promise = Promise::new();
        let (target, owed) = (handle.clone(), Owed::new(&promise, &self.service));
        let unsupported = self.unsupported("access in place");
        // An access ends when its user says so, in no order with anything else: it has a stream to itself.
        let stream = StreamId::new();
        // Queued, not called: a call that ends at its deadline does not say whether there is something to close.
        let point = self.service.enqueue(stream, move |core, at| {
            core.open_access(at, &target, access, owed, unsupported);
        })?;
        Ok(OpenAccess { client: self.clone(), at: point.into(), promise, open: true, when_dropped: None })
    }
}

/// An access that was asked for, until it is closed or dropped.
pub(super) struct OpenAccess {
    client: Client,
    at: Moment,
    promise: Promise<Grant>,
    open: bool,
    /// What lies on the bytes when it ends without being closed.
    when_dropped: Option<Error>,
}

impl OpenAccess {
    /// The answer, if it is there once the device has heard of the access.
    pub(super) fn granted(&self) -> Result<Option<Result<Grant>>> {
        self.client.service.call("access", |_, _| ())?;
        Ok(self.promise.get())
    }

    /// Waits for the answer.
    pub(super) fn wait(&self) -> Result<Grant> {
        let service = &self.client.service;
        service.wait(self.point(), service.settings.wait_timeout, |waker, _| self.promise.poll(waker))
    }

    fn point(&self) -> Point {
        Point { service: self.client.service.id, stream: self.at.stream, seq: self.at.seq }
    }

    /// The access is over.
    pub(super) fn close(mut self, failure: Option<Error>) -> Result<Point> {
        self.end(failure)?;
        Ok(self.point())
    }

    fn end(&mut self, failure: Option<Error>) -> Result<()> {
        if core::mem::take(&mut self.open) { self.client.service.close_access(self.at, failure) } else { Ok(()) }
    }
}

impl Drop for OpenAccess {
    fn drop(&mut self) {
        let failure = self.when_dropped.take();
        // A device that has ended keeps nothing waiting.
        self.end(failure).ok();
    }
}

fn downcast<R: Any + Send + Sync>(grant: Grant) -> Result<Arc<R>> {
    grant.resource.downcast::<R>().map_err(|_| Error::ServiceMismatch {
        expected: type_name::<R>().into(),
        found: "a resource of another type; the backend's documentation names it".into(),
    })
}

/// The backend's own resource, and the memory behind it, which stays while this is held.
pub struct Resource<R> {
    resource: Arc<R>,
    handle: Handle,
}

impl<R> Resource<R> {
    /// The bytes it is the resource of.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl<R> Deref for Resource<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.resource
    }
}

impl<R> fmt::Debug for Resource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource<{}>({:?})", type_name::<R>(), self.handle)
    }
}
