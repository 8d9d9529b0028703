//! Objects that only one thread may use at a time.

use core::time::Duration;
use std::sync::Barrier;
use std::thread;

use trunnion_vulkan_shim::{Plan, Shim};

use crate::program::{Program, assert_clean, shim};

/// Has two threads do it at once, until the shim complains. A busy machine may keep one of them from meeting the other, now and then.
fn until_complaint(shim: &Shim, work: impl Fn() + Sync) {
    for _ in 0..20 {
        let together = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    together.wait();
                    work();
                });
            }
        });
        if !shim.complaints().is_empty() {
            return;
        }
    }
}

#[test]
fn one_queue_used_from_two_threads_at_once_is_a_complaint() {
    let Some(shim) = shim(Plan::new().linger(Duration::from_millis(30))) else { return };
    unsafe {
        let program = Program::new(&shim);
        until_complaint(&shim, || program.device.queue_submit(program.queue, &[], ash::vk::Fence::null()).unwrap());
        program.end();
    }
    assert_eq!(shim.complaints(), ["vkQueueSubmit while another thread is in vkQueueSubmit, both with the same QUEUE"]);
}

#[test]
fn a_pool_counts_as_used_while_one_of_its_buffers_is_recorded() {
    let Some(shim) = shim(Plan::new().linger(Duration::from_millis(30))) else { return };
    unsafe {
        let program = Program::new(&shim);
        until_complaint(&shim, || _ = program.commands(|_, _| ()));
        program.end();
    }
    assert!(shim.complaints().iter().all(|what| what.ends_with("both with the same COMMAND_POOL")));
    assert!(!shim.complaints().is_empty());
}

#[test]
fn threads_that_take_turns_are_no_complaint() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        for value in 1..4 {
            thread::scope(|scope| scope.spawn(|| program.submit(&[], None, value)).join().unwrap().unwrap());
        }
        program.wait(3).unwrap();
        program.end();
    }
    assert_clean(&shim);
}
