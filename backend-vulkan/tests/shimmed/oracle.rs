//! Random programs, whose order on the device is worked out from what was submitted: what depends on each other is in order, by a barrier
//! or a semaphore, and on one stream no barrier is there for nothing.

use crate::bench::{Bench, each, launch, step};
use std::collections::BTreeMap;
use trunnion_backend_vulkan::VulkanOptions;
use trunnion_backend_vulkan::ash::vk;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::handle::Handle;
use trunnion_vulkan_shim::{Command, Object, Plan, Submission};

/// Bytes from `start` to `end` of a buffer.
type Span = (Object, u64, u64);

/// One command that does something to bytes.
#[derive(Debug)]
struct Work {
    queue: u32,
    /// The value that the end of its submission signals.
    value: u64,
    /// How many full barriers lie before it on its queue.
    segment: usize,
    reads: Vec<Span>,
    writes: Vec<Span>,
}

impl Work {
    fn of(command: &Command) -> Option<Self> {
        let (reads, writes) = match command {
            Command::Dispatch { buffers, .. } => {
                let span = |binding: u32| {
                    let bound = buffers.iter().find(|bound| bound.binding == binding)?;
                    Some((bound.buffer, bound.offset, bound.offset + bound.size))
                };
                (vec![span(0)?], vec![span(1)?])
            }
            Command::Copy { source, target, regions } => (
                regions.iter().map(|region| (*source, region.source, region.source + region.size)).collect(),
                regions.iter().map(|region| (*target, region.target, region.target + region.size)).collect(),
            ),
            Command::Fill { target, offset, size, .. } => (vec![], vec![(*target, *offset, offset + size)]),
            _ => return None,
        };
        Some(Self { queue: 0, value: 0, segment: 0, reads, writes })
    }

    fn conflicts(&self, other: &Self) -> bool {
        let meet = |a: &[Span], b: &[Span]| a.iter().any(|a| b.iter().any(|b| a.0 == b.0 && a.1 < b.2 && b.1 < a.2));
        meet(&self.writes, &other.writes) || meet(&self.writes, &other.reads) || meet(&self.reads, &other.writes)
    }
}

/// What is known of the order of submissions.
#[derive(Default)]
struct Order {
    work: Vec<Work>,
    segments: BTreeMap<u32, usize>,
    /// Up to which value of each semaphore's queue a queue comes after.
    after: BTreeMap<u32, BTreeMap<u32, u64>>,
    /// What whoever waits for a value of a queue comes after as well.
    known: BTreeMap<(u32, u64), BTreeMap<u32, u64>>,
    queue_of: BTreeMap<u32, u32>,
}

impl Order {
    fn of(submissions: &[Submission]) -> Self {
        let mut order = Self::default();
        for submission in submissions {
            order.queue_of.insert(submission.signals[0].semaphore.number, submission.queue.number);
        }
        submissions.iter().for_each(|submission| order.submit(submission));
        order
    }

    fn submit(&mut self, submission: &Submission) {
        let (queue, value) = (submission.queue.number, submission.signals[0].value);
        for wait in &submission.waits {
            // What was submitted before is not looked at, and is done.
            let Some(&other) = self.queue_of.get(&wait.semaphore.number) else { continue };
            let mut learned = self.known.get(&(other, wait.value)).cloned().unwrap_or_default();
            learned.insert(other, wait.value);
            let after = self.after.entry(queue).or_default();
            for (of, upto) in learned {
                let known = after.entry(of).or_insert(0);
                *known = upto.max(*known);
            }
        }
        for command in &submission.commands {
            if is_full(command) {
                *self.segments.entry(queue).or_insert(0) += 1;
            }
            if let Some(work) = Work::of(command) {
                let work = Work { queue, value, segment: *self.segments.entry(queue).or_insert(0), ..work };
                self.check(&work);
                self.work.push(work);
            }
        }
        self.known.insert((queue, value), self.after.get(&queue).cloned().unwrap_or_default());
    }

    /// Everything before that this depends on is in order before it.
    fn check(&self, work: &Work) {
        for before in self.work.iter().filter(|before| before.conflicts(work)) {
            // By a barrier of its queue, or by semaphores, perhaps by way of another queue.
            let by_barrier = before.queue == work.queue && before.segment < work.segment;
            let after = self.after.get(&work.queue).and_then(|after| after.get(&before.queue));
            let ordered = by_barrier || after.is_some_and(|upto| *upto >= before.value);
            assert!(ordered, "{work:?} is not behind {before:?}");
        }
    }

    /// Each barrier of a queue lies between two that depend on each other.
    fn assert_no_barrier_for_nothing(&self) {
        for (&queue, &last) in &self.segments {
            let of = |segment| self.work.iter().filter(move |work| work.queue == queue && work.segment == segment);
            for segment in 1..=last {
                let needed = of(segment).any(|work| of(segment - 1).any(|before| before.conflicts(work)));
                assert!(needed, "barrier {segment} of queue {queue} lies between what does not depend on each other");
            }
        }
    }
}

fn is_full(command: &Command) -> bool {
    let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
    command.barrier().is_some_and(|barrier| barrier.from.contains(work) && barrier.to.contains(work))
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    fn range(&mut self, buffers: &[Handle]) -> (usize, u64, u64) {
        let start = self.below(4);
        (self.below(buffers.len() as u64) as usize, 256 * start, 256 * (start + 1 + self.below(4 - start)))
    }
}

/// So many operations, each of one of the clients, on ranges of three buffers.
fn program(bench: &Bench, clients: &[Client], seed: u64, count: usize) -> Vec<Submission> {
    let step = step(bench);
    let buffers: [Handle; 3] = core::array::from_fn(|_| bench.buffer(&[0; 256]));
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    // The streams are open before anything is watched.
    for client in clients {
        client.fill(&buffers[0], &[1]).unwrap();
        client.sync().unwrap().wait().unwrap();
    }
    bench.gathered(|_| {
        for _ in 0..count {
            let client = &clients[random.below(clients.len() as u64) as usize];
            let (from, to) = (random.range(&buffers), random.range(&buffers));
            let place = |(buffer, start, end): (usize, u64, u64)| buffers[buffer].slice(start..end).unwrap();
            if from.0 == to.0 && from.1 < to.2 && to.1 < from.2 {
                client.fill(&place(to), &[random.below(256) as u8]).unwrap();
            } else if random.below(3) == 0 && from.2 - from.1 == to.2 - to.1 {
                client.copy(&place(from), &place(to)).unwrap();
            } else {
                launch(client, &step, &place(from), &place(to));
            }
        }
        clients.iter().for_each(|client| client.flush().unwrap());
    })
}

#[test]
fn on_one_stream_what_depends_is_in_order_and_no_barrier_is_there_for_nothing() {
    each(Plan::new, &VulkanOptions::default().queues(1), |bench| {
        for seed in 1..=20 {
            let submissions = program(bench, core::slice::from_ref(&bench.client), seed, 90);
            let order = Order::of(&submissions);
            assert_eq!(order.work.len(), 90, "every operation is one command");
            order.assert_no_barrier_for_nothing();
        }
    });
}

#[test]
fn on_several_streams_and_queues_what_depends_is_in_order() {
    for queues in 1..=3 {
        each(
            || Plan::new().queues(queues),
            &VulkanOptions::default(),
            |bench| {
                let clients: [Client; 4] = core::array::from_fn(|_| bench.other_stream());
                for seed in 1..=10 {
                    let submissions = program(bench, &clients, seed, 60);
                    let order = Order::of(&submissions);
                    assert_eq!(order.work.len(), 60);
                    let used = order.segments.len();
                    assert!(queues == 1 || used > 1, "{used} queues were used of {queues}");
                }
            },
        );
    }
}

#[test]
fn a_missing_barrier_is_found() {
    each(Plan::new, &VulkanOptions::default().queues(1), |bench| {
        let mut submissions = program(bench, core::slice::from_ref(&bench.client), 7, 30);
        let full = submissions.iter_mut().find_map(|submission| {
            let at = submission.commands.iter().position(is_full)?;
            Some(submission.commands.remove(at))
        });
        assert!(full.is_some());
        assert!(std::panic::catch_unwind(|| Order::of(&submissions)).is_err());
    });
}
