//! Calls that fail as planned, and a device that is lost.

use core::panic::AssertUnwindSafe;

use ash::vk;
use trunnion_vulkan_shim::Plan;

use crate::program::{Program, assert_clean, instance, shim, wait};

#[test]
fn the_nth_call_fails_and_no_other() {
    let Some(shim) = shim(Plan::new().fail("vkCreateFence", 2, vk::Result::ERROR_OUT_OF_HOST_MEMORY)) else { return };
    unsafe {
        let program = Program::new(&shim);
        let info = vk::FenceCreateInfo::default();
        let made: Vec<_> = (0..3).map(|_| program.device.create_fence(&info, None)).collect();
        assert_eq!(made[1], Err(vk::Result::ERROR_OUT_OF_HOST_MEMORY));
        assert!(made[0].is_ok() && made[2].is_ok());
        made.into_iter().flatten().for_each(|fence| program.device.destroy_fence(fence, None));
        program.end();
    }
    assert_eq!(shim.fired().len(), 1);
    assert_eq!(shim.fired()[0].to_string(), "vkCreateFence no. 2: ERROR_OUT_OF_HOST_MEMORY");
    assert_clean(&shim);
}

#[test]
fn a_failure_can_be_planned_while_the_program_runs() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        shim.fail("vkQueueSubmit", 1, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(program.submit(&[], None, 1), Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
        assert!(shim.submissions().is_empty(), "the driver did not take it");
        program.submit(&[], None, 1).unwrap();
        program.wait(1).unwrap();
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn the_functions_without_a_handle_fail_too() {
    let Some(shim) = shim(Plan::new().fail("vkCreateInstance", 1, vk::Result::ERROR_INCOMPATIBLE_DRIVER)) else {
        return;
    };
    unsafe {
        assert!(matches!(instance(&shim.entry()), Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER)));
        instance(&shim.entry()).unwrap().destroy_instance(None);
    }
    assert_clean(&shim);
}

#[test]
fn a_lost_device_stays_lost_and_can_be_taken_down() {
    let Some(shim) = shim(Plan::new().fail("vkQueueSubmit", 2, vk::Result::ERROR_DEVICE_LOST)) else { return };
    const LOST: Result<(), vk::Result> = Err(vk::Result::ERROR_DEVICE_LOST);
    unsafe {
        let program = Program::new(&shim);
        // Waits for a signal that is lost with the second submission.
        program.submit(&[], Some(1), 2).unwrap();
        assert_eq!(program.submit(&[], None, 1), LOST);
        assert_eq!(program.submit(&[], None, 3), LOST);
        assert_eq!(program.wait(3), LOST);
        assert_eq!(program.device.device_wait_idle(), LOST);
        assert!(program.device.get_semaphore_counter_value(program.semaphore).is_err());
        program.end();
        let other = Program::new(&shim);
        other.submit(&[], None, 1).unwrap();
        other.wait(1).unwrap();
        other.end();
    }
    assert_clean(&shim);
}

#[test]
fn a_wait_that_has_begun_ends_when_the_device_is_lost() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let (device, semaphore) = (program.device.clone(), program.semaphore);
        let waiting =
            std::thread::spawn(move || wait(&device, &[(semaphore, 9)], vk::SemaphoreWaitFlags::empty(), u64::MAX));
        while shim.calls("vkWaitSemaphores") == 0 {
            std::thread::yield_now();
        }
        shim.fail("vkQueueSubmit", 1, vk::Result::ERROR_DEVICE_LOST);
        assert!(program.submit(&[], None, 1).is_err());
        assert_eq!(waiting.join().unwrap(), Err(vk::Result::ERROR_DEVICE_LOST));
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn a_command_that_fails_is_not_recorded() {
    let Some(shim) = shim(Plan::new().fail("vkCmdFillBuffer", 1, vk::Result::ERROR_UNKNOWN)) else { return };
    unsafe {
        let program = Program::new(&shim);
        let piece = program.piece(64, 0);
        let commands = program.commands(|device, commands| {
            device.cmd_fill_buffer(commands, piece.buffer, 0, 4, 1);
            device.cmd_fill_buffer(commands, piece.buffer, 4, 4, 2);
        });
        program.submit(&[commands], None, 1).unwrap();
        program.wait(1).unwrap();
        program.free(piece);
        program.end();
    }
    assert_eq!(shim.submissions()[0].commands.len(), 1);
    assert_clean(&shim);
}

#[test]
fn memory_of_one_type_is_refused_whatever_else_is_allocated() {
    use vk::MemoryPropertyFlags as Flags;
    let types = [(Flags::DEVICE_LOCAL, 0), (Flags::HOST_VISIBLE | Flags::HOST_COHERENT, 0)];
    let Some(shim) = shim(Plan::new().memory_types(types)) else { return };
    unsafe {
        let program = Program::new(&shim);
        shim.fail_allocation(1, 2, vk::Result::ERROR_OUT_OF_HOST_MEMORY);
        let ask = |kind| {
            let info = vk::MemoryAllocateInfo::default().allocation_size(64).memory_type_index(kind);
            program.device.allocate_memory(&info, None)
        };
        let given = [ask(1), ask(0), ask(0), ask(1), ask(1)];
        assert_eq!(given[3], Err(vk::Result::ERROR_OUT_OF_HOST_MEMORY));
        assert_eq!(given.iter().filter(|memory| memory.is_ok()).count(), 4);
        given.into_iter().flatten().for_each(|memory| program.device.free_memory(memory, None));
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn a_pipeline_fails_by_the_name_of_its_entry_point() {
    let Some(shim) = shim(Plan::new().fail_pipeline("main", vk::Result::ERROR_INVALID_SHADER_NV)) else { return };
    let failed = std::panic::catch_unwind(AssertUnwindSafe(|| unsafe { Program::new(&shim) }));
    assert!(failed.is_err_and(|why| why.downcast_ref::<String>().is_some_and(|why| why.contains("INVALID_SHADER"))));
    assert_eq!(shim.calls("vkCreateComputePipelines"), 1);
}
