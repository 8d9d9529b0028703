//! Moving bytes: host to device, device to host, on the device, and between devices.

use super::Client;
use crate::access::Access;
use crate::bytes::{Bytes, HostBuffer, LazySource};
use crate::elem::ElemType;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::layout::{MemoryLayout, Rows, TensorDescriptor, dense_size};
use crate::platform::Deadline;
use crate::promise::Promise;
use crate::server::{Pattern, Payload, Region};
use crate::service::{Core, Owed, Reading};
use crate::timeline::Point;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// A slice of at least this many bytes is worth asking for device memory in place, where the host can reach it: below, copying it once
/// more costs less than asking.
const IN_PLACE: usize = 256 << 10;

/// A slice of at most this many bytes is written by the caller, if the device is at rest: that keeps the device from others no longer
/// than queueing it would keep the caller.
const AT_ONCE: usize = 16 << 10;

/// A tensor in device memory, as a transfer sees it.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// The bytes; the tensor begins at their start.
    pub handle: &'a Handle,
    /// Elements by dimension, outermost first.
    pub shape: &'a [u64],
    /// The distance between neighbours, in elements, by dimension, outermost first.
    pub strides: &'a [u64],
    /// The elements' type.
    pub elem: ElemType,
}

impl<'a> TensorView<'a> {
    /// The tensor that was laid out so.
    pub fn new(layout: &'a MemoryLayout, tensor: &'a TensorDescriptor) -> Self {
        Self { handle: &layout.memory, shape: &tensor.shape, strides: &layout.strides, elem: tensor.elem }
    }

    fn region(&self) -> Result<Region> {
        let rows = Rows::new(self.shape, self.strides, self.elem.size(), self.handle.size_in_used())?;
        Ok(Region { handle: self.handle.clone(), rows: Some(rows) })
    }
}

impl Client {
    // ---- host to device

    /// Writes bytes in place, in the order of the stream. A failure that lay on them is gone.
    ///
    /// Equivalent to: `cuMemcpyHtoDAsync`; `write_buffer`.
    ///
    /// # Errors
    /// [`Error::WrongLength`] unless there are as many as the handle covers; [`Error::ForeignHandle`]; [`Error::Misaligned`]; the
    /// device's fault; [`Error::File`] when the bytes come from a file that cannot be read.
    pub fn write(&self, target: &Handle, data: Bytes) -> Result<Point> {
        self.write_region(Region::whole(target), data)
    }

    /// [`write`](Self::write) of a slice, which is copied before the call returns.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_slice(&self, target: &Handle, data: &[u8]) -> Result<Point> {
        self.check_length("write", data.len(), target.size_in_used())?;
        self.check_transfer(target)?;
        if !self.service.features.host_visible {
            return self.write(target, Bytes::copy_from_slice(data));
        }
        if data.len() <= AT_ONCE
            && !data.is_empty()
            && let Some(point) = self.try_operate("write", |core, at| {
                core.server.write(at, &Region::whole(target), Payload::Slice(data));
            })
        {
            return point;
        }
        if data.len() >= IN_PLACE {
            // Only where nobody has to be waited for: otherwise a copy for the queue is made, and the caller goes on.
            let access = self.open_access(target, Access::Overwrite)?;
            if let Ok(Some(Ok(grant))) = access.granted()
                && let Some(memory) = grant.host
            {
                memory.write(0, data);
                return access.close(None);
            }
            // What lay on the bytes was given up when the access was asked for: if they are not written after all, they say so.
            let written = self.write(target, Bytes::copy_from_slice(data));
            access.close(written.as_ref().err().cloned())?;
            return written;
        }
        self.write(target, Bytes::copy_from_slice(data))
    }

    /// [`write`](Self::write) of a tensor's elements, given without gaps.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and [`Error::UnsupportedStrides`].
    pub fn write_tensor(&self, target: &TensorView<'_>, data: Bytes) -> Result<Point> {
        self.write_region(target.region()?, data)
    }

    pub(super) fn write_region(&self, target: Region, data: Bytes) -> Result<Point> {
        self.check_length("write", data.len(), target.size())?;
        self.check_transfer(&target.handle)?;
        // What is not in memory yet is fetched here, where a failure can be told.
        data.as_slice()?;
        if data.is_empty() {
            return self.record();
        }
        let staged = self.service.stage(data.len());
        self.enqueue(move |core, at| {
            core.server.write(at, &target, Payload::Bytes(data));
            drop(staged);
        })
    }

    // ---- device to host

    /// Reads the bytes of each handle, after every write of any stream that was issued before.
    ///
    /// Equivalent to: `cuMemcpyDtoH`; a copy to a staging buffer and `map_async`.
    ///
    /// # Errors
    /// The failures that lie on the bytes, each once; the device's fault; [`Error::ForeignHandle`]; [`Error::Timeout`].
    pub fn read(&self, handles: &[&Handle]) -> Result<Vec<Bytes>> {
        self.read_async(handles)?.wait()
    }

    /// [`read`](Self::read), waiting at most `timeout` without progress.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`Error::Busy`] when another thread had the device to itself that long.
    pub fn read_timeout(&self, handles: &[&Handle], timeout: Duration) -> Result<Vec<Bytes>> {
        let regions = handles.iter().map(|handle| Region::whole(handle)).collect();
        self.read_regions_until(regions, Some(&Deadline::after(timeout)))?.wait_for(timeout)
    }

    /// [`read`](Self::read) of one handle.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_one(&self, handle: &Handle) -> Result<Bytes> {
        Ok(self.read(&[handle])?.pop().unwrap_or_default())
    }

    /// [`read_one`](Self::read_one) for tests.
    ///
    /// # Panics
    /// On any error.
    pub fn read_one_unchecked(&self, handle: &Handle) -> Bytes {
        unwrap(self.read_one(handle))
    }

    /// [`read`](Self::read) as a future. What it reads is what the device holds after everything issued before this call.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`]; the device's fault.
    pub fn read_async(&self, handles: &[&Handle]) -> Result<Reading> {
        self.read_regions(handles.iter().map(|handle| Region::whole(handle)).collect())
    }

    /// Reads the bytes of a handle into a slice, with one copy where the host can reach the device's memory.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and [`Error::WrongLength`].
    pub fn read_into(&self, handle: &Handle, into: &mut [u8]) -> Result<()> {
        self.check_length("read_into", into.len(), handle.size_in_used())?;
        if into.len() >= IN_PLACE && self.service.features.host_visible {
            let access = self.open_access(handle, Access::Read)?;
            if let Some(memory) = access.wait()?.host {
                memory.read(0, into);
                return access.close(None).map(|_| ());
            }
        }
        self.read_one(handle)?.copy_into(into)
    }

    /// Bytes that are read when they are first looked at: the device's state at that moment. They keep the memory alive until then.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`]. What fails at the first look is answered there, and the next look tries again.
    pub fn read_lazy(&self, handle: &Handle) -> Result<Bytes> {
        self.local(handle)?;
        let length =
            usize::try_from(handle.size_in_used()).map_err(|_| Error::SizeOverflow { what: "read_lazy".into() })?;
        Ok(Bytes::lazy(length, Arc::new(OnLook { client: self.clone(), handle: handle.clone(), length })))
    }

    /// [`read_lazy`](Self::read_lazy) after a check of the failures known at the call.
    ///
    /// # Errors
    /// As for [`read_lazy`](Self::read_lazy) and [`check`](Self::check).
    pub async fn read_lazy_async(&self, handle: &Handle) -> Result<Bytes> {
        self.check(&[handle])?;
        self.read_lazy(handle)
    }

    /// Reads a tensor's elements without gaps.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and [`Error::UnsupportedStrides`].
    pub fn read_tensor(&self, tensor: &TensorView<'_>) -> Result<Bytes> {
        Ok(self.read_tensors(&[*tensor])?.pop().unwrap_or_default())
    }

    /// Reads the elements of several tensors.
    ///
    /// # Errors
    /// As for [`read_tensor`](Self::read_tensor).
    pub fn read_tensors(&self, tensors: &[TensorView<'_>]) -> Result<Vec<Bytes>> {
        self.read_tensors_async(tensors)?.wait()
    }

    /// [`read_tensors`](Self::read_tensors) as a future.
    ///
    /// # Errors
    /// As for [`read_async`](Self::read_async), and [`Error::UnsupportedStrides`].
    pub fn read_tensors_async(&self, tensors: &[TensorView<'_>]) -> Result<Reading> {
        self.read_regions(tensors.iter().map(TensorView::region).collect::<Result<_>>()?)
    }

    /// [`read_tensor`](Self::read_tensor) for tests.
    ///
    /// # Panics
    /// On any error.
    pub fn read_tensor_unchecked(&self, tensor: &TensorView<'_>) -> Bytes {
        unwrap(self.read_tensor(tensor))
    }

    fn read_regions(&self, regions: Vec<Region>) -> Result<Reading> {
        self.read_regions_until(regions, None)
    }

    /// Queues a read, until the deadline where there is one, else as long as any operation.
    fn read_regions_until(&self, regions: Vec<Region>, deadline: Option<&Deadline>) -> Result<Reading> {
        regions.iter().try_for_each(|region| self.check_transfer(&region.handle))?;
        let promise = Promise::new();
        let owed = Owed::new(&promise, &self.service);
        let read = move |core: &mut Core, at| core.server.read(at, &regions, owed.hand_over());
        let point = match deadline {
            Some(deadline) => self.service.enqueue_until(self.stream(), deadline, read)?,
            None => self.enqueue(read)?,
        };
        Ok(Reading { service: self.service.clone(), point, promise })
    }

    // ---- on the device

    /// Copies bytes on the device.
    ///
    /// Equivalent to: `cuMemcpyDtoDAsync`; `vkCmdCopyBuffer`; `copy_buffer_to_buffer`.
    ///
    /// # Errors
    /// [`Error::WrongLength`], [`Error::Overlap`], [`Error::ForeignHandle`], [`Error::Misaligned`]; the device's fault.
    pub fn copy(&self, source: &Handle, target: &Handle) -> Result<Point> {
        self.copy_regions(Region::whole(source), Region::whole(target))
    }

    /// Copies a tensor's elements to a tensor of the same shape with other strides.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy), and [`Error::UnsupportedStrides`].
    pub fn copy_tensor(&self, source: &TensorView<'_>, target: &TensorView<'_>) -> Result<Point> {
        if source.shape != target.shape {
            let (shape, strides) = (target.shape.into(), source.shape.into());
            return Err(Error::UnsupportedStrides { shape, strides, why: "the shapes differ".into() });
        }
        self.copy_regions(source.region()?, target.region()?)
    }

    fn copy_regions(&self, source: Region, target: Region) -> Result<Point> {
        self.check_transfer(&source.handle)?;
        self.check_transfer(&target.handle)?;
        let (got, expected) = (source.size(), target.size());
        if got != expected {
            return Err(Error::WrongLength { what: "copy".into(), got, expected });
        }
        if source.handle.overlap(&target.handle) {
            return Err(Error::Overlap { what: "copy".to_string(), first: 0, second: 1 });
        }
        if got == 0 {
            return self.record();
        }
        self.enqueue(move |core, at| core.server.copy(at, &source, &target))
    }

    /// Fills with a pattern of 1, 2, 4, 8 or 16 bytes, again and again.
    ///
    /// Equivalent to: `cuMemsetD8Async` and its like; `vkCmdFillBuffer`; `clear_buffer`.
    ///
    /// # Errors
    /// [`Error::WrongLength`] for another pattern, [`Error::Misaligned`] when its length does not divide the handle's,
    /// [`Error::ForeignHandle`]; the device's fault.
    pub fn fill(&self, target: &Handle, pattern: &[u8]) -> Result<Point> {
        self.check_transfer(target)?;
        let (length, size) = (pattern.len() as u64, target.size_in_used());
        let pattern = Pattern::new(pattern)?;
        if !size.is_multiple_of(length) {
            return Err(Error::Misaligned { what: "size of a fill".into(), value: size, alignment: length });
        }
        if size == 0 {
            return self.record();
        }
        let target = target.clone();
        self.enqueue(move |core, at| core.server.fill(at, &target, pattern))
    }

    // ---- between devices

    /// A copy of these bytes on another device of the process, of any backend. Nobody is blocked: the other device's stream waits for
    /// the bytes. When they cannot be read, their failure lies on the copy.
    ///
    /// Equivalent to: `cuMemcpyPeerAsync`, through the host.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`] unless the bytes are this client's; either device's fault; what [`empty`](Self::empty) answers.
    pub fn to_client(&self, source: &Handle, target: &Client) -> Result<Handle> {
        self.transfer(Region::whole(source), target)
    }

    /// A copy of a tensor's elements on another device, without gaps.
    ///
    /// # Errors
    /// As for [`to_client`](Self::to_client), and [`Error::UnsupportedStrides`].
    pub fn to_client_tensor(&self, source: &TensorView<'_>, target: &Client) -> Result<MemoryLayout> {
        let memory = self.transfer(source.region()?, target)?;
        debug_assert_eq!(dense_size(source.shape, source.elem.size()).ok(), Some(memory.size_in_used()));
        let (strides, _) = TensorDescriptor::contiguous(source.shape, source.elem).place(1)?;
        Ok(MemoryLayout { memory, strides })
    }

    fn transfer(&self, source: Region, target: &Client) -> Result<Handle> {
        self.check_transfer(&source.handle)?;
        let copy = target.empty(source.size())?;
        if copy.is_empty() {
            return Ok(copy);
        }
        if target.service.id == self.service.id {
            let whole = Region::whole(&copy);
            target.enqueue(move |core, at| core.server.copy(at, &source, &whole))?;
            return Ok(copy);
        }
        let reading = self.read_regions(alloc::vec![source])?;
        target.service.lean_on(&self.service, &reading.promise);
        let whole = Region::whole(&copy);
        target.enqueue(move |core, at| core.server.write(at, &whole, Payload::Promised(reading.promise)))?;
        Ok(copy)
    }

    // ---- checks

    fn check_transfer(&self, handle: &Handle) -> Result<()> {
        self.local(handle)?;
        let alignment = self.service.limits.copy_alignment;
        for (what, value) in
            [("offset of a transfer", handle.range().start), ("size of a transfer", handle.size_in_used())]
        {
            if !value.is_multiple_of(alignment) {
                return Err(Error::Misaligned { what: what.into(), value, alignment });
            }
        }
        Ok(())
    }

    fn check_length(&self, what: &'static str, got: usize, expected: u64) -> Result<()> {
        let got = got as u64;
        if got == expected { Ok(()) } else { Err(Error::WrongLength { what: what.into(), got, expected }) }
    }
}

/// Reads device memory when its bytes are first looked at.
struct OnLook {
    client: Client,
    handle: Handle,
    length: usize,
}

impl LazySource for OnLook {
    fn load(&self) -> Result<HostBuffer> {
        let mut buffer = HostBuffer::zeroed(self.length)?;
        self.client.read_into(&self.handle, buffer.as_mut_slice())?;
        Ok(buffer)
    }
}

fn unwrap<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
