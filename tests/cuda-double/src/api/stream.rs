//! Streams: making, ending, waiting.

use core::ffi::c_void;

use super::pointers::{Host, Out};
use super::{exports, require, stream_of};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::context as contexts;
use crate::driver::driver;
use crate::host::HostFunction;
use crate::work::Work;

/// The flag of a stream that does not wait for the one without a name. Equivalent to: `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

fn create(out: Out<usize>, flags: u32, priority: i32) -> Outcome {
    let context = contexts::current()?;
    require(flags & !NON_BLOCKING == 0 && !out.is_null())?;
    let stream = context.add_stream(flags & NON_BLOCKING == 0, priority.clamp(-5, 0));
    out.set(stream.handle)
}

exports! {
    fn cuStreamCreate(out: Out<usize>, flags: u32) {
        create(out, flags, 0)
    }

    fn cuStreamCreateWithPriority(out: Out<usize>, flags: u32, priority: i32) {
        create(out, flags, priority)
    }

    fn cuStreamDestroy_v2(handle: usize) {
        let stream = driver().streams.get(handle)?;
        // The one without a name is never destroyed.
        if stream.context.legacy_stream().is_ok_and(|legacy| legacy.handle == handle) {
            return Err(Code::INVALID_HANDLE);
        }
        driver().streams.remove(handle)?;
        capture::end_with(&stream);
        stream.context.remove_stream(&stream);
        stream.close();
        Ok(())
    }

    fn cuStreamSynchronize(stream: usize) {
        let stream = stream_of(stream)?;
        capture::forbid_on(&stream)?;
        capture::forbid_meanwhile(&stream.context)?;
        stream.wait();
        stream.context.check()
    }

    fn cuStreamQuery(stream: usize) {
        let stream = stream_of(stream)?;
        capture::forbid_on(&stream)?;
        capture::forbid_meanwhile(&stream.context)?;
        if !stream.is_idle() {
            return Err(Code::NOT_READY);
        }
        // Whoever sees that it is done knows what it did.
        driver().host_learns(&stream.moment().clock);
        stream.context.check()
    }

    fn cuStreamGetFlags(stream: usize, flags: Out<u32>) {
        let stream = stream_of(stream)?;
        flags.set(if stream.is_blocking { 0 } else { NON_BLOCKING })
    }

    fn cuStreamGetPriority(stream: usize, priority: Out<i32>) {
        priority.set(stream_of(stream)?.priority)
    }

    fn cuStreamGetCtx(stream: usize, context: Out<usize>) {
        context.set(stream_of(stream)?.context.handle)
    }

    fn cuStreamGetDevice(stream: usize, device: Out<i32>) {
        device.set(stream_of(stream)?.context.device.ordinal as i32)
    }

    fn cuStreamGetId(stream: usize, id: Out<u64>) {
        id.set(u64::from(stream_of(stream)?.line))
    }

    fn cuStreamAttachMemAsync(stream: usize, address: u64, _length: usize, flags: u32) {
        stream_of(stream)?;
        require(matches!(flags, 1 | 2 | 4))?;
        driver().space.containing(address).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuLaunchHostFunc(stream: usize, function: Option<unsafe extern "C" fn(*mut c_void)>, argument: Host) {
        let stream = stream_of(stream)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        capture::issue(&stream, Work::Host(HostFunction::new(function, argument.pointer())))
    }
}
