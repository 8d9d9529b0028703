//! `Client::launch` to a server that does nothing: 4 buffers and 16 bytes of parameters, on 2 streams.

use crate::alloc_count::allocations;
use crate::callgrind;
use crate::harness::{Case, Run};
use crate::null_server;
use std::error::Error;
use std::time::Instant;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result as CoreResult;
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::{Args, KernelHandle};

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
fn launch_as_a_program_does(client: &Client, kernel: &KernelHandle, buffers: [&Handle; 4], numbers: &[u32; 4]) -> CoreResult<()> {
    client.launch(kernel, Grid::Static(8, 1, 1), Args::from(buffers).parameters(numbers)).map(|_| ())
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

    let caller = callgrind::instructions("launch-caller", Some("launch_as_a_program_does"), 400, 2_400)?;
    run.report(Case { case: "caller-instructions", ours: vec![caller], unit: "instructions", peer: None, target: Some(400.0) });
    let inline = callgrind::instructions("launch-both", Some("launch_as_a_program_does"), 400, 2_400)?;
    let ours = vec![inline - caller];
    run.report(Case { case: "runner-instructions", ours, unit: "instructions", peer: None, target: Some(250.0) });
    Ok(())
}

/// Launches on a device with a runner: the caller's part. Bursts fit into the queue, so that the caller never helps.
pub fn counted_caller(count: usize) -> Result<(), Box<dyn Error>> {
    counted(Execution::Runner, count)
}

/// Launches on a device whose callers run their own entries: the caller's part and the runner's.
pub fn counted_both(count: usize) -> Result<(), Box<dyn Error>> {
    counted(Execution::Inline, count)
}

fn counted(execution: Execution, count: usize) -> Result<(), Box<dyn Error>> {
    let fixture = Fixture::new(0, execution)?;
    for i in 0..count {
        fixture.launch(i)?;
        if i % 200 == 0 {
            fixture.finish()?;
        }
    }
    fixture.finish()?;
    Ok(())
}
