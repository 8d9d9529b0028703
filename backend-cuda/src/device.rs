//! A device with its primary context, shared by everything made from it.

use crate::failure::{failed, is_loss, status, unavailable};
use crate::functions::Functions;
use crate::held::Held;
use crate::library::Library;
use crate::options::{CodeForm, CudaOptions};
use crate::pinned::PinnedRanges;
use crate::properties;
use crate::retired::Retired;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cudarc::driver::sys;
use trunnion_backend_core::driver::{DriverMemory, DriverRefusal};
use trunnion_backend_core::exit::Inside;
use trunnion_backend_core::loss::Loss;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::properties::{DeviceInfo, DeviceProperties};

use sys::CUdevice_attribute_enum as Attribute;

/// What a device says about itself, before there is a context.
pub(crate) struct Survey {
    pub(crate) library: Arc<Library>,
    pub(crate) index: u32,
    /// How many devices the driver has.
    pub(crate) count: u32,
    pub(crate) raw: sys::CUdevice,
    pub(crate) name: String,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Compute capability: major and minor number.
    pub(crate) capability: (u32, u32),
}

/// A device's primary context, which it has in common with everybody else in the process. It is retained for as long as this lives:
/// whatever is made from it holds it, so that pages, code and page-locked memory may outlive the driver.
pub(crate) struct Device {
    pub(crate) raw: sys::CUdevice,
    pub(crate) context: sys::CUcontext,
    pub(crate) properties: DeviceProperties,
    pub(crate) options: CudaOptions,
    /// Compute capability: major and minor number.
    pub(crate) capability: (u32, u32),
    /// What memory that is mapped is a multiple of; `None` where pages are not made so.
    pub(crate) granularity: Option<u64>,
    /// The longest distance of rows that can be copied at once, in bytes.
    pub(crate) max_pitch: u64,
    /// The priority of streams.
    pub(crate) priority: c_int,
    pub(crate) loss: Loss,
    /// It counts as lost because the driver says nothing of its work, which may go on. Set before the loss is.
    pub(crate) is_silent: AtomicBool,
    /// Page-locked memory by address.
    pub(crate) pinned: PinnedRanges,
    /// Memory that nobody uses any more and that is not given back yet, which keeps this device.
    pub(crate) retired: Retired,
    pub(crate) this: Weak<Self>,
    /// Lanes that wait for an event that no stream was told to record yet.
    pub(crate) held: Held,
    /// Batches that are with the device, as far as anybody has looked.
    pub(crate) unfinished: AtomicU64,
    /// Those of them that wait for events of somebody else.
    pub(crate) foreign_waits: AtomicU64,
    /// Bytes of pages.
    taken: AtomicU64,
    // After the others: it is used when the device is dropped.
    pub(crate) library: Arc<Library>,
}

// SAFETY: contexts may be used on any thread, on which they are made current for as long as that takes.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Survey {
    /// Asks the device `index` of a driver.
    ///
    /// # Errors
    /// [`Error::NoDevice`]; [`Error::BackendUnavailable`] for one that cannot be used.
    pub(crate) fn of(library: &Arc<Library>, index: u32) -> Result<Self> {
        let count = library.count()?;
        if index >= count {
            return Err(Error::NoDevice { device: DeviceId { backend: crate::NAME, index }, count });
        }
        let functions = &library.functions;
        let refuse = |call: &str, code| unavailable(format!("device {index}: {call}: {}", functions.words(code)));
        let check = |call: &str, code| if code == status::SUCCESS { Ok(()) } else { Err(refuse(call, code)) };
        let (mut raw, mut memory, mut name) = (0, 0, [0 as c_char; 256]);
        // SAFETY: the places are for what is asked, the name's as long as it is said to be, and the device is one of the driver's.
        unsafe {
            check("cuDeviceGet", (functions.cuDeviceGet)(&raw mut raw, index as c_int))?;
            check("cuDeviceGetName", (functions.cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, raw))?;
            check("cuDeviceTotalMem_v2", (functions.cuDeviceTotalMem_v2)(&raw mut memory, raw))?;
        }
        let bytes: Vec<u8> = name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        let mut survey = Self {
            library: library.clone(),
            index,
            count,
            raw,
            name: String::from_utf8_lossy(&bytes).into_owned(),
            memory: memory as u64,
            capability: (0, 0),
        };
        let major = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        survey.capability = (major, minor);
        if survey.number(Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)? == 0 {
            return Err(unavailable(format!("device {index}, {}: it has addresses of its own", survey.name)));
        }
        Ok(survey)
    }

    /// An attribute of the device; a negative one counts as 0.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`].
    pub(crate) fn number(&self, attribute: Attribute) -> Result<u32> {
        let (functions, mut value) = (&self.library.functions, 0);
        // SAFETY: the place is for a number, and the device is the driver's.
        match unsafe { (functions.cuDeviceGetAttribute)(&raw mut value, attribute, self.raw) } {
            status::SUCCESS => Ok(u32::try_from(value).unwrap_or(0)),
            code => Err(unavailable(format!(
                "device {}, {}: cuDeviceGetAttribute, attribute {}: {}",
                self.index,
                self.name,
                attribute as u32,
                functions.words(code)
            ))),
        }
    }
}

/// The devices of a driver, with the numbers it gives them.
///
/// # Errors
/// [`Error::BackendUnavailable`] where there is none that can be used, with the reason of each.
pub(crate) fn survey(library: &Arc<Library>, options: &CudaOptions) -> Result<Vec<DeviceInfo>> {
    let mut refused = Vec::new();
    let mut found = Vec::new();
    for index in 0..library.count()? {
        match Survey::of(library, index).and_then(|survey| properties::info(&survey, options)) {
            Ok(info) => found.push(info),
            Err(why) => {
                log::info!("cuda: {why}");
                refused.push(format!("{why}"));
            }
        }
    }
    if found.is_empty() {
        return Err(unavailable(format!("no device can be used: {}", refused.join("; "))));
    }
    Ok(found)
}

impl Device {
    /// Retains the primary context of a device. The flags of one that is in use already stay as they are.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] for a device that lacks what it must have; what the driver answers.
    pub(crate) fn open(survey: &Survey, options: &CudaOptions) -> Result<Arc<Self>> {
        let functions = &survey.library.functions;
        let properties = properties::properties(survey, options)?;
        let max_pitch = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH)?;
        let maps = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0;
        let retired = Retired::new()?;
        let mut context = ptr::null_mut();
        // SAFETY: the place is for a handle, and the device is the driver's.
        match unsafe { (functions.cuDevicePrimaryCtxRetain)(&raw mut context, survey.raw) } {
            status::SUCCESS => {}
            code => return Err(failed(functions, "cuDevicePrimaryCtxRetain", code)),
        }
        // From here on dropping it releases the context.
        let mut device = Self {
            raw: survey.raw,
            context,
            properties,
            options: options.clone(),
            capability: survey.capability,
            granularity: None,
            max_pitch: u64::from(max_pitch),
            priority: 0,
            loss: Loss::default(),
            is_silent: AtomicBool::new(false),
            pinned: PinnedRanges::default(),
            retired,
            this: Weak::new(),
            held: Held::default(),
            unfinished: AtomicU64::new(0),
            foreign_waits: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            library: survey.library.clone(),
        };
        device.priority = device.priority_within(options.priority)?;
        device.granularity = if maps && options.vmm { device.granularity_of_pages() } else { None };
        Ok(Arc::new_cyclic(|this| {
            device.this = this.clone();
            device
        }))
    }

    /// The priority that is nearest to one among those of the device.
    fn priority_within(&self, wanted: i32) -> Result<c_int> {
        let Some(ask) = self.library.functions.cuCtxGetStreamPriorityRange else { return Ok(0) };
        let _current = self.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the places are for numbers, and the context is current.
        self.check("cuCtxGetStreamPriorityRange", unsafe { ask(&raw mut least, &raw mut greatest) })?;
        // The most urgent is the lowest number.
        Ok(wanted.max(greatest).min(least.max(greatest)))
    }

    /// The driver's functions.
    #[inline]
    pub(crate) fn functions(&self) -> &Functions {
        &self.library.functions
    }

    /// What came of a call.
    ///
    /// # Errors
    /// The call's error. A fault of the device stays.
    #[inline]
    pub(crate) fn check(&self, call: &str, code: u32) -> Result<()> {
        if code == status::SUCCESS { Ok(()) } else { Err(self.failed(call, code)) }
    }

    /// The error of a call that failed. A fault of the device stays.
    #[cold]
    pub(crate) fn failed(&self, call: &str, code: u32) -> Error {
        self.fault(failed(self.functions(), call, code))
    }

    /// Keeps an error that is a fault of the device, and tells those who may wait for what the device does no more.
    #[cold]
    pub(crate) fn fault(&self, error: Error) -> Error {
        let is_new = error.is_device_lost() && self.loss.check().is_ok();
        let error = self.loss.note(error);
        if is_new {
            self.held.call_others();
            self.retired.look();
        }
        error
    }

    /// What came of a call that gives something back: nothing can be done about a failure, but a fault of the device stays.
    pub(crate) fn note(&self, call: &str, code: u32) {
        if code != status::SUCCESS {
            let error = self.failed(call, code);
            if !is_loss(code) && self.loss.check().is_ok() {
                log::warn!("{}: {error}", self.properties.info.device);
            }
        }
    }

    /// Whether it is lost and does nothing any more. One that is only silent may still do what it was given.
    pub(crate) fn is_dead(&self) -> bool {
        self.loss.check().is_err() && !self.is_silent.load(Ordering::Acquire)
    }

    /// Whether a call may wait for what the device does: not where that waits for somebody else.
    pub(crate) fn may_wait(&self) -> bool {
        self.foreign_waits.load(Ordering::SeqCst) == 0
    }

    /// What CUDA C is compiled to for this device.
    pub(crate) fn code_form(&self) -> CodeForm {
        match self.options.code {
            Some(form) => form,
            None if self.library.is_double => CodeForm::Ptx,
            None => CodeForm::Cubin,
        }
    }

    /// What there is of the device's memory.
    pub(crate) fn memory_report(&self) -> DriverMemory {
        let limit = self.properties.limits.memory;
        let free = limit.saturating_sub(self.taken.load(Ordering::Relaxed));
        let mut report = DriverMemory { total: Some(limit), free: Some(free), ..DriverMemory::default() };
        let (mut driver_free, mut total) = (0_usize, 0_usize);
        let Ok(_current) = self.enter() else { return report };
        // SAFETY: the places are for numbers, and the context is current.
        let code = unsafe { (self.functions().cuMemGetInfo_v2)(&raw mut driver_free, &raw mut total) };
        if self.check("cuMemGetInfo_v2", code).is_ok() {
            // What is only kept can be had: who needs it waits for it, unless that is to wait for somebody else.
            let kept = if self.may_wait() { self.retired.bytes() } else { 0 };
            report.free = Some(free.min((driver_free as u64).saturating_add(kept)));
        }
        report
    }

    /// Counts the bytes of a page that is about to be made.
    ///
    /// # Errors
    /// [`DriverRefusal`] when pages then had more than the device's memory.
    pub(crate) fn count_page(&self, size: u64) -> Result<(), DriverRefusal> {
        let limit = self.properties.limits.memory;
        let counted = |taken: u64| taken.checked_add(size).filter(|taken| *taken <= limit);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted) {
            Ok(_) => Ok(()),
            Err(taken) => {
                let free = limit.saturating_sub(taken);
                let message = format!("{size} bytes requested, {free} of {limit} are free");
                Err(DriverRefusal { message, out_of_memory: true })
            }
        }
    }

    /// Takes back what [`count_page`](Self::count_page) counted.
    pub(crate) fn uncount_page(&self, size: u64) {
        self.taken.fetch_sub(size, Ordering::Relaxed);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _inside = Inside::new();
        // SAFETY: it was retained once, and whatever was made from it holds this, so nothing is left.
        let code = unsafe { (self.functions().cuDevicePrimaryCtxRelease_v2)(self.raw) };
        self.note("cuDevicePrimaryCtxRelease_v2", code);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("adapter", &self.properties.info.adapter)
            .field("granularity", &self.granularity)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}
