//! `Client::launch` to a server that does nothing: 4 buffers and 16 bytes of parameters, on 2 streams.

use crate::alloc_count::allocations;
use crate::callgrind;
use crate::harness::{Case, Run};
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

struct Fixture {
    clients: [Client; 2],
    kernel: KernelHandle,
    buffers: [Handle; 4],
}

impl Fixture {
    fn new(index: u32, execution: Execution) -> CoreResult<Self> {
        let (client, kernel, buffers) = null_server::client(index, execution)?;
        let clients = [(); 2].map(|()| {
            let mut pinned = client.clone();
            pinned.set_stream(StreamId::new());
            pinned
        });
        Ok(Self { clients, kernel, buffers })
    }

    /// One launch as a program makes it: the handles are clones that are dropped when it is made.
    fn launch(&self, i: usize) -> CoreResult<()> {
        let handles = self.buffers.clone();
        let [a, b, c, d] = &handles;
        launch_as_a_program_does(&self.clients[i % 2], &self.kernel, [a, b, c, d], &[i as u32; 4])
    }

    fn finish(&self) -> CoreResult<()> {
        self.clients[0].flush()
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

pub fn launch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let fixture = Fixture::new(0, Execution::Runner)?;
    let launches = run.repeat(1_000_000);
    let round = || -> CoreResult<f64> {
        let start = Instant::now();
        for i in 0..launches {
            fixture.launch(i)?;
        }
        fixture.finish()?;
        Ok(start.elapsed().as_secs_f64() * 1e9 / launches as f64)
    };
    round()?;
    let ours = (0..run.rounds(7)).map(|_| round()).collect::<CoreResult<_>>()?;
    run.report(Case { case: "caller", ours, unit: "ns", peer: None, target: None });

    let before = allocations();
    for i in 0..100_000 {
        fixture.launch(i)?;
    }
    fixture.finish()?;
    let made = (allocations() - before) as f64;
    run.report(Case { case: "allocations", ours: vec![made], unit: "allocations", peer: None, target: Some(0.0) });

    let inside = Some("launch_as_a_program_does");
    let caller = callgrind::instructions("launch-caller", inside, 400, 2_400)?;
    run.report(Case {
        case: "caller-instructions",
        ours: vec![caller],
        unit: "instructions",
        peer: None,
        target: Some(400.0),
    });
    // Without a runner thread, so that nothing else is counted; what the caller does there is taken off.
    let both = callgrind::instructions("launch-both", None, 400, 2_400)?;
    let caller = callgrind::instructions("launch-both", inside, 400, 2_400)?;
    let outside = callgrind::instructions("launch-nothing", None, 400, 2_400)?;
    let ours = vec![both - caller - outside];
    run.report(Case { case: "runner-instructions", ours, unit: "instructions", peer: None, target: Some(250.0) });
    Ok(())
}

/// Launches on a device with a runner, in bursts that fit into the queue.
pub fn counted_caller(count: usize) -> Result<(), Box<dyn Error>> {
    counted(Execution::Runner, count, Fixture::launch)
}

/// The same on a device without: queued while the device is held and run in one go, the caller's part and the runner's.
pub fn counted_both(count: usize) -> Result<(), Box<dyn Error>> {
    counted(Execution::Inline, count, Fixture::launch)
}

/// The same without the launch, to be taken off.
pub fn counted_nothing(count: usize) -> Result<(), Box<dyn Error>> {
    counted(Execution::Inline, count, |fixture, i| {
        black_box((fixture.buffers.clone(), i));
        Ok(())
    })
}

fn counted(
    execution: Execution,
    count: usize,
    launch: fn(&Fixture, usize) -> CoreResult<()>,
) -> Result<(), Box<dyn Error>> {
    let fixture = Arc::new(Fixture::new(0, execution)?);
    for first in (0..count).step_by(BURST_LENGTH) {
        let inside = fixture.clone();
        let burst = move || (first..first + BURST_LENGTH).for_each(|i| launch(&inside, i).expect("the queue has room"));
        *BURST.lock().map_err(|_| "a burst panicked")? = Some(Box::new(burst));
        fixture.finish()?;
    }
    Ok(())
}

/// Launches that fit into the queue together.
const BURST_LENGTH: usize = 400;
