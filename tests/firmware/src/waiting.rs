//! What waits: futures, deadlines, and who has the device to itself.

use crate::check::{Check, Outcome, Wrong, fails, same};
use crate::device::{holds_elements, open, open_with, upload};
use crate::kernels::{PART, PART_BYTES, add};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use trunnion_runtime_core::error::{Error, KernelFault};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "futures complete under an executor that polls only who was woken", run: futures },
    Check { name: "who waits too short is told so, and can wait again", run: late },
    Check { name: "a device that ends while work is late says how much it left", run: left_behind },
    Check { name: "a task that has the device to itself passes, and tasks inside it too", run: exclusive },
    Check { name: "a kernel that calls its own device is told so", run: reentrant },
];

/// Polls a future as long as it was woken since it was last polled.
fn run<F: Future>(future: F) -> Outcome<F::Output> {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let (mut future, waker) = (pin!(future), Waker::from(woken.clone()));
    while woken.0.swap(false, Ordering::Relaxed) {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
    }
    Err(Wrong::new("nobody woke a future that is not done"))
}

fn futures() -> Outcome {
    for options in [&[][..], &[("delay", "20ms")]] {
        let client = open_with(options)?;
        let add = client.prepare(add())?;
        let a = client.zeros(PART_BYTES)?;
        let mut reads = Vec::new();
        for _ in 0..5 {
            client.launch(&add, Grid::x(1), ([&a], &1u32))?;
            reads.push(client.read_async(&[&a])?);
        }
        run(client.sync()?)??;
        for (i, read) in reads.into_iter().enumerate() {
            same(run(read)??[0].to_vec::<u32>()?, [i as u32 + 1; PART])?;
        }
    }
    Ok(())
}

fn late() -> Outcome {
    let client = open_with(&[("delay", "60ms")])?;
    let add = client.prepare(add())?;
    let a = client.zeros(PART_BYTES)?;
    client.launch(&add, Grid::x(1), ([&a], &1u32))?;
    client.flush()?;
    let done = client.sync()?;
    let error = fails(done.wait_for(Duration::from_millis(20)), |e| matches!(e, Error::Timeout { .. }))?;
    let Error::Timeout { waited, .. } = error else { return Err(error.into()) };
    same((waited >= Duration::from_millis(20), waited < Duration::from_millis(60)), (true, true))?;
    done.wait_for(Duration::from_secs(10))?;
    holds_elements(&client, &a, &[1u32; PART])
}

fn left_behind() -> Outcome {
    let client = open_with(&[("delay", "10s"), ("memory", "1KiB")])?;
    let a = client.zeros(64)?;
    let read = client.read_async(&[&a])?;
    let report = client.shutdown(Duration::from_millis(20));
    same(report.abandoned > 0, true)?;
    fails(read.wait(), |e| matches!(e, Error::ShutDown { .. }))?;
    Ok(())
}

fn exclusive() -> Outcome {
    let client = open()?;
    let a = upload(&client, &[1u8; 1000])?;
    let length = client.exclusive(|| client.exclusive(|| client.read_one(&a).map(|bytes| bytes.len())))???;
    same(length, 1000)
}

fn reentrant() -> Outcome {
    let client = open()?;
    let kernel = SourceKernel::new("calls", Interface::new().partition(4)).source(Source::host(|_| {
        match open().and_then(|inside| inside.sync_timeout(Duration::from_secs(1))) {
            Err(Error::Reentrant { .. }) => Ok(()),
            other => Err(KernelFault::Message(alloc::format!("{other:?}"))),
        }
    }));
    let kernel = client.prepare(kernel)?;
    let a = client.zeros(4)?;
    client.launch(&kernel, Grid::x(1), [&a])?;
    client.sync_buffers(&[&a])?;
    Ok(())
}
