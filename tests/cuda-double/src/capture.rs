//! Recording what streams are asked to do into a graph, and what must not be asked meanwhile.

use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::driver::driver;
use crate::event::{Event, Recorded};
use crate::graph::Graph;
use crate::stream::Stream;
use crate::sync::lock;
use crate::work::Work;

/// Whose calls a recording forbids. Equivalent to: `CUstreamCaptureMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Those of every thread.
    Global,
    /// Those of the thread that records.
    Thread,
    /// Nobody's.
    Relaxed,
}

impl Mode {
    pub(crate) fn from_number(number: u32) -> Outcome<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::Thread),
            2 => Ok(Self::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Global => 0,
            Self::Thread => 1,
            Self::Relaxed => 2,
        }
    }
}

/// A recording. Equivalent to: a capture sequence.
pub(crate) struct Capture {
    pub(crate) id: u64,
    mode: Mode,
    origin: usize,
    thread: ThreadId,
    context: Arc<Context>,
    pub(crate) graph: Arc<Graph>,
    is_invalid: AtomicBool,
    has_ended: AtomicBool,
    /// Streams that take part.
    streams: Mutex<Vec<Arc<Stream>>>,
}

/// A stream's part in a recording: the nodes that what comes next comes after.
#[derive(Clone)]
pub(crate) struct Capturing {
    pub(crate) capture: Arc<Capture>,
    pub(crate) tail: Vec<usize>,
}

impl Capture {
    pub(crate) fn is_invalid(&self) -> bool {
        self.is_invalid.load(Ordering::Acquire)
    }

    pub(crate) fn invalidate(&self) {
        self.is_invalid.store(true, Ordering::Release);
    }

    fn check(&self) -> Outcome {
        if self.is_invalid() { Err(Code::STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }
}

thread_local! {
    static OWN_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Puts another mode in the place of this thread's. Equivalent to: `cuThreadExchangeStreamCaptureMode`.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    OWN_MODE.replace(mode)
}

/// A call that would not be recorded and could disturb: recordings that forbid it here end in an error.
///
/// Only recordings of the same context are looked at, where a real driver looks at the whole process: tests of
/// different devices run side by side.
pub(crate) fn forbid_meanwhile(context: &Arc<Context>) -> Outcome {
    let (own, thread) = (OWN_MODE.get(), thread::current().id());
    let mut hit = false;
    for capture in lock(&driver().captures).iter().filter(|capture| Arc::ptr_eq(&capture.context, context)) {
        let forbids = match (own, capture.mode) {
            (Mode::Relaxed, _) | (_, Mode::Relaxed) => false,
            (Mode::Global, Mode::Global) => true,
            _ => capture.thread == thread,
        };
        if forbids {
            capture.invalidate();
            hit = true;
        }
    }
    if hit { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Waiting for a stream, or asking whether it is done, makes no sense while it records.
pub(crate) fn forbid_on(stream: &Stream) -> Outcome {
    match of(stream) {
        Some(capturing) => {
            capturing.capture.invalidate();
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
        None => implicit(stream),
    }
}

/// Whatever involves the stream without a name would make it depend on streams that record.
fn implicit(stream: &Stream) -> Outcome {
    let context = &stream.context;
    if !context.legacy_stream().is_ok_and(|legacy| legacy.handle == stream.handle) {
        return Ok(());
    }
    let mut hit = false;
    for other in context.streams().iter().filter(|other| other.is_blocking) {
        if let Some(capturing) = lock(&other.capturing).as_ref() {
            capturing.capture.invalidate();
            hit = true;
        }
    }
    if hit { Err(Code::STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}

/// Begins a recording on a stream.
pub(crate) fn begin(stream: &Arc<Stream>, mode: Mode) -> Outcome {
    static IDS: AtomicU64 = AtomicU64::new(1);
    let context = &stream.context;
    if context.legacy_stream()?.handle == stream.handle {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut capturing = lock(&stream.capturing);
    if capturing.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        id: IDS.fetch_add(1, Ordering::Relaxed),
        mode,
        origin: stream.handle,
        thread: thread::current().id(),
        context: context.clone(),
        graph: Graph::new(context.clone()),
        is_invalid: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
        streams: Mutex::new(vec![stream.clone()]),
    });
    driver().graphs.keep(capture.graph.handle, capture.graph.clone());
    lock(&driver().captures).push(capture.clone());
    *capturing = Some(Capturing { capture, tail: Vec::new() });
    Ok(())
}

/// Ends the recording that began on a stream, and gives its graph.
pub(crate) fn end(stream: &Arc<Stream>) -> Outcome<Arc<Graph>> {
    let capturing = lock(&stream.capturing).clone().ok_or(Code::ILLEGAL_STATE)?;
    let capture = capturing.capture;
    if capture.origin != stream.handle {
        return Err(Code::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != thread::current().id() {
        return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
    }
    abandon(&capture);
    let outcome = capture.check().and_then(|()| {
        let joined = capture.graph.all_before(&capturing.tail);
        if joined { Ok(()) } else { Err(Code::STREAM_CAPTURE_UNJOINED) }
    });
    match outcome {
        Ok(()) => Ok(capture.graph.clone()),
        Err(code) => {
            let _ = driver().graphs.remove(capture.graph.handle);
            capture.graph.forget();
            Err(code)
        }
    }
}

/// Ends a recording, whatever came of it: its streams do things again.
fn abandon(capture: &Arc<Capture>) {
    capture.has_ended.store(true, Ordering::Release);
    lock(&driver().captures).retain(|known| !Arc::ptr_eq(known, capture));
    for stream in lock(&capture.streams).drain(..) {
        *lock(&stream.capturing) = None;
    }
}

/// What becomes of work on a stream: it is done, or recorded.
pub(crate) fn issue(stream: &Arc<Stream>, work: Work) -> Outcome {
    let mut capturing = lock(&stream.capturing);
    let Some(capturing) = capturing.as_mut() else {
        drop(capturing);
        implicit(stream)?;
        stream.submit(work);
        return Ok(());
    };
    capturing.capture.check()?;
    let node = capturing.capture.graph.add(work, core::mem::take(&mut capturing.tail))?;
    capturing.tail = vec![node.handle];
    Ok(())
}

/// Whether a stream records.
pub(crate) fn is_capturing(stream: &Stream) -> bool {
    lock(&stream.capturing).is_some()
}

/// Records an event on a stream: a moment, or a place in what it records.
pub(crate) fn record(event: &Event, stream: &Arc<Stream>) -> Outcome {
    let capturing = lock(&stream.capturing).clone();
    match capturing {
        Some(Capturing { capture, tail }) => {
            capture.check()?;
            event.set(Recorded::Captured { capture, nodes: tail });
        }
        None => {
            implicit(stream)?;
            event.record(stream);
        }
    }
    Ok(())
}

/// Lets a stream wait for an event, in what it does or in what it records.
pub(crate) fn wait(stream: &Arc<Stream>, event: &Event) -> Outcome {
    let mut capturing = lock(&stream.capturing);
    match (capturing.as_mut(), event.recorded()) {
        (None, Recorded::Never) => Ok(()),
        (None, Recorded::At { moment, .. }) => {
            drop(capturing);
            implicit(stream)?;
            stream.accept(&[moment], |_, _| Work::Nothing);
            Ok(())
        }
        // The stream takes part from here on.
        (None, Recorded::Captured { capture, nodes }) => {
            capture.check()?;
            if capture.has_ended.load(Ordering::Acquire) {
                return Err(Code::INVALID_VALUE);
            }
            if stream.context.legacy_stream()?.handle == stream.handle {
                capture.invalidate();
                return Err(Code::STREAM_CAPTURE_IMPLICIT);
            }
            lock(&capture.streams).push(stream.clone());
            *capturing = Some(Capturing { capture, tail: nodes });
            Ok(())
        }
        (Some(own), Recorded::Captured { capture, nodes }) if Arc::ptr_eq(&own.capture, &capture) => {
            own.capture.check()?;
            own.tail.extend(nodes.into_iter().filter(|node| !own.tail.contains(node)).collect::<Vec<_>>());
            Ok(())
        }
        (Some(own), Recorded::Captured { capture, .. }) => {
            own.capture.invalidate();
            capture.invalidate();
            Err(Code::STREAM_CAPTURE_MERGE)
        }
        (Some(own), Recorded::At { .. } | Recorded::Never) => {
            own.capture.invalidate();
            Err(Code::STREAM_CAPTURE_ISOLATION)
        }
    }
}

/// Asking about an event that stands for a place in a recording has no answer.
pub(crate) fn forbid_captured(event: &Event) -> Outcome {
    if let Recorded::Captured { capture, .. } = event.recorded() {
        capture.invalidate();
        return Err(Code::CAPTURED_EVENT);
    }
    Ok(())
}

/// What a stream records, and its part in it.
pub(crate) fn of(stream: &Stream) -> Option<Capturing> {
    lock(&stream.capturing).clone()
}

/// Ends a recording whose stream is destroyed.
pub(crate) fn end_with(stream: &Stream) {
    if let Some(capturing) = of(stream)
        && capturing.capture.origin == stream.handle
    {
        abandon(&capturing.capture);
    }
}
