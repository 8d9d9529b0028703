//! Progress that the host sees late, and in another order.

use core::time::Duration;
use std::time::Instant;

use ash::vk;
use trunnion_vulkan_shim::Plan;

use crate::program::{Program, assert_clean, shim, submit, timeline, wait};

#[test]
fn progress_is_seen_as_late_as_the_plan_says() {
    let late = Duration::from_millis(80);
    let Some(shim) = shim(Plan::new().delay(move |_, value| if value == 2 { late } else { Duration::ZERO })) else {
        return;
    };
    unsafe {
        let program = Program::new(&shim);
        program.submit(&[], None, 1).unwrap();
        program.wait(1).unwrap();
        let begun = Instant::now();
        program.submit(&[], None, 2).unwrap();
        let value = program.device.get_semaphore_counter_value(program.semaphore);
        let soon = wait(&program.device, &[(program.semaphore, 2)], vk::SemaphoreWaitFlags::empty(), 1_000_000);
        // A machine that had other things to do until it was due shows it at the first look.
        let is_due = begun.elapsed() >= late;
        assert!(is_due || (value, soon) == (Ok(1), Err(vk::Result::TIMEOUT)), "{value:?} {soon:?}");
        program.wait(2).unwrap();
        assert!(begun.elapsed() >= late, "{:?}", begun.elapsed());
        assert_eq!(program.device.get_semaphore_counter_value(program.semaphore), Ok(2));
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn semaphores_are_seen_in_another_order_than_that_of_their_signals() {
    let late = Duration::from_millis(200);
    let delay = move |semaphore, _| if semaphore == 1 { late } else { Duration::ZERO };
    let Some(shim) = shim(Plan::new().delay(delay)) else { return };
    unsafe {
        let program = Program::new(&shim);
        let other = timeline(&program.device);
        let begun = Instant::now();
        program.submit(&[], None, 1).unwrap();
        submit(&program.device, program.queue, &[], &[(program.semaphore, 1)], &[(other, 1)]).unwrap();
        let both = [(program.semaphore, 1), (other, 1)];
        wait(&program.device, &both, vk::SemaphoreWaitFlags::ANY, 10_000_000_000).unwrap();
        assert_eq!(program.device.get_semaphore_counter_value(other), Ok(1));
        let value = program.device.get_semaphore_counter_value(program.semaphore);
        assert!(begun.elapsed() >= late || value == Ok(0), "it was signalled before, and seen at once: {value:?}");
        wait(&program.device, &both, vk::SemaphoreWaitFlags::empty(), 10_000_000_000).unwrap();
        program.device.destroy_semaphore(other, None);
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn a_signal_of_the_host_is_seen_at_once() {
    let Some(shim) = shim(Plan::new().delay(|_, _| Duration::from_secs(60))) else { return };
    unsafe {
        let program = Program::new(&shim);
        let info = vk::SemaphoreSignalInfo::default().semaphore(program.semaphore).value(3);
        program.device.signal_semaphore(&info).unwrap();
        program.wait(3).unwrap();
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn while_it_is_held_the_host_sees_nothing_of_what_the_device_does() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        program.submit(&[], None, 1).unwrap();
        program.wait(1).unwrap();
        let held = shim.hold();
        program.submit(&[], None, 2).unwrap();
        assert_eq!(program.device.get_semaphore_counter_value(program.semaphore), Ok(1));
        let soon = wait(&program.device, &[(program.semaphore, 2)], vk::SemaphoreWaitFlags::empty(), 5_000_000);
        assert_eq!(soon, Err(vk::Result::TIMEOUT));
        drop(held);
        program.wait(2).unwrap();
        program.end();
    }
    assert_clean(&shim);
}
