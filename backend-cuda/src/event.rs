//! Events: moments of streams, for other streams, for the host, and for somebody else.

use crate::device::Device;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use cudarc::driver::sys;
use std::sync::{Mutex, OnceLock};
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::error::{Error, Result};

/// An event of the device's own, which is recorded once for each time it is taken.
pub(crate) struct Event {
    device: Arc<Device>,
    raw: sys::CUevent,
    moment: AtomicU8,
    /// Why it stands for nothing that came about.
    failure: OnceLock<Error>,
    /// Of one that is handed out: whether what it comes after was submitted.
    is_submitted: AtomicBool,
}

// SAFETY: a handle, which the driver takes on any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// What an event stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Moment {
    /// No stream was told to record it yet.
    Coming,
    /// A stream records it when it gets there.
    Recorded,
    /// The moment is over, whether it was recorded or not, or will never come.
    Over,
}

impl Event {
    /// An event that keeps no time, and that a thread sleeps for. The context is current.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        // CU_EVENT_BLOCKING_SYNC and CU_EVENT_DISABLE_TIMING.
        const FLAGS: u32 = 1 | 2;
        let mut raw = ptr::null_mut();
        // SAFETY: the place is for a handle, and the context is current.
        device.check("cuEventCreate", unsafe { (device.functions().cuEventCreate)(&raw mut raw, FLAGS) })?;
        Ok(Self {
            device: device.clone(),
            raw,
            moment: AtomicU8::new(Moment::Coming as u8),
            failure: OnceLock::new(),
            is_submitted: AtomicBool::new(false),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn raw(&self) -> sys::CUevent {
        self.raw
    }

    pub(crate) fn moment(&self) -> Moment {
        match self.moment.load(Ordering::Acquire) {
            0 => Moment::Coming,
            1 => Moment::Recorded,
            _ => Moment::Over,
        }
    }

    /// It is to stand for another moment.
    pub(crate) fn renew(&mut self) {
        *self.moment.get_mut() = Moment::Coming as u8;
        self.failure = OnceLock::new();
    }

    /// What it comes after was submitted.
    pub(crate) fn set_submitted(&self) {
        self.is_submitted.store(true, Ordering::Release);
    }

    pub(crate) fn is_submitted(&self) -> bool {
        self.is_submitted.load(Ordering::Acquire)
    }

    /// Has it recorded behind what the stream was given. The context is current.
    ///
    /// # Errors
    /// What the driver answers; its moment is then still to come, and [`set_over`](Self::set_over) says when it has.
    pub(crate) fn record(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: both are the device's.
        let code = unsafe { (self.device.functions().cuEventRecord)(self.raw, stream) };
        self.device.check("cuEventRecord", code)?;
        self.moment.store(Moment::Recorded as u8, Ordering::Release);
        Ok(())
    }

    /// The moment is over, or will never come: nobody need wait for it. Whether that was still to come.
    pub(crate) fn set_over(&self) -> bool {
        self.moment.swap(Moment::Over as u8, Ordering::AcqRel) == Moment::Coming as u8
    }

    /// What it stands for failed, which whoever comes after it does too. Before it is recorded, or its moment is over.
    pub(crate) fn fail(&self, why: &Error) {
        let _ = self.failure.set(why.clone());
    }

    /// Nothing more comes of what it stands for, for that reason; unless it has come about. Whether that was still to come.
    pub(crate) fn give_up(&self, why: &dyn fmt::Display) -> bool {
        match self.moment() {
            Moment::Coming => self.fail(&self.failed_for(why)),
            // It may or may not have happened.
            Moment::Recorded if self.device.is_dead() => self.fail(&self.failed_for(why)),
            Moment::Recorded | Moment::Over => {}
        }
        self.set_over()
    }

    /// Why work of a device cannot come after it: what it stands for failed, or is of another device that is lost.
    pub(crate) fn obstacle(&self, device: &Device) -> Option<Error> {
        if let Some(failure) = self.failure.get() {
            return Some(failure.clone());
        }
        if ptr::eq(device, &*self.device) {
            return None;
        }
        let lost = self.device.loss.check().err()?;
        let is_uncertain = match self.moment() {
            Moment::Coming => true,
            // A device that is only silent may still get there.
            Moment::Recorded => self.device.is_dead(),
            Moment::Over => false,
        };
        is_uncertain.then(|| self.failed_for(&lost))
    }

    fn failed_for(&self, why: &dyn fmt::Display) -> Error {
        let message = format!("an event of {} does not happen: {why}", self.device.properties.info.device);
        Error::Driver { call: "import_event".into(), code: 0, message }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A program may hold it longer than anything else of the device, and drop it anywhere.
        let _inside = Inside::new();
        // Without a context nothing is left of its events either.
        let Ok(_current) = self.device.enter() else { return };
        // SAFETY: nobody else knows it; a stream that still records it or waits for it does so to the end.
        let code = unsafe { (self.device.functions().cuEventDestroy_v2)(self.raw) };
        self.device.note("cuEventDestroy_v2", code);
    }
}

/// An event of a CUDA stream.
///
/// What [`Client::import_event`](trunnion_runtime_core::client::Client::import_event) takes and
/// [`Client::export_event`](trunnion_runtime_core::client::Client::export_event) gives on CUDA devices.
///
/// Equivalent to: a `CUevent` that was recorded.
pub struct CudaEvent {
    raw: sys::CUevent,
    keeps: Keeps,
}

enum Keeps {
    Owner(#[allow(dead_code, reason = "only dropped")] Mutex<Box<dyn Any + Send>>),
    Own(Arc<Event>),
}

// SAFETY: a handle, which the driver takes on any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above; the owner is only reached to be dropped.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// The event `event`, as it was recorded last when the device gets to know of it: who records it again is not waited for.
    ///
    /// # Safety
    /// The event is of a context of this process, was recorded before it is imported, and stays until `owner` is dropped.
    pub unsafe fn new<O: Send + 'static>(event: sys::CUevent, owner: O) -> Self {
        Self { raw: event, keeps: Keeps::Owner(Mutex::new(Box::new(owner))) }
    }

    /// The event that a stream records.
    pub(crate) fn of(event: Arc<Event>) -> Self {
        Self { raw: event.raw(), keeps: Keeps::Own(event) }
    }

    /// The event. An exported one stays as long as this is held.
    pub fn event(&self) -> sys::CUevent {
        self.raw
    }

    /// The event of a stream of this backend's.
    pub(crate) fn own(&self) -> Option<&Arc<Event>> {
        match &self.keeps {
            Keeps::Owner(_) => None,
            Keeps::Own(event) => Some(event),
        }
    }

    /// Whether a stream was told to record it, so that whoever waits for the event waits for that: the driver takes one that nobody records
    /// for one that has happened. An exported event is not while what it comes after is held up on the host: by counts of a grid that are
    /// on their way, or because the stream has been given a good deal already. A device that imports it waits for that too; whoever uses
    /// [`event`](Self::event) has to. Of somebody else's that is vouched for.
    pub fn is_recorded(&self) -> bool {
        match &self.keeps {
            Keeps::Owner(_) => true,
            Keeps::Own(event) => event.moment() != Moment::Coming,
        }
    }
}

impl fmt::Debug for CudaEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaEvent")
            .field("event", &self.raw)
            .field("is_recorded", &self.is_recorded())
            .finish_non_exhaustive()
    }
}
