//! Kernels as pipelines: from WGSL as the reader parsed it, or from SPIR-V; and what of a pipeline is worth keeping.
//!
//! Arguments are bindings of descriptor set 0: the kernel's buffers in the interface's order, each a storage buffer, and behind them one
//! more for the parameters where there are any. From WGSL, parameters that fit are push constants instead. SPIR-V keeps to the convention as
//! it is: its parameters are a uniform block at the binding behind the last buffer.

use crate::device::Device;
use crate::failure::failed;
use crate::spirv::{Head, Specialised};
use alloc::borrow::Cow;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::fmt;
use core::mem;
use trunnion_backend_core::driver::{CompileJob, Compiled, StoredCode};
use trunnion_backend_core::exit::{self, Inside, Step};
use trunnion_backend_core::loss::Loss;
use trunnion_kernel_wgsl::{self as kernel_wgsl, SpirVOptions};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::kernel::{self, KernelHandle};
use trunnion_runtime_core::server::Bounds;

/// A compiled kernel. Batches that use it hold it, so that it may be dropped at any time, also after its driver.
///
/// Equivalent to: a `VkPipeline` with its layout.
#[derive(Clone)]
pub struct VulkanCode(pub(crate) Arc<Pipeline>);

/// The most bytes of parameters of a kernel.
pub(crate) const MAX_PARAMETERS: u32 = kernel::MAX_PARAMETERS as u32;

/// A compute pipeline, and what it is bound by.
pub(crate) struct Pipeline {
    device: Arc<Device>,
    raw: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
    /// For each buffer the fewest bytes that hold an element.
    fewest: Vec<u64>,
    parameters: Parameters,
    pushes: bool,
}

/// How a pipeline takes its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameters {
    None,
    /// As push constants of so many bytes.
    Pushed(u32),
    /// As a uniform block of so many bytes, at the binding behind the last buffer.
    Uniform(u32),
}

/// What a pipeline is made of.
struct Shader<'a> {
    name: &'a str,
    words: Cow<'a, [u32]>,
    fewest: Vec<u64>,
    parameters: Parameters,
    specialised: Specialised,
}

/// Compiles a kernel.
///
/// # Errors
/// [`Error::Compile`] for code the device does not take; [`Error::Busy`] once the process exits; what the driver answers.
pub(crate) fn compile(device: &Arc<Device>, loss: &Loss, job: &CompileJob<'_>) -> Result<Compiled<VulkanCode>> {
    let _inside = Inside::compiling()?;
    let shader = Shader::of(device, job.kernel, job.bounds)?;
    let is_ours = job.stored.map(|stored| is_of(device, stored));
    let cache = Cache::new(device, loss, job.stored.filter(|_| is_ours == Some(true)))?;
    let pipeline = Pipeline::new(device, loss, shader, &cache)?;
    let stored = match is_ours {
        Some(true) => StoredCode::Used,
        Some(false) => StoredCode::Damaged(cache.data()),
        None => match cache.data() {
            nothing if nothing.is_empty() => StoredCode::None,
            data => StoredCode::Keep(data),
        },
    };
    Ok(Compiled { code: VulkanCode(Arc::new(pipeline)), stored })
}

/// The pipeline of a kernel that is no program's.
///
/// # Errors
/// As for [`compile`].
pub(crate) fn of_module(
    device: &Arc<Device>,
    loss: &Loss,
    name: &str,
    module: &kernel_wgsl::Module,
) -> Result<Pipeline> {
    let _inside = Inside::compiling()?;
    let shader = Shader::of_module(device, name, module, Bounds::Checked)?;
    Pipeline::new(device, loss, shader, &Cache::new(device, loss, None)?)
}

impl<'a> Shader<'a> {
    fn of(device: &Device, kernel: &'a KernelHandle, bounds: Bounds) -> Result<Self> {
        let refused = |message: String| Error::Compile { kernel: kernel.name().to_string(), message, line: None };
        if let Some(words) = kernel.source().as_words() {
            return Self::of_spirv(kernel, words).map_err(refused);
        }
        let module = kernel.parsed().and_then(|parsed| parsed.downcast_ref::<kernel_wgsl::Module>());
        let module = module.ok_or_else(|| refused("it was not read by this device's reader".to_string()))?;
        Self::of_module(device, kernel.name(), module, bounds)
    }

    fn of_module(device: &Device, name: &'a str, module: &kernel_wgsl::Module, bounds: Bounds) -> Result<Self> {
        let push_constants = if device.options.push_constants { device.limits.max_push_constants_size } else { 0 };
        let made = module.spirv(&SpirVOptions {
            bounds,
            push_constants,
            zeroes_shared: device.zeroes_shared,
            ..SpirVOptions::default()
        })?;
        let parameters = match made.parameters {
            kernel_wgsl::Parameters::None => Parameters::None,
            kernel_wgsl::Parameters::PushConstants(bytes) => Parameters::Pushed(bytes),
            kernel_wgsl::Parameters::Uniform { bytes, .. } => Parameters::Uniform(bytes),
        };
        let (words, fewest) = (Cow::Owned(made.words), module.fewest_bytes().to_vec());
        Ok(Self { name, words, fewest, parameters, specialised: Specialised::default() })
    }

    fn of_spirv(kernel: &'a KernelHandle, words: &'a [u32]) -> Result<Self, String> {
        let interface = kernel.interface();
        let parameters = match interface.parameters {
            0 => Parameters::None,
            bytes => Parameters::Uniform(bytes),
        };
        let bindings = interface.buffers.len() as u32 + u32::from(parameters != Parameters::None);
        let head = Head::read(words)?;
        let specialised = head.check(kernel.name(), kernel.workgroup_size(), bindings, kernel.constants())?;
        // A range has at least a byte.
        let fewest = interface.buffers.iter().map(|buffer| buffer.min_size.max(1)).collect();
        Ok(Self { name: kernel.name(), words: Cow::Borrowed(words), fewest, parameters, specialised })
    }

    /// The error of a call that did not take this shader.
    fn refused(&self, loss: &Loss, call: &str, result: vk::Result) -> Error {
        match result {
            vk::Result::ERROR_DEVICE_LOST
            | vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => loss.note(failed(call, result)),
            _ => {
                let message = format!("{call}: {result} ({})", result.as_raw());
                Error::Compile { kernel: self.name.to_string(), message, line: None }
            }
        }
    }
}

impl Pipeline {
    fn new(device: &Arc<Device>, loss: &Loss, mut shader: Shader<'_>, cache: &Cache<'_>) -> Result<Self> {
        let uniform = matches!(shader.parameters, Parameters::Uniform(_));
        let bindings = shader.fewest.len() as u32 + u32::from(uniform);
        // Dropped with what there is at that moment when a step fails: to destroy a null handle does nothing.
        let mut made = Self {
            device: device.clone(),
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout: vk::DescriptorSetLayout::null(),
            fewest: mem::take(&mut shader.fewest),
            parameters: shader.parameters,
            pushes: device.push_descriptor.is_some() && bindings <= device.max_push_descriptors,
        };
        made.lay_out(loss, bindings)?;
        made.compile(loss, &shader, cache)?;
        Ok(made)
    }

    fn lay_out(&mut self, loss: &Loss, bindings: u32) -> Result<()> {
        let kind = |binding| match binding < self.buffers() {
            true => vk::DescriptorType::STORAGE_BUFFER,
            false => vk::DescriptorType::UNIFORM_BUFFER,
        };
        let bindings: Vec<_> = (0..bindings)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(kind(binding))
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let flags = match self.pushes {
            true => vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR,
            false => vk::DescriptorSetLayoutCreateFlags::empty(),
        };
        let info = vk::DescriptorSetLayoutCreateInfo::default().flags(flags).bindings(&bindings);
        let raw = &self.device.raw;
        // SAFETY: a valid description, and the device is alive.
        self.set_layout = unsafe { raw.create_descriptor_set_layout(&info, None) }
            .map_err(|result| loss.note(failed("vkCreateDescriptorSetLayout", result)))?;
        let sets = [self.set_layout];
        let pushed: Vec<_> = match self.parameters {
            Parameters::Pushed(bytes) => {
                let size = bytes.next_multiple_of(4);
                let range = vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(size);
                alloc::vec![range]
            }
            _ => Vec::new(),
        };
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&pushed);
        // SAFETY: as above.
        self.layout = unsafe { raw.create_pipeline_layout(&info, None) }
            .map_err(|result| loss.note(failed("vkCreatePipelineLayout", result)))?;
        Ok(())
    }

    fn compile(&mut self, loss: &Loss, shader: &Shader<'_>, cache: &Cache<'_>) -> Result<()> {
        let raw = &self.device.raw;
        let Ok(name) = CString::new(shader.name) else {
            let why = "its name has a zero byte, which no entry point has".to_string();
            return Err(Error::InvalidKernel { kernel: shader.name.to_string(), why });
        };
        let info = vk::ShaderModuleCreateInfo::default().code(&shader.words);
        // SAFETY: the words are SPIR-V: made by the compiler, or vouched for by whoever made the source, and looked into.
        let module = unsafe { raw.create_shader_module(&info, None) }
            .map_err(|result| shader.refused(loss, "vkCreateShaderModule", result))?;
        let entries: Vec<_> = shader
            .specialised
            .entries
            .iter()
            .map(|(id, offset, size)| {
                vk::SpecializationMapEntry::default().constant_id(*id).offset(*offset).size(*size)
            })
            .collect();
        let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&shader.specialised.data);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&name)
            .specialization_info(&constants);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
        // SAFETY: module, layout and cache are this device's; the layout has every binding of the module's, as was checked.
        let made = unsafe { raw.create_compute_pipelines(cache.raw, &info, None) };
        // SAFETY: a pipeline does not need its module once it is made.
        unsafe { raw.destroy_shader_module(module, None) };
        // Of a call that failed, what it says it made counts for nothing.
        let made = made.map_err(|(_, result)| shader.refused(loss, "vkCreateComputePipelines", result))?;
        self.raw = made.first().copied().unwrap_or(vk::Pipeline::null());
        exit::after(Step::Compiled);
        Ok(())
    }

    pub(crate) fn raw(&self) -> vk::Pipeline {
        self.raw
    }

    pub(crate) fn layout(&self) -> vk::PipelineLayout {
        self.layout
    }

    pub(crate) fn set_layout(&self) -> vk::DescriptorSetLayout {
        self.set_layout
    }

    /// How many storage buffers it is bound to.
    pub(crate) fn buffers(&self) -> u32 {
        self.fewest.len() as u32
    }

    /// The fewest bytes of buffer `i` that hold an element.
    pub(crate) fn fewest(&self, i: usize) -> u64 {
        self.fewest.get(i).copied().unwrap_or(1)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Whether its bindings are pushed.
    pub(crate) fn pushes(&self) -> bool {
        self.pushes
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let _inside = Inside::new();
        let raw = &self.device.raw;
        // SAFETY: batches that use it hold it, so the device is done with it.
        unsafe {
            raw.destroy_pipeline(self.raw, None);
            raw.destroy_pipeline_layout(self.layout, None);
            raw.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}

impl fmt::Debug for VulkanCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanCode")
            .field("buffers", &self.0.buffers())
            .field("parameters", &self.0.parameters)
            .finish_non_exhaustive()
    }
}

/// A pipeline cache for one pipeline: what the driver keeps of it.
struct Cache<'a> {
    device: &'a Device,
    raw: vk::PipelineCache,
}

impl<'a> Cache<'a> {
    fn new(device: &'a Device, loss: &Loss, stored: Option<&[u8]>) -> Result<Self> {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(stored.unwrap_or_default());
        // SAFETY: the data, where there is some, is of this device and driver.
        let raw = unsafe { device.raw.create_pipeline_cache(&info, None) }
            .map_err(|result| loss.note(failed("vkCreatePipelineCache", result)))?;
        Ok(Self { device, raw })
    }

    /// What to keep; nothing where the driver does not say.
    fn data(&self) -> Vec<u8> {
        // SAFETY: the cache is this device's.
        unsafe { self.device.raw.get_pipeline_cache_data(self.raw) }.unwrap_or_default()
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody else has it, and pipelines do not need it.
        unsafe { self.device.raw.destroy_pipeline_cache(self.raw, None) };
    }
}

/// Whether stored code is of this device and this driver, by the header that every driver writes: its length, its version, vendor, device,
/// and the identifier of the driver's caches.
fn is_of(device: &Device, stored: &[u8]) -> bool {
    const HEADER: usize = 32;
    const VERSION: u32 = 1;
    let word = |i: usize| {
        let bytes = stored.get(4 * i..4 * i + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let length = word(0).map_or(0, |length| length as usize);
    (HEADER..=stored.len()).contains(&length)
        && word(1) == Some(VERSION)
        && word(2) == Some(device.core.vendor_id)
        && word(3) == Some(device.core.device_id)
        && stored.get(16..HEADER) == Some(&device.core.pipeline_cache_uuid[..])
}
