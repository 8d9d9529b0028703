//! The [`Driver`] of the host: encodes operations for streams, and keeps what the device was told.
//!
//! The driver trusts what the trait lets it trust, and checks the rest: a place outside its page, or rows outside their place, are typed
//! errors and nothing is encoded. `unsafe` here is the trait's signature, and spans made under its promise.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use core::fmt;
use smallvec::SmallVec;
use trunnion_backend_core::driver::{
    Compiled, Driver, DriverGrid, DriverLaunch, DriverMemory, DriverRefusal, Imported, Outcome, Place, StoredCode,
};
use trunnion_backend_core::rows::{check_extent, check_length};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::kernel::{KernelHandle, KernelReader};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::DeviceProperties;
use trunnion_runtime_core::server::{Bounds, Grant, HostMemory, Pattern};
use trunnion_runtime_core::staging::PinnedMemory;

use crate::device;
use crate::finish::Finish;
use crate::kernel::{Counts, HostCode, LaunchJob};
use crate::options::HostOptions;
use crate::pinned;
use crate::pool;
use crate::storage::{ALIGNMENT, Account, HostPage, HostResource, Kind};
use crate::stream::{Engine, HostStream, Memory, Operation};
use crate::transfer::Mover;

/// One host device.
///
/// The resource in its grants is an `Arc<`[`HostResource`]`>`. Memory of somebody else comes in as [`HostImport`](crate::HostImport). What its
/// kernels' [`Bounds`] say makes no difference: every access is checked, and one outside a buffer is a failure that names the kernel and the
/// buffer.
pub struct HostDriver {
    properties: DeviceProperties,
    options: HostOptions,
    engine: Arc<Engine>,
    account: Arc<Account>,
    /// What may be page-locked, where there is such memory.
    pinned: Option<Arc<Account>>,
    allocations: u64,
    pins: u64,
    submissions: u64,
    lost: bool,
    /// No option asks for memory the host does not see, for late completions or for a loss: short writes need no batch.
    is_plain: bool,
}

impl HostDriver {
    /// The device `index` of those that the options describe.
    ///
    /// # Errors
    /// [`Error::NoDevice`]; [`Error::BackendUnavailable`] when an option cannot be had on this machine.
    pub fn new(index: u32, options: &HostOptions) -> Result<Self> {
        let index = device::checked_index(index, options)?;
        let threads = if options.threads == 0 { pool::cores() } else { options.threads.min(pool::cores()) };
        let mover = Mover::new(threads, options.separate_memory);
        Ok(Self {
            properties: device::properties(index, options),
            options: options.clone(),
            engine: Arc::new(Engine { finish: Finish::new(options)?, mover, threads }),
            account: Arc::new(Account::new(device::memory(options))),
            pinned: options.limits.pinned_memory.map(|limit| Arc::new(Account::new(limit))),
            allocations: 0,
            pins: 0,
            submissions: 0,
            lost: false,
            is_plain: !options.separate_memory
                && options.delay.is_zero()
                && options.reorder.is_none()
                && options.lose_after.is_none(),
        })
    }

    fn present(&self) -> Result<()> {
        if self.lost { Err(Error::DeviceLost { cause: self.cause() }) } else { Ok(()) }
    }

    /// Where a write of `length` bytes goes.
    ///
    /// # Safety
    /// As for [`memory`].
    unsafe fn write_target(&self, length: usize, target: Place<'_, HostPage>, rows: &Rows) -> Result<Memory> {
        self.present()?;
        check_extent("target of a write", rows, target.size)?;
        check_length("write", length as u64, rows)?;
        // SAFETY: the caller promises what a span needs.
        unsafe { memory(target) }
    }

    fn cause(&self) -> alloc::string::String {
        alloc::format!("option `lose_after`: {} batches were submitted", self.submissions)
    }
}

/// The bytes of a place.
///
/// # Safety
/// As for [`Driver::launch`].
unsafe fn memory(place: Place<'_, HostPage>) -> Result<Memory> {
    // SAFETY: the caller promises what a span needs: the place stays, and nothing that conflicts runs at the same time.
    let span = unsafe { place.page.span(place.offset, place.size) }?;
    Ok(Memory { span, _page: place.page.clone() })
}

// SAFETY: operations are run in the order of their encoding, on the spans they were encoded with, after `submit` and the stream's waits.
unsafe impl Driver for HostDriver {
    type Page = HostPage;
    type Stream = HostStream;
    type Code = HostCode;

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        device::reader()
    }

    fn start(&mut self, notifier: Notifier) {
        self.engine.finish.set_notifier(notifier);
    }

    fn allocate(&mut self, size: u64) -> Result<HostPage, DriverRefusal> {
        if self.lost {
            return Err(DriverRefusal { message: self.cause(), out_of_memory: false });
        }
        let count = self.allocations;
        self.allocations += 1;
        if self.options.refuse_allocation == Some(self.allocations) {
            let message = alloc::format!("option `refuse_allocation`: allocation {}", self.allocations);
            return Err(DriverRefusal { message, out_of_memory: true });
        }
        let most = self.properties.limits.max_allocation;
        if size > most.next_multiple_of(ALIGNMENT) {
            let message = alloc::format!("{size} bytes requested, an allocation has at most {most}");
            return Err(DriverRefusal { message, out_of_memory: false });
        }
        HostPage::allocate(size, Kind::of(count, self.options.memory_types), &self.account)
    }

    fn release(&mut self, page: HostPage) {
        drop(page);
    }

    fn page_alignment(&self) -> u64 {
        ALIGNMENT
    }

    fn free_memory(&self) -> Option<u64> {
        Some(self.account.free())
    }

    fn memory(&self) -> DriverMemory {
        let (limit, free) = (self.account.limit(), self.account.free());
        // Nobody else has a share in what this device was given.
        DriverMemory {
            total: Some(limit),
            free: Some(free),
            process_limit: Some(limit),
            process_used: Some(limit - free),
        }
    }

    fn has_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
        let refused = |message| DriverRefusal { message, out_of_memory: false };
        if self.lost {
            return Err(refused(self.cause()));
        }
        self.pins += 1;
        match &self.pinned {
            _ if self.options.refuse_pin == Some(self.pins) => {
                Err(refused(alloc::format!("option `refuse_pin`: request {}", self.pins)))
            }
            Some(account) => pinned::pin(size, account),
            None => Err(refused("option `pinned_memory` is not set".to_string())),
        }
    }

    fn compile(&mut self, kernel: &KernelHandle, _: Bounds, _: Option<&[u8]>) -> Result<Compiled<HostCode>> {
        self.present()?;
        if self.options.fail_compile.as_deref() == Some(kernel.name()) {
            let message = "option `fail_compile` names this kernel".to_string();
            return Err(Error::Compile { kernel: kernel.name().to_string(), message, line: Some(1) });
        }
        Ok(Compiled { code: HostCode::new(kernel)?, stored: StoredCode::None })
    }

    fn compiler_identity(&self) -> &str {
        // Nothing is compiled and nothing stored.
        concat!("trunnion-host ", env!("CARGO_PKG_VERSION"))
    }

    fn open_stream(&mut self) -> Result<HostStream> {
        self.present()?;
        Ok(HostStream::new(&self.engine))
    }

    fn close_stream(&mut self, stream: HostStream) {
        drop(stream);
    }

    fn barrier(&mut self, stream: &mut HostStream) {
        stream.barrier();
    }

    fn wait(&mut self, stream: &mut HostStream, other: &mut HostStream, seq: u64) {
        stream.wait(other, seq);
    }

    fn submit(&mut self, stream: &mut HostStream, seq: u64) -> Result<()> {
        self.lost |= self.options.lose_after == Some(self.submissions);
        if let Err(lost) = self.present() {
            stream.discard();
            return Err(lost);
        }
        self.submissions += 1;
        stream.submit(seq);
        Ok(())
    }

    fn poll(&mut self, stream: &mut HostStream, outcome: &mut Outcome) -> Result<u64> {
        self.present()?;
        Ok(stream.poll(outcome))
    }

    unsafe fn launch(&mut self, stream: &mut HostStream, seq: u64, launch: DriverLaunch<'_, Self>) -> Result<()> {
        self.present()?;
        let mut spans = SmallVec::new();
        let mut pages: SmallVec<[HostPage; 4]> = SmallVec::new();
        let mut hold = |place: Place<'_, HostPage>| {
            if !pages.iter().any(|page| Arc::ptr_eq(&page.0, &place.page.0)) {
                pages.push(place.page.clone());
            }
            // SAFETY: the caller promises what a span needs.
            unsafe { place.page.span(place.offset, place.size) }
        };
        for place in launch.buffers {
            spans.push(hold(*place)?);
        }
        let counts = match launch.grid {
            DriverGrid::Static(counts) => Counts::Known(counts),
            DriverGrid::Dynamic(place) if place.size < 12 => {
                return Err(Error::OutOfRange { what: "grid in memory".into(), range: 0..12, size: place.size });
            }
            DriverGrid::Dynamic(place) => Counts::InMemory(hold(place)?, self.properties.limits.max_grid),
        };
        let job = LaunchJob::new(launch.code, counts, spans, launch.parameters, pages)?;
        stream.encode(seq, Operation::Launch(Arc::new(job)));
        Ok(())
    }

    unsafe fn copy(
        &mut self,
        stream: &mut HostStream,
        seq: u64,
        source: Place<'_, HostPage>,
        source_rows: &Rows,
        target: Place<'_, HostPage>,
        target_rows: &Rows,
    ) -> Result<()> {
        self.present()?;
        check_extent("source of a copy", source_rows, source.size)?;
        check_extent("target of a copy", target_rows, target.size)?;
        check_length("copy", source_rows.size(), target_rows)?;
        // SAFETY: the caller promises what spans need.
        let (source, target) = unsafe { (memory(source)?, memory(target)?) };
        let (source_rows, target_rows) = (source_rows.clone(), target_rows.clone());
        stream.encode(seq, Operation::Copy { source, source_rows, target, target_rows });
        Ok(())
    }

    unsafe fn fill(
        &mut self,
        stream: &mut HostStream,
        seq: u64,
        target: Place<'_, HostPage>,
        pattern: Pattern,
    ) -> Result<()> {
        self.present()?;
        // SAFETY: the caller promises what a span needs.
        let target = unsafe { memory(target)? };
        stream.encode(seq, Operation::Fill { target, pattern });
        Ok(())
    }

    unsafe fn write(
        &mut self,
        stream: &mut HostStream,
        seq: u64,
        data: Bytes,
        target: Place<'_, HostPage>,
        rows: &Rows,
    ) -> Result<()> {
        // SAFETY: the caller promises what a span needs.
        let target = unsafe { self.write_target(data.len(), target, rows)? };
        stream.encode(seq, Operation::Write { data, target, rows: rows.clone() });
        Ok(())
    }

    unsafe fn write_now(&mut self, data: &[u8], target: Place<'_, HostPage>, rows: &Rows) -> bool {
        if !self.is_plain {
            return false;
        }
        // SAFETY: the caller promises what a span needs.
        let Ok(target) = (unsafe { self.write_target(data.len(), target, rows) }) else { return false };
        self.engine.mover.write(data, target.span, rows);
        true
    }

    unsafe fn read(
        &mut self,
        stream: &mut HostStream,
        seq: u64,
        index: usize,
        source: Place<'_, HostPage>,
        rows: &Rows,
        into: HostBuffer,
    ) -> Result<()> {
        self.present()?;
        check_extent("source of a read", rows, source.size)?;
        check_length("read", into.len() as u64, rows)?;
        // SAFETY: the caller promises what a span needs.
        let source = unsafe { memory(source)? };
        stream.encode(seq, Operation::Read { index, source, rows: rows.clone(), into });
        Ok(())
    }

    unsafe fn grant(&mut self, place: Place<'_, HostPage>, access: Access) -> Grant {
        match HostResource::new(place.page, place.offset, place.size, access).map(Arc::new) {
            Some(resource) => {
                let host = (!self.options.separate_memory).then(|| resource.clone() as Arc<dyn HostMemory>);
                Grant { resource, host }
            }
            // A place outside its page, which the caller promised not to ask for, is no bytes.
            None => Grant { resource: Arc::new(()), host: None },
        }
    }

    fn import(&mut self, foreign: &Foreign) -> Result<Imported<HostPage>> {
        self.present()?;
        Ok(Imported { page: HostPage::import(foreign)?, offset: 0 })
    }

    fn drain(&mut self, deadline: &Deadline) -> bool {
        self.engine.finish.drain(deadline)
    }
}

impl fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDriver")
            .field("device", &self.properties.info.device)
            .field("options", &self.options.to_string())
            .field("submissions", &self.submissions)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}
