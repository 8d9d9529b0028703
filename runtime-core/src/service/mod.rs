//! A running device, as its clients share it.

mod core_resident;
mod launches;
#[cfg(all(test, feature = "std", not(loom)))]
mod launches_tests;
mod leaning;
mod registry;
#[cfg(all(test, feature = "std", not(loom)))]
mod scripted;
mod settings;
mod staging;
#[cfg(all(test, feature = "std", not(loom)))]
mod tests;
mod waiting;

pub(crate) use core_resident::Core;
pub(crate) use launches::{Launches, Reach, close_scope, mode_of, open_scope};
pub(crate) use registry::{init, load, running, shutdown_all, try_init};
pub(crate) use waiting::Owed;

pub use settings::{BoundsPolicy, Settings, defaults, set_defaults};
pub use waiting::{Done, Reading};

use crate::allocation::AllocationMode;
use crate::budget::MemoryBudget;
use crate::error::{Error, Result};
use crate::executor::{CallError, Config, Executor, Reservation, SubmitError, Wakers};
use crate::handle::Handles;
use crate::id::{DeviceId, ServiceId, StreamId};
use crate::kernel::{Kernel, KernelHandle, KernelReader, KernelTable};
use crate::platform::Deadline;
use crate::pressure::Hooks;
use crate::properties::{DeviceProperties, Features, Limits, TargetProperties};
use crate::server::Opened;
use crate::staging::StagingPool;
use crate::sync::AtomicU64;
use crate::timeline::{Moment, Point};
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use hashbrown::HashMap;
use leaning::{Leans, WithoutThread};
use smallvec::SmallVec;

/// How many bytes may be in the queue on their way to the device before a caller helps.
const STAGED: usize = 512 << 10;

/// The open windows of a stream, innermost last: number and mode.
type OpenModes = SmallVec<[(u64, AllocationMode); 2]>;

/// What the clients of a device share.
pub(crate) struct Service {
    pub(crate) id: ServiceId,
    pub(crate) device: DeviceId,
    pub(crate) properties: Arc<DeviceProperties>,
    pub(crate) features: Arc<Features>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) target: Arc<TargetProperties>,
    pub(crate) settings: Settings,
    pub(crate) executor: Executor<Core>,
    pub(crate) shared: Arc<Shared>,
    reader: Arc<dyn KernelReader>,
    modes: spin::Mutex<HashMap<StreamId, OpenModes>>,
    modes_open: AtomicUsize,
    pub(crate) launches: Launches,
    _without_thread: Option<WithoutThread>,
    pub(crate) staging: Arc<StagingPool>,
    /// What was last said of the memory there is to use, and when.
    pub(crate) budget: spin::Mutex<Option<(Deadline, MemoryBudget)>>,
}

/// What the clients of a device share with the resident of its executor.
pub(crate) struct Shared {
    service: ServiceId,
    pub(crate) handles: Handles,
    kernels: Arc<KernelTable>,
    pub(crate) hooks: Arc<Hooks>,
    /// Whether calls are refused: the device is lost or shut down.
    ended: AtomicBool,
    /// Why, once `ended`.
    fault: spin::Once<Error>,
    late: spin::Mutex<Late>,
    has_late: AtomicBool,
    leans: Leans,
    /// Bytes in the queue on their way to the device.
    staged: AtomicUsize,
    /// Whether the memory is recorded: who takes snapshots looks here first.
    pub(crate) is_recording: AtomicBool,
    shutdown: spin::Mutex<Option<Deadline>>,
    abandoned: AtomicUsize,
}

/// What is seen to when the device is released next.
#[derive(Default)]
struct Late {
    /// To be woken: who waits for promises that the server did not answer itself.
    wakers: Wakers,
    /// Accesses that are over, and what lies on their bytes then.
    closed: Vec<(Moment, Option<Error>)>,
}

/// Bytes in the queue on their way to the device, until this is dropped.
pub(crate) struct Staged {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.shared.staged.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Shared {
    fn end(&self, error: Error) {
        self.fault.call_once(|| error);
        self.ended.store(true, Ordering::Release);
    }

    /// Calls are taken as long as the device has not ended.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<()> {
        if self.ended.load(Ordering::Relaxed) { Err(self.end_error()) } else { Ok(()) }
    }

    /// What every call answers once the device has ended.
    #[cold]
    fn end_error(&self) -> Error {
        self.fault.get().cloned().unwrap_or(Error::ShutDown { service: self.service })
    }

    fn leave_late(&self, leave: impl FnOnce(&mut Late)) {
        leave(&mut self.late.lock());
        self.has_late.store(true, Ordering::Release);
    }

    fn take_late(&self) -> Option<Late> {
        let is_any = self.has_late.load(Ordering::Relaxed) && self.has_late.swap(false, Ordering::Acquire);
        is_any.then(|| core::mem::take(&mut *self.late.lock()))
    }
}

#[cold]
fn queue_busy() -> Error {
    Error::Busy { what: "the device's queue is full or another thread has the device".into() }
}

impl Service {
    /// Starts the executor of a server that was opened.
    fn start(device: DeviceId, opened: Opened, settings: Settings) -> Result<Self> {
        let id = ServiceId::new();
        let unavailable = |why| Error::BackendUnavailable { backend: device.backend, why };
        let handles = Handles::new(id).ok_or_else(|| unavailable("too many devices are open".to_string()))?;
        let shared = Arc::new(Shared {
            service: id,
            handles,
            kernels: Arc::default(),
            hooks: Arc::default(),
            ended: AtomicBool::new(false),
            fault: spin::Once::new(),
            late: spin::Mutex::default(),
            has_late: AtomicBool::new(false),
            leans: Leans::default(),
            staged: AtomicUsize::new(0),
            is_recording: AtomicBool::new(false),
            shutdown: spin::Mutex::new(None),
            abandoned: AtomicUsize::new(0),
        });
        // Nobody waits for the queue longer than for the device.
        let full_timeout = settings.executor.full_timeout.min(settings.wait_timeout);
        let config = Config { name: format!("trunnion {device}"), full_timeout, ..settings.executor.clone() };
        let Opened { server, properties, reader } = opened;
        for alignment in
            [properties.limits.binding_alignment, properties.limits.copy_alignment, properties.limits.row_pitch]
        {
            if !alignment.is_power_of_two() {
                return Err(unavailable(format!(
                    "its limits name an alignment of {alignment}, which is no power of two"
                )));
            }
        }
        let mut core = Core::new(server, shared.clone());
        core.ask_recording(|_| ());
        let executor = Executor::new(core, config).map_err(|error| unavailable(error.to_string()))?;
        let without_thread = WithoutThread::of(settings.executor.execution);
        let notifier = executor.notifier();
        shared.handles.wake_with(notifier.clone());
        let service = Self {
            id,
            device,
            features: Arc::new(properties.features.clone()),
            limits: Arc::new(properties.limits.clone()),
            target: Arc::new(properties.target.clone()),
            properties: Arc::new(properties),
            staging: Arc::new(StagingPool::new(settings.staging_limit)),
            budget: spin::Mutex::new(None),
            settings,
            executor,
            shared,
            reader,
            modes: spin::Mutex::default(),
            modes_open: AtomicUsize::new(0),
            launches: Launches::default(),
            _without_thread: without_thread,
        };
        service.submit(move |core, _| core.server.start(notifier))?;
        Ok(service)
    }

    /// Queues an entry.
    #[inline(always)]
    pub(crate) fn submit(&self, entry: impl FnOnce(&mut Core, u64) + Send + 'static) -> Result<u64> {
        self.submit_with(move || entry)
    }

    /// Queues an entry that is built where it will lie.
    #[inline(always)]
    pub(crate) fn submit_with<F: FnOnce(&mut Core, u64) + Send + 'static>(
        &self,
        make: impl FnOnce() -> F,
    ) -> Result<u64> {
        self.shared.check()?;
        self.executor.submit_with(make).map_err(|error| self.refused(error))
    }

    /// Counts bytes that are about to be queued for the device. Where many are waiting already, the caller first sees to it that they
    /// are handed over: the queue then holds little memory, and that memory is still in the cache when it is needed.
    pub(crate) fn stage(&self, bytes: usize) -> Staged {
        let staged = self.shared.staged.fetch_add(bytes, Ordering::Relaxed);
        if staged > 0 && staged.saturating_add(bytes) > STAGED {
            // Where that is not possible, from inside the device's own work, more waits.
            self.call("write", |_, _| ()).ok();
        }
        Staged { shared: self.shared.clone(), bytes }
    }

    /// Lets the server know that an access is over: also where the device is lost, and later where it is not to be had now.
    pub(crate) fn close_access(&self, at: Moment, failure: Option<Error>) -> Result<()> {
        let theirs = failure.clone();
        match self.executor.submit(move |core: &mut Core, _| core.close_access(at, theirs)) {
            Ok(_) => Ok(()),
            Err(SubmitError::Closed) => Err(self.shared.end_error()),
            Err(_) => {
                self.shared.leave_late(|late| late.closed.push((at, failure)));
                self.executor.notify();
                Ok(())
            }
        }
    }

    #[cold]
    fn refused(&self, error: SubmitError) -> Error {
        match error {
            SubmitError::Closed => self.shared.end_error(),
            _ => queue_busy(),
        }
    }

    /// Queues an operation of a stream.
    #[inline(always)]
    pub(crate) fn enqueue(
        &self,
        stream: StreamId,
        entry: impl FnOnce(&mut Core, Moment) + Send + 'static,
    ) -> Result<Point> {
        let seq = self.submit(move |core, seq| entry(core, Moment { stream, seq }))?;
        Ok(Point { service: self.id, stream, seq })
    }

    /// Queues an operation of a stream, waiting for the queue until `deadline`.
    pub(crate) fn enqueue_until(
        &self,
        stream: StreamId,
        deadline: &Deadline,
        entry: impl FnOnce(&mut Core, Moment) + Send + 'static,
    ) -> Result<Point> {
        self.shared.check()?;
        let entry = move |core: &mut Core, seq| entry(core, Moment { stream, seq });
        let seq = self.executor.submit_until(entry, deadline).map_err(|error| self.refused(error))?;
        Ok(Point { service: self.id, stream, seq })
    }

    /// Carries out an operation of a stream here, after what is queued, if the device is to be had within moments.
    pub(crate) fn try_operate(
        &self,
        what: &'static str,
        stream: StreamId,
        run: impl FnOnce(&mut Core, Moment),
    ) -> Option<Result<Point>> {
        if let Err(error) = self.shared.check() {
            return Some(Err(error));
        }
        let result = self.executor.try_run(|core, seq| {
            run(core, Moment { stream, seq });
            seq
        })?;
        let point = |seq| Point { service: self.id, stream, seq };
        Some(result.map(point).map_err(|error| self.unanswered(what, error)))
    }

    /// Why a call has no answer.
    #[cold]
    fn unanswered(&self, what: &'static str, error: CallError) -> Error {
        match error {
            CallError::Timeout { waited } => Error::Timeout { waited, point: None },
            CallError::Panicked { message } => Error::Panicked { what: what.to_string(), message },
            CallError::Closed => self.shared.end_error(),
            CallError::Reentrant => Error::Reentrant { what: what.into() },
            _ => queue_busy(),
        }
    }

    /// Runs an entry and waits for its answer.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        what: &'static str,
        entry: impl FnOnce(&mut Core, u64) -> R + Send + 'static,
    ) -> Result<R> {
        self.call_until(what, &Deadline::after(self.settings.wait_timeout), entry)
    }

    pub(crate) fn call_until<R: Send + 'static>(
        &self,
        what: &'static str,
        deadline: &Deadline,
        entry: impl FnOnce(&mut Core, u64) -> R + Send + 'static,
    ) -> Result<R> {
        self.shared.check()?;
        // Whoever is answered with the device's fault meets it in the next call too.
        let entry = move |core: &mut Core, seq| {
            let answer = entry(core, seq);
            core.note_fault();
            answer
        };
        self.executor.call(entry, deadline).map_err(|error| self.unanswered(what, error))
    }

    /// Takes the device for the calling thread.
    pub(crate) fn reserve(&self, deadline: &Deadline) -> Result<Reservation<'_, Core>> {
        self.shared.check()?;
        self.executor.reserve(deadline).map_err(|_| {
            // A call that cannot run either says why: the device has ended, or this thread is inside its work.
            let why = self.call_until("exclusive", &Deadline::after(Duration::ZERO), |_, _| ());
            let busy =
                || Error::Busy { what: "another thread has the device, or what was queued before has not run".into() };
            why.err().filter(|error| !matches!(error, Error::Timeout { .. })).unwrap_or_else(busy)
        })
    }

    /// Ends the device. Says how many operations were abandoned.
    pub(crate) fn shutdown(&self, timeout: Duration) -> usize {
        let deadline = Deadline::after(timeout);
        {
            // Whoever of several is given the least time is heard: each of them may be the one that runs the end.
            let mut known = self.shared.shutdown.lock();
            if known.is_none_or(|known| deadline.remaining() < known.remaining()) {
                *known = Some(deadline);
            }
        }
        let report = self.executor.shutdown(&deadline);
        self.shared.end(Error::ShutDown { service: self.id });
        // What is in there may hold a client of this device, which would then never end.
        self.shared.kernels.close();
        self.launches.end();
        self.shared.hooks.end();
        self.staging.end();
        registry::forget(self);
        report.abandoned + self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// The handle of a kernel: the one it was prepared as before, else a new one.
    pub(crate) fn prepare(&self, kernel: Arc<dyn Kernel>) -> Result<KernelHandle> {
        self.shared.check()?;
        self.shared.kernels.prepare(kernel, &self.properties, &*self.reader, self.id)
    }

    /// Every kernel that can be launched now.
    pub(crate) fn prepared(&self) -> Vec<KernelHandle> {
        self.shared.kernels.prepared()
    }

    /// How allocations of a stream are made now.
    pub(crate) fn allocation_mode(&self, stream: StreamId) -> AllocationMode {
        if self.modes_open.load(Ordering::Acquire) == 0 {
            return AllocationMode::Auto;
        }
        self.modes.lock().get(&stream).and_then(|open| open.last()).map_or(AllocationMode::Auto, |(_, mode)| *mode)
    }

    /// Opens a window of an allocation mode; the number names it.
    pub(crate) fn open_mode(&self, stream: StreamId, mode: AllocationMode) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let window = NEXT.fetch_add(1, Ordering::Relaxed);
        self.modes.lock().entry(stream).or_default().push((window, mode));
        self.modes_open.fetch_add(1, Ordering::Release);
        window
    }

    /// Closes a window, wherever it is, and says how many opened after it are still open.
    pub(crate) fn close_mode(&self, stream: StreamId, window: u64) -> usize {
        let mut modes = self.modes.lock();
        let Some(open) = modes.get_mut(&stream) else { return 0 };
        let Some(position) = open.iter().position(|(number, _)| *number == window) else { return 0 };
        open.remove(position);
        let inside = open.len() - position;
        if open.is_empty() {
            modes.remove(&stream);
        }
        self.modes_open.fetch_sub(1, Ordering::Release);
        inside
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shutdown(self.settings.drop_timeout);
    }
}
