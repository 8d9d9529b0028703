//! A small Vulkan program: one device, buffers, one kernel, one timeline semaphore.

use alloc::vec::Vec;

use ash::vk;
use trunnion_vulkan_shim::{Plan, Shim, ShimError, is_required};

use crate::increment;

/// A shim, if there is a driver to stand on. Says so if there is none, and fails where there must be one.
pub(crate) fn shim(plan: Plan) -> Option<Shim> {
    match (is_there(), is_required()) {
        (Ok(()), _) => Some(Shim::new(plan).unwrap()),
        (Err(why), false) => {
            println!("not run: no Vulkan driver ({why})");
            None
        }
        (Err(why), true) => panic!("TRUNNION_REQUIRE demands vulkan: {why}"),
    }
}

fn is_there() -> Result<(), String> {
    let shim = Shim::new(Plan::new()).map_err(|error: ShimError| error.to_string())?;
    let entry = shim.entry();
    unsafe {
        let instance = instance(&entry).map_err(|code| code.to_string())?;
        let devices = instance.enumerate_physical_devices();
        instance.destroy_instance(None);
        match devices {
            Ok(devices) if !devices.is_empty() => Ok(()),
            Ok(_) => Err("no device".into()),
            Err(code) => Err(code.to_string()),
        }
    }
}

pub(crate) unsafe fn instance(entry: &ash::Entry) -> Result<ash::Instance, vk::Result> {
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
    unsafe { entry.create_instance(&vk::InstanceCreateInfo::default().application_info(&application), None) }
}

/// A device with one timeline semaphore, a command pool and the kernel.
pub(crate) struct Program {
    pub(crate) instance: ash::Instance,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) device: ash::Device,
    pub(crate) queue: vk::Queue,
    pub(crate) semaphore: vk::Semaphore,
    pub(crate) pool: vk::CommandPool,
    pub(crate) set_layout: vk::DescriptorSetLayout,
    pub(crate) layout: vk::PipelineLayout,
    pub(crate) pipeline: vk::Pipeline,
    pub(crate) descriptors: vk::DescriptorPool,
}

/// A buffer in memory of its own.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) buffer: vk::Buffer,
    pub(crate) memory: vk::DeviceMemory,
}

impl Program {
    pub(crate) unsafe fn new(shim: &Shim) -> Self {
        unsafe { Self::with_queues(shim, 1) }
    }

    pub(crate) unsafe fn with_queues(shim: &Shim, queues: u32) -> Self {
        unsafe {
            let instance = instance(&shim.entry()).unwrap();
            let physical = instance.enumerate_physical_devices().unwrap()[0];
            let device = device(&instance, physical, queues).unwrap();
            let queue = device.get_device_queue(0, 0);
            let pool = device.create_command_pool(&vk::CommandPoolCreateInfo::default(), None).unwrap();
            let binding = vk::DescriptorSetLayoutBinding::default()
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE);
            let bindings = [binding];
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let set_layout = device.create_descriptor_set_layout(&info, None).unwrap();
            let layouts = [set_layout];
            let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts);
            let layout = device.create_pipeline_layout(&info, None).unwrap();
            let code = vk::ShaderModuleCreateInfo::default().code(increment::WORDS);
            let module = device.create_shader_module(&code, None).unwrap();
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
            let pipeline = device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None).unwrap()[0];
            device.destroy_shader_module(module, None);
            let size = vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(8);
            let sizes = [size];
            let info = vk::DescriptorPoolCreateInfo::default().max_sets(8).pool_sizes(&sizes);
            let descriptors = device.create_descriptor_pool(&info, None).unwrap();
            let semaphore = timeline(&device);
            Self { instance, physical, device, queue, semaphore, pool, set_layout, layout, pipeline, descriptors }
        }
    }

    /// A buffer of `size` bytes in memory of type `memory_type`.
    pub(crate) unsafe fn piece(&self, size: u64, memory_type: u32) -> Piece {
        unsafe {
            let usage = vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST
                | vk::BufferUsageFlags::INDIRECT_BUFFER;
            let info = vk::BufferCreateInfo::default().size(size).usage(usage);
            let buffer = self.device.create_buffer(&info, None).unwrap();
            let needs = self.device.get_buffer_memory_requirements(buffer);
            assert!(needs.memory_type_bits & (1 << memory_type) != 0, "memory type {memory_type} suits buffers");
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(memory_type);
            let memory = self.device.allocate_memory(&info, None).unwrap();
            self.device.bind_buffer_memory(buffer, memory, 0).unwrap();
            Piece { buffer, memory }
        }
    }

    /// A descriptor set with a buffer at binding 0.
    pub(crate) unsafe fn set(&self, buffer: vk::Buffer) -> vk::DescriptorSet {
        unsafe {
            let layouts = [self.set_layout];
            let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.descriptors).set_layouts(&layouts);
            let set = self.device.allocate_descriptor_sets(&info).unwrap()[0];
            let infos = [vk::DescriptorBufferInfo::default().buffer(buffer).range(64)];
            let write = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(&infos);
            self.device.update_descriptor_sets(&[write], &[]);
            set
        }
    }

    /// A command buffer with what `record` records.
    pub(crate) unsafe fn commands(&self, record: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> vk::CommandBuffer {
        unsafe {
            let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
            let commands = self.device.allocate_command_buffers(&info).unwrap()[0];
            self.device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()).unwrap();
            record(&self.device, commands);
            self.device.end_command_buffer(commands).unwrap();
            commands
        }
    }

    /// Submits to the first queue, with a value to wait for and one to signal on the program's semaphore.
    pub(crate) unsafe fn submit(
        &self,
        commands: &[vk::CommandBuffer],
        wait: Option<u64>,
        signal: u64,
    ) -> Result<(), vk::Result> {
        let waits: Vec<_> = wait.map(|value| (self.semaphore, value)).into_iter().collect();
        unsafe { submit(&self.device, self.queue, commands, &waits, &[(self.semaphore, signal)]) }
    }

    /// Waits for a value, at most ten seconds.
    pub(crate) unsafe fn wait(&self, value: u64) -> Result<(), vk::Result> {
        unsafe { wait(&self.device, &[(self.semaphore, value)], vk::SemaphoreWaitFlags::empty(), 10_000_000_000) }
    }

    pub(crate) unsafe fn free(&self, piece: Piece) {
        unsafe {
            self.device.destroy_buffer(piece.buffer, None);
            self.device.free_memory(piece.memory, None);
        }
    }

    /// Destroys everything but pieces and the instance.
    pub(crate) unsafe fn end_device(&self) {
        unsafe {
            self.device.destroy_semaphore(self.semaphore, None);
            self.device.destroy_descriptor_pool(self.descriptors, None);
            self.device.destroy_pipeline(self.pipeline, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_set_layout(self.set_layout, None);
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_device(None);
        }
    }

    pub(crate) unsafe fn end(self) {
        unsafe {
            self.end_device();
            self.instance.destroy_instance(None);
        }
    }
}

pub(crate) unsafe fn device(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    queues: u32,
) -> Result<ash::Device, vk::Result> {
    let priorities: Vec<f32> = (0..queues).map(|_| 1.0).collect();
    let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&priorities)];
    let mut features = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut features);
    unsafe { instance.create_device(physical, &info, None) }
}

pub(crate) unsafe fn timeline(device: &ash::Device) -> vk::Semaphore {
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    unsafe { device.create_semaphore(&vk::SemaphoreCreateInfo::default().push_next(&mut kind), None) }.unwrap()
}

pub(crate) unsafe fn submit(
    device: &ash::Device,
    queue: vk::Queue,
    commands: &[vk::CommandBuffer],
    waits: &[(vk::Semaphore, u64)],
    signals: &[(vk::Semaphore, u64)],
) -> Result<(), vk::Result> {
    let (wait_for, wait_values): (Vec<_>, Vec<_>) = waits.iter().copied().unzip();
    let (to_signal, signal_values): (Vec<_>, Vec<_>) = signals.iter().copied().unzip();
    let stages: Vec<_> = waits.iter().map(|_| vk::PipelineStageFlags::ALL_COMMANDS).collect();
    let mut values = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(&wait_values)
        .signal_semaphore_values(&signal_values);
    let info = vk::SubmitInfo::default()
        .wait_semaphores(&wait_for)
        .wait_dst_stage_mask(&stages)
        .command_buffers(commands)
        .signal_semaphores(&to_signal)
        .push_next(&mut values);
    unsafe { device.queue_submit(queue, &[info], vk::Fence::null()) }
}

pub(crate) unsafe fn wait(
    device: &ash::Device,
    moments: &[(vk::Semaphore, u64)],
    flags: vk::SemaphoreWaitFlags,
    timeout: u64,
) -> Result<(), vk::Result> {
    let (semaphores, values): (Vec<_>, Vec<_>) = moments.iter().copied().unzip();
    let info = vk::SemaphoreWaitInfo::default().flags(flags).semaphores(&semaphores).values(&values);
    unsafe { device.wait_semaphores(&info, timeout) }
}

/// Everything went as Vulkan has it, and nothing is left.
pub(crate) fn assert_clean(shim: &Shim) {
    assert_eq!(shim.complaints(), Vec::<String>::new());
    assert_eq!(shim.alive(), Vec::new());
}
