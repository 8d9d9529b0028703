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
    workgroup: Option<[u32; 3]>,
    interface: Option<Interface>,
    /// Ordered by name, so that the order in which they are given does not make another kernel.
    constants: Vec<(String, f64)>,
    sources: Vec<Source>,
}

impl SourceKernel {
    /// A kernel without a source yet, with workgroups of one invocation.
    pub fn new(name: impl Into<String>, interface: Interface) -> Self {
        Self::of(name.into(), Some(interface), Some([1; 3]), Vec::new())
    }

    /// A kernel in WGSL of which nothing is declared: interface and workgroup size are read from the text, where `name` is the entry
    /// point. What a buffer is used for is taken from what the code does with it, so no buffer is
    /// [`Access::Overwrite`](crate::access::Access::Overwrite).
    ///
    /// ```
    /// use trunnion_runtime_core::kernel::SourceKernel;
    /// let double = SourceKernel::wgsl(
    ///     "double",
    ///     "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
    ///      @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3u) {
    ///          if id.x < arrayLength(&x) { x[id.x] *= 2.0; }
    ///      }",
    /// );
    /// ```
    pub fn wgsl(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Self::of(name.into(), None, None, alloc::vec![Source::wgsl(text)])
    }

    fn of(name: String, interface: Option<Interface>, workgroup: Option<[u32; 3]>, sources: Vec<Source>) -> Self {
        let mut kernel = Self { name, id: KernelId::unique(), workgroup, interface, constants: Vec::new(), sources };
        kernel.identify();
        kernel
    }

    /// Invocations in a workgroup, by axis. A source that says another size is refused.
    pub fn workgroup_size(mut self, size: [u32; 3]) -> Self {
        self.workgroup = Some(size);
        self.identify();
        self
    }

    /// A value for a constant that the source leaves open; of two for the same one the later counts. It is named as the source names it,
    /// or by the number the source gives it. A host function has none: it captures what it needs.
    ///
    /// Equivalent to: an `override` of WGSL, by its name or its `@id`; a specialisation constant of SPIR-V, by its number.
    pub fn constant(mut self, name: impl Into<String>, value: f64) -> Self {
        let name = name.into();
        match self.constants.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(known) => self.constants[known].1 = value,
            Err(place) => self.constants.insert(place, (name, value)),
        }
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
        let constants: Vec<_> = self.constants.iter().map(|(name, value)| (name, value.to_bits())).collect();
        self.id = match contents {
            Some(contents) => KernelId::of(&(&self.name, self.workgroup, &self.interface, constants, contents)),
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

    fn workgroup_size(&self) -> Option<[u32; 3]> {
        self.workgroup
    }

    fn interface(&self) -> Option<Interface> {
        self.interface.clone()
    }

    fn constants(&self) -> Vec<(String, f64)> {
        self.constants.clone()
    }

    fn source(&self, target: &Target<'_>) -> Option<Source> {
        target.takes.iter().find_map(|form| self.sources.iter().find(|source| source.form() == *form)).cloned()
    }

    fn forms(&self) -> Vec<SourceForm> {
        self.sources.iter().map(Source::form).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_kernels_apart_is_in_their_id() {
        let plain = || SourceKernel::new("k", Interface::new()).source(Source::wgsl("text"));
        let ids = [
            plain().id(),
            SourceKernel::wgsl("k", "text").id(),
            plain().workgroup_size([2, 1, 1]).id(),
            plain().constant("a", 1.0).id(),
            plain().constant("a", 2.0).id(),
            plain().constant("b", 1.0).id(),
            SourceKernel::new("k", Interface::new().read()).source(Source::wgsl("text")).id(),
            plain().source(Source::wgsl("other")).id(),
        ];
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "kernel {index}");
        }
        assert_eq!(plain().id(), plain().id());
    }

    #[test]
    fn constants_are_the_same_in_any_order_and_the_later_of_two_counts() {
        let one = SourceKernel::wgsl("k", "").constant("a", 1.0).constant("b", 2.0);
        let other = SourceKernel::wgsl("k", "").constant("b", 7.0).constant("a", 1.0).constant("b", 2.0);
        assert_eq!(one.id(), other.id());
        assert_eq!(other.constants(), [("a".into(), 1.0), ("b".into(), 2.0)]);
    }
}
