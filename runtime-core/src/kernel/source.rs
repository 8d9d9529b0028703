//! Sources of kernels, and the kernel that is made of them.

use super::{Interface, Kernel, KernelId, Workgroup};
use crate::error::{KernelFault, SourceForm};
use crate::properties::Target;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// A kernel that runs on the host: called once a workgroup, on any thread, several at once.
pub type HostFunction = Arc<dyn Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync>;

/// A kernel's code in one form. Forms that nobody can check are made by `unsafe` functions.
#[derive(Clone)]
pub struct Source(Form);

#[derive(Clone)]
enum Form {
    Host(HostFunction),
    Wgsl(Arc<str>),
    SpirV(Arc<[u32]>),
    CudaC(Arc<str>),
    Ptx(Arc<str>),
    Cubin(Arc<[u8]>),
}

impl Source {
    /// A Rust function over a workgroup. Safe: it reaches buffers only through checked views. It should not capture a client of the
    /// device that runs it: the two would keep each other until the device is shut down.
    pub fn host(function: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static) -> Self {
        Self(Form::Host(Arc::new(function)))
    }

    /// WGSL text. Safe: it is validated, and its accesses are kept inside the buffers.
    pub fn wgsl(text: impl Into<Arc<str>>) -> Self {
        Self(Form::Wgsl(text.into()))
    }

    /// A SPIR-V module.
    ///
    /// # Safety
    /// Every access of the entry point MUST stay within the buffers of the interface of the kernel it is given for.
    pub unsafe fn spirv(words: impl Into<Arc<[u32]>>) -> Self {
        Self(Form::SpirV(words.into()))
    }

    /// CUDA C++ text.
    ///
    /// # Safety
    /// As for [`spirv`](Self::spirv).
    pub unsafe fn cuda_c(text: impl Into<Arc<str>>) -> Self {
        Self(Form::CudaC(text.into()))
    }

    /// PTX text.
    ///
    /// # Safety
    /// As for [`spirv`](Self::spirv).
    pub unsafe fn ptx(text: impl Into<Arc<str>>) -> Self {
        Self(Form::Ptx(text.into()))
    }

    /// A CUDA binary.
    ///
    /// # Safety
    /// As for [`spirv`](Self::spirv).
    pub unsafe fn cubin(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(Form::Cubin(bytes.into()))
    }

    /// Which form it has.
    pub fn form(&self) -> SourceForm {
        match &self.0 {
            Form::Host(_) => SourceForm::Host,
            Form::Wgsl(_) => SourceForm::Wgsl,
            Form::SpirV(_) => SourceForm::SpirV,
            Form::CudaC(_) => SourceForm::CudaC,
            Form::Ptx(_) => SourceForm::Ptx,
            Form::Cubin(_) => SourceForm::Cubin,
        }
    }

    /// The function of a host source.
    pub fn as_host(&self) -> Option<&HostFunction> {
        match &self.0 {
            Form::Host(function) => Some(function),
            _ => None,
        }
    }

    /// The text of a WGSL, CUDA C++ or PTX source.
    pub fn as_text(&self) -> Option<&str> {
        match &self.0 {
            Form::Wgsl(text) | Form::CudaC(text) | Form::Ptx(text) => Some(text),
            _ => None,
        }
    }

    /// The words of a SPIR-V module.
    pub fn as_words(&self) -> Option<&[u32]> {
        match &self.0 {
            Form::SpirV(words) => Some(words),
            _ => None,
        }
    }

    /// The bytes that tell this source from another of its form; `None` for a host function, which has none.
    pub fn content(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Host(_) => None,
            Form::Wgsl(text) | Form::CudaC(text) | Form::Ptx(text) => Some(text.as_bytes()),
            Form::SpirV(words) => Some(bytemuck::cast_slice(words)),
            Form::Cubin(bytes) => Some(bytes),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source::{:?}", self.form())
    }
}

/// A kernel that carries one source or several.
///
/// ```
/// use trunnion_runtime_core::kernel::{Interface, SourceKernel, Source};
/// let double = SourceKernel::new("double", Interface::new().partition(64 * 4))
///     .workgroup_size([64, 1, 1])
///     .source(Source::host(|group| {
///         for x in group.part::<f32>(0)? {
///             *x *= 2.0;
///         }
///         Ok(())
///     }));
/// ```
#[derive(Clone, Debug)]
pub struct SourceKernel {
    name: String,
    id: KernelId,
    workgroup: [u32; 3],
    interface: Interface,
    sources: Vec<Source>,
}

impl SourceKernel {
    /// A kernel without a source yet, with workgroups of one invocation.
    pub fn new(name: impl Into<String>, interface: Interface) -> Self {
        let mut kernel =
            Self { name: name.into(), id: KernelId::unique(), workgroup: [1; 3], interface, sources: Vec::new() };
        kernel.identify();
        kernel
    }

    /// Invocations in a workgroup, by axis.
    pub fn workgroup_size(mut self, size: [u32; 3]) -> Self {
        self.workgroup = size;
        self.identify();
        self
    }

    /// One more source; of two with the same form the later counts.
    pub fn source(mut self, source: Source) -> Self {
        self.sources.retain(|known| known.form() != source.form());
        self.sources.push(source);
        self.identify();
        self
    }

    /// Kernels of equal content are one; a function cannot be compared, so a kernel with one is only equal to its clones.
    fn identify(&mut self) {
        let contents: Option<Vec<_>> = self.sources.iter().map(|s| Some((s.form(), s.content()?))).collect();
        self.id = match contents {
            Some(contents) => KernelId::of(&(&self.name, self.workgroup, &self.interface, contents)),
            None => KernelId::unique(),
        };
    }
}

impl Kernel for SourceKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> KernelId {
        self.id
    }

    fn workgroup_size(&self) -> [u32; 3] {
        self.workgroup
    }

    fn interface(&self) -> Interface {
        self.interface.clone()
    }

    fn source(&self, target: &Target<'_>) -> Option<Source> {
        target.takes.iter().find_map(|form| self.sources.iter().find(|source| source.form() == *form)).cloned()
    }

    fn forms(&self) -> Vec<SourceForm> {
        self.sources.iter().map(Source::form).collect()
    }
}
