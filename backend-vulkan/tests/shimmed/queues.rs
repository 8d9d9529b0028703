//! Several queues: streams are spread over them, and wait for each other by semaphores.

use crate::bench::{Bench, each, launch, outline, step};
use std::collections::BTreeSet;
use trunnion_backend_vulkan::VulkanOptions;
use trunnion_runtime_core::client::Client;
use trunnion_vulkan_shim::Plan;

/// Clients of new streams, on one queue after the other.
fn streams<const N: usize>(bench: &Bench) -> [Client; N] {
    let clients: [Client; N] = core::array::from_fn(|_| bench.other_stream());
    let [own, any] = bench.buffers();
    for client in &clients {
        // A stream takes its queue with its first operation.
        client.copy(&own, &any).unwrap();
        client.sync().unwrap().wait().unwrap();
    }
    clients
}

#[test]
fn streams_are_spread_over_the_queues_in_turn() {
    each(
        || Plan::new().queues(3),
        &VulkanOptions::default(),
        |bench| {
            let step = step(bench);
            let clients: [Client; 6] = streams(bench);
            let targets: [_; 6] = bench.buffers();
            let [source] = bench.buffers();
            let batches = bench.gathered(|_| {
                for (client, target) in clients.iter().zip(&targets) {
                    launch(client, &step, &source, target);
                    client.flush().unwrap();
                }
            });
            let used: Vec<u32> = batches.iter().map(|batch| batch.queue.number).collect();
            assert_eq!((used.len(), used.iter().collect::<BTreeSet<_>>().len()), (6, 3), "{used:?}");
            assert_eq!(used[..3], used[3..]);
            assert!(batches.iter().all(|batch| batch.waits.is_empty() && outline(batch) == "launch"));
        },
    );
}

#[test]
fn a_wait_between_queues_is_one_of_a_semaphore_and_needs_no_barrier() {
    each(
        || Plan::new().queues(2),
        &VulkanOptions::default(),
        |bench| {
            let step = step(bench);
            let [first, second] = streams(bench);
            let [a, b, c, d] = bench.buffers();
            let batches = bench.gathered(|_| {
                launch(&first, &step, &a, &b);
                launch(&second, &step, &b, &c);
                launch(&first, &step, &c, &d);
                first.flush().unwrap();
            });
            let order: Vec<String> = batches.iter().map(outline).collect();
            assert_eq!(order, ["launch", "launch", "launch"]);
            assert!(batches[0].waits.is_empty());
            assert_eq!(batches[1].waits, batches[0].signals);
            assert_eq!(batches[2].waits, batches[1].signals);
            assert_ne!(batches[0].queue, batches[1].queue);
            assert_eq!(bench.read(&d)[0], 3);
        },
    );
}

#[test]
fn several_waits_for_one_queue_are_one_for_the_last() {
    each(
        || Plan::new().queues(2),
        &VulkanOptions::default(),
        |bench| {
            let step = step(bench);
            let [first, second, third] = streams(bench);
            let [a, b, c, d] = bench.buffers();
            let batches = bench.gathered(|_| {
                // The first and the third stream are on one queue.
                launch(&first, &step, &a, &b);
                launch(&third, &step, &a, &c);
                second.copy(&b, &d.slice(..).unwrap()).unwrap();
                second.copy(&c, &d).unwrap();
                second.flush().unwrap();
            });
            let last = batches.last().unwrap();
            assert!(last.waits.len() <= 1, "{last}");
            assert_eq!(bench.read(&d)[0], 1);
        },
    );
}

#[test]
fn many_threads_on_many_queues_use_none_of_them_at_once() {
    let linger = core::time::Duration::from_micros(200);
    each(
        || Plan::new().queues(3).linger(linger),
        &VulkanOptions::default(),
        |bench| {
            let step = step(bench);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let client = bench.other_stream();
                        let [a, b] = bench.buffers();
                        for round in 1..=10 {
                            launch(&client, &step, &a, &b);
                            client.copy(&b, &a).unwrap();
                            let read = client.read_one(&b).unwrap();
                            assert_eq!(read.as_slice().unwrap()[..4], u32::to_ne_bytes(round));
                        }
                    });
                }
            });
        },
    );
}
