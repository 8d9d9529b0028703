//! An event: a moment of a stream that others can wait for.

use alloc::sync::Arc;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use crate::capture::Capture;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::handles;
use crate::stream::{Moment, Stream};
use crate::sync::lock;
use crate::work::Work;

/// What an event stands for.
#[derive(Clone, Default)]
pub(crate) enum Recorded {
    /// Nothing yet, which is over.
    #[default]
    Never,
    At {
        moment: Moment,
        /// When it came, once it has.
        time: Arc<OnceLock<Instant>>,
    },
    /// A place in a recording.
    Captured { capture: Arc<Capture>, nodes: Vec<usize> },
}

/// An event. Equivalent to: `CUevent`.
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    has_time: bool,
    recorded: Mutex<Recorded>,
}

impl Event {
    pub(crate) fn new(context: Arc<Context>, has_time: bool) -> Arc<Self> {
        Arc::new(Self { handle: handles::fresh(), context, has_time, recorded: Mutex::default() })
    }

    pub(crate) fn recorded(&self) -> Recorded {
        lock(&self.recorded).clone()
    }

    pub(crate) fn set(&self, recorded: Recorded) {
        *lock(&self.recorded) = recorded;
    }

    /// Records a stream's moment: when everything accepted so far is done.
    pub(crate) fn record(&self, stream: &Arc<Stream>) {
        let time = Arc::new(OnceLock::new());
        stream.wait_for_room();
        // Held, so that of two that record the event the later one stays.
        let mut recorded = lock(&self.recorded);
        stream.submit(Work::Mark(time.clone()));
        *recorded = Recorded::At { moment: stream.moment(), time };
    }

    /// Whether what it stands for is over.
    pub(crate) fn is_over(&self) -> bool {
        match self.recorded() {
            Recorded::At { moment, .. } => moment.is_over(),
            Recorded::Never | Recorded::Captured { .. } => true,
        }
    }

    /// Milliseconds from this event to another. Equivalent to: `cuEventElapsedTime`.
    pub(crate) fn milliseconds_to(&self, other: &Self) -> Outcome<f32> {
        let (Recorded::At { time: start, .. }, Recorded::At { time: end, .. }) = (self.recorded(), other.recorded())
        else {
            return Err(Code::INVALID_HANDLE);
        };
        if !self.has_time || !other.has_time {
            return Err(Code::INVALID_HANDLE);
        }
        let (Some(start), Some(end)) = (start.get(), end.get()) else { return Err(Code::NOT_READY) };
        let seconds = if end >= start { (*end - *start).as_secs_f32() } else { -(*start - *end).as_secs_f32() };
        Ok(seconds * 1000.0)
    }
}
