//! What belongs to somebody else, used here without a copy, and what is handed out to somebody else.

use super::Client;
use super::resource::Resource;
use crate::access::Access;
use crate::error::{Error, Result};
use crate::foreign::{Event, Foreign, ForeignMemory};
use crate::handle::Handle;
use crate::id::StreamId;
use crate::promise::Promise;
use crate::server::Until;
use crate::service::Owed;
use crate::timeline::{Moment, Point};
use alloc::sync::Arc;
use core::any::{Any, TypeId, type_name};

impl Client {
    /// Memory of somebody else as a handle of this device, without a copy. Which types of memory a device takes is said by its backend's
    /// documentation; what keeps the memory there is dropped as soon as the last handle is gone and everything issued on the memory is done, on
    /// a thread that does not have the device, or where this call is refused. A device without a thread gets to it when it is called next.
    ///
    /// The memory counts for no pool, no budget and no client's limit; a report has it in a line of its own. What somebody else does with
    /// it meanwhile is not ordered against the device's work: points do that, of [`import_event`](Self::import_event) and
    /// [`export_event`](Self::export_event). Memory that is imported twice at the same time is two buffers of which nobody knows that they are
    /// one.
    ///
    /// A device whose work never ends keeps what it used: what was to be dropped is then leaked.
    ///
    /// Waits until the device has taken the memory, for nothing that runs on it.
    ///
    /// Equivalent to: `cuImportExternalMemory`; `VkImportMemoryFdInfoKHR`; `Device::create_buffer_from_hal` of wgpu.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] for memory of another type than the device takes, [`Error::Misaligned`] and what else the driver refuses,
    /// [`Error::Unsupported`], the device's fault, [`Error::Timeout`].
    pub fn import<M: ForeignMemory>(&self, memory: M) -> Result<Handle> {
        let size = memory.size();
        let foreign = Foreign::new(memory);
        let handle = self.service.shared.handles.create_urgent(size);
        let handle = handle.ok_or(Error::Busy { what: "every handle this process can have is in use".into() })?;
        if size > 0 {
            let memory = handle.clone();
            self.ask_foreign("import", self.stream(), foreign, move |server, at, foreign| {
                server.import(at, &memory, foreign)
            })?;
        }
        Ok(handle)
    }

    /// The backend's own resource behind a handle, to be used by somebody else: as [`get_resource`](Self::get_resource), but what is handed out
    /// may be written, so that this waits for everything issued on the bytes, reads too. While the resource is held the memory stays
    /// alive and where it is.
    ///
    /// What somebody else does with it is not ordered against the device's work: points do that, or
    /// [`with_resource`](Self::with_resource).
    ///
    /// Equivalent to: `cuMemExportToShareableHandle`; `vkGetMemoryFdKHR`, where the resource has that.
    ///
    /// # Errors
    /// As for [`get_resource`](Self::get_resource).
    pub fn export<R: Any + Send + Sync>(&self, handle: &Handle) -> Result<Resource<R>> {
        self.resource_for(handle, Access::ReadWrite)
    }

    /// The point at which an event of somebody else has happened. It is a point like any other: streams of this device and of others wait
    /// for it with [`wait`](Self::wait), programs with [`done`](Self::done).
    ///
    /// Every device takes an [`Event`] of the host; which others, its backend's documentation says. An event that never happens is
    /// waited for until whoever waits gives up, and abandoned when the device is shut down.
    ///
    /// ```no_run
    /// # use trunnion_runtime_core::{client::Client, error::Error, foreign::Event};
    /// # fn main() -> Result<(), Error> {
    /// # let client = Client::open("host", 0)?;
    /// let (ready, signal) = Event::new();
    /// client.wait(client.import_event(ready)?)?;
    /// // What is issued from here on begins when the signal is given, by whichever thread has it.
    /// let zeros = client.zeros(4096)?;
    /// signal.give();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Equivalent to: `cuImportExternalSemaphore`; a wait on an imported `VkSemaphore`.
    ///
    /// # Errors
    /// As for [`import`](Self::import).
    pub fn import_event<E: Any + Send + Sync>(&self, event: E) -> Result<Point> {
        // It happens in no order with anything else: it has a stream to itself.
        let (stream, foreign) = (StreamId::new(), Foreign::new(event));
        if let Ok(event) = foreign.get::<Event>() {
            let promise = event.promise();
            return self.service.enqueue(stream, move |core, at| core.server.wait(at, Until::Promised(promise)));
        }
        self.ask_foreign("import_event", stream, foreign, |server, at, event| {
            server.import_event(at, event)?;
            Ok(at)
        })
        .map(|Moment { stream, seq }| Point { service: self.service.id, stream, seq })
    }

    /// An event, for somebody else, that happens when a point of any device of the process is done: an [`Event`] of the host, or one of
    /// the type that the backend's documentation names. An event of the backend's own may never happen on a device that is lost or shut
    /// down.
    ///
    /// Equivalent to: `cuEventRecord` into an exported event; a timeline semaphore with the value that it will have.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] when the backend's events are of another type, [`Error::Unsupported`] where it has none,
    /// [`Error::ForeignPoint`] when the point's device is not running, the device's fault, [`Error::Timeout`].
    pub fn export_event<E: Any + Send + Sync>(&self, point: Point) -> Result<Arc<E>> {
        let event: Arc<dyn Any + Send + Sync> = if TypeId::of::<E>() == TypeId::of::<Event>() {
            Arc::new(self.host_event(point)?)
        } else {
            let stream = StreamId::new();
            let mut own = self.clone();
            own.set_stream(stream);
            own.wait(point)?;
            let unsupported = self.unsupported("an event of its own");
            self.service.call("export_event", move |core, seq| {
                let server = core.server.foreign().ok_or(unsupported)?;
                server.export_event(Moment { stream, seq })
            })??
        };
        event.downcast::<E>().map_err(|_| Error::ServiceMismatch {
            expected: type_name::<E>().into(),
            found: "an event of another type; the backend's documentation names it".into(),
        })
    }

    fn host_event(&self, point: Point) -> Result<Event> {
        let service = self.service_of(point)?;
        let promise = Promise::new();
        let owed = Owed::new(&promise, &service);
        service.submit(move |core, _| core.server.signal(point.into(), owed.hand_over()))?;
        Ok(Event::of(promise))
    }

    fn ask_foreign<T: Send + 'static>(
        &self,
        what: &'static str,
        stream: StreamId,
        foreign: Foreign,
        ask: impl FnOnce(&mut dyn crate::server::ForeignServer, Moment, &Foreign) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let unsupported = self.unsupported(what);
        // This thread holds it until it has the answer, so that it is not the device's where what is refused is dropped.
        let theirs = foreign.clone();
        self.service.call(what, move |core, seq| {
            core.ask_foreign(theirs, unsupported, |server, foreign| ask(server, Moment { stream, seq }, foreign))
        })?
    }
}
