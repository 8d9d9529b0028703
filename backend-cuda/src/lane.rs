//! A CUDA stream with the batches that are under way on it.
//!
//! Batches are handed to the stream in order, each with an event behind it. Nearly always that is done when they are submitted. A launch
//! whose counts lie in memory is handed over when the host has seen the counts, and what would be more than [`MOST`] calls when the stream
//! has done some: until then its batch and those behind it are held here, and so are batches of other lanes, of other devices too, that come
//! after them ([`held`](crate::held)). The lane's thread ([`watch`](crate::watch)) hands over what is held.

use crate::batch::{Batch, Marker, Progress, UnderWay};
use crate::blocks::Blocks;
use crate::device::Device;
use crate::event::{Event, Moment};
use crate::failure::status;
use crate::held::Call;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cudarc::driver::sys;
use std::sync::{Mutex, MutexGuard, PoisonError};
use trunnion_backend_core::exit::{self, Inside, Step};
use trunnion_backend_core::waiter::Waiter;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;

/// Events kept to be recorded again.
const SPARE: usize = 64;

/// The most calls that a stream is given before it has done some: a driver keeps whoever calls it once about a thousand are under way, and
/// what the stream waits for may then never be asked for.
const MOST: usize = 512;

/// Why nothing comes of what is not with a stream at its end.
const ENDED: &str = "its stream ended before";

pub(crate) struct Lane {
    pub(crate) device: Arc<Device>,
    pub(crate) raw: sys::CUstream,
    /// Calls its thread when something came of an event of another device.
    pub(crate) call: Arc<Call>,
    state: Mutex<State>,
    /// The last submission that is known to be finished.
    pub(crate) reached: AtomicU64,
    /// Whether the driver could not say what is finished when it was asked last.
    is_unanswered: AtomicBool,
    pub(crate) waiter: Waiter,
}

// SAFETY: a handle, which the driver takes on any thread.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

#[derive(Default)]
pub(crate) struct State {
    /// Oldest first.
    pub(crate) flight: VecDeque<Box<Batch>>,
    /// How many of them were handed to the stream.
    pub(crate) issued: usize,
    /// Calls that are with the stream, as far as anybody has looked: those of the batches under way together.
    calls: usize,
    /// Whether the next batch is held until there is room for it.
    pub(crate) is_full: bool,
    /// How many submissions there were.
    submitted: u64,
    /// Events for somebody else, which the next one makes happen.
    pub(crate) signals: Vec<Arc<Event>>,
    /// Events to be recorded again, once nobody else has them.
    spare: VecDeque<Arc<Event>>,
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

    /// Whether there is room for a batch of so many calls, where submissions up to `reached` are finished.
    fn has_room(&mut self, calls: usize, reached: u64) -> bool {
        let calls = calls.min(MOST);
        if self.calls + calls > MOST {
            let finished = self.flight.iter_mut().take(self.issued).take_while(|batch| batch.submission <= reached);
            self.calls -= finished.map(|batch| mem::take(&mut batch.calls)).sum::<usize>();
        }
        self.calls + calls <= MOST
    }

    /// The stream has done all it was given.
    pub(crate) fn set_done(&mut self) {
        self.flight.iter_mut().take(self.issued + 1).for_each(|batch| batch.calls = 0);
        self.calls = 0;
    }

    pub(crate) fn keep(&mut self, event: Arc<Event>) {
        if self.spare.len() < SPARE {
            self.spare.push_back(event);
        }
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
        let lane = Arc::new(Self {
            device: device.clone(),
            raw,
            call: Arc::default(),
            state: Mutex::default(),
            reached: AtomicU64::new(0),
            is_unanswered: AtomicBool::new(false),
            waiter: Waiter::default(),
        });
        lane.start(notifier)?;
        Ok(lane)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a batch over, and hands it to the stream where it can.
    ///
    /// # Errors
    /// What the driver answers, with the batch: nothing of it was then done.
    pub(crate) fn submit(self: &Arc<Self>, mut batch: Box<Batch>) -> Result<(), (Error, Box<Batch>)> {
        let _current = match self.device.enter_to_work() {
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
        batch.signals.append(&mut state.signals);
        batch.signals.iter().for_each(|signal| signal.set_submitted());
        batch.refused = state.flight.back().and_then(|before| before.refused.clone());
        batch.under_way = Some(UnderWay::new(&self.device, batch.waits_for_others(&self.device)));
        state.flight.push_back(batch);
        let has_moved = self.advance(&mut state);
        drop(state);
        if has_moved {
            self.release_held();
        }
        exit::after(Step::Submitted);
        self.waiter.rouse();
        Ok(())
    }

    /// Hands what is held to the stream, as far as that goes; whether the end of a batch was. The context is current.
    pub(crate) fn advance(self: &Arc<Self>, state: &mut State) -> bool {
        let (before, mut listed_at) = (state.issued, ptr::null());
        loop {
            let has_moved = state.issued != before;
            let Some(batch) = state.flight.get(state.issued).filter(|batch| batch.marker.is_none()) else {
                return has_moved;
            };
            let needs = if batch.is_new() { batch.needs() } else { 0 };
            state.is_full = !state.has_room(needs, self.reached.load(Ordering::Acquire));
            if state.is_full {
                return has_moved;
            }
            let State { flight, issued, calls, spare, .. } = &mut *state;
            let Some(batch) = flight.get_mut(*issued) else { return has_moved };
            let others = *calls - batch.calls;
            let room = MOST.saturating_sub(*calls);
            let progress = batch.issue(&self.device, self.raw, room, || State::event(&self.device, spare));
            *calls = others + batch.calls;
            match progress {
                Progress::Issued => {
                    let refused = batch.refused.clone();
                    *issued += 1;
                    if refused.is_some() {
                        flight.iter_mut().skip(*issued).for_each(|behind| behind.refused.clone_from(&refused));
                    }
                }
                Progress::Marked => return has_moved,
                // What came of the event before the lane was listed is seen by looking once more.
                Progress::Held(event) if !ptr::eq(listed_at, event.device()) => {
                    event.device().hold(self);
                    listed_at = event.device();
                }
                Progress::Held(event) => {
                    if !ptr::eq(event.device(), &*self.device) {
                        batch.marker = Some(Marker::Elsewhere(self.call.clone()));
                    }
                    return has_moved;
                }
            }
        }
    }

    /// Hands to their streams what other lanes hold, since events may have been recorded that it waits for. The context is current.
    pub(crate) fn release_held(&self) {
        loop {
            let (held, mut has_moved) = (self.device.held.take(), false);
            for lane in held.iter().filter_map(Weak::upgrade) {
                has_moved |= lane.advance(&mut lane.state());
                lane.waiter.rouse();
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
    pub(crate) fn take_finished(self: &Arc<Self>) -> Result<Option<Box<Batch>>> {
        let mut state = self.state();
        let Some(oldest) = state.flight.front().filter(|_| state.issued > 0) else { return Ok(None) };
        if self.reached.load(Ordering::Acquire) < oldest.submission && !self.look(oldest)? {
            return Ok(None);
        }
        let Some(mut batch) = state.flight.pop_front() else { return Ok(None) };
        state.issued -= 1;
        state.calls -= batch.calls;
        let frees_others = batch.set_over();
        if let Some(event) = batch.done.take() {
            state.keep(event);
        }
        let is_full = state.is_full;
        drop(state);
        if (frees_others || is_full)
            && let Ok(_current) = self.device.enter()
        {
            if is_full {
                self.fill_up();
            }
            if frees_others {
                self.release_held();
            }
        }
        Ok(Some(batch))
    }

    /// Hands over what was held for want of room. The context is current.
    pub(crate) fn fill_up(self: &Arc<Self>) {
        let mut state = self.state();
        let has_moved = state.is_full && self.advance(&mut state);
        drop(state);
        if has_moved {
            self.release_held();
        }
        self.waiter.rouse();
    }

    /// Asks the driver whether a batch that was handed to the stream is finished. Where it cannot say, who waits for it asks again.
    fn look(&self, batch: &Batch) -> Result<bool> {
        let _current = self.device.enter()?;
        let recorded = batch.done.as_ref().filter(|event| event.moment() == Moment::Recorded);
        match self.ask(recorded.map(|event| event.raw())) {
            Ok(true) => {
                self.reached.fetch_max(batch.submission, Ordering::AcqRel);
                Ok(true)
            }
            Err(error) if error.is_device_lost() => Err(error),
            Ok(false) | Err(_) => Ok(false),
        }
    }

    /// Asks the driver whether an event has happened; where there is none, whether the stream has done all it was given. The context is
    /// current.
    ///
    /// # Errors
    /// The device's fault; whatever else the driver answers, which tells neither. Of several such answers in a row the first is logged.
    pub(crate) fn ask(&self, event: Option<sys::CUevent>) -> Result<bool> {
        let functions = self.device.functions();
        let (call, code) = match event {
            // SAFETY: whoever asks holds the event, and the context is current.
            Some(event) => ("cuEventQuery", unsafe { (functions.cuEventQuery)(event) }),
            // SAFETY: the stream is the device's, and the context is current.
            None => ("cuStreamQuery", unsafe { (functions.cuStreamQuery)(self.raw) }),
        };
        let answer = match code {
            status::SUCCESS => Ok(true),
            status::NOT_READY => Ok(false),
            code => Err(self.device.failed(call, code)),
        };
        let unanswered = answer.as_ref().err().filter(|error| !error.is_device_lost());
        let was_unanswered = self.is_unanswered.swap(unanswered.is_some(), Ordering::Relaxed);
        if let Some(error) = unanswered.filter(|_| !was_unanswered) {
            log::warn!("{}: what is finished is not known: {error}", self.device.properties.info.device);
        }
        answer
    }

    /// Whether nothing is under way, as far as the driver says. A lost device does nothing any more, unless it is only silent.
    pub(crate) fn is_idle(&self) -> bool {
        if self.device.is_dead() {
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

    /// Takes everything out that was not taken out as finished: the lane is idle.
    pub(crate) fn abandon(&self, blocks: &mut Blocks) {
        let flight = mem::take(&mut *self.state()).flight;
        self.give_up_all(flight.iter());
        flight.into_iter().for_each(|mut batch| batch.clear(blocks));
    }

    /// Takes out what is held and of which nothing was handed to the stream: nothing comes of it any more, nor of events for somebody else
    /// that nothing was submitted with.
    pub(crate) fn take_held(&self) -> VecDeque<Box<Batch>> {
        let mut state = self.state();
        let is_begun = state.flight.get(state.issued).is_some_and(|batch| !batch.is_new());
        let stay = state.issued + usize::from(is_begun);
        let held = state.flight.split_off(stay);
        drop(state);
        self.give_up_all(held.iter());
        self.give_up_signals(&ENDED);
        held
    }

    /// Nothing comes of the events for somebody else that nothing was submitted with, for that reason.
    pub(crate) fn give_up_signals(&self, why: &dyn fmt::Display) {
        let signals = mem::take(&mut self.state().signals);
        if signals.iter().fold(false, |holds, signal| signal.give_up(why) | holds) {
            self.let_go();
        }
    }

    /// Nothing more comes of batches that were taken out.
    fn give_up_all<'a>(&self, batches: impl Iterator<Item = &'a Box<Batch>>) {
        let lost = self.device.loss.check();
        let why: &dyn fmt::Display = match &lost {
            Ok(()) => &ENDED,
            Err(lost) => lost,
        };
        if batches.fold(false, |holds, batch| batch.give_up(why) | holds) {
            self.let_go();
        }
    }

    /// Goes on with what is held by events that were given up.
    fn let_go(&self) {
        match self.device.enter() {
            Ok(_current) => self.release_held(),
            // Nothing of the device goes on.
            Err(_) => self.device.held.call_others(),
        }
    }

    /// How many batches are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.state().flight.len()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _inside = Inside::new();
        if !self.is_idle() {
            log::warn!("a stream of {} still works: it is left to itself", self.device.properties.info.device);
            let state = mem::take(&mut *self.state());
            // Nobody hands over the rest.
            self.give_up_all(state.flight.iter().skip(state.issued));
            mem::forget((state, self.device.clone()));
            return;
        }
        let flight = mem::take(&mut *self.state()).flight;
        self.give_up_all(flight.iter());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::CudaBackend;
    use crate::options::CudaOptions;
    use core::time::Duration;
    use std::thread;
    use std::time::Instant;
    use trunnion_cuda_double::Double;

    #[test]
    fn a_lane_that_holds_many_batches_is_on_the_list_of_its_device_once() {
        const BATCHES: u64 = 10;
        let double = Double::open().unwrap();
        let claimed = double.claim_device().unwrap();
        let options = CudaOptions::default().library(double.path());
        let device = CudaBackend::default().device(claimed.ordinal() as u32, &options).unwrap();
        let lane = Lane::new(&device, None).unwrap();
        let event = {
            let _current = device.enter().unwrap();
            Arc::new(Event::new(&device).unwrap())
        };
        for seq in 1..=BATCHES {
            let mut batch = Box::<Batch>::default();
            batch.seq = seq;
            batch.waits.push(event.clone());
            assert!(lane.submit(batch).is_ok());
        }
        assert_eq!(device.held.lanes(), 1);
        assert!(event.set_over());
        {
            let _current = device.enter().unwrap();
            lane.release_held();
        }
        let (begun, mut seq) = (Instant::now(), 0);
        while seq < BATCHES {
            assert!(begun.elapsed() < Duration::from_secs(20), "{seq} batches are finished");
            seq = lane.take_finished().unwrap().map_or(seq, |batch| batch.seq);
            thread::yield_now();
        }
        lane.end();
        drop((lane, event, device));
        claimed.release().unwrap();
    }
}
