//! What the thread of a [`Lane`] waits for: what the stream was given, one submission after the other. It tells who drives the device, and hands
//! over what was held.
//!
//! It ends with the event that it waits for, since the driver has no wait that gives up.

use crate::batch::Marker;
use crate::event::{Event, Moment};
use crate::failure::is_capture;
use crate::lane::{Lane, State};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use cudarc::driver::sys;
use std::thread;
use trunnion_backend_core::waiter::{PAUSE, Watched};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;

/// How often in a row the driver may neither wait for an event nor say whether it has happened. The device is lost then, for that would be
/// waited for as long as the process lives.
const UNANSWERED: u32 = 64;

/// What the thread waits for next.
enum Target {
    /// A submission, with the event behind it.
    Batch(Arc<Event>, u64),
    Marker(Marker),
}

impl Target {
    /// The event that the driver waits for; `None` for the whole stream.
    fn event(&self) -> Option<sys::CUevent> {
        match self {
            Self::Batch(event, _) => (event.moment() != Moment::Coming).then(|| event.raw()),
            Self::Marker(marker) => marker.raw(),
        }
    }
}

impl State {
    /// The first submission behind `seen` that the thread can wait for.
    fn target(&self, seen: u64) -> Option<Target> {
        let next = self.flight.iter().take(self.issued).find(|batch| batch.submission > seen);
        if let Some(batch) = next {
            return batch.done.clone().map(|event| Target::Batch(event, batch.submission));
        }
        self.flight.get(self.issued).and_then(|batch| batch.marker.clone()).filter(Marker::is_due).map(Target::Marker)
    }
}

/// The lane, as its thread knows it.
struct Watch {
    lane: Arc<Lane>,
    /// The last submission that was waited for.
    seen: u64,
    /// Whether the context is the thread's.
    is_current: bool,
    /// How often in a row the driver said nothing.
    unanswered: u32,
}

impl Watched for Watch {
    type Next = Target;

    fn next(&mut self) -> Option<Target> {
        self.lane.state().target(self.seen)
    }

    fn wait(&mut self, target: &Target) -> Result<bool> {
        self.lane.device.loss.check()?;
        match self.is_over(target) {
            Ok(is_over) => {
                self.unanswered = 0;
                if !is_over {
                    thread::sleep(PAUSE);
                }
                Ok(is_over)
            }
            Err(error) => {
                // Of recordings of somebody else's, which forbid to ask, there is an end.
                self.unanswered += u32::from(!is_capture(&error));
                Err(if self.unanswered == UNANSWERED { self.lane.give_up(&error) } else { error })
            }
        }
    }

    fn finished(&mut self, target: Target) {
        let lane = &self.lane;
        match target {
            Target::Batch(event, submission) => {
                lane.reached.fetch_max(submission, Ordering::AcqRel);
                self.seen = submission;
                if event.moment() == Moment::Coming && event.set_over() {
                    lane.release_held();
                }
                lane.fill_up();
            }
            Target::Marker(_) => lane.go_on(),
        }
    }
}

impl Watch {
    fn is_over(&mut self, target: &Target) -> Result<bool> {
        if !self.is_current {
            self.lane.device.stay()?;
            self.is_current = true;
        }
        match self.lane.wait_for(target) {
            Ok(()) => Ok(true),
            Err(error) if error.is_device_lost() => Err(error),
            // It may not wait, and yet say.
            Err(_) => self.lane.ask(target.event()),
        }
    }
}

impl Lane {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Driver`] when the system gives none.
    pub(crate) fn start(self: &Arc<Self>, notifier: Option<&Notifier>) -> Result<()> {
        let watch = Watch { lane: self.clone(), seen: 0, is_current: false, unanswered: 0 };
        self.waiter.start("trunnion-cuda", watch, notifier)
    }

    /// Ends the thread: at once where nothing is unfinished, else with what it waits for and without being waited for. So it is where the
    /// driver does not say what is unfinished.
    pub(crate) fn end(&self) {
        self.waiter.end(|| self.in_flight() == 0 && !self.device.is_silent.load(Ordering::Acquire));
    }

    /// Waits for an event, or for the whole stream where that is not recorded.
    fn wait_for(&self, target: &Target) -> Result<()> {
        let functions = self.device.functions();
        match (target.event(), target) {
            (Some(event), _) => {
                // SAFETY: whoever has the target holds the event.
                self.device.check("cuEventSynchronize", unsafe { (functions.cuEventSynchronize)(event) })
            }
            (None, Target::Batch(..)) => {
                // SAFETY: the stream is the device's.
                self.device.check("cuStreamSynchronize", unsafe { (functions.cuStreamSynchronize)(self.raw) })
            }
            (None, Target::Marker(_)) => Ok(()),
        }
    }

    /// The device is lost: what the driver answers tells nothing of its work, again and again. That may go on all the same, so what it uses is
    /// kept from everybody else.
    #[cold]
    fn give_up(&self, error: &Error) -> Error {
        let cause = alloc::format!("{error}, {UNANSWERED} times in a row");
        self.device.is_silent.store(true, Ordering::Release);
        self.device.fault(Error::DeviceLost { cause })
    }

    /// What the next batch's marker stands for has happened.
    fn go_on(self: &Arc<Self>) {
        let mut state = self.state();
        let at = state.issued;
        if let Some(event) = state.flight.get_mut(at).and_then(|batch| batch.marker_reached()) {
            state.set_done();
            state.keep(event);
        }
        self.advance(&mut state);
        drop(state);
        self.release_held();
    }
}
