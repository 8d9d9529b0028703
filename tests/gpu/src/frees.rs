//! Giving memory back while work is under way: who does so may wait for it, and nobody else does.
//!
//! The backend calls what gives things back on a thread of its own and nowhere else, and assumes that the driver keeps no other thread while
//! that one is inside: launches, copies, events and new memory go on, and what they ask of other streams is done. Each question lets a thread
//! enter such a function while a stream stands still. `seen` is that every call of another thread gave 0, and that its work was done, before
//! that stream went on; `wrong` names the call that came back only afterwards, or gave something else. Memory in use must be given back
//! afterwards alone.

use crate::assumption::{Answer, assumptions, gave, is};
use crate::device::Device;
use crate::gate::Gate;
use core::ffi::c_void;
use core::ptr;
use core::time::Duration;
use std::sync::mpsc;
use std::thread;
use trunnion_cuda_raw::{Address, Driver, Handle, Pieces};

assumptions! {
    other_threads_go_on_while_one_frees_memory_in_use,
    other_threads_go_on_while_one_unmaps_memory,
    memory_is_had_while_another_thread_frees_some,
}

/// The only device that is asked.
const DEVICE: i32 = 0;

/// Bytes of the block that is freed.
const LARGE: usize = 256 << 20;

/// Nobody says when a thread is inside a function: it is by then, also on a busy machine, or the question is answered for less.
const ENTERS: Duration = Duration::from_millis(100);

/// Does something while a stream stands still and another thread gives memory back; whether that thread is done before the stream goes on.
fn meanwhile(
    device: &Device,
    call: &str,
    give_back: impl FnOnce(&Driver) -> u32 + Send + 'static,
    gate: Gate,
    work: impl FnOnce(&Gate) -> Answer,
) -> Result<bool, String> {
    let (driver, mut context) = (device.driver, ptr::null_mut());
    // SAFETY: the place is for a handle.
    device.must("cuCtxGetCurrent", unsafe { driver.cuCtxGetCurrent(&raw mut context) })?;
    let (context, (enters, entered)) = (context.expose_provenance(), mpsc::channel());
    let freeing = thread::Builder::new().spawn(move || {
        // SAFETY: the context is in use until the program ends.
        match unsafe { driver.cuCtxSetCurrent(ptr::with_exposed_provenance_mut(context)) } {
            0 => {}
            code => return code,
        }
        let _ = enters.send(());
        give_back(driver)
    });
    let freeing = freeing.map_err(|error| format!("a thread: {error}"))?;
    // Also where it did not get so far.
    let _ = entered.recv();
    thread::sleep(ENTERS);
    let answer = work(&gate);
    let is_early = freeing.is_finished();
    let ended = gate.end();
    let code = freeing.join().map_err(|_| format!("{call} panicked"))?;
    answer?;
    gave(call, code, 0)?;
    gave("the stream", ended, 0)?;
    Ok(is_early)
}

/// A block of memory, its first word 0.
fn block(device: &Device) -> Result<Address, String> {
    let mut address = 0;
    // SAFETY: the place is for an address, and the memory has a word.
    unsafe {
        device.must("cuMemAlloc", device.driver.cuMemAlloc_v2(&raw mut address, LARGE))?;
        device.must("cuMemsetD32", device.driver.cuMemsetD32_v2(address, 0, 1))?;
        device.must("cuCtxSynchronize", device.driver.cuCtxSynchronize())?;
    }
    Ok(address)
}

/// What is asked of streams meanwhile, and with what: all of it is there before.
struct Work<'a> {
    device: &'a Device,
    streams: [Handle; 2],
    event: Handle,
    memory: Address,
    /// Page-locked.
    host: *mut c_void,
}

impl<'a> Work<'a> {
    fn new(device: &'a Device) -> Result<Self, String> {
        let (streams, memory, mut host) =
            ([device.stream(false)?, device.stream(false)?], device.memory(2)?, ptr::null_mut());
        // SAFETY: the place is for a pointer.
        device.must("cuMemHostAlloc", unsafe { device.driver.cuMemHostAlloc(&raw mut host, 8, 0) })?;
        let work = Self { device, streams, event: device.event()?, memory, host };
        // Code of ours and of the driver's may be loaded when it is first used, which is another question.
        work.carry_out(|_| Ok(()))?;
        Ok(work)
    }

    /// Asks for it, call by call, and waits until it is done. Each call is held against what is wanted of one that came back.
    fn carry_out(&self, wanted: impl Fn(&str) -> Answer) -> Answer {
        let Self { device, streams: [stream, other], event, memory, host } = *self;
        let (driver, word) = (device.driver, host.cast::<u32>());
        let came = |call: &str, code: u32| gave(call, code, 0).and_then(|()| wanted(call));
        // SAFETY: both memories have two words, nobody else uses them, and handles are those that were made above.
        unsafe {
            word.write(40);
            word.add(1).write(0);
            came("cuMemcpyHtoDAsync", driver.cuMemcpyHtoDAsync_v2(memory, host, 4, stream))?;
            came("cuMemsetD32Async", driver.cuMemsetD32Async(memory + 4, 1, 1, stream))?;
            came("cuLaunchKernel", device.launch(c"add_one", 1, 0, stream, memory))?;
            came("cuEventRecord", driver.cuEventRecord(event, stream))?;
            came("cuStreamWaitEvent", driver.cuStreamWaitEvent(other, event, 0))?;
            came("cuMemcpyDtoDAsync", driver.cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, other))?;
            came("cuMemcpyDtoHAsync", driver.cuMemcpyDtoHAsync_v2(word.add(1).cast(), memory + 4, 4, other))?;
            came("cuEventRecord", driver.cuEventRecord(event, other))?;
            loop {
                match driver.cuEventQuery(event) {
                    600 => wanted("the work of other streams")?,
                    code => break came("cuEventQuery", code)?,
                }
                thread::sleep(Duration::from_millis(1));
            }
            gave("the word", word.add(1).read_volatile(), 41)
        }
    }
}

fn other_threads_go_on_while_one_frees_memory_in_use(device: &Device) -> Answer {
    let (work, block) = (Work::new(device)?, block(device)?);
    let gate = Gate::behind_work(device, block)?;
    // SAFETY: only work that was asked for before uses it.
    let free = move |driver: &Driver| unsafe { driver.cuMemFree_v2(block) };
    let is_early = meanwhile(device, "cuMemFree", free, gate, |gate| work.carry_out(|call| gate.stands(call)))?;
    is("cuMemFree comes back after the work that uses the memory", !is_early)
}

fn other_threads_go_on_while_one_unmaps_memory(device: &Device) -> Answer {
    let Some(mut pieces) = Pieces::reserve(device.driver, DEVICE, 1)? else { return Ok(()) };
    pieces.add()?;
    // It is given back with the mapping.
    pieces.let_go()?;
    let (work, used) = (Work::new(device)?, device.memory(1)?);
    let gate = Gate::behind_work(device, used)?;
    let (address, size) = (pieces.address, pieces.size);
    // SAFETY: nobody uses it, so that it may be gone at once.
    let unmap = move |driver: &Driver| unsafe { driver.cuMemUnmap(address, size) };
    meanwhile(device, "cuMemUnmap", unmap, gate, |gate| work.carry_out(|call| gate.stands(call))).map(drop)
}

fn memory_is_had_while_another_thread_frees_some(device: &Device) -> Answer {
    let (block, mut address) = (block(device)?, 0);
    let mut pieces = Pieces::reserve(device.driver, DEVICE, 1)?;
    let gate = Gate::behind_work(device, block)?;
    // SAFETY: only work that was asked for before uses it.
    let free = move |driver: &Driver| unsafe { driver.cuMemFree_v2(block) };
    let had = meanwhile(device, "cuMemFree", free, gate, |gate| {
        // SAFETY: the place is for an address.
        device.must("cuMemAlloc", unsafe { device.driver.cuMemAlloc_v2(&raw mut address, 1 << 20) })?;
        gate.stands("cuMemAlloc")?;
        pieces.as_mut().map_or(Ok(()), Pieces::add)?;
        gate.stands("mapping")
    });
    had.map(drop)
}
