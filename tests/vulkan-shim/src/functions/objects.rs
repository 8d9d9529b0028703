//! Objects that are created and destroyed one by one, and pipelines.

use core::ffi::{CStr, c_void};

use alloc::format;
use ash::vk::{self, Handle};

use super::{array, enter, hand_on, in_chain, pointer};
use crate::registry::COMMANDS;
use crate::state::{DeviceState, locked};
use crate::timeline::Timeline;

/// A function that creates and one that destroys, for each kind.
macro_rules! objects {
    ($($handle:ident $info:ident:
        $create_name:literal $create_pfn:ident $create:ident,
        $destroy_name:literal $destroy_pfn:ident $destroy:ident, $table:ident;)*) => {
        $(unsafe extern "system" fn $create(
            device: vk::Device,
            info: *const vk::$info<'_>,
            allocator: *const vk::AllocationCallbacks<'_>,
            out: *mut vk::$handle,
        ) -> vk::Result {
            let device = match enter(device, $create_name) {
                Ok(device) => device,
                Err(code) => return code,
            };
            // SAFETY: a device that lives; the caller's arguments are those of the function.
            unsafe {
                let code = (device.raw.$table().$create)(device.handle(), info, allocator, out);
                if code == vk::Result::SUCCESS {
                    let object = device.created(*out, 0, $create_name);
                    begin(&device, vk::$handle::TYPE, (*out).as_raw(), object, info.cast());
                }
                code
            }
        }

        unsafe extern "system" fn $destroy(
            device: vk::Device,
            handle: vk::$handle,
            allocator: *const vk::AllocationCallbacks<'_>,
        ) {
            let Ok(device) = enter(device, $destroy_name) else { return };
            let _alone = device.exclusive(handle, $destroy_name);
            if handle.is_null() || !device.destroyed(handle, $destroy_name) {
                return;
            }
            if !end(&device, vk::$handle::TYPE, handle.as_raw()) {
                return;
            }
            // SAFETY: an object of this device that lives.
            unsafe { (device.raw.$table().$destroy)(device.handle(), handle, allocator) };
        })*

        pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
            match name {
                $($create_name => pointer!($create_pfn, $create),
                $destroy_name => pointer!($destroy_pfn, $destroy),)*
                "vkCreateComputePipelines" => pointer!(PFN_vkCreateComputePipelines, create_compute_pipelines),
                "vkDestroyPipeline" => pointer!(PFN_vkDestroyPipeline, destroy_pipeline),
                other => handed_on(other),
            }
        }
    };
}

objects! {
    Buffer BufferCreateInfo:
        "vkCreateBuffer" PFN_vkCreateBuffer create_buffer,
        "vkDestroyBuffer" PFN_vkDestroyBuffer destroy_buffer, fp_v1_0;
    Semaphore SemaphoreCreateInfo:
        "vkCreateSemaphore" PFN_vkCreateSemaphore create_semaphore,
        "vkDestroySemaphore" PFN_vkDestroySemaphore destroy_semaphore, fp_v1_0;
    Fence FenceCreateInfo:
        "vkCreateFence" PFN_vkCreateFence create_fence,
        "vkDestroyFence" PFN_vkDestroyFence destroy_fence, fp_v1_0;
    Event EventCreateInfo:
        "vkCreateEvent" PFN_vkCreateEvent create_event,
        "vkDestroyEvent" PFN_vkDestroyEvent destroy_event, fp_v1_0;
    QueryPool QueryPoolCreateInfo:
        "vkCreateQueryPool" PFN_vkCreateQueryPool create_query_pool,
        "vkDestroyQueryPool" PFN_vkDestroyQueryPool destroy_query_pool, fp_v1_0;
    ShaderModule ShaderModuleCreateInfo:
        "vkCreateShaderModule" PFN_vkCreateShaderModule create_shader_module,
        "vkDestroyShaderModule" PFN_vkDestroyShaderModule destroy_shader_module, fp_v1_0;
    PipelineCache PipelineCacheCreateInfo:
        "vkCreatePipelineCache" PFN_vkCreatePipelineCache create_pipeline_cache,
        "vkDestroyPipelineCache" PFN_vkDestroyPipelineCache destroy_pipeline_cache, fp_v1_0;
    PipelineLayout PipelineLayoutCreateInfo:
        "vkCreatePipelineLayout" PFN_vkCreatePipelineLayout create_pipeline_layout,
        "vkDestroyPipelineLayout" PFN_vkDestroyPipelineLayout destroy_pipeline_layout, fp_v1_0;
    DescriptorSetLayout DescriptorSetLayoutCreateInfo:
        "vkCreateDescriptorSetLayout" PFN_vkCreateDescriptorSetLayout create_descriptor_set_layout,
        "vkDestroyDescriptorSetLayout" PFN_vkDestroyDescriptorSetLayout destroy_descriptor_set_layout, fp_v1_0;
    DescriptorPool DescriptorPoolCreateInfo:
        "vkCreateDescriptorPool" PFN_vkCreateDescriptorPool create_descriptor_pool,
        "vkDestroyDescriptorPool" PFN_vkDestroyDescriptorPool destroy_descriptor_pool, fp_v1_0;
    DescriptorUpdateTemplate DescriptorUpdateTemplateCreateInfo:
        "vkCreateDescriptorUpdateTemplate" PFN_vkCreateDescriptorUpdateTemplate create_descriptor_update_template,
        "vkDestroyDescriptorUpdateTemplate" PFN_vkDestroyDescriptorUpdateTemplate destroy_descriptor_update_template, fp_v1_1;
    CommandPool CommandPoolCreateInfo:
        "vkCreateCommandPool" PFN_vkCreateCommandPool create_command_pool,
        "vkDestroyCommandPool" PFN_vkDestroyCommandPool destroy_command_pool, fp_v1_0;
}

hand_on! {
    "vkSetEvent" PFN_vkSetEvent fp_v1_0 set_event(event: vk::Event) -> vk::Result;
    "vkResetEvent" PFN_vkResetEvent fp_v1_0 reset_event(event: vk::Event) -> vk::Result;
    "vkGetEventStatus" PFN_vkGetEventStatus fp_v1_0 get_event_status(event: vk::Event) -> vk::Result;
    "vkGetQueryPoolResults" PFN_vkGetQueryPoolResults fp_v1_0 get_query_pool_results(
        pool: vk::QueryPool, first: u32, count: u32, size: usize, out: *mut c_void, stride: u64,
        flags: vk::QueryResultFlags) -> vk::Result;
    "vkResetQueryPool" PFN_vkResetQueryPool fp_v1_2 reset_query_pool(pool: vk::QueryPool, first: u32, count: u32);
    "vkGetPipelineCacheData" PFN_vkGetPipelineCacheData fp_v1_0 get_pipeline_cache_data(
        cache: vk::PipelineCache, size: *mut usize, out: *mut c_void) -> vk::Result;
    "vkMergePipelineCaches" PFN_vkMergePipelineCaches fp_v1_0 merge_pipeline_caches(
        into: vk::PipelineCache, count: u32, from: *const vk::PipelineCache) -> vk::Result;
    "vkGetBufferDeviceAddress" PFN_vkGetBufferDeviceAddress fp_v1_2 get_buffer_device_address(
        info: *const vk::BufferDeviceAddressInfo<'_>) -> u64;
}

/// What is kept of a new object besides that it is there.
///
/// # Safety
/// `info` is what an object of this kind is created from.
unsafe fn begin(
    device: &DeviceState,
    kind: vk::ObjectType,
    handle: u64,
    object: crate::objects::Object,
    info: *const c_void,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match kind {
            vk::ObjectType::SEMAPHORE => {
                let info = &*info.cast::<vk::SemaphoreCreateInfo<'_>>();
                if let Some(typed) = in_chain::<vk::SemaphoreTypeCreateInfo<'_>>(info.p_next)
                    && (*typed).semaphore_type == vk::SemaphoreType::TIMELINE
                {
                    locked(&device.timelines).insert(handle, Timeline::new(object, (*typed).initial_value));
                }
            }
            vk::ObjectType::DESCRIPTOR_UPDATE_TEMPLATE => {
                let info = &*info.cast::<vk::DescriptorUpdateTemplateCreateInfo<'_>>();
                let entries = array(info.p_descriptor_update_entries, info.descriptor_update_entry_count);
                locked(&device.templates).insert(handle, entries.to_vec());
            }
            _ => {}
        }
    }
}

/// What goes with an object that is destroyed. False where the driver would not survive its end.
fn end(device: &DeviceState, kind: vk::ObjectType, handle: u64) -> bool {
    match kind {
        vk::ObjectType::SEMAPHORE => return end_semaphore(device, handle),
        vk::ObjectType::DESCRIPTOR_UPDATE_TEMPLATE => drop(locked(&device.templates).remove(&handle)),
        vk::ObjectType::DESCRIPTOR_POOL => super::descriptors::end_sets(device, handle),
        vk::ObjectType::COMMAND_POOL => {
            let mut objects = locked(&device.state.objects);
            let buffers = objects.destroy_children(device.owner(), vk::ObjectType::COMMAND_BUFFER, handle);
            buffers.into_iter().for_each(|buffer| COMMANDS.end(vk::CommandBuffer::from_raw(buffer)));
        }
        _ => {}
    }
    true
}

/// A semaphore that submitted work still uses is a complaint, and ends when that is done.
fn end_semaphore(device: &DeviceState, handle: u64) -> bool {
    let used = locked(&device.timelines).get(&handle).map(|timeline| timeline.object);
    let unfinished = device.unfinished().into_iter().find(|moment| Some(moment.semaphore) == used);
    let mut at_rest = true;
    if let Some(moment) = unfinished {
        device.state.complain(format!("vkDestroySemaphore before {moment} is reached"));
        at_rest = device.settle().is_ok();
    }
    locked(&device.timelines).remove(&handle);
    at_rest
}

unsafe extern "system" fn create_compute_pipelines(
    device: vk::Device,
    cache: vk::PipelineCache,
    count: u32,
    infos: *const vk::ComputePipelineCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Pipeline,
) -> vk::Result {
    const CALL: &str = "vkCreateComputePipelines";
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let device = match enter(device, CALL) {
            Ok(device) => device,
            Err(code) => {
                (0..count as usize).for_each(|index| out.add(index).write(vk::Pipeline::null()));
                return code;
            }
        };
        let refused = array(infos, count).iter().find_map(|info| {
            let name = CStr::from_ptr(info.stage.p_name).to_str().ok()?;
            device.state.plan.pipeline(name)
        });
        if let Some(code) = refused {
            (0..count as usize).for_each(|index| out.add(index).write(vk::Pipeline::null()));
            return code;
        }
        if let Some(compiler) = &device.state.plan.compiler {
            compiler();
        }
        let functions = device.raw.fp_v1_0();
        let code = (functions.create_compute_pipelines)(device.handle(), cache, count, infos, allocator, out);
        // Where one failed, the others may be there.
        for &pipeline in array(out.cast_const(), count).iter().filter(|pipeline| !pipeline.is_null()) {
            device.created(pipeline, 0, CALL);
        }
        code
    }
}

unsafe extern "system" fn destroy_pipeline(
    device: vk::Device,
    pipeline: vk::Pipeline,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    const CALL: &str = "vkDestroyPipeline";
    let Ok(device) = enter(device, CALL) else { return };
    let _alone = device.exclusive(pipeline, CALL);
    if pipeline.is_null() || !device.destroyed(pipeline, CALL) {
        return;
    }
    // SAFETY: a pipeline of this device that lives.
    unsafe { (device.raw.fp_v1_0().destroy_pipeline)(device.handle(), pipeline, allocator) };
}
