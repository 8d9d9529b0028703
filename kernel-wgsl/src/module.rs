//! A kernel's text that was read and checked.

use crate::capabilities::Capabilities;
use crate::constants;
use crate::contain;
use crate::depth::Depth;
use crate::explain::{invalid, not_compiled, not_parsed, not_valid};
use crate::local;
use crate::reflect::{Declared, Used, entry_point};
use crate::verify;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use naga::ShaderStage;
use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::valid::ModuleInfo;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::kernel::{Interface, Kernel};

/// A kernel's text that was parsed and validated, whose constants have their values. It is what
/// [`KernelHandle::parsed`](trunnion_runtime_core::kernel::KernelHandle::parsed) holds for a kernel that a [`Reader`](crate::Reader) read.
pub struct Module {
    pub(crate) kernel: String,
    pub(crate) depth: Depth,
    pub(crate) module: naga::Module,
    pub(crate) info: ModuleInfo,
    pub(crate) capabilities: Capabilities,
    fewest: Vec<u64>,
    /// The bytes of the parameters, and how many buffers stand before them.
    pub(crate) parameters: Option<(u32, u32)>,
}

/// What a kernel says of itself, asked on the caller's thread.
struct Asked<'a> {
    name: &'a str,
    interface: Option<Interface>,
    workgroup: Option<[u32; 3]>,
    constants: Vec<(String, f64)>,
}

impl Module {
    /// Reads a kernel's text; with it what the kernel touches, and its workgroup size.
    ///
    /// # Errors
    /// [`Error::Compile`](trunnion_runtime_core::error::Error::Compile) where the text is wrong,
    /// [`Error::InvalidKernel`](trunnion_runtime_core::error::Error::InvalidKernel) where it is not what the kernel declares or not what
    /// kernels are, [`Error::Panicked`](trunnion_runtime_core::error::Error::Panicked) where the compiler does not survive it.
    pub(crate) fn read(
        kernel: &dyn Kernel,
        text: &str,
        capabilities: Capabilities,
    ) -> Result<(Self, Interface, [u32; 3])> {
        let asked = Asked {
            name: kernel.name(),
            interface: kernel.interface(),
            workgroup: kernel.workgroup_size(),
            constants: kernel.constants(),
        };
        if u32::try_from(text.len()).is_err() {
            return Err(invalid(asked.name, format!("its text has {} bytes, and may have {}", text.len(), u32::MAX)));
        }
        let depth = Depth::of(text);
        contain::check(asked.name, depth)?;
        contain::run(asked.name, depth, || Self::read_contained(&asked, text, depth, capabilities))
    }

    fn read_contained(
        asked: &Asked<'_>,
        text: &str,
        depth: Depth,
        capabilities: Capabilities,
    ) -> Result<(Self, Interface, [u32; 3])> {
        let name = asked.name;
        let parsed = naga::front::wgsl::parse_str(text).map_err(|error| not_parsed(name, text, &error))?;
        // These come first: what is said of other stages and of textures then says what kernels have in their place.
        entry_point(name, &parsed)?;
        let found = Declared::of(name, &parsed)?;
        let mut validator = capabilities.validator(naga::valid::Capabilities::empty());
        let info = validator.validate(&parsed).map_err(|error| not_valid(name, text, &error))?;
        let values = constants::values(name, &parsed, &asked.constants)?;
        let entry = Some((ShaderStage::Compute, name));
        let resolved = process_overrides(&parsed, &info, entry, &values).map_err(|error| match error {
            PipelineConstantError::ValidationError(error) => not_valid(name, text, &error),
            PipelineConstantError::NegativeWorkgroupSize => {
                invalid(name, "its constants make a workgroup size that has a zero or a negative axis")
            }
            other => not_compiled(name, format!("with its constants: {other}")),
        })?;
        let resolved = match resolved {
            (Cow::Owned(module), Cow::Owned(info)) => Some((module, info)),
            _ => None,
        };
        let (module, info) = resolved.unwrap_or((parsed, info));

        let workgroup = entry_point(name, &module)?.workgroup_size;
        if let Some(declared) = asked.workgroup
            && declared != workgroup
        {
            let why = format!("a workgroup size of {declared:?} is declared, and its text has {workgroup:?}");
            return Err(invalid(name, why));
        }
        local::check(name, &module, &info)?;
        let used = Used::of(&module, info.get_entry_point(0), found.buffers.len());
        let interface = match &asked.interface {
            Some(interface) => verify::declared(name, interface.clone(), &found, &used)?,
            None => verify::found(&found, &used),
        };
        let buffers = found.buffers.len() as u32;
        let module = Self {
            kernel: name.to_string(),
            depth,
            module,
            info,
            capabilities,
            fewest: found.buffers.iter().map(|buffer| buffer.fewest).collect(),
            parameters: found.parameters.map(|parameters| (parameters.bytes, buffers)),
        };
        Ok((module, interface, workgroup))
    }

    /// The name of the kernel, which is that of the entry point.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// For each buffer, by place, the fewest bytes with which an index out of bounds has an element that it is moved to. A buffer with fewer
    /// MUST be bound as one of no elements, in memory of its own where nothing else lies: checked code then reaches that memory at most.
    ///
    /// It is more than the [`min_size`](trunnion_runtime_core::kernel::BufferInterface::min_size) of the interface only for arrays whose
    /// length is that of the buffer: launching over none of their elements is allowed, and any access to them is out of bounds.
    pub fn fewest_bytes(&self) -> &[u64] {
        &self.fewest
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("kernel", &self.kernel)
            .field("fewest_bytes", &self.fewest)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}
