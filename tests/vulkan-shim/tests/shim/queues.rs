//! Several queues where the driver has fewer.

use ash::vk;
use trunnion_vulkan_shim::Plan;

use crate::program::{Program, assert_clean, shim, submit};

#[test]
fn queues_of_the_plan_are_apart_and_all_work() {
    let Some(shim) = shim(Plan::new().queues(3)) else { return };
    unsafe {
        let program = Program::with_queues(&shim, 3);
        let families = program.instance.get_physical_device_queue_family_properties(program.physical);
        assert!(families.iter().all(|family| family.queue_count == 3));
        let queues: Vec<vk::Queue> = (0..3).map(|index| program.device.get_device_queue(0, index)).collect();
        assert_eq!(queues[0], program.queue, "a queue is got twice as the same");
        assert!(queues[0] != queues[1] && queues[1] != queues[2] && queues[0] != queues[2]);
        for (before, &queue) in queues.iter().enumerate() {
            let wait = [(program.semaphore, before as u64)];
            submit(&program.device, queue, &[], &wait, &[(program.semaphore, before as u64 + 1)]).unwrap();
        }
        program.device.queue_wait_idle(queues[2]).unwrap();
        program.wait(3).unwrap();
        program.end();
    }
    let used: Vec<u32> = shim.submissions().iter().map(|submission| submission.queue.number).collect();
    assert_eq!(used, [1, 2, 3]);
    assert_clean(&shim);
}

#[test]
fn a_queue_that_was_not_asked_for_is_a_complaint() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        assert_eq!(program.device.get_device_queue(0, 7), vk::Queue::null());
        program.end();
    }
    assert_eq!(shim.complaints(), ["vkGetDeviceQueue of queue 7 of family 0, which there is not"]);
}
