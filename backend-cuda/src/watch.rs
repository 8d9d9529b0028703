//! The thread that waits for what the stream of a [`Lane`] was given, tells who drives the device, and hands over what was held.
//!
//! It sleeps while nothing is unfinished, and waits in the driver otherwise. It is told of the end of the lane and ends with the event that it
//! waits for.

use crate::batch::Marker;
use crate::event::{Event, Moment};
use crate::failure::is_capture;
use crate::lane::{Lane, State};
use alloc::sync::Arc;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use cudarc::driver::sys;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use trunnion_backend_core::exit::{self, Inside, Step};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;

/// How long the thread waits before it asks again where the driver refused to wait.
const PAUSE: Duration = Duration::from_millis(1);

/// How often in a row the driver may neither wait for an event nor say whether it has happened. The device is lost then, for that would be
/// waited for as long as the process lives.
const UNANSWERED: u32 = 64;

/// The thread that waits, as others see it.
#[derive(Default)]
pub(crate) struct Watch {
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

impl Lane {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Driver`] when the system gives none.
    pub(crate) fn start(self: &Arc<Self>, notifier: Option<&Notifier>) -> Result<()> {
        let (of_thread, notifier) = (self.clone(), notifier.cloned());
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
        let _ = self.watch.thread.set(started.thread().clone());
        *self.watch.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(())
    }

    /// Ends the thread: at once where nothing is unfinished, else with what it waits for and without being waited for. So it is where the
    /// driver does not say what is unfinished.
    pub(crate) fn end(&self) {
        self.watch.is_over.store(true, Ordering::SeqCst);
        self.rouse();
        let handle = self.watch.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle
            && (handle.is_finished() || (self.in_flight() == 0 && !self.device.is_silent.load(Ordering::Acquire)))
        {
            // It was told to end, and has nothing to wait for.
            let _ = handle.join();
        }
    }

    /// There may be something new to wait for.
    #[inline]
    pub(crate) fn rouse(&self) {
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
        let (mut seen, mut inside, mut is_current, mut unanswered) = (0, None, false, 0);
        while !self.watch.is_over.load(Ordering::SeqCst) && self.device.loss.check().is_ok() {
            let target = self.state().target(seen);
            let Some(target) = target else {
                inside = None;
                self.sleep(seen);
                continue;
            };
            inside = inside.take().or_else(Inside::try_new);
            if inside.is_none() {
                // The process exits, and nobody is told of anything any more. Nor is anything given back by a thread that others wait for.
                mem::forget(target);
                return;
            }
            let waited = match is_current {
                true => Ok(()),
                false => self.device.stay().map(|()| is_current = true),
            };
            let is_over = match waited.and_then(|()| self.wait_for(&target)) {
                Ok(()) => Ok(true),
                Err(error) if !is_current || error.is_device_lost() => Err(error),
                // It may not wait, and yet say.
                Err(_) => self.ask(target.event()),
            };
            match is_over {
                Ok(true) => {
                    unanswered = 0;
                    exit::after(Step::Finished);
                    match target {
                        Target::Batch(event, submission) => {
                            self.reached.fetch_max(submission, Ordering::AcqRel);
                            seen = submission;
                            if event.moment() == Moment::Coming && event.set_over() {
                                self.release_held();
                            }
                            self.fill_up();
                        }
                        Target::Marker(_) => self.go_on(),
                    }
                    notify();
                }
                Ok(false) => {
                    unanswered = 0;
                    thread::sleep(PAUSE);
                }
                Err(error) => {
                    // Of recordings of somebody else's, which forbid to ask, there is an end.
                    unanswered += u32::from(!is_capture(&error));
                    if unanswered == UNANSWERED {
                        self.give_up(&error);
                    }
                    // What is finished is seen by whoever looks, and told a little later.
                    notify();
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
    fn give_up(&self, error: &Error) {
        let cause = alloc::format!("{error}, {UNANSWERED} times in a row");
        self.device.is_silent.store(true, Ordering::Release);
        self.device.fault(Error::DeviceLost { cause });
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

    fn sleep(&self, seen: u64) {
        self.watch.is_asleep.store(true, Ordering::SeqCst);
        let is_wanted = || self.watch.is_over.load(Ordering::SeqCst) || self.state().target(seen).is_some();
        while self.watch.is_asleep.load(Ordering::SeqCst) && !is_wanted() {
            thread::park();
        }
        self.watch.is_asleep.store(false, Ordering::SeqCst);
    }
}
