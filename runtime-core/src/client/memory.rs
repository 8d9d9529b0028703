//! Allocating, and looking after the device's memory.

use super::Client;
use crate::allocation::AllocationMode;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::id::StreamId;
use crate::layout::{MemoryLayout, Rows, TensorDescriptor};
use crate::pool_layout::PoolLayout;
use crate::pressure::is_inside_hook;
use crate::report::{MemoryReport, MemoryUsage, ReportScope};
use crate::server::{MemoryServer, Region};
use crate::service::{Core, Service};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

impl Client {
    /// Reserves `size` bytes of device memory; what is in them is not defined. Returns at once: a reservation that fails lies on the
    /// buffer as a failure.
    ///
    /// Equivalent to: `cuMemAllocAsync`; `create_buffer`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] over the device's largest allocation; [`Error::ClientMemoryLimit`] over what this client may hold; the
    /// device's fault.
    pub fn empty(&self, size: u64) -> Result<Handle> {
        let limit = self.service.limits.max_allocation;
        if size > limit {
            return Err(Error::TooLarge { requested: size, limit });
        }
        let handle = self.new_handle(size)?;
        if size > 0 {
            let memory = handle.clone();
            let mode = self.service.allocation_mode(self.stream());
            let is_of_hook = is_inside_hook();
            self.enqueue(move |core, at| core.reserve(at, &memory, mode, is_of_hook))?;
        }
        Ok(handle)
    }

    /// [`empty`](Self::empty), filled with zeros.
    ///
    /// # Errors
    /// As for [`empty`](Self::empty).
    pub fn zeros(&self, size: u64) -> Result<Handle> {
        let handle = self.empty(size)?;
        self.fill(&handle, &[0])?;
        Ok(handle)
    }

    /// Memory for a tensor, laid out as it asks.
    ///
    /// # Errors
    /// As for [`empty`](Self::empty), and [`Error::SizeOverflow`].
    pub fn empty_tensor(&self, tensor: &TensorDescriptor) -> Result<MemoryLayout> {
        let (strides, size) = tensor.place(self.service.limits.row_pitch)?;
        Ok(MemoryLayout { memory: self.empty(size)?, strides })
    }

    /// Memory for several tensors: one reservation, in which each has an aligned range of its own.
    ///
    /// # Errors
    /// As for [`empty_tensor`](Self::empty_tensor).
    pub fn empty_tensors(&self, tensors: &[TensorDescriptor]) -> Result<Vec<MemoryLayout>> {
        let limits = &self.service.limits;
        let alignment = limits.binding_alignment.max(limits.copy_alignment).max(1);
        let overflow = || Error::SizeOverflow { what: "tensors".into() };
        let mut size = 0u64;
        let mut places = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let (strides, bytes) = tensor.place(limits.row_pitch)?;
            let start = size.checked_next_multiple_of(alignment).ok_or_else(overflow)?;
            size = start.checked_add(bytes).ok_or_else(overflow)?;
            places.push((start..size, strides));
        }
        let memory = self.empty(size)?;
        let layout = |(range, strides)| Ok(MemoryLayout { memory: memory.slice(range)?, strides });
        places.into_iter().map(layout).collect()
    }

    /// Reserves memory and writes these bytes into it.
    ///
    /// # Errors
    /// As for [`empty`](Self::empty).
    pub fn create(&self, data: Bytes) -> Result<Handle> {
        let handle = self.empty(data.len() as u64)?;
        self.write(&handle, data)?;
        Ok(handle)
    }

    /// Reserves memory and writes a slice into it. The slice is copied before the call returns.
    ///
    /// # Errors
    /// As for [`empty`](Self::empty).
    pub fn create_from_slice(&self, data: &[u8]) -> Result<Handle> {
        let handle = self.empty(data.len() as u64)?;
        self.write_slice(&handle, data)?;
        Ok(handle)
    }

    /// Reserves memory for a tensor and writes its elements, given without gaps.
    ///
    /// # Errors
    /// As for [`empty_tensor`](Self::empty_tensor), and [`Error::WrongLength`].
    pub fn create_tensor(&self, tensor: &TensorDescriptor, data: Bytes) -> Result<MemoryLayout> {
        check_dense(tensor, data.len())?;
        let layout = self.empty_tensor(tensor)?;
        self.write_layout(tensor, &layout, data)?;
        Ok(layout)
    }

    /// [`create_tensor`](Self::create_tensor) from a slice, which is copied before the call returns.
    ///
    /// # Errors
    /// As for [`create_tensor`](Self::create_tensor).
    pub fn create_tensor_from_slice(&self, tensor: &TensorDescriptor, data: &[u8]) -> Result<MemoryLayout> {
        check_dense(tensor, data.len())?;
        self.create_tensor(tensor, Bytes::copy_from_slice(data))
    }

    /// Several tensors in one reservation, each with its elements.
    ///
    /// # Errors
    /// As for [`create_tensor`](Self::create_tensor); then nothing was submitted.
    pub fn create_tensors(&self, tensors: Vec<(TensorDescriptor, Bytes)>) -> Result<Vec<MemoryLayout>> {
        tensors.iter().try_for_each(|(tensor, data)| check_dense(tensor, data.len()))?;
        let (tensors, data): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
        let layouts = self.empty_tensors(&tensors)?;
        for ((tensor, layout), data) in tensors.iter().zip(&layouts).zip(data) {
            self.write_layout(tensor, layout, data)?;
        }
        Ok(layouts)
    }

    /// [`create_tensors`](Self::create_tensors) from slices, which are copied before the call returns.
    ///
    /// # Errors
    /// As for [`create_tensors`](Self::create_tensors).
    pub fn create_tensors_from_slices(&self, tensors: &[(TensorDescriptor, &[u8])]) -> Result<Vec<MemoryLayout>> {
        tensors.iter().try_for_each(|(tensor, data)| check_dense(tensor, data.len()))?;
        self.create_tensors(
            tensors.iter().map(|(tensor, data)| (tensor.clone(), Bytes::copy_from_slice(data))).collect(),
        )
    }

    fn write_layout(&self, tensor: &TensorDescriptor, layout: &MemoryLayout, data: Bytes) -> Result<()> {
        let handle = &layout.memory;
        let rows = Rows::new(&tensor.shape, &layout.strides, tensor.elem.size(), handle.size_in_used())?;
        self.write_region(Region { handle: handle.clone(), rows: Some(rows) }, data).map(|_| ())
    }

    // ---- how memory is allocated

    /// Until the window closes, allocations of this client's stream are made in this mode. Windows nest; the innermost counts.
    pub fn allocation_mode(&self, mode: AllocationMode) -> AllocationWindow {
        let stream = self.stream();
        AllocationWindow {
            number: self.service.open_mode(stream, mode),
            service: self.service.clone(),
            stream,
            open: true,
        }
    }

    /// Runs `task` with persistent allocations: exact fit, never trimmed while they are in use.
    pub fn memory_persistent_allocation<T>(&self, task: impl FnOnce() -> T) -> T {
        let _window = self.allocation_mode(AllocationMode::Persistent);
        task()
    }

    /// Runs `task` with allocations that each have a driver allocation of their own, which goes back when they are free.
    pub fn memory_dedicated_allocation<T>(&self, task: impl FnOnce() -> T) -> T {
        let _window = self.allocation_mode(AllocationMode::Dedicated);
        task()
    }

    // ---- reports

    /// The few numbers of the device's memory that are asked for often.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; the device's fault.
    pub fn memory_usage(&self) -> Result<MemoryUsage> {
        self.ask_memory("memory_usage", |memory| Ok(memory.usage()))
    }

    /// The device's memory pool by pool.
    ///
    /// # Errors
    /// As for [`memory_usage`](Self::memory_usage).
    pub fn memory_report(&self, scope: ReportScope) -> Result<MemoryReport> {
        self.ask_memory("memory_report", move |memory| Ok(memory.report(scope)))
    }

    /// Returns every free page to the driver.
    ///
    /// Equivalent to: `cuMemPoolTrimTo(0)`.
    ///
    /// # Errors
    /// As for [`memory_usage`](Self::memory_usage).
    pub fn memory_cleanup(&self) -> Result<()> {
        self.ask_memory("memory_cleanup", |memory| memory.cleanup())
    }

    /// Puts another layout of pools in the place of the one the device has. It governs new pages at once; pages of the layout before go
    /// back to the driver as they become empty, and [`memory_report`](Self::memory_report) shows their pools until then. Installing a layout
    /// again changes nothing. Persistent and dedicated allocations are not touched.
    ///
    /// Equivalent to: `cudaDeviceSetMemPool`; a change of VMA pools without moving what is in them.
    ///
    /// # Errors
    /// [`Error::InvalidLayout`] for what this device cannot have, with nothing changed (a layout that contradicts itself cannot be made);
    /// as for [`memory_usage`](Self::memory_usage).
    pub fn install_memory_pools(&self, layout: &PoolLayout) -> Result<()> {
        const WHAT: &str = "install_memory_pools";
        let layout = layout.clone();
        let answer = self.ask_memory(WHAT, move |memory| memory.install_pools(&layout).transpose())?;
        answer.ok_or_else(|| self.unsupported(WHAT))
    }

    pub(super) fn ask_memory<T: Send + 'static>(
        &self,
        what: &'static str,
        ask: impl FnOnce(&mut dyn MemoryServer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = self.service.call(what, move |core: &mut Core, _| {
            core.free_dropped();
            core.server.progress();
            core.server.memory().map(ask)
        })?;
        answer.unwrap_or_else(|| Err(self.unsupported(what)))
    }
}

/// An allocation mode that holds for a stream until this is closed or dropped.
#[must_use = "the window closes when this is dropped"]
pub struct AllocationWindow {
    service: Arc<Service>,
    stream: StreamId,
    number: u64,
    open: bool,
}

impl AllocationWindow {
    /// Closes the window.
    ///
    /// # Errors
    /// [`Error::ScopeOrder`] when windows opened inside it are still open. It is closed all the same, and they stay.
    pub fn close(mut self) -> Result<()> {
        self.open = false;
        match self.service.close_mode(self.stream, self.number) {
            0 => Ok(()),
            open => Err(Error::ScopeOrder { what: "allocation mode".into(), open }),
        }
    }
}

impl Drop for AllocationWindow {
    fn drop(&mut self) {
        if self.open {
            self.service.close_mode(self.stream, self.number);
        }
    }
}

impl fmt::Debug for AllocationWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllocationWindow({} of {})", self.number, self.stream)
    }
}

pub(super) fn check_dense(tensor: &TensorDescriptor, got: usize) -> Result<()> {
    let (got, expected) = (got as u64, tensor.dense_size()?);
    if got == expected { Ok(()) } else { Err(Error::WrongLength { what: "tensor".into(), got, expected }) }
}
