//! Values of timeline semaphores as events: somebody else's to wait for, and the device's for somebody else.

use crate::device::Device;
use crate::failure::failed;
use alloc::boxed::Box;
use alloc::sync::Arc;
use ash::vk;
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use trunnion_backend_core::exit::Inside;
use trunnion_backend_core::loss::Loss;
use trunnion_runtime_core::error::Result;

/// A timeline semaphore of a logical device and a value: the event happens when the semaphore reaches it.
///
/// What [`Client::import_event`](trunnion_runtime_core::client::Client::import_event) takes and
/// [`Client::export_event`](trunnion_runtime_core::client::Client::export_event) gives on Vulkan devices.
///
/// Equivalent to: a wait, or a signal, in `VkTimelineSemaphoreSubmitInfo`.
pub struct VulkanEvent {
    semaphore: vk::Semaphore,
    value: u64,
    keeps: Keeps,
}

enum Keeps {
    Owner(#[allow(dead_code, reason = "only dropped")] Mutex<Box<dyn Any + Send>>),
    Own(Arc<Signal>),
}

impl VulkanEvent {
    /// The event that `semaphore`, a timeline semaphore of the same logical device, reaches `value`.
    ///
    /// The device's queue waits for it, and with it what is submitted to that queue afterwards, on whichever stream: a device with one
    /// queue does nothing else until the event happens. So what makes it happen must not itself wait for this device.
    ///
    /// # Safety
    /// The semaphore is of the device that the event is imported into, and stays until `owner` is dropped.
    pub unsafe fn new<O: Send + 'static>(semaphore: vk::Semaphore, value: u64, owner: O) -> Self {
        Self { semaphore, value, keeps: Keeps::Owner(Mutex::new(Box::new(owner))) }
    }

    /// The event that a stream signals.
    pub(crate) fn of(signal: Arc<Signal>) -> Self {
        Self { semaphore: signal.semaphore, value: Signal::VALUE, keeps: Keeps::Own(signal) }
    }

    /// The semaphore. An exported event's stays as long as the event is held.
    pub fn semaphore(&self) -> vk::Semaphore {
        self.semaphore
    }

    /// The value it reaches.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Whether the semaphore is this logical device's. Of somebody else's that is vouched for.
    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        match &self.keeps {
            Keeps::Owner(_) => true,
            Keeps::Own(signal) => Arc::ptr_eq(&signal.device, device),
        }
    }

    /// Whether what makes it happen is with a queue, so that another submission may wait for it. Of somebody else's that is vouched for.
    pub(crate) fn is_on_its_way(&self) -> bool {
        match &self.keeps {
            Keeps::Owner(_) => true,
            Keeps::Own(signal) => signal.is_submitted.load(Ordering::Acquire),
        }
    }
}

impl fmt::Debug for VulkanEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanEvent")
            .field("semaphore", &self.semaphore)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

/// A semaphore that a submission signals, for somebody else.
pub(crate) struct Signal {
    device: Arc<Device>,
    semaphore: vk::Semaphore,
    is_submitted: AtomicBool,
}

impl Signal {
    /// What the semaphore reaches.
    pub(crate) const VALUE: u64 = 1;

    /// A semaphore at 0.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn new(device: &Arc<Device>, loss: &Loss) -> Result<Self> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores, without which it is not taken.
        let semaphore = unsafe { device.raw.create_semaphore(&info, None) }
            .map_err(|result| loss.note(failed("vkCreateSemaphore", result)))?;
        Ok(Self { device: device.clone(), semaphore, is_submitted: AtomicBool::new(false) })
    }

    pub(crate) fn semaphore(&self) -> vk::Semaphore {
        self.semaphore
    }

    /// A queue will signal it.
    pub(crate) fn submitted(&self) {
        self.is_submitted.store(true, Ordering::Release);
    }

    /// No queue will signal it: it is signalled here, so that nobody waits for ever.
    pub(crate) fn give_up(&self) {
        if self.is_submitted.swap(true, Ordering::AcqRel) {
            return;
        }
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(Self::VALUE);
        // SAFETY: the semaphore is this device's, at 0, and nothing else signals it.
        if let Err(result) = unsafe { self.device.raw.signal_semaphore(&info) } {
            log::error!("vkSignalSemaphore: {result}");
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // A program may hold it longer than anything else of the device.
        let _inside = Inside::new();
        // SAFETY: the batch that signals it holds it until that is finished, and so does whoever waits for it.
        unsafe { self.device.raw.destroy_semaphore(self.semaphore, None) };
    }
}
