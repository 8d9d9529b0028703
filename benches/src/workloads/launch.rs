//! `Client::launch` to a server that does nothing: 4 buffers and 16 bytes of parameters, on 2 streams.

use crate::alloc_count::allocations;
use crate::callgrind;
use crate::harness::{Case, Run, Target};
use crate::null_server::{self, BURST};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result as CoreResult;
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::KernelHandle;

/// A client that launches on two streams in turn, ours and the peer's.
pub trait Launches {
    /// The launch of number `i` as a program makes it: the handles are clones that are dropped when it is made.
    fn launch(&self, i: usize);

    /// Waits until the server has seen every launch.
    fn finish(&self);
}

/// Ours: two clients of one device, a kernel and its buffers.
#[derive(Debug)]
pub struct Ours {
    clients: [Client; 2],
    kernel: KernelHandle,
    buffers: [Handle; 4],
}

impl Ours {
    /// A device with a runner, as configured by default.
    ///
    /// # Errors
    /// The client's own.
    pub fn new() -> CoreResult<Self> {
        Self::with(Execution::Runner)
    }

    fn with(execution: Execution) -> CoreResult<Self> {
        let (client, kernel, buffers) = null_server::client(0, execution)?;
        let clients = [(); 2].map(|()| {
            let mut pinned = client.clone();
            pinned.set_stream(StreamId::new());
            pinned
        });
        Ok(Self { clients, kernel, buffers })
    }
}

impl Launches for Ours {
    #[inline]
    fn launch(&self, i: usize) {
        let handles = self.buffers.clone();
        let [a, b, c, d] = &handles;
        launch_as_a_program_does(&self.clients[i % 2], &self.kernel, [a, b, c, d], &[i as u32; 4])
            .expect("the queue has room");
    }

    fn finish(&self) {
        self.clients[0].flush().expect("the device answers");
    }
}

/// Apart, so that callgrind can count what happens inside.
#[inline(never)]
fn launch_as_a_program_does(
    client: &Client,
    kernel: &KernelHandle,
    buffers: [&Handle; 4],
    numbers: &[u32; 4],
) -> CoreResult<()> {
    client.launch(kernel, Grid::Static(8, 1, 1), (buffers, numbers)).map(|_| ())
}

/// How many launches a round makes.
pub const LAUNCHES: usize = 1_000_000;

/// A round, in ns a launch: all launches, and until the server has seen them.
pub fn round(launcher: &impl Launches, launches: usize) -> f64 {
    let start = Instant::now();
    for i in 0..launches {
        launcher.launch(i);
    }
    launcher.finish();
    start.elapsed().as_secs_f64() * 1e9 / launches as f64
}

/// The allocations of all threads in 100,000 launches.
pub fn allocations_of(launcher: &impl Launches) -> f64 {
    allocations(|| {
        (0..100_000).for_each(|i| launcher.launch(i));
        launcher.finish();
    }) as f64
}

/// `launch`: ours alone.
///
/// # Errors
/// The client's own, and where valgrind is missing.
pub fn launch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let ours = Ours::new()?;
    let launches = run.repeat(LAUNCHES);
    round(&ours, launches);
    let values = (0..run.rounds(7)).map(|_| round(&ours, launches)).collect();
    run.report(Case { case: "caller", ours: values, unit: "ns", peer: None, target: None });
    let (unit, target) = ("allocations", Some(Target::Value(0.0)));
    run.report(Case { case: "allocations", ours: vec![allocations_of(&ours)], unit, peer: None, target });
    let (caller, runner) = (caller_instructions()?, runner_instructions()?);
    for (case, value, target) in [("caller-instructions", caller, 400.0), ("runner-instructions", runner, 250.0)] {
        let target = Some(Target::Value(target));
        run.report(Case { case, ours: vec![value], unit: "instructions", peer: None, target });
    }
    Ok(())
}

/// What the caller of a launch carries out.
///
/// # Errors
/// Where valgrind is missing.
pub fn caller_instructions() -> Result<f64, Box<dyn Error>> {
    callgrind::instructions("launch-caller", INSIDE, 400, 2_400)
}

/// What lies between the queue and `Server::launch`. Without a runner thread, so that nothing else is counted; what the caller does
/// there is taken off.
///
/// # Errors
/// Where valgrind is missing.
pub fn runner_instructions() -> Result<f64, Box<dyn Error>> {
    let both = callgrind::instructions("launch-both", None, 400, 2_400)?;
    let caller = callgrind::instructions("launch-both", INSIDE, 400, 2_400)?;
    let outside = callgrind::instructions("launch-nothing", None, 400, 2_400)?;
    Ok(both - caller - outside)
}

const INSIDE: Option<&str> = Some("launch_as_a_program_does");

/// The parts that run under callgrind.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    match case {
        // On a device with a runner, in bursts that fit into the queue.
        "launch-caller" => Some(bursts(Execution::Runner, count, Ours::launch)),
        // On a device without: queued while the device is held and run in one go, the caller's part and the runner's.
        "launch-both" => Some(bursts(Execution::Inline, count, Ours::launch)),
        // The same without the launch, to be taken off.
        "launch-nothing" => {
            Some(bursts(Execution::Inline, count, |ours, i| drop(black_box((ours.buffers.clone(), i)))))
        }
        _ => None,
    }
}

fn bursts(execution: Execution, count: usize, launch: fn(&Ours, usize)) -> Result<(), Box<dyn Error>> {
    let ours = Arc::new(Ours::with(execution)?);
    for first in (0..count).step_by(BURST_LENGTH) {
        let inside = ours.clone();
        let burst = move || (first..first + BURST_LENGTH).for_each(|i| launch(&inside, i));
        *BURST.lock().map_err(|_| "a burst panicked")? = Some(Box::new(burst));
        ours.finish();
    }
    Ok(())
}

/// Launches that fit into the queue together.
const BURST_LENGTH: usize = 400;
