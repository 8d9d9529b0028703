//! What the shim sees: calls, submissions, objects, misuse.

use ash::vk;
use trunnion_vulkan_shim::{Command, Plan};

use crate::program::{Program, assert_clean, shim};

#[test]
fn calls_are_counted_and_a_clean_program_leaves_nothing() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let pieces = [program.piece(64, 0), program.piece(64, 0)];
        pieces.into_iter().for_each(|piece| program.free(piece));
        program.end();
    }
    assert_eq!(shim.calls("vkAllocateMemory"), 2);
    assert_eq!(shim.calls("vkFreeMemory"), 2);
    assert_eq!(shim.calls("vkCreateComputePipelines"), 1);
    assert_eq!(shim.calls("vkQueueSubmit"), 0);
    assert_clean(&shim);
}

#[test]
fn what_is_submitted_is_recorded_in_order() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let (a, b) = (program.piece(64, 0), program.piece(64, 0));
        let set = program.set(a.buffer);
        let first = program.commands(|device, commands| {
            device.cmd_fill_buffer(commands, a.buffer, 0, 64, 41);
            let seen = vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE);
            let (from, to) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::COMPUTE_SHADER);
            device.cmd_pipeline_barrier(commands, from, to, vk::DependencyFlags::empty(), &[seen], &[], &[]);
            device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, program.pipeline);
            device.cmd_bind_descriptor_sets(commands, vk::PipelineBindPoint::COMPUTE, program.layout, 0, &[set], &[]);
            device.cmd_dispatch(commands, 16, 1, 1);
        });
        let second = program.commands(|device, commands| {
            let region = vk::BufferCopy::default().src_offset(4).dst_offset(8).size(12);
            device.cmd_copy_buffer(commands, a.buffer, b.buffer, &[region]);
        });
        program.submit(&[first], None, 1).unwrap();
        program.submit(&[second], Some(1), 2).unwrap();
        program.wait(2).unwrap();
        let at = program.device.map_memory(b.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()).unwrap();
        assert_eq!(at.cast::<u32>().add(2).read(), 42, "the real driver did it");
        program.device.unmap_memory(b.memory);
        [a, b].into_iter().for_each(|piece| program.free(piece));
        program.end();
    }
    let submissions = shim.submissions();
    let text: Vec<String> = submissions.iter().map(ToString::to_string).collect();
    assert_eq!(
        text[0],
        "submit 1 to queue#1 then semaphore#1=1\n  fill buffer#1[0+64] with 0x00000029\n  barrier TRANSFER (TRANSFER_WRITE) -> \
         COMPUTE_SHADER (SHADER_READ | SHADER_WRITE)\n  bind pipeline#1\n  bind descriptors 0=buffer#1[0+64]\n  dispatch 16x1x1 \
         pipeline#1 0=buffer#1[0+64]"
    );
    assert_eq!(
        text[1],
        "submit 2 to queue#1 after semaphore#1=1 then semaphore#1=2\n  copy buffer#1 to buffer#2 4->8+12"
    );
    assert_eq!(submissions[0].barriers().count(), 1);
    assert!(matches!(submissions[0].outline().last(), Some(Command::Dispatch { groups: [16, 1, 1], .. })));
    assert_clean(&shim);
}

#[test]
fn an_object_that_is_not_destroyed_is_listed_and_its_device_complained_of() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let _left = program.piece(64, 0);
        program.end();
    }
    let alive: Vec<String> = shim.alive().iter().map(ToString::to_string).collect();
    assert_eq!(alive, ["memory#1 of vkAllocateMemory", "buffer#1 of vkCreateBuffer"]);
    assert_eq!(shim.complaints().len(), 1);
    assert!(shim.complaints()[0].starts_with("vkDestroyDevice with 2 objects alive"), "{:?}", shim.complaints());
}

#[test]
fn a_device_that_outlives_its_instance_is_a_complaint_and_no_crash() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        program.instance.destroy_instance(None);
        assert_eq!(shim.complaints(), ["vkDestroyInstance with 1 devices and 0 messengers alive"]);
        program.end();
    }
    assert!(shim.alive().is_empty());
}

#[test]
fn destroying_twice_and_using_what_is_destroyed_are_complaints_and_no_crash() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let piece = program.piece(64, 0);
        program.free(piece);
        program.device.destroy_buffer(piece.buffer, None);
        let device = program.device.clone();
        program.end();
        assert_eq!(device.device_wait_idle(), Err(vk::Result::ERROR_UNKNOWN));
    }
    assert_eq!(
        shim.complaints(),
        ["vkDestroyBuffer of a BUFFER that there is not", "vkDeviceWaitIdle with a DEVICE that was destroyed"]
    );
}

#[test]
fn what_a_pool_gave_ends_with_it() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let piece = program.piece(64, 0);
        program.set(piece.buffer);
        program.commands(|_, _| ());
        let kinds: Vec<_> = shim.alive().iter().map(|alive| alive.object.kind).collect();
        assert!(kinds.contains(&vk::ObjectType::DESCRIPTOR_SET) && kinds.contains(&vk::ObjectType::COMMAND_BUFFER));
        let flags = vk::DescriptorPoolResetFlags::empty();
        program.device.reset_descriptor_pool(program.descriptors, flags).unwrap();
        assert!(shim.alive().iter().all(|alive| alive.object.kind != vk::ObjectType::DESCRIPTOR_SET));
        program.free(piece);
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn shims_beside_each_other_see_only_their_own() {
    let (Some(one), Some(other)) = (shim(Plan::new()), shim(Plan::new())) else { return };
    unsafe {
        let (first, second) = (Program::new(&one), Program::new(&other));
        let piece = first.piece(64, 0);
        assert_eq!((one.calls("vkCreateBuffer"), other.calls("vkCreateBuffer")), (1, 0));
        first.free(piece);
        first.end();
        second.end();
    }
    assert_clean(&one);
    assert_clean(&other);
}

#[test]
fn functions_that_would_go_around_the_record_are_not_there() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let find = program.instance.fp_v1_0().get_device_proc_addr;
        let device = program.device.handle();
        assert!(find(device, c"vkQueueSubmit".as_ptr()).is_some());
        assert!(find(device, c"vkQueueSubmit2".as_ptr()).is_none());
        assert!(find(device, c"vkCmdPipelineBarrier2KHR".as_ptr()).is_none());
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn submitted_work_that_is_not_finished_when_its_device_ends_is_a_complaint() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        program.submit(&[], Some(5), 6).unwrap();
        program.device.destroy_device(None);
        program.instance.destroy_instance(None);
    }
    assert_eq!(shim.complaints()[0], "vkDestroyDevice before semaphore#1=6 is reached");
}

#[test]
fn a_semaphore_that_submitted_work_uses_ends_with_a_complaint_and_no_crash() {
    let Some(shim) = shim(Plan::new()) else { return };
    unsafe {
        let program = Program::new(&shim);
        program.submit(&[], Some(5), 6).unwrap();
        program.end();
    }
    assert_eq!(shim.complaints(), ["vkDestroySemaphore before semaphore#1=6 is reached"]);
}
