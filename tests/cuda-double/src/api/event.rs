//! Events: moments of streams.

use super::exports;
use super::pointers::Out;
use super::{require, stream_of};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::context as contexts;
use crate::driver::driver;
use crate::event::{Event, Recorded};

/// The flag of an event that keeps no time. Equivalent to: `CU_EVENT_DISABLE_TIMING`.
const NO_TIME: u32 = 2;

fn elapsed(out: Out<f32>, start: usize, end: usize) -> Outcome {
    let (start, end) = (driver().events.get(start)?, driver().events.get(end)?);
    start.context.check()?;
    capture::forbid_captured(&start)?;
    capture::forbid_captured(&end)?;
    out.set(start.milliseconds_to(&end)?)
}

exports! {
    fn cuEventCreate(out: Out<usize>, flags: u32) {
        let context = contexts::current()?;
        // Between processes there is none, which a flag of 4 would ask for.
        require(flags & !3 == 0 && !out.is_null())?;
        let event = Event::new(context, flags & NO_TIME == 0);
        driver().events.keep(event.handle, event.clone());
        out.set(event.handle)
    }

    fn cuEventDestroy_v2(event: usize) {
        // That a thread without a context may do it the manual does not say: a missing one is among the errors that it lists.
        contexts::current_or_broken()?;
        driver().events.remove(event).map(drop)
    }

    fn cuEventRecord(event: usize, stream: usize) {
        let stream = stream_of(stream)?;
        let event = driver().events.get(event)?;
        if event.context.handle != stream.context.handle {
            return Err(Code::INVALID_HANDLE);
        }
        capture::record(&event, &stream)
    }

    fn cuEventRecordWithFlags(event: usize, stream: usize, flags: u32) {
        let stream = stream_of(stream)?;
        require(flags == 0)?;
        capture::record(&*driver().events.get(event)?, &stream)
    }

    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) {
        let stream = stream_of(stream)?;
        require(flags & !1 == 0)?;
        capture::wait(&stream, &*driver().events.get(event)?)
    }

    fn cuEventQuery(event: usize) {
        contexts::current()?;
        let event = driver().events.get(event)?;
        capture::forbid_captured(&event)?;
        capture::forbid_meanwhile(&event.context)?;
        if !event.is_over() {
            return Err(Code::NOT_READY);
        }
        if let Recorded::At { moment, .. } = event.recorded() {
            driver().host_learns(&moment.clock);
        }
        event.context.check()
    }

    fn cuEventSynchronize(event: usize) {
        contexts::current()?;
        let event = driver().events.get(event)?;
        capture::forbid_captured(&event)?;
        capture::forbid_meanwhile(&event.context)?;
        if let Recorded::At { moment, .. } = event.recorded() {
            moment.wait();
        }
        event.context.check()
    }

    fn cuEventElapsedTime(out: Out<f32>, start: usize, end: usize) {
        elapsed(out, start, end)
    }

    fn cuEventElapsedTime_v2(out: Out<f32>, start: usize, end: usize) {
        elapsed(out, start, end)
    }
}
