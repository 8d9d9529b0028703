//! `Client::launch` to a server that does nothing, beside the peer's client on such a server: 4 buffers, 16 bytes of parameters, 2 streams.
//!
//! Both sides clone four handles, hand them to a launch with a static grid and the parameters, and drop what is left; both servers drop
//! what they get. The peer makes a boxed kernel a launch, as its interface asks; this one has no fields, so that the box costs nothing.
//! What a launch writes is declared once on our side, when the kernel is prepared, and not at all on the peer's, which saves it a vector.

use crate::beside::{Figures, attempt, measure};
use crate::null_server::{Kernel, NullServer};
use benches::callgrind;
use benches::harness::{Run, Target};
use benches::workloads::launch::{
    LAUNCHES, Launches, Ours, allocations_of, caller_instructions, round, runner_instructions,
};
use cubecl_common::device::DeviceId;
use cubecl_environment::stream::StreamId;
use cubecl_runtime::client::Client;
use cubecl_runtime::server::{CubeCount, Handle, KernelArguments, MetadataBindingInfo};
use std::error::Error;

struct Peer {
    clients: [Client; 2],
    buffers: [Handle; 4],
}

impl Peer {
    fn new() -> Self {
        let client = Client::load::<NullServer>(DeviceId { type_id: 3, index_id: 0 });
        let clients = [(); 2].map(|()| {
            let mut pinned = client.clone();
            // SAFETY: the streams of this server do nothing, so there is no order among them to be broken.
            unsafe { pinned.set_stream(StreamId::allocate()) };
            pinned
        });
        let buffers = [(); 4].map(|()| client.empty(1024));
        Self { clients, buffers }
    }
}

impl Launches for Peer {
    #[inline]
    fn launch(&self, i: usize) {
        peer_launch_as_a_program_does(&self.clients[i % 2], self.buffers.clone(), &[i as u64; 2]);
    }

    fn finish(&self) {
        self.clients[0].flush().expect("the device answers");
    }
}

/// Apart, so that callgrind can count what happens inside. The clones are made outside, as on our side.
#[inline(never)]
fn peer_launch_as_a_program_does(client: &Client, buffers: [Handle; 4], numbers: &[u64; 2]) {
    let arguments = buffers
        .into_iter()
        .fold(KernelArguments::new(), |arguments, buffer| arguments.with_buffer(buffer.binding()))
        .with_info(MetadataBindingInfo::custom(numbers.to_vec()));
    client.launch(Box::new(Kernel), CubeCount::Static(8, 1, 1), arguments);
}

pub fn launch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (ours, peer) = (Ours::new()?, Peer::new());
    let launches = run.repeat(LAUNCHES);
    let times = measure(run.rounds(7), || round(&ours, launches), || Ok(round(&peer, launches)));
    times.report(run, "caller", "ns", Some(Target::Ratio(0.3)));
    let made = Figures::single(allocations_of(&ours), attempt(|| Ok::<_, String>(allocations_of(&peer))));
    made.report(run, "allocations", "allocations", Some(Target::Value(0.0)));
    let inside = Some("peer_launch_as_a_program_does");
    let peers = attempt(|| callgrind::instructions("peer-launch", inside, 400, 2_400));
    let caller = Figures::single(caller_instructions()?, peers);
    caller.report(run, "caller-instructions", "instructions", Some(Target::Value(400.0)));
    let reason =
        "its runner spins while it waits, on a thread that cannot be left out, so that its share is not told apart";
    let runner = Figures::single(runner_instructions()?, Err(reason.into()));
    runner.report(run, "runner-instructions", "instructions", Some(Target::Value(250.0)));
    Ok(())
}

/// The parts that run under callgrind: in bursts that the peer's queue takes without filling up, where its caller would spin.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    if case != "peer-launch" {
        return None;
    }
    let peer = Peer::new();
    for first in (0..count).step_by(BURST) {
        (first..first + BURST).for_each(|i| peer.launch(i));
        peer.finish();
    }
    Some(Ok(()))
}

const BURST: usize = 16;
