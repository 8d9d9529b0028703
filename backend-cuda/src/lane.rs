//! A CUDA stream with the batches that are under way on it, and the thread that waits for them.
//!
//! Batches are handed to the stream in order, each with an event behind it. Nearly always that is done when they are submitted. A launch
//! whose counts lie in memory is handed over when the host has seen the counts: until then its batch and those behind it are held here, and
//! so are batches of other lanes that come after them. The lane's thread hands over what is held.
//!
//! The thread sleeps while nothing is unfinished, and waits in the driver otherwise. It is told of the end of the lane and ends with the
//! event that it waits for.

use crate::batch::{Batch, Marker, Progress};
use crate::blocks::Blocks;
use crate::device::Device;
use crate::event::{Event, Moment};
use crate::failure::status;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use core::fmt;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use cudarc::driver::sys;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use trunnion_backend_core::exit::{self, Inside, Step};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;

/// Events kept to be recorded again.
const SPARE: usize = 64;

/// How long the thread waits before it asks again where the driver refused to wait.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Lane {
    device: Arc<Device>,
    raw: sys::CUstream,
    state: Mutex<State>,
    /// The last submission that is known to be finished.
    reached: AtomicU64,
    watch: Watch,
}

// SAFETY: a handle, which the driver takes on any thread.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

#[derive(Default)]
struct State {
    /// Oldest first.
    flight: VecDeque<Box<Batch>>,
    /// How many of them were handed to the stream.
    issued: usize,
    /// How many submissions there were.
    submitted: u64,
    /// Events to be recorded again, once nobody else has them.
    spare: VecDeque<Arc<Event>>,
}

/// The thread that waits, as others see it.
#[derive(Default)]
struct Watch {
    thread: OnceLock<Thread>,
    handle: Mutex<Option<JoinHandle<()>>>,
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

/// What the thread waits for next.
enum Target {
    /// A submission, with the event behind it.
    Batch(Arc<Event>, u64),
    Marker(Marker),
}

impl State {
    /// An event to be recorded. The context is current.
    fn event(device: &Arc<Device>, spare: &mut VecDeque<Arc<Event>>) -> Result<Arc<Event>> {
        let free = (0..spare.len()).find_map(|_| {
            let mut event = spare.pop_front()?;
            if let Some(alone) = Arc::get_mut(&mut event) {
                alone.renew();
                return Some(event);
            }
            spare.push_back(event);
            None
        });
        let event = match free {
            Some(event) => event,
            None => Event::new(device).map(Arc::new)?,
        };
        // The lane's thread may hold the event of a batch that was taken out already, so one more than are under way are kept: then a
        // lane that did as much before makes none.
        if spare.is_empty()
            && let Ok(another) = Event::new(device)
        {
            spare.push_back(Arc::new(another));
        }
        Ok(event)
    }

    fn keep(&mut self, event: Arc<Event>) {
        if self.spare.len() < SPARE {
            self.spare.push_back(event);
        }
    }

    /// The first submission behind `seen` that the thread can wait for.
    fn target(&self, seen: u64) -> Option<Target> {
        let next = self.flight.iter().take(self.issued).find(|batch| batch.submission > seen);
        if let Some(batch) = next {
            return batch.done.clone().map(|event| Target::Batch(event, batch.submission));
        }
        self.flight.get(self.issued).and_then(|batch| batch.marker.clone()).map(Target::Marker)
    }
}

impl Lane {
    /// A stream of its own, which waits for no other, with its thread.
    ///
    /// # Errors
    /// What the driver answers; [`Error::Driver`] when the system gives no thread.
    pub(crate) fn new(device: &Arc<Device>, notifier: Option<&Notifier>) -> Result<Arc<Self>> {
        const NON_BLOCKING: u32 = 1;
        let _current = device.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the place is for a handle, and the context is current.
        device.check("cuStreamCreateWithPriority", unsafe {
            (device.functions().cuStreamCreateWithPriority)(&raw mut raw, NON_BLOCKING, device.priority)
        })?;
        let (device, state, reached, watch) = (device.clone(), Mutex::default(), AtomicU64::new(0), Watch::default());
        let lane = Arc::new(Self { device, raw, state, reached, watch });
        let (of_thread, notifier) = (lane.clone(), notifier.cloned());
        let started = thread::Builder::new()
            .name("trunnion-cuda".into())
            .spawn(move || {
                of_thread.attend(notifier.as_ref());
                match Inside::try_new() {
                    Some(_inside) => drop(of_thread),
                    // The process exits, and whoever drops the driver meanwhile waits for this thread.
                    None => mem::forget(of_thread),
                }
            })
            .map_err(|error| {
                let message = alloc::format!("the thread that waits for the device's work: {error}");
                Error::Driver { call: "spawn".into(), code: i64::from(error.raw_os_error().unwrap_or(0)), message }
            })?;
        let _ = lane.watch.thread.set(started.thread().clone());
        *lane.watch.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(lane)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a batch over, and hands it to the stream where it can.
    ///
    /// # Errors
    /// What the driver answers, with the batch: nothing of it was then done.
    pub(crate) fn submit(self: &Arc<Self>, mut batch: Box<Batch>) -> Result<(), (Error, Box<Batch>)> {
        let _current = match self.device.enter() {
            Ok(current) => current,
            Err(error) => return Err((error, batch)),
        };
        let mut state = self.state();
        match State::event(&self.device, &mut state.spare) {
            Ok(event) => batch.done = Some(event),
            Err(error) => return Err((error, batch)),
        }
        state.submitted += 1;
        batch.submission = state.submitted;
        state.flight.push_back(batch);
        self.device.unfinished.fetch_add(1, Ordering::AcqRel);
        let has_moved = self.advance(&mut state);
        drop(state);
        if has_moved {
            self.release_held();
        }
        exit::after(Step::Submitted);
        self.rouse();
        Ok(())
    }

    /// Hands what is held to the stream, as far as that goes; whether the end of a batch was. The context is current.
    fn advance(self: &Arc<Self>, state: &mut State) -> bool {
        let (before, mut is_registered) = (state.issued, false);
        loop {
            let State { flight, issued, spare, .. } = &mut *state;
            let has_moved = *issued != before;
            let Some(batch) = flight.get_mut(*issued).filter(|batch| batch.marker.is_none()) else { return has_moved };
            match batch.issue(&self.device, self.raw, || State::event(&self.device, spare)) {
                Progress::Issued => *issued += 1,
                Progress::Marked => return has_moved,
                // Whoever has it recorded looks at the list afterwards: what was recorded before that is seen by looking once more.
                Progress::Held if !is_registered => {
                    let mut held = self.device.held.lock().unwrap_or_else(PoisonError::into_inner);
                    held.push(Arc::downgrade(self));
                    is_registered = true;
                }
                Progress::Held => return has_moved,
            }
        }
    }

    /// Hands to their streams what other lanes hold, since events may have been recorded that it waits for. The context is current.
    fn release_held(&self) {
        loop {
            let held = mem::take(&mut *self.device.held.lock().unwrap_or_else(PoisonError::into_inner));
            let mut has_moved = false;
            for lane in held.iter().filter_map(Weak::upgrade) {
                has_moved |= lane.advance(&mut lane.state());
                lane.rouse();
            }
            if !has_moved {
                return;
            }
        }
    }

    /// What is behind the operation `seq`; `None` where that is known to be finished.
    pub(crate) fn event_of(&self, seq: u64) -> Option<Arc<Event>> {
        self.state().flight.iter().find(|batch| batch.seq >= seq).and_then(|batch| batch.done.clone())
    }

    /// Takes the oldest batch out, if it is finished.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) fn take_finished(&self) -> Result<Option<Box<Batch>>> {
        let mut state = self.state();
        let Some(oldest) = state.flight.front().filter(|_| state.issued > 0) else { return Ok(None) };
        if self.reached.load(Ordering::Acquire) < oldest.submission && !self.look(oldest)? {
            return Ok(None);
        }
        let Some(mut batch) = state.flight.pop_front() else { return Ok(None) };
        state.issued -= 1;
        let mut frees_others = false;
        if let Some(event) = batch.done.take() {
            // One that could not be recorded may be waited for by batches that are held.
            frees_others = event.set_over();
            state.keep(event);
        }
        drop(state);
        self.device.unfinished.fetch_sub(1, Ordering::AcqRel);
        if frees_others && let Ok(_current) = self.device.enter() {
            self.release_held();
        }
        Ok(Some(batch))
    }

    /// Asks the driver whether a batch that was handed to the stream is finished.
    fn look(&self, batch: &Batch) -> Result<bool> {
        let _current = self.device.enter()?;
        let functions = self.device.functions();
        let recorded = batch.done.as_ref().filter(|event| event.moment() == Moment::Recorded);
        let (call, code) = match recorded {
            // SAFETY: the event is the device's, and the context is current.
            Some(event) => ("cuEventQuery", unsafe { (functions.cuEventQuery)(event.raw()) }),
            // SAFETY: the stream is the device's, and the context is current.
            None => ("cuStreamQuery", unsafe { (functions.cuStreamQuery)(self.raw) }),
        };
        match code {
            status::SUCCESS => {
                self.reached.fetch_max(batch.submission, Ordering::AcqRel);
                Ok(true)
            }
            status::NOT_READY => Ok(false),
            code => {
                let error = self.device.failed(call, code);
                if error.is_device_lost() {
                    return Err(error);
                }
                // It could not say. Who waits for it is asked again.
                log::warn!("{}: {error}", self.device.properties.info.device);
                Ok(false)
            }
        }
    }

    /// Whether nothing is under way. A lost device does nothing any more.
    pub(crate) fn is_idle(&self) -> bool {
        if self.device.loss.check().is_err() {
            return true;
        }
        let state = self.state();
        let Some(newest) = state.flight.back() else { return true };
        if state.issued < state.flight.len() {
            return false;
        }
        self.reached.load(Ordering::Acquire) >= newest.submission
            || self.look(newest).unwrap_or_else(|error| error.is_device_lost())
    }

    /// Takes everything out that is not finished: the lane is idle, or its device lost.
    pub(crate) fn abandon(&self, blocks: &mut Blocks) {
        let flight = mem::take(&mut *self.state()).flight;
        self.device.unfinished.fetch_sub(flight.len() as u64, Ordering::AcqRel);
        for mut batch in flight {
            batch.give_up();
            batch.clear(blocks);
        }
    }

    /// How many batches are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.state().flight.len()
    }

    /// Ends the thread: at once where nothing is unfinished, else with what it waits for and without being waited for.
    pub(crate) fn end(&self) {
        self.watch.is_over.store(true, Ordering::SeqCst);
        self.rouse();
        let handle = self.watch.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle
            && (self.in_flight() == 0 || handle.is_finished())
        {
            // It was told to end, and has nothing to wait for.
            let _ = handle.join();
        }
    }

    #[inline]
    fn rouse(&self) {
        if self.watch.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.watch.thread.get()
        {
            thread.unpark();
        }
    }

    /// What the thread does.
    fn attend(self: &Arc<Self>, notifier: Option<&Notifier>) {
        // Whoever submits before this thread is known rouses nobody, and need not: it does not sleep before it has looked.
        let _ = self.watch.thread.set(thread::current());
        let notify = || {
            if let Some(notifier) = notifier {
                notifier.notify();
            }
        };
        let (mut seen, mut inside, mut is_current) = (0, None, false);
        while !self.watch.is_over.load(Ordering::SeqCst) && self.device.loss.check().is_ok() {
            let target = self.state().target(seen);
            let Some(target) = target else {
                inside = None;
                self.sleep(seen);
                continue;
            };
            inside = inside.take().or_else(Inside::try_new);
            if inside.is_none() {
                // The process exits, and nobody is told of anything any more.
                return;
            }
            // The thread is this lane's own, so that the context stays current on it.
            // SAFETY: the context is retained.
            let set = |lane: &Self| unsafe { (lane.device.functions().cuCtxSetCurrent)(lane.device.context) };
            if !is_current {
                is_current = self.device.check("cuCtxSetCurrent", set(self)).is_ok();
            }
            match self.wait_for(&target) {
                Ok(()) if is_current => {
                    exit::after(Step::Finished);
                    match target {
                        Target::Batch(event, submission) => {
                            self.reached.fetch_max(submission, Ordering::AcqRel);
                            seen = submission;
                            if event.moment() == Moment::Coming && event.set_over() {
                                self.release_held();
                            }
                        }
                        Target::Marker(_) => self.go_on(),
                    }
                    notify();
                }
                Ok(()) => thread::sleep(PAUSE),
                Err(_) => {
                    notify();
                    // What is finished is seen by whoever looks, and told a little later.
                    thread::sleep(PAUSE);
                }
            }
        }
        if self.device.loss.check().is_err() {
            notify();
        }
    }

    /// Waits for an event, or for the whole stream where that is not recorded.
    fn wait_for(&self, target: &Target) -> Result<()> {
        let functions = self.device.functions();
        let event = match target {
            Target::Batch(event, _) if event.moment() == Moment::Coming => {
                // SAFETY: the stream is the device's.
                let code = unsafe { (functions.cuStreamSynchronize)(self.raw) };
                return self.device.check("cuStreamSynchronize", code);
            }
            Target::Batch(event, _) => Some(event.raw()),
            Target::Marker(marker) => marker.raw(),
        };
        match event {
            // SAFETY: whoever has the target holds the event.
            Some(event) => self.device.check("cuEventSynchronize", unsafe { (functions.cuEventSynchronize)(event) }),
            None => Ok(()),
        }
    }

    /// What the next batch's marker stands for has happened.
    fn go_on(self: &Arc<Self>) {
        let mut state = self.state();
        let at = state.issued;
        if let Some(event) = state.flight.get_mut(at).and_then(|batch| batch.marker_reached()) {
            state.keep(event);
        }
        self.advance(&mut state);
        drop(state);
        self.release_held();
    }

    fn sleep(&self, seen: u64) {
        self.watch.is_asleep.store(true, Ordering::SeqCst);
        let is_wanted = || self.watch.is_over.load(Ordering::SeqCst) || self.state().target(seen).is_some();
        while self.watch.is_asleep.load(Ordering::SeqCst) && !is_wanted() {
            thread::park();
        }
        self.watch.is_asleep.store(false, Ordering::SeqCst);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _inside = Inside::new();
        if !self.is_idle() {
            log::warn!("a stream of {} still works: it is left to itself", self.device.properties.info.device);
            mem::forget(mem::take(&mut *self.state()));
            mem::forget(self.device.clone());
            return;
        }
        self.device.unfinished.fetch_sub(self.in_flight() as u64, Ordering::AcqRel);
        let Ok(_current) = self.device.enter() else { return };
        // SAFETY: nothing of the stream is under way any more.
        let code = unsafe { (self.device.functions().cuStreamDestroy_v2)(self.raw) };
        self.device.note("cuStreamDestroy_v2", code);
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("in_flight", &self.in_flight())
            .field("reached", &self.reached.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
