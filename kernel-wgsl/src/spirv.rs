//! A kernel as SPIR-V.

use crate::contain;
use crate::explain::not_compiled;
use crate::module::Module;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use naga::AddressSpace;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::server::Bounds;

/// How a kernel is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpirVOptions {
    /// What becomes of an index out of bounds. Checked, it is moved to the last element; so it is where an access is to be validated, since
    /// nothing here reports one. Unchecked, nothing keeps it inside.
    pub bounds: Bounds,
    /// The most bytes of parameters that are push constants; 0 for never. More are a uniform block.
    ///
    /// Equivalent to: `maxPushConstantsSize`.
    pub push_constants: u32,
    /// Whether the driver begins workgroup memory as zeros. Else the code writes them, which a compiler may take long over where there is
    /// much of it.
    ///
    /// Equivalent to: `shaderZeroInitializeWorkgroupMemory`.
    pub zeroes_shared: bool,
    /// The version of SPIR-V, major and minor.
    pub version: (u8, u8),
}

impl Default for SpirVOptions {
    /// Checked, without push constants, SPIR-V 1.5: what Vulkan 1.2 takes.
    fn default() -> Self {
        Self { bounds: Bounds::Checked, push_constants: 0, zeroes_shared: false, version: (1, 5) }
    }
}

/// A kernel as SPIR-V. Its one entry point has the kernel's name; its buffers are storage buffers of set 0, bound at 0, 1, 2 and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpirV {
    /// The words of the module.
    pub words: Vec<u32>,
    /// Where it has its parameters from.
    pub parameters: Parameters,
}

/// Where a kernel has its parameters from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameters {
    /// It has none.
    None,
    /// Push constants, so many bytes from 0.
    PushConstants(u32),
    /// A uniform block of set 0.
    Uniform {
        /// Its binding, behind the buffers.
        binding: u32,
        /// Its bytes.
        bytes: u32,
    },
}

impl Module {
    /// Writes the kernel as SPIR-V. This takes as long as reading it did.
    ///
    /// # Errors
    /// [`Error::Compile`](trunnion_runtime_core::error::Error::Compile) for what the version cannot say,
    /// [`Error::Panicked`](trunnion_runtime_core::error::Error::Panicked) where the compiler does not survive the code.
    pub fn spirv(&self, options: &SpirVOptions) -> Result<SpirV> {
        contain::run(&self.kernel, self.depth, || {
            let (module, info, parameters) = self.parameters(options.push_constants);
            let pipeline =
                spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: self.kernel.clone() };
            let words = spv::write_vec(&module, &info, &writer_options(options), Some(&pipeline))
                .map_err(|error| not_compiled(&self.kernel, error))?;
            Ok(SpirV { words, parameters })
        })
    }

    /// The module with its parameters where they are to be.
    fn parameters(&self, push_constants: u32) -> (Cow<'_, naga::Module>, Cow<'_, ModuleInfo>, Parameters) {
        let (module, info) = (Cow::Borrowed(&self.module), Cow::Borrowed(&self.info));
        let Some((bytes, binding)) = self.parameters else { return (module, info, Parameters::None) };
        if bytes <= push_constants
            && let Some((module, info)) = self.pushed()
        {
            return (Cow::Owned(module), Cow::Owned(info), Parameters::PushConstants(bytes));
        }
        (module, info, Parameters::Uniform { binding, bytes })
    }

    /// The module with its parameters as push constants, for types that can be: numbers of 16 bits cannot.
    fn pushed(&self) -> Option<(naga::Module, ModuleInfo)> {
        let mut module = self.module.clone();
        for (_, variable) in module.global_variables.iter_mut() {
            if variable.space == AddressSpace::Uniform {
                variable.space = AddressSpace::Immediate;
                variable.binding = None;
            }
        }
        // The types of pointers to it are other ones now, and are found anew.
        let info = self.capabilities.validator(Capabilities::IMMEDIATES).validate_resolved_overrides(&module).ok()?;
        Some((module, info))
    }
}

fn writer_options(options: &SpirVOptions) -> spv::Options<'static> {
    let checked = options.bounds != Bounds::Unchecked;
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    spv::Options {
        lang_version: options.version,
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies {
            index: policy,
            buffer: policy,
            image_load: policy,
            binding_array: policy,
        },
        zero_initialize_workgroup_memory: match options.zeroes_shared {
            true => spv::ZeroInitializeWorkgroupMemoryMode::Native,
            false => spv::ZeroInitializeWorkgroupMemoryMode::Polyfill,
        },
        // A loop without an end is undefined behaviour otherwise, with which a compiler may drop checks.
        force_loop_bounding: checked,
        // Stages that are no kernels have what this is for.
        use_storage_input_output_16: false,
        ..spv::Options::default()
    }
}
