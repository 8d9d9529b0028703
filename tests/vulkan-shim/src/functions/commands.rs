//! Command buffers: where they come from, and what is recorded in them.

use core::ffi::c_void;

use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk::{self, Handle};

use super::{array, descriptors, enter, pointer};
use crate::objects::Object;
use crate::record::{Barrier, Bound, Command, Region};
use crate::registry::COMMANDS;
use crate::state::{CommandState, DeviceState, Recording, locked};

/// Commands that are counted, recorded, and handed on as they are. The braces give what is recorded.
macro_rules! commands {
    ($($name:literal $pfn:ident $table:ident $field:ident($($arg:ident: $type:ty),*) |$of:ident| $record:block)*) => {
        $(unsafe extern "system" fn $field(commands: vk::CommandBuffer, $($arg: $type),*) {
            let Some($of) = command(commands, $name) else { return };
            let _alone = $of.device.exclusive($of.pool, $name);
            // SAFETY: a command buffer that lives; the caller's arguments are those of the function.
            unsafe {
                let recorded = $record;
                locked(&$of.recording).commands.push(recorded);
                ($of.device.raw.$table().$field)($of.handle, $($arg),*);
            }
        })*

        fn command_of(name: &str) -> vk::PFN_vkVoidFunction {
            match name {
                $($name => pointer!($pfn, $field),)*
                _ => None,
            }
        }
    };
}

pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
    match name {
        "vkAllocateCommandBuffers" => pointer!(PFN_vkAllocateCommandBuffers, allocate_command_buffers),
        "vkFreeCommandBuffers" => pointer!(PFN_vkFreeCommandBuffers, free_command_buffers),
        "vkResetCommandPool" => pointer!(PFN_vkResetCommandPool, reset_command_pool),
        "vkTrimCommandPool" => pointer!(PFN_vkTrimCommandPool, trim_command_pool),
        "vkBeginCommandBuffer" => pointer!(PFN_vkBeginCommandBuffer, begin_command_buffer),
        "vkEndCommandBuffer" => pointer!(PFN_vkEndCommandBuffer, end_command_buffer),
        "vkResetCommandBuffer" => pointer!(PFN_vkResetCommandBuffer, reset_command_buffer),
        "vkCmdPushDescriptorSetKHR" => pointer!(PFN_vkCmdPushDescriptorSetKHR, push_descriptors),
        "vkCmdPushDescriptorSetWithTemplateKHR" => {
            pointer!(PFN_vkCmdPushDescriptorSetWithTemplateKHR, push_descriptors_with_template)
        }
        "vkCmdExecuteCommands" => pointer!(PFN_vkCmdExecuteCommands, execute_commands),
        other => command_of(other),
    }
}

commands! {
    "vkCmdBindPipeline" PFN_vkCmdBindPipeline fp_v1_0 cmd_bind_pipeline(
        point: vk::PipelineBindPoint, pipeline: vk::Pipeline) |of| {
        let pipeline = of.device.name(pipeline, "vkCmdBindPipeline");
        locked(&of.recording).pipeline = Some(pipeline);
        Command::Bind { pipeline }
    }
    "vkCmdBindDescriptorSets" PFN_vkCmdBindDescriptorSets fp_v1_0 cmd_bind_descriptor_sets(
        point: vk::PipelineBindPoint, layout: vk::PipelineLayout, first: u32, count: u32, sets: *const vk::DescriptorSet,
        offset_count: u32, offsets: *const u32) |of| {
        let mut buffers = Vec::new();
        for (index, set) in array(sets, count).iter().enumerate() {
            of.device.name(*set, "vkCmdBindDescriptorSets");
            let held = locked(&of.device.sets).get(&set.as_raw()).cloned().unwrap_or_default();
            bind(&of, first + index as u32, held.values().copied());
            buffers.extend(held.into_values());
        }
        Command::Descriptors { pushed: false, buffers }
    }
    "vkCmdPushConstants" PFN_vkCmdPushConstants fp_v1_0 cmd_push_constants(
        layout: vk::PipelineLayout, stages: vk::ShaderStageFlags, offset: u32, size: u32, values: *const c_void) |of| {
        Command::Constants { offset, bytes: array(values.cast::<u8>(), size).to_vec() }
    }
    "vkCmdDispatch" PFN_vkCmdDispatch fp_v1_0 cmd_dispatch(x: u32, y: u32, z: u32) |of| {
        let (pipeline, buffers) = bound(&of);
        Command::Dispatch { pipeline, groups: [x, y, z], buffers }
    }
    "vkCmdDispatchBase" PFN_vkCmdDispatchBase fp_v1_1 cmd_dispatch_base(
        base_x: u32, base_y: u32, base_z: u32, x: u32, y: u32, z: u32) |of| {
        let (pipeline, buffers) = bound(&of);
        Command::Dispatch { pipeline, groups: [x, y, z], buffers }
    }
    "vkCmdDispatchIndirect" PFN_vkCmdDispatchIndirect fp_v1_0 cmd_dispatch_indirect(buffer: vk::Buffer, offset: u64) |of| {
        let (pipeline, buffers) = bound(&of);
        let counts = of.device.name(buffer, "vkCmdDispatchIndirect");
        Command::DispatchIndirect { pipeline, counts, offset, buffers }
    }
    "vkCmdCopyBuffer" PFN_vkCmdCopyBuffer fp_v1_0 cmd_copy_buffer(
        source: vk::Buffer, target: vk::Buffer, count: u32, regions: *const vk::BufferCopy) |of| {
        let regions = array(regions, count).iter();
        Command::Copy {
            source: of.device.name(source, "vkCmdCopyBuffer"),
            target: of.device.name(target, "vkCmdCopyBuffer"),
            regions: regions.map(|r| Region { source: r.src_offset, target: r.dst_offset, size: r.size }).collect(),
        }
    }
    "vkCmdFillBuffer" PFN_vkCmdFillBuffer fp_v1_0 cmd_fill_buffer(
        buffer: vk::Buffer, offset: u64, size: u64, value: u32) |of| {
        Command::Fill { target: of.device.name(buffer, "vkCmdFillBuffer"), offset, size, value }
    }
    "vkCmdUpdateBuffer" PFN_vkCmdUpdateBuffer fp_v1_0 cmd_update_buffer(
        buffer: vk::Buffer, offset: u64, size: u64, data: *const c_void) |of| {
        Command::Update { target: of.device.name(buffer, "vkCmdUpdateBuffer"), offset, size }
    }
    "vkCmdPipelineBarrier" PFN_vkCmdPipelineBarrier fp_v1_0 cmd_pipeline_barrier(
        from: vk::PipelineStageFlags, to: vk::PipelineStageFlags, flags: vk::DependencyFlags,
        memory_count: u32, memory: *const vk::MemoryBarrier<'_>,
        buffer_count: u32, buffers: *const vk::BufferMemoryBarrier<'_>,
        image_count: u32, images: *const vk::ImageMemoryBarrier<'_>) |of| {
        let memory = array(memory, memory_count).iter().map(|one| (one.src_access_mask, one.dst_access_mask));
        let buffers = array(buffers, buffer_count).iter().map(|one| (one.src_access_mask, one.dst_access_mask));
        let none = (vk::AccessFlags::empty(), vk::AccessFlags::empty());
        let (available, visible) = memory.chain(buffers).fold(none, |all, one| (all.0 | one.0, all.1 | one.1));
        Command::Barrier(Barrier { from, to, available, visible, of_buffers: buffer_count as usize })
    }
    "vkCmdSetEvent" PFN_vkCmdSetEvent fp_v1_0 cmd_set_event(event: vk::Event, stages: vk::PipelineStageFlags) |of| {
        Command::Other("vkCmdSetEvent")
    }
    "vkCmdResetEvent" PFN_vkCmdResetEvent fp_v1_0 cmd_reset_event(event: vk::Event, stages: vk::PipelineStageFlags) |of| {
        Command::Other("vkCmdResetEvent")
    }
    "vkCmdResetQueryPool" PFN_vkCmdResetQueryPool fp_v1_0 cmd_reset_query_pool(
        pool: vk::QueryPool, first: u32, count: u32) |of| {
        Command::Other("vkCmdResetQueryPool")
    }
    "vkCmdWriteTimestamp" PFN_vkCmdWriteTimestamp fp_v1_0 cmd_write_timestamp(
        stage: vk::PipelineStageFlags, pool: vk::QueryPool, query: u32) |of| {
        Command::Other("vkCmdWriteTimestamp")
    }
    "vkCmdBeginQuery" PFN_vkCmdBeginQuery fp_v1_0 cmd_begin_query(
        pool: vk::QueryPool, query: u32, flags: vk::QueryControlFlags) |of| {
        Command::Other("vkCmdBeginQuery")
    }
    "vkCmdEndQuery" PFN_vkCmdEndQuery fp_v1_0 cmd_end_query(pool: vk::QueryPool, query: u32) |of| {
        Command::Other("vkCmdEndQuery")
    }
    "vkCmdCopyQueryPoolResults" PFN_vkCmdCopyQueryPoolResults fp_v1_0 cmd_copy_query_pool_results(
        pool: vk::QueryPool, first: u32, count: u32, buffer: vk::Buffer, offset: u64, stride: u64,
        flags: vk::QueryResultFlags) |of| {
        Command::Other("vkCmdCopyQueryPoolResults")
    }
}

/// The command buffer behind a handle, and the call counted. `None` where the call does nothing.
fn command(commands: vk::CommandBuffer, call: &'static str) -> Option<Arc<CommandState>> {
    let of = COMMANDS.find(commands, call)?;
    of.device.enter(call).is_ok().then_some(of)
}

/// The same for a call with a result.
fn try_command(commands: vk::CommandBuffer, call: &'static str) -> Result<Arc<CommandState>, vk::Result> {
    let of = COMMANDS.find(commands, call).ok_or(vk::Result::ERROR_UNKNOWN)?;
    of.device.enter(call)?;
    Ok(of)
}

/// What is bound.
fn bound(of: &CommandState) -> (Object, Vec<Bound>) {
    let recording = locked(&of.recording);
    let none = Object { kind: vk::ObjectType::PIPELINE, number: 0 };
    (recording.pipeline.unwrap_or(none), recording.bound.values().copied().collect())
}

fn bind(of: &CommandState, set: u32, buffers: impl Iterator<Item = Bound>) {
    let mut recording = locked(&of.recording);
    // A set that is bound takes the place of the whole of the one before.
    recording.bound.retain(|&(other, _), _| other != set);
    recording.bound.extend(buffers.map(|bound| ((set, bound.binding), bound)));
}

/// Descriptors that are pushed take the place of those at their bindings.
fn push(of: &CommandState, set: u32, buffers: Vec<Bound>) {
    let mut recording = locked(&of.recording);
    recording.bound.extend(buffers.iter().map(|bound| ((set, bound.binding), *bound)));
    recording.commands.push(Command::Descriptors { pushed: true, buffers });
}

unsafe extern "system" fn push_descriptors(
    commands: vk::CommandBuffer,
    point: vk::PipelineBindPoint,
    layout: vk::PipelineLayout,
    set: u32,
    count: u32,
    writes: *const vk::WriteDescriptorSet<'_>,
) {
    const CALL: &str = "vkCmdPushDescriptorSetKHR";
    let Some(of) = command(commands, CALL) else { return };
    let _alone = of.device.exclusive(of.pool, CALL);
    let functions = of.device.push_descriptor.fp();
    // SAFETY: a command buffer that lives; the caller's arguments are those of the function.
    unsafe {
        push(&of, set, descriptors::written(&of.device, array(writes, count), CALL));
        (functions.cmd_push_descriptor_set_khr)(of.handle, point, layout, set, count, writes);
    }
}

unsafe extern "system" fn push_descriptors_with_template(
    commands: vk::CommandBuffer,
    template: vk::DescriptorUpdateTemplate,
    layout: vk::PipelineLayout,
    set: u32,
    data: *const c_void,
) {
    const CALL: &str = "vkCmdPushDescriptorSetWithTemplateKHR";
    let Some(of) = command(commands, CALL) else { return };
    let _alone = of.device.exclusive(of.pool, CALL);
    let functions = of.device.push_descriptor.fp();
    // SAFETY: a command buffer that lives; the caller's arguments are those of the function.
    unsafe {
        push(&of, set, descriptors::templated(&of.device, template, data, CALL));
        (functions.cmd_push_descriptor_set_with_template_khr)(of.handle, template, layout, set, data);
    }
}

unsafe extern "system" fn execute_commands(
    commands: vk::CommandBuffer,
    count: u32,
    secondary: *const vk::CommandBuffer,
) {
    const CALL: &str = "vkCmdExecuteCommands";
    let Some(of) = command(commands, CALL) else { return };
    let _alone = of.device.exclusive(of.pool, CALL);
    // SAFETY: a command buffer that lives; the caller's arguments are those of the function.
    unsafe {
        for &one in array(secondary, count) {
            let Some(other) = COMMANDS.find(one, CALL) else { return };
            let executed = locked(&other.recording).commands.clone();
            locked(&of.recording).commands.extend(executed);
        }
        (of.device.raw.fp_v1_0().cmd_execute_commands)(of.handle, count, secondary);
    }
}

unsafe extern "system" fn allocate_command_buffers(
    device: vk::Device,
    info: *const vk::CommandBufferAllocateInfo<'_>,
    out: *mut vk::CommandBuffer,
) -> vk::Result {
    const CALL: &str = "vkAllocateCommandBuffers";
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let (pool, count) = ((*info).command_pool, (*info).command_buffer_count);
        let device = match enter(device, CALL) {
            Ok(device) => device,
            Err(code) => {
                (0..count as usize).for_each(|index| out.add(index).write(vk::CommandBuffer::null()));
                return code;
            }
        };
        let _alone = device.exclusive(pool, CALL);
        let code = (device.raw.fp_v1_0().allocate_command_buffers)(device.handle(), info, out);
        if code == vk::Result::SUCCESS {
            for &handle in array(out.cast_const(), count) {
                device.created(handle, pool.as_raw(), CALL);
                let recording = Default::default();
                COMMANDS.put(handle, Arc::new(CommandState { device: Arc::clone(&device), handle, pool, recording }));
            }
        }
        code
    }
}

unsafe extern "system" fn free_command_buffers(
    device: vk::Device,
    pool: vk::CommandPool,
    count: u32,
    buffers: *const vk::CommandBuffer,
) {
    const CALL: &str = "vkFreeCommandBuffers";
    let Ok(device) = enter(device, CALL) else { return };
    let _alone = device.exclusive(pool, CALL);
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        for &buffer in array(buffers, count).iter().filter(|buffer| !buffer.is_null()) {
            if !device.destroyed(buffer, CALL) {
                return;
            }
            COMMANDS.end(buffer);
        }
        (device.raw.fp_v1_0().free_command_buffers)(device.handle(), pool, count, buffers);
    }
}

/// What the buffers of a pool held is gone.
fn forget(device: &DeviceState, pool: vk::CommandPool) {
    let buffers = locked(&device.state.objects).children(device.owner(), vk::ObjectType::COMMAND_BUFFER, pool.as_raw());
    for buffer in buffers {
        if let Some(of) = COMMANDS.find(vk::CommandBuffer::from_raw(buffer), "vkResetCommandPool") {
            *locked(&of.recording) = Recording::default();
        }
    }
}

unsafe extern "system" fn reset_command_pool(
    device: vk::Device,
    pool: vk::CommandPool,
    flags: vk::CommandPoolResetFlags,
) -> vk::Result {
    const CALL: &str = "vkResetCommandPool";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    let _alone = device.exclusive(pool, CALL);
    forget(&device, pool);
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe { (device.raw.fp_v1_0().reset_command_pool)(device.handle(), pool, flags) }
}

unsafe extern "system" fn trim_command_pool(
    device: vk::Device,
    pool: vk::CommandPool,
    flags: vk::CommandPoolTrimFlags,
) {
    const CALL: &str = "vkTrimCommandPool";
    let Ok(device) = enter(device, CALL) else { return };
    let _alone = device.exclusive(pool, CALL);
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe { (device.raw.fp_v1_1().trim_command_pool)(device.handle(), pool, flags) };
}

unsafe extern "system" fn begin_command_buffer(
    commands: vk::CommandBuffer,
    info: *const vk::CommandBufferBeginInfo<'_>,
) -> vk::Result {
    const CALL: &str = "vkBeginCommandBuffer";
    let of = match try_command(commands, CALL) {
        Ok(of) => of,
        Err(code) => return code,
    };
    let _alone = of.device.exclusive(of.pool, CALL);
    *locked(&of.recording) = Recording::default();
    // SAFETY: a command buffer that lives; the caller's arguments are those of the function.
    unsafe { (of.device.raw.fp_v1_0().begin_command_buffer)(of.handle, info) }
}

unsafe extern "system" fn end_command_buffer(commands: vk::CommandBuffer) -> vk::Result {
    const CALL: &str = "vkEndCommandBuffer";
    let of = match try_command(commands, CALL) {
        Ok(of) => of,
        Err(code) => return code,
    };
    let _alone = of.device.exclusive(of.pool, CALL);
    // SAFETY: a command buffer that lives.
    unsafe { (of.device.raw.fp_v1_0().end_command_buffer)(of.handle) }
}

unsafe extern "system" fn reset_command_buffer(
    commands: vk::CommandBuffer,
    flags: vk::CommandBufferResetFlags,
) -> vk::Result {
    const CALL: &str = "vkResetCommandBuffer";
    let of = match try_command(commands, CALL) {
        Ok(of) => of,
        Err(code) => return code,
    };
    let _alone = of.device.exclusive(of.pool, CALL);
    *locked(&of.recording) = Recording::default();
    // SAFETY: a command buffer that lives.
    unsafe { (of.device.raw.fp_v1_0().reset_command_buffer)(of.handle, flags) }
}
