//! What a step that was run before asks of the driver, and what it does not.

use crate::bench::{Bench, bytes_of, each, launch, outline, step};
use core::time::Duration;
use std::collections::BTreeMap;
use trunnion_backend_vulkan::VulkanOptions;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_vulkan_shim::{Command, Plan};

/// What is made once and used again.
const MAKING: [&str; 12] = [
    "vkAllocateMemory",
    "vkMapMemory",
    "vkCreateBuffer",
    "vkCreateDescriptorPool",
    "vkCreateDescriptorSetLayout",
    "vkCreatePipelineLayout",
    "vkCreateShaderModule",
    "vkCreateComputePipelines",
    "vkCreatePipelineCache",
    "vkCreateCommandPool",
    "vkAllocateCommandBuffers",
    "vkCreateSemaphore",
];

/// Uploads 4 KiB, launches six times, reads. Gives the calls by function, and how often was submitted.
fn warm_step(bench: &Bench, kernel: &KernelHandle, buffers: &[Handle; 4]) -> (BTreeMap<&'static str, u32>, usize) {
    let before: BTreeMap<_, _> = bench.shim.all_calls().into_iter().collect();
    bench.shim.take_submissions();
    let held = bench.shim.hold();
    bench.client.write_slice(&buffers[0], &bytes_of(&[3; 1024])).unwrap();
    for i in 0..6 {
        launch(&bench.client, kernel, &buffers[i % 3], &buffers[i % 3 + 1]);
    }
    let reading = bench.client.read_async(&[&buffers[3]]).unwrap();
    // The read is submitted by whoever runs the queue.
    while !bench.shim.submissions().iter().any(|batch| outline(batch).ends_with("copy") && outline(batch).contains("l"))
    {
        std::thread::yield_now();
    }
    drop(held);
    assert_eq!(reading.wait().unwrap()[0].as_slice().unwrap()[..4], 6_u32.to_ne_bytes());
    let calls = bench.shim.all_calls().into_iter();
    let new = calls.map(|(name, count)| (name, count - before.get(name).copied().unwrap_or(0)));
    (new.filter(|(_, count)| *count > 0).collect(), bench.shim.take_submissions().len())
}

#[test]
fn a_warm_step_makes_nothing_new_and_submits_twice() {
    let plain = VulkanOptions::default;
    for options in [plain(), plain().staging(true), plain().push_descriptors(false), plain().push_constants(false)] {
        each(Plan::new, &options, |bench| {
            let step = step(bench);
            let buffers: [Handle; 4] = core::array::from_fn(|_| bench.buffer(&[0; 1024]));
            for _ in 0..4 {
                warm_step(bench, &step, &buffers);
            }
            let (calls, submitted) = warm_step(bench, &step, &buffers);
            let made: Vec<_> = MAKING.iter().filter(|name| calls.contains_key(**name)).collect();
            assert!(made.is_empty(), "{made:?} of {calls:?}");
            // Once for what nothing was unfinished before, once for everything up to the read.
            assert_eq!((submitted, calls["vkQueueSubmit"]), (2, 2), "{calls:?}");
            assert_eq!((calls["vkCmdDispatch"], calls["vkBeginCommandBuffer"], calls["vkEndCommandBuffer"]), (6, 2, 2));
        });
    }
}

#[test]
fn what_is_bound_already_is_not_bound_again() {
    for push in [true, false] {
        each(Plan::new, &VulkanOptions::default().push_descriptors(push), |bench| {
            let (step, [a, b, c]) = (step(bench), bench.buffers());
            let batch = bench.batch(|client| {
                (0..10).for_each(|_| launch(client, &step, &a, &b));
                (0..10).for_each(|_| launch(client, &step, &a, &c));
            });
            let count = |is: fn(&Command) -> bool| batch.commands.iter().filter(|command| is(command)).count();
            assert_eq!(count(|command| matches!(command, Command::Dispatch { .. })), 20);
            assert_eq!(count(|command| matches!(command, Command::Bind { .. })), 1, "{batch}");
            assert_eq!(count(|command| matches!(command, Command::Descriptors { .. })), 2, "{batch}");
        });
    }
}

#[test]
fn a_batch_ends_at_its_limit_and_not_before() {
    each(Plan::new, &VulkanOptions::default(), |bench| {
        let (step, [a, b]) = (step(bench), bench.buffers());
        let batches = bench.gathered(|client| (0..100).for_each(|_| launch(client, &step, &a, &b)));
        let launches = |word: &&str| *word == "launch";
        let sizes: Vec<_> = batches.iter().map(|batch| outline(batch).split(' ').filter(launches).count()).collect();
        assert_eq!(sizes, [64, 36]);
    });
}

#[test]
fn an_idle_device_asks_the_driver_nothing() {
    each(Plan::new, &VulkanOptions::default(), |bench| {
        let (step, [a, b]) = (step(bench), bench.buffers());
        launch(&bench.client, &step, &a, &b);
        bench.settle();
        // What the end of the work still asks may come late on a busy machine; a thread that looked now and then would never be quiet.
        let quiet = (0..8).any(|_| {
            let before = bench.shim.all_calls();
            std::thread::sleep(Duration::from_millis(600));
            bench.shim.all_calls() == before
        });
        assert!(quiet, "{:?}", bench.shim.all_calls());
    });
}

#[test]
fn long_transfers_that_were_made_before_allocate_nothing() {
    // In one direction more than is always kept.
    const SIZE: u64 = 80 << 20;
    each(Plan::new, &VulkanOptions::default().staging(true), |bench| {
        let buffer = bench.client.zeros(SIZE).unwrap();
        let allocations = || bench.shim.calls("vkAllocateMemory");
        let made = [(); 4].map(|()| {
            let before = allocations();
            assert_eq!(bench.client.read_one(&buffer).unwrap().len() as u64, SIZE);
            bench.settle();
            allocations() - before
        });
        assert_eq!(made[1..], [0; 3], "{made:?}");
    });
}
