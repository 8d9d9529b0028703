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
        let access = self.open_access(handle, Access::Read)?;
        let resource = downcast(access.wait()?)?;
        access.close(None)?;
        Ok(Resource { resource, handle: handle.clone() })
    }

    /// Runs `task` with the backend's own resource behind a handle. Everything that must come before such an access is done when it
    /// starts, and everything that must come after waits until it ends: the point answered. `task` is given the stream of the access.
    ///
    /// # Errors
    /// As for [`get_resource`](Self::get_resource). A panic inside ends the access.
    pub fn with_resource<R: Any + Send + Sync, T>(
        &self,
        handle: &Handle,
        access: Access,
        task: impl FnOnce(&R, StreamId) -> T,
    ) -> Result<(T, Point)> {
        let access = self.open_access(handle, access)?;
        let resource = downcast::<R>(access.wait()?)?;
        let output = task(&resource, access.at.stream);
        Ok((output, access.close(None)?))
    }

    /// Asks for device memory in place.
    pub(super) fn open_access(&self, handle: &Handle, access: Access) -> Result<OpenAccess> {
        self.local(handle)?;
        let promise = Promise::new();
        if handle.is_empty() {
            return Err(Error::OutOfRange { what: "access in place".into(), range: 0..0, size: 0 });
        }
        let (target, owed) = (handle.clone(), Owed::new(&promise, self.service.id));
        // An access ends when its user says so, in no order with anything else: it has a stream to itself.
        let stream = StreamId::new();
        let point = self.service.call("access", move |core, seq| {
            let at = Moment { stream, seq };
            core.server.access().map(|server| {
                server.open(at, &target, access, owed.hand_over());
                at
            })
        })?;
        let at = point.ok_or_else(|| self.unsupported("access in place"))?;
        Ok(OpenAccess { client: self.clone(), at, promise, open: true })
    }
}

/// An access that was asked for, until it is closed or dropped.
pub(super) struct OpenAccess {
    client: Client,
    at: Moment,
    promise: Promise<Grant>,
    open: bool,
}

impl OpenAccess {
    /// The answer, if it is there.
    pub(super) fn granted(&self) -> Option<Result<Grant>> {
        self.promise.get()
    }

    /// Waits for the answer.
    pub(super) fn wait(&self) -> Result<Grant> {
        let service = &self.client.service;
        service.wait(Some(self.point()), service.settings.wait_timeout, |waker| self.promise.poll(waker))
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
        if core::mem::take(&mut self.open) {
            let at = self.at;
            self.client.service.submit(move |core, _| {
                if let Some(server) = core.server.access() {
                    server.close(at, failure);
                }
            })?;
        }
        Ok(())
    }
}

impl Drop for OpenAccess {
    fn drop(&mut self) {
        // A device that has ended keeps nothing waiting.
        self.end(None).ok();
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
