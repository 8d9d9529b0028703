//! Streams: ordered within, waiting for each other on the device, told of when they finish, and ended whatever is under way.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Rig, all, each, each_with, part};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::Driver;
use trunnion_backend_vulkan::{VulkanDriver, VulkanOptions};
use trunnion_driver_rig::streams::{self, Steps};
#[cfg(target_os = "linux")]
use trunnion_driver_rig::threads;

/// Some thousand steps, so that what does not wait comes too early.
const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn add() {
    var sum = x[0];
    for (var i = 0u; i < 5000u; i++) { sum = (sum * 5u + i) % 65521u; }
    x[1] = sum;
    x[0] += 1u;
}";

const TWICE: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn twice() { x[0] *= 2u; }";

/// Each device, and the kernels of the tests that every driver passes.
fn with_steps(test: fn(&mut Rig, &Steps<VulkanDriver>)) {
    each(|rig| {
        let steps = Steps { add: rig.wgsl("add", ADD), twice: rig.wgsl("twice", TWICE) };
        test(rig, &steps);
    });
}

#[test]
fn a_stream_sees_what_it_waited_for() {
    with_steps(streams::a_stream_sees_what_it_waited_for);
}

#[test]
fn a_batch_of_nothing_finishes_when_what_it_came_after_does() {
    with_steps(streams::a_batch_of_nothing_finishes_when_what_it_came_after_does);
}

#[test]
fn completion_is_in_order_and_draining_waits_for_all_of_it() {
    with_steps(streams::completion_is_in_order_and_draining_waits_for_all_of_it);
}

#[test]
fn a_read_gives_the_bytes_of_its_place_in_the_order_not_what_came_later() {
    each(streams::a_read_gives_the_bytes_of_its_place_in_the_order_not_what_came_later);
}

#[test]
fn each_finished_batch_is_told_of_and_an_idle_device_tells_nothing() {
    each_with(&VulkanOptions::default(), streams::each_finished_batch_is_told_of_and_an_idle_device_tells_nothing);
}

#[test]
#[cfg(target_os = "linux")]
fn the_thread_of_an_idle_device_does_not_wake() {
    each_with(&VulkanOptions::default(), |rig| {
        let page = rig.page_of(&[0; 4]);
        assert_eq!(rig.read_u32(part(&page, 0, 4)), [0]);
        threads::assert_quiet(&["trunnion-vulkan"], "nothing is under way");
    });
}

#[test]
fn code_pages_and_streams_may_outlive_their_driver() {
    each(|rig| {
        let add = rig.wgsl("add", ADD);
        let page = rig.page_of(&[0; 4]);
        let pinned = rig.driver.pin(100).unwrap();
        let stream = rig.driver.open_stream().unwrap();
        // The rig's driver is replaced, and so dropped before them.
        let other = trunnion_backend_vulkan::VulkanBackend::default().driver(0, &VulkanOptions::default()).unwrap();
        let driver = std::mem::replace(&mut rig.driver, other);
        drop(driver);
        drop((stream, add, page));
        assert_eq!(pinned.as_slice().len(), 100);
    });
}

#[test]
fn a_driver_can_be_dropped_while_work_is_under_way() {
    each_with(&VulkanOptions::default(), |rig: &mut Rig| {
        let add = rig.wgsl("add", ADD);
        let page = rig.page_of(&[0; 4]);
        let mut stream = rig.driver.open_stream().unwrap();
        for seq in 1..=50 {
            rig.launch(&mut stream, seq, &add, [1, 1, 1], &[all(&page)]).unwrap();
            rig.driver.barrier(&mut stream);
            rig.driver.submit(&mut stream, seq).unwrap();
        }
        let other = trunnion_backend_vulkan::VulkanBackend::default().driver(0, &VulkanOptions::default()).unwrap();
        let start = Instant::now();
        drop(std::mem::replace(&mut rig.driver, other));
        assert!(start.elapsed() < Duration::from_secs(5));
        // As a server does with what did not end in time.
        std::mem::forget((stream, page));
    });
}

#[test]
fn as_many_batches_as_one_likes_are_under_way_at_once() {
    each(|rig| {
        let add = rig.wgsl("add", ADD);
        let page = rig.page_of(&[0; 4]);
        let mut stream = rig.driver.open_stream().unwrap();
        for seq in 1..=200 {
            rig.launch(&mut stream, seq, &add, [1, 1, 1], &[all(&page)]).unwrap();
            rig.driver.barrier(&mut stream);
            rig.driver.submit(&mut stream, seq).unwrap();
        }
        assert!(rig.finish(&mut stream, 200).failed.is_empty());
        assert_eq!(rig.read_u32(part(&page, 0, 4)), [200]);
        rig.driver.close_stream(stream);
    });
}
