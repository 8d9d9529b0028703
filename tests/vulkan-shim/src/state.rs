//! What a shim knows: of itself, of its instances, devices, queues and command buffers.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk::{self, Handle};

use crate::calls::{Calls, tells_of_loss};
use crate::exclusive::{Busy, Exclusive};
use crate::memory::{Allocation, MemoryView};
use crate::objects::{Object, Objects};
use crate::plan::Plan;
use crate::record::{Bound, Command, Moment, Submission};
use crate::registry::Owned;
use crate::timeline::Timeline;

/// Locks; what a panicking test thread left behind is as good as before.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a device that is taken down may take to finish what it does.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long nothing moves before what waits is released.
const STANDSTILL: Duration = Duration::from_millis(20);

/// A shim's state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) plan: Plan,
    pub(crate) calls: Mutex<Calls>,
    pub(crate) objects: Mutex<Objects>,
    pub(crate) submissions: Mutex<Vec<Submission>>,
    pub(crate) complaints: Mutex<Vec<String>>,
    pub(crate) busy: Busy,
    /// The host is shown no progress.
    pub(crate) held: AtomicBool,
    queues: AtomicU32,
    submits: AtomicU32,
}

impl State {
    pub(crate) fn new(mut plan: Plan) -> Self {
        let calls = Calls::new(core::mem::take(&mut plan.failures));
        Self {
            plan,
            calls: Mutex::new(calls),
            objects: Mutex::default(),
            submissions: Mutex::default(),
            complaints: Mutex::default(),
            busy: Busy::default(),
            held: AtomicBool::new(false),
            queues: AtomicU32::new(0),
            submits: AtomicU32::new(0),
        }
    }

    /// Counts a call. `Err` is what it answers instead of doing anything.
    pub(crate) fn enter(&self, function: &'static str) -> Result<(), vk::Result> {
        locked(&self.calls).count(function).map_or(Ok(()), Err)
    }

    /// Whether progress is shown another time than it is made.
    pub(crate) fn is_late(&self) -> bool {
        self.plan.delay.is_some() || self.held.load(Ordering::Acquire)
    }

    pub(crate) fn complain(&self, what: String) {
        locked(&self.complaints).push(what);
    }

    pub(crate) fn next_queue(&self) -> Object {
        Object { kind: vk::ObjectType::QUEUE, number: 1 + self.queues.fetch_add(1, Ordering::Relaxed) }
    }

    /// The number of a call that submits.
    pub(crate) fn next_submit(&self) -> u32 {
        1 + self.submits.fetch_add(1, Ordering::Relaxed)
    }
}

/// An instance.
pub(crate) struct InstanceState {
    pub(crate) state: Arc<State>,
    /// The loader's functions.
    pub(crate) raw: ash::Instance,
    pub(crate) debug_utils: ash::ext::debug_utils::Instance,
    pub(crate) physicals: Mutex<BTreeSet<u64>>,
}

/// A device.
pub(crate) struct DeviceState {
    pub(crate) state: Arc<State>,
    /// The driver's functions.
    pub(crate) raw: ash::Device,
    /// The driver's `vkGetDeviceProcAddr`.
    pub(crate) get_proc_addr: vk::PFN_vkGetDeviceProcAddr,
    pub(crate) push_descriptor: ash::khr::push_descriptor::Device,
    pub(crate) memory_fd: ash::khr::external_memory_fd::Device,
    pub(crate) memory_host: ash::ext::external_memory_host::Device,
    pub(crate) debug_utils: ash::ext::debug_utils::Device,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    pub(crate) max_allocation: u64,
    pub(crate) memory: MemoryView,
    pub(crate) allocations: Mutex<BTreeMap<u64, Allocation>>,
    /// The real queues, by family. Whoever uses one holds its lock, since several of the shim's queues may be one of them.
    pub(crate) real_queues: BTreeMap<u32, Vec<Arc<Mutex<vk::Queue>>>>,
    /// The queues that were got, by family and index.
    pub(crate) queues: Mutex<BTreeMap<(u32, u32), GivenQueue>>,
    pub(crate) timelines: Mutex<BTreeMap<u64, Timeline>>,
    /// What descriptor sets hold, by binding.
    pub(crate) sets: Mutex<BTreeMap<u64, BTreeMap<u32, Bound>>>,
    pub(crate) templates: Mutex<BTreeMap<u64, Vec<vk::DescriptorUpdateTemplateEntry>>>,
    lost: AtomicBool,
    /// Held by whoever brings the real device to rest once it is lost.
    coming_to_rest: Mutex<()>,
}

/// A queue that was got, with the handle the program has.
pub(crate) type GivenQueue = (vk::Queue, Arc<QueueState>);

/// A queue.
pub(crate) struct QueueState {
    pub(crate) device: Arc<DeviceState>,
    pub(crate) object: Object,
    pub(crate) real: Arc<Mutex<vk::Queue>>,
    /// The address that serves as the handle of a queue that is the shim's own.
    pub(crate) _place: Option<Box<u64>>,
}

/// A command buffer.
pub(crate) struct CommandState {
    pub(crate) device: Arc<DeviceState>,
    pub(crate) handle: vk::CommandBuffer,
    pub(crate) pool: vk::CommandPool,
    pub(crate) recording: Mutex<Recording>,
}

/// What a command buffer holds.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) commands: Vec<Command>,
    pub(crate) pipeline: Option<Object>,
    /// What is bound, by set and binding.
    pub(crate) bound: BTreeMap<(u32, u32), Bound>,
}

impl DeviceState {
    #[allow(clippy::too_many_arguments, reason = "called at one place, where each is made")]
    pub(crate) fn new(
        state: Arc<State>,
        instance: &InstanceState,
        raw: ash::Device,
        limits: vk::PhysicalDeviceLimits,
        max_allocation: u64,
        memory: MemoryView,
        real_queues: BTreeMap<u32, Vec<Arc<Mutex<vk::Queue>>>>,
    ) -> Self {
        Self {
            state,
            get_proc_addr: instance.raw.fp_v1_0().get_device_proc_addr,
            push_descriptor: ash::khr::push_descriptor::Device::new(&instance.raw, &raw),
            memory_fd: ash::khr::external_memory_fd::Device::new(&instance.raw, &raw),
            memory_host: ash::ext::external_memory_host::Device::new(&instance.raw, &raw),
            debug_utils: ash::ext::debug_utils::Device::new(&instance.raw, &raw),
            raw,
            limits,
            max_allocation,
            memory,
            allocations: Mutex::default(),
            real_queues,
            queues: Mutex::default(),
            timelines: Mutex::default(),
            sets: Mutex::default(),
            templates: Mutex::default(),
            lost: AtomicBool::new(false),
            coming_to_rest: Mutex::default(),
        }
    }

    pub(crate) fn handle(&self) -> vk::Device {
        self.raw.handle()
    }

    /// What its objects are kept under.
    pub(crate) fn owner(&self) -> u64 {
        self.handle().as_raw()
    }

    /// Counts a call. `Err` is what it answers instead of doing anything.
    pub(crate) fn enter(&self, function: &'static str) -> Result<(), vk::Result> {
        let planned = self.state.enter(function);
        if planned == Err(vk::Result::ERROR_DEVICE_LOST) {
            self.lose();
        }
        if self.is_lost() && tells_of_loss(function) {
            return Err(vk::Result::ERROR_DEVICE_LOST);
        }
        planned
    }

    /// Whether the device is lost. Nobody is told before the real one is at rest, since who is told may destroy what it works on.
    pub(crate) fn is_lost(&self) -> bool {
        let is_lost = self.will_be_lost();
        if is_lost {
            drop(locked(&self.coming_to_rest));
        }
        is_lost
    }

    /// As [`is_lost`](Self::is_lost), also while the real device comes to rest: nothing may be submitted any more.
    pub(crate) fn will_be_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The device is lost. The real one is not, and comes to rest first: what a lost device was doing may be destroyed at once.
    fn lose(&self) {
        let _held = locked(&self.coming_to_rest);
        if !self.lost.swap(true, Ordering::AcqRel)
            && let Err(unfinished) = self.settle()
        {
            self.state.complain(format!(
                "the device that is lost did not come to rest, {} semaphores of it",
                unfinished.len()
            ));
        }
    }

    /// Brings the real device to rest: where nothing moves any more, what waits for a signal that never comes is released. Gives what
    /// was so released, or what still moves when a long time is over.
    pub(crate) fn settle(&self) -> Result<Vec<Moment>, Vec<Moment>> {
        let real: Vec<_> = self.real_queues.values().flatten().map(|queue| locked(queue)).collect();
        let begun = Instant::now();
        let (mut seen, mut since) = (Vec::new(), begun);
        let mut released = Vec::new();
        loop {
            let unfinished = self.unfinished();
            if unfinished.is_empty() {
                // SAFETY: all queues are locked.
                let _ = unsafe { self.raw.device_wait_idle() };
                drop(real);
                return Ok(released);
            }
            if begun.elapsed() > PATIENCE {
                return Err(unfinished);
            }
            let values = self.reached();
            if values != seen {
                (seen, since) = (values, Instant::now());
            } else if since.elapsed() > STANDSTILL {
                released.extend(self.release());
            }
            thread::sleep(STANDSTILL / 100);
        }
    }

    /// The values that timeline semaphores have.
    fn reached(&self) -> Vec<(u64, u64)> {
        let timelines = locked(&self.timelines);
        let rows = timelines.keys().map(|&raw| {
            // SAFETY: the semaphore is alive, being in the table.
            (raw, unsafe { self.raw.get_semaphore_counter_value(vk::Semaphore::from_raw(raw)) }.unwrap_or(0))
        });
        rows.collect()
    }

    /// What was submitted and is not reached, or is waited for.
    pub(crate) fn unfinished(&self) -> Vec<Moment> {
        let reached = self.reached();
        let timelines = locked(&self.timelines);
        let rows = reached.into_iter().filter_map(|(raw, real)| {
            let timeline = timelines.get(&raw)?;
            (real < timeline.last()).then_some(Moment { semaphore: timeline.object, value: timeline.last() })
        });
        rows.collect()
    }

    /// Signals a value that submitted work waits for.
    fn release(&self) -> Option<Moment> {
        let reached = self.reached();
        let mut timelines = locked(&self.timelines);
        let mut rows = reached.into_iter();
        let (raw, object, value) = rows.find_map(|(raw, real)| {
            let timeline = timelines.get_mut(&raw)?;
            Some((raw, timeline.object, timeline.next_wait(real)?))
        })?;
        let info = vk::SemaphoreSignalInfo::default().semaphore(vk::Semaphore::from_raw(raw)).value(value);
        // SAFETY: the semaphore is alive, being in the table, and has not reached the value.
        let _ = unsafe { self.raw.signal_semaphore(&info) };
        Some(Moment { semaphore: object, value })
    }

    /// Takes an object that a call must have to itself.
    pub(crate) fn exclusive<H: Handle + Copy>(&self, handle: H, call: &'static str) -> Exclusive<'_> {
        Exclusive::enter(&self.state, handle, call)
    }

    pub(crate) fn created<H: Handle + Copy>(&self, handle: H, parent: u64, by: &'static str) -> Object {
        locked(&self.state.objects).create(self.owner(), handle, parent, by)
    }

    /// Strikes an object off. False, with a complaint, where there is none: the real driver must not be asked to destroy it.
    pub(crate) fn destroyed<H: Handle + Copy>(&self, handle: H, call: &'static str) -> bool {
        let known = locked(&self.state.objects).destroy(self.owner(), handle).is_some();
        if !known {
            self.state.complain(format!("{call} of a {:?} that there is not", H::TYPE));
        }
        known
    }

    /// The object behind a handle; a complaint where there is none.
    pub(crate) fn name<H: Handle + Copy>(&self, handle: H, call: &'static str) -> Object {
        let object = locked(&self.state.objects).name(self.owner(), handle);
        if object.number == 0 {
            self.state.complain(format!("{call} with a {:?} that there is not", H::TYPE));
        }
        object
    }
}

impl Owned for InstanceState {
    fn state(&self) -> &State {
        &self.state
    }
}

impl Owned for DeviceState {
    fn state(&self) -> &State {
        &self.state
    }
}

impl Owned for QueueState {
    fn state(&self) -> &State {
        &self.device.state
    }
}

impl Owned for CommandState {
    fn state(&self) -> &State {
        &self.device.state
    }
}

impl fmt::Debug for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceState").field("handle", &self.raw.handle()).finish_non_exhaustive()
    }
}
