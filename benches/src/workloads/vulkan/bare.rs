//! Vulkan without anything around it: one device with one queue, one timeline semaphore, push descriptors, memory that stays mapped.

use std::cell::Cell;
use std::error::Error;
use std::ptr::NonNull;
use std::slice;
use trunnion_backend_vulkan::ash::{self, Entry, khr, vk};

use vk::MemoryPropertyFlags as Flags;

/// An opened device.
pub struct Bare {
    _entry: Entry,
    instance: ash::Instance,
    device: ash::Device,
    push: khr::push_descriptor::Device,
    queue: vk::Queue,
    pool: vk::CommandPool,
    timeline: vk::Semaphore,
    submitted: Cell<u64>,
    memory: vk::PhysicalDeviceMemoryProperties,
    shares_memory: bool,
}

/// Memory bound to one buffer.
pub struct Buffer<'a> {
    bare: &'a Bare,
    pub raw: vk::Buffer,
    memory: vk::DeviceMemory,
    mapped: Option<NonNull<u8>>,
    size: usize,
}

/// A compute pipeline whose buffers and parameters are pushed.
pub struct Pipeline<'a> {
    bare: &'a Bare,
    raw: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
}

/// A command buffer, and the submission that it was last part of.
pub struct Commands {
    raw: vk::CommandBuffer,
    until: u64,
}

impl Bare {
    /// Opens the device of that name, from nothing: loader, instance, device.
    pub fn open(adapter: &str) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the library is the system's Vulkan loader.
        let entry = unsafe { Entry::load() }?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: a valid description. What is made below is made of valid handles of this instance and device, so too for all calls in
        // this file, and is destroyed after what was made of it.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        // SAFETY: see above.
        let named = unsafe { instance.enumerate_physical_devices() }?.into_iter().find_map(|physical| {
            // SAFETY: see above.
            let properties = unsafe { instance.get_physical_device_properties(physical) };
            let is_named = properties.device_name_as_c_str().is_ok_and(|name| name.to_string_lossy().trim() == adapter);
            is_named.then_some((physical, properties))
        });
        let (physical, properties) = named.ok_or_else(|| format!("the loader has no {adapter}"))?;
        // SAFETY: see above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let family = families.iter().position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE));
        let family = family.ok_or("no queue computes")? as u32;
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        let extensions = [khr::push_descriptor::NAME.as_ptr()];
        let mut features = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut features);
        // SAFETY: see above.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        let flags = vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER | vk::CommandPoolCreateFlags::TRANSIENT;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family).flags(flags);
        // SAFETY: see above.
        let pool = unsafe { device.create_command_pool(&info, None) }?;
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        // SAFETY: see above.
        let timeline =
            unsafe { device.create_semaphore(&vk::SemaphoreCreateInfo::default().push_next(&mut kind), None) }?;
        Ok(Self {
            push: khr::push_descriptor::Device::new(&instance, &device),
            // SAFETY: see above.
            queue: unsafe { device.get_device_queue(family, 0) },
            pool,
            timeline,
            submitted: Cell::new(0),
            // SAFETY: see above.
            memory: unsafe { instance.get_physical_device_memory_properties(physical) },
            shares_memory: matches!(
                properties.device_type,
                vk::PhysicalDeviceType::CPU | vk::PhysicalDeviceType::INTEGRATED_GPU
            ),
            device,
            instance,
            _entry: entry,
        })
    }

    /// A buffer for kernels: mapped where the device works in the host's memory.
    pub fn buffer(&self, size: usize) -> Result<Buffer<'_>, Box<dyn Error>> {
        let local = Flags::DEVICE_LOCAL;
        let shared = local | Flags::HOST_VISIBLE | Flags::HOST_COHERENT | Flags::HOST_CACHED;
        match self.memory_type(shared).filter(|_| self.shares_memory) {
            Some(kind) => self.allocate(size, kind, true),
            None => self.allocate(size, self.memory_type(local).ok_or("no device memory")?, false),
        }
    }

    /// A mapped buffer that bytes go through: on their way to the device, or back.
    pub fn staging(&self, size: usize, back: bool) -> Result<Buffer<'_>, Box<dyn Error>> {
        let mapped = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let cached = self.memory_type(mapped | Flags::HOST_CACHED).filter(|_| back);
        let kind = cached.or_else(|| self.memory_type(mapped)).ok_or("no staging memory")?;
        self.allocate(size, kind, true)
    }

    fn memory_type(&self, wanted: Flags) -> Option<u32> {
        let types = self.memory.memory_types_as_slice().iter().zip(0..);
        types.filter(|(kind, _)| kind.property_flags.contains(wanted)).map(|(_, index)| index).next()
    }

    fn allocate(&self, size: usize, kind: u32, map: bool) -> Result<Buffer<'_>, Box<dyn Error>> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size as u64).usage(usage);
        // SAFETY: see `open`.
        unsafe {
            let raw = self.device.create_buffer(&info, None)?;
            let needs = self.device.get_buffer_memory_requirements(raw);
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
            let memory = self.device.allocate_memory(&info, None)?;
            self.device.bind_buffer_memory(raw, memory, 0)?;
            let mapped = match map {
                true => self.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?,
                false => std::ptr::null_mut(),
            };
            Ok(Buffer { bare: self, raw, memory, mapped: NonNull::new(mapped.cast()), size })
        }
    }

    /// A pipeline that is pushed `buffers` and so many bytes of parameters.
    pub fn pipeline(&self, words: &[u32], buffers: u32, pushed: u32) -> Result<Pipeline<'_>, Box<dyn Error>> {
        let binding = |i| {
            let binding = vk::DescriptorSetLayoutBinding::default().binding(i).descriptor_count(1);
            let stage = vk::ShaderStageFlags::COMPUTE;
            binding.descriptor_type(vk::DescriptorType::STORAGE_BUFFER).stage_flags(stage)
        };
        let bindings: Vec<_> = (0..buffers).map(binding).collect();
        let flags = vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR;
        let info = vk::DescriptorSetLayoutCreateInfo::default().flags(flags).bindings(&bindings);
        // SAFETY: see `open`.
        unsafe {
            let set_layout = self.device.create_descriptor_set_layout(&info, None)?;
            let layouts = [set_layout];
            let range = [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(pushed)];
            let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts).push_constant_ranges(&range);
            let layout = self.device.create_pipeline_layout(&info, None)?;
            let module = self.device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(words), None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default().stage(vk::ShaderStageFlags::COMPUTE);
            let info = vk::ComputePipelineCreateInfo::default().stage(stage.module(module).name(c"add")).layout(layout);
            let made = self.device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            self.device.destroy_shader_module(module, None);
            let raw = made.map_err(|(_, result)| result)?.first().copied().ok_or("no pipeline was made")?;
            Ok(Pipeline { bare: self, raw, layout, set_layout })
        }
    }

    /// A command buffer that was not used.
    pub fn commands(&self) -> Result<Commands, vk::Result> {
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        // SAFETY: see `open`.
        let made = unsafe { self.device.allocate_command_buffers(&info) }?;
        Ok(Commands { raw: made[0], until: 0 })
    }

    /// Records a command buffer anew when the device is done with it, and submits it. What it holds comes after everything before, the host's
    /// writes among it, and is there for the host when its number is reached.
    pub fn submit(&self, commands: &mut Commands, record: impl FnOnce(Recording<'_>)) -> Result<(), vk::Result> {
        self.wait(commands.until)?;
        let recording = Recording { bare: self, commands: commands.raw };
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: see `open`; the device is done with the command buffer.
        unsafe { self.device.begin_command_buffer(commands.raw, &info) }?;
        recording.barrier();
        record(recording);
        let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let wrote = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        recording.between((work, wrote), (vk::PipelineStageFlags::HOST, vk::AccessFlags::HOST_READ));
        commands.until = self.submitted.get() + 1;
        let (buffers, signals, values) = ([commands.raw], [self.timeline], [commands.until]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info = vk::SubmitInfo::default().command_buffers(&buffers).signal_semaphores(&signals);
        // SAFETY: see `open`.
        unsafe {
            self.device.end_command_buffer(commands.raw)?;
            self.device.queue_submit(self.queue, &[info.push_next(&mut timeline)], vk::Fence::null())?;
        }
        self.submitted.set(commands.until);
        Ok(())
    }

    /// Waits for everything that was submitted.
    pub fn finish(&self) -> Result<(), vk::Result> {
        self.wait(self.submitted.get())
    }

    /// Waits until the device is done with a command buffer.
    pub fn wait_for(&self, commands: &Commands) -> Result<(), vk::Result> {
        self.wait(commands.until)
    }

    fn wait(&self, value: u64) -> Result<(), vk::Result> {
        let (semaphores, values) = ([self.timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: see `open`.
        unsafe { self.device.wait_semaphores(&info, u64::MAX) }
    }
}

/// A command buffer that is being recorded.
#[derive(Clone, Copy)]
pub struct Recording<'a> {
    bare: &'a Bare,
    commands: vk::CommandBuffer,
}

impl Recording<'_> {
    /// What follows sees what was written before.
    pub fn barrier(self) {
        let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let wrote = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        let uses = wrote | vk::AccessFlags::SHADER_READ | vk::AccessFlags::TRANSFER_READ;
        self.between((work, wrote), (work, uses));
    }

    fn between(
        self,
        (from, wrote): (vk::PipelineStageFlags, vk::AccessFlags),
        (to, uses): (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let barrier = [vk::MemoryBarrier::default().src_access_mask(wrote).dst_access_mask(uses)];
        let (device, none) = (&self.bare.device, vk::DependencyFlags::empty());
        // SAFETY: the command buffer is being recorded. So too below.
        unsafe { device.cmd_pipeline_barrier(self.commands, from, to, none, &barrier, &[], &[]) };
    }

    /// The pipeline of the dispatches that follow.
    pub fn bind(self, pipeline: &Pipeline<'_>) {
        // SAFETY: see `between`.
        unsafe {
            self.bare.device.cmd_bind_pipeline(self.commands, vk::PipelineBindPoint::COMPUTE, pipeline.raw);
        }
    }

    /// One workgroup over these buffers, with a parameter.
    pub fn dispatch<const N: usize>(self, pipeline: &Pipeline<'_>, buffers: [&Buffer<'_>; N], parameter: u32) {
        let range =
            |buffer: &Buffer<'_>| vk::DescriptorBufferInfo::default().buffer(buffer.raw).range(buffer.size as u64);
        let ranges = buffers.map(range);
        let write = vk::WriteDescriptorSet::default().descriptor_type(vk::DescriptorType::STORAGE_BUFFER);
        let writes = [write.buffer_info(&ranges)];
        let (point, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
        // SAFETY: see `between`; the pipeline is bound, and has that many buffers and a parameter.
        unsafe {
            self.bare.push.cmd_push_descriptor_set(self.commands, point, pipeline.layout, 0, &writes);
            let parameter = &parameter.to_ne_bytes();
            self.bare.device.cmd_push_constants(self.commands, pipeline.layout, stage, 0, parameter);
            self.bare.device.cmd_dispatch(self.commands, 1, 1, 1);
        }
    }

    /// Copies between buffers.
    pub fn copy(self, from: (&Buffer<'_>, usize), to: (&Buffer<'_>, usize), size: usize) {
        let region = [vk::BufferCopy { src_offset: from.1 as u64, dst_offset: to.1 as u64, size: size as u64 }];
        // SAFETY: see `between`; the caller's ranges lie in the buffers.
        unsafe { self.bare.device.cmd_copy_buffer(self.commands, from.0.raw, to.0.raw, &region) };
    }
}

impl Buffer<'_> {
    /// Its bytes, where the host reaches them. Nobody else uses them meanwhile.
    pub fn bytes(&mut self) -> Option<&mut [u8]> {
        // SAFETY: the mapping is of the whole memory, stays as long as the buffer and is lent once.
        self.mapped.map(|start| unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.size) })
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: see `Bare::open`; whoever submits waits.
        unsafe {
            self.bare.device.destroy_buffer(self.raw, None);
            self.bare.device.free_memory(self.memory, None);
        }
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        // SAFETY: see `Bare::open`; whoever submits waits.
        unsafe {
            self.bare.device.destroy_pipeline(self.raw, None);
            self.bare.device.destroy_pipeline_layout(self.layout, None);
            self.bare.device.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: see `open`; everything else made of them is gone, as it borrows this.
        unsafe {
            self.device.destroy_semaphore(self.timeline, None);
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}
