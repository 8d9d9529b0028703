//! What tests steer the double with, and what they learn from it. `control.rs` has the safe side.

use core::ffi::c_int;

use super::pointers::{Out, Text};
use super::require;
use crate::codes::{Code, Outcome};
use crate::driver::{MOST_DEVICES, driver};
use crate::faults::Calls;
use crate::sync::lock;

/// Controls are no calls of the driver: they are neither counted nor made to fail.
macro_rules! controls {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $kind),*) -> Code {
            let body = || -> Outcome { $body };
            match std::panic::catch_unwind(core::panic::AssertUnwindSafe(body)) {
                Ok(Ok(())) => Code::SUCCESS,
                Ok(Err(code)) => code,
                Err(_) => Code::UNKNOWN,
            }
        }
    )* };
}

/// The device that stands for calls of threads without a context.
const NO_DEVICE: c_int = -1;

/// Runs `f` with the calls of a device, or of no device.
fn calls<R>(device: c_int, f: impl FnOnce(&Calls) -> R) -> Outcome<R> {
    if device == NO_DEVICE {
        return Ok(f(&driver().calls));
    }
    Ok(f(&driver().device(device)?.calls))
}

/// Writes lines into a buffer and tells how many bytes they have; the buffer is left alone where it is too small.
fn lines(buffer: Out<u8>, room: usize, length: Out<usize>, lines: &[String]) -> Outcome<bool> {
    let text = lines.join("\n");
    length.set(text.len())?;
    let fits = text.len() <= room;
    if fits && !text.is_empty() {
        buffer.set_all(text.as_bytes())?;
    }
    Ok(fits)
}

controls! {
    /// Gives the process so many devices.
    fn trunnion_double_set_device_count(count: u32) {
        require(count <= MOST_DEVICES)?;
        driver().set_device_count(count);
        Ok(())
    }

    /// Takes a device that nobody has, for a test of its own.
    fn trunnion_double_claim_device(device: Out<c_int>) {
        device.set(driver().claim_device().ok_or(Code::NO_DEVICE)?.ordinal as c_int)
    }

    /// Lets others claim a device again, with the budgets it had at the beginning.
    fn trunnion_double_release_device(device: c_int) {
        driver().device(device)?.release_claim();
        Ok(())
    }

    /// Gives a device so many bytes.
    fn trunnion_double_set_memory(device: c_int, bytes: u64) {
        driver().device(device)?.set_memory(bytes);
        Ok(())
    }

    /// Bytes in use of a device.
    fn trunnion_double_memory_used(device: c_int, bytes: Out<u64>) {
        bytes.set(driver().device(device)?.memory().1)
    }

    /// Lets a launch count as endless after so many instructions.
    fn trunnion_double_set_instruction_limit(device: c_int, instructions: u64) {
        driver().device(device)?.set_instructions(instructions);
        Ok(())
    }

    /// Lets workers pause before some of their work, by a seed; zero lets them not.
    fn trunnion_double_set_delays(device: c_int, seed: u64) {
        driver().device(device)?.set_delays(seed);
        Ok(())
    }

    /// Lets events come so many microseconds late.
    fn trunnion_double_set_lateness(device: c_int, microseconds: u64) {
        driver().device(device)?.set_lateness(microseconds);
        Ok(())
    }

    /// Whether somebody holds the primary context of a device.
    fn trunnion_double_is_retained(device: c_int, retained: Out<c_int>) {
        retained.set(c_int::from(lock(&driver().device(device)?.primary).context.is_some()))
    }

    /// Says whether a device reaches another's memory.
    fn trunnion_double_set_peer(device: c_int, other: c_int, reaches: c_int) {
        driver().device(device)?.set_reaches(driver().device(other)?.ordinal, reaches != 0);
        Ok(())
    }

    /// Lets the `nth` call from now of a function give a code; zero stands for every call, the code zero for none.
    fn trunnion_double_fail(device: c_int, name: Text, nth: u64, code: u32) {
        let name = name.get()?;
        calls(device, |calls| calls.plan(&name, nth, Code(code)))
    }

    /// How often a function was called.
    fn trunnion_double_calls(device: c_int, name: Text, count: Out<u64>) {
        let name = name.get()?;
        count.set(calls(device, |calls| calls.of(&name))?)
    }

    /// Every function that was called, a line each: its name, a space, how often.
    fn trunnion_double_all_calls(device: c_int, buffer: Out<u8>, room: usize, length: Out<usize>) {
        let all = calls(device, Calls::all)?;
        let texts: Vec<String> = all.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
        lines(buffer, room, length, &texts).map(drop)
    }

    /// Counts calls from zero again.
    fn trunnion_double_forget_calls(device: c_int) {
        calls(device, Calls::forget)
    }

    /// Takes the reports of a device, a line each; they stay where the buffer is too small for them.
    fn trunnion_double_take_reports(device: c_int, buffer: Out<u8>, room: usize, length: Out<usize>) {
        let device = driver().device(device)?;
        let reports = device.reports.take();
        let texts: Vec<String> = reports.iter().map(ToString::to_string).collect();
        if !lines(buffer, room, length, &texts)? {
            device.reports.put_back(reports);
        }
        Ok(())
    }

    /// Waits for a device's work, makes broken contexts whole, lets nothing fail any more and forgets reports and counts.
    fn trunnion_double_reset(device: c_int) {
        let device = driver().device(device)?;
        device.calls.forgive();
        let primary = lock(&device.primary).context.clone();
        for context in driver().contexts.all().into_iter().filter(|context| context.device.ordinal == device.ordinal) {
            context.wait();
            context.mend();
        }
        drop(primary);
        device.calls.forget();
        device.reports.take();
        Ok(())
    }
}
