//! The kernels of a program, and where a replay finds them.
//!
//! A kernel is known by its name and by what it touches. A host function cannot be written down, and a source that nobody can check is not
//! run because a file has it: for these a table is given to the replay. WGSL, which is checked, is taken from the program where the table
//! has nothing.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::kernel::{Interface, Kernel, KernelHandle, Source, SourceKernel};

/// A kernel as a program knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelInfo {
    /// Its name; the entry point of a text or binary source.
    pub name: String,
    /// Invocations in a workgroup, by axis.
    pub workgroup: [u32; 3],
    /// What it touches.
    pub interface: Interface,
    /// The values of constants that its source leaves open, each finite.
    pub constants: Vec<(String, f64)>,
    /// The form of the source it had where the program was recorded.
    pub form: SourceForm,
    /// That source, where it has content. SPIR-V words are little-endian.
    pub source: Option<Arc<[u8]>>,
}

impl KernelInfo {
    /// A kernel that was prepared, as a program knows it.
    pub fn of(kernel: &KernelHandle) -> Self {
        let source = kernel.source();
        let content = match source.as_words() {
            Some(words) => Some(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            None => source.content().map(Arc::from),
        };
        Self {
            name: kernel.name().to_string(),
            workgroup: kernel.workgroup_size(),
            interface: kernel.interface().clone(),
            constants: kernel.constants().to_vec(),
            form: source.form(),
            source: content,
        }
    }

    /// The source as text, where it is text.
    pub fn text(&self) -> Option<&str> {
        core::str::from_utf8(self.source.as_deref()?).ok()
    }

    /// Why a kernel that was prepared is another one; `None` where it can stand in. How a host gets at its buffers does not count.
    fn differs(&self, kernel: &KernelHandle) -> Option<String> {
        let (ours, theirs) = (&self.interface, kernel.interface());
        let touched = |interface: &Interface| -> Vec<_> {
            interface.buffers.iter().map(|buffer| (buffer.access, buffer.min_size)).collect()
        };
        if kernel.workgroup_size() != self.workgroup {
            Some(format!("its workgroups have {:?} invocations, not {:?}", kernel.workgroup_size(), self.workgroup))
        } else if theirs.parameters != ours.parameters {
            Some(format!("it takes {} bytes of parameters, not {}", theirs.parameters, ours.parameters))
        } else if touched(theirs) != touched(ours) {
            Some(format!("its buffers are {:?}, not {:?}", touched(theirs), touched(ours)))
        } else {
            None
        }
    }
}

type Resolve = dyn Fn(&KernelInfo) -> Option<Arc<dyn Kernel>> + Send + Sync;

/// Kernels by name. Several may have one name; the first that touches what the program's kernel touches is taken.
#[derive(Default)]
pub struct KernelTable {
    kernels: Vec<Arc<dyn Kernel>>,
    resolve: Option<Box<Resolve>>,
}

impl KernelTable {
    /// No kernels: for programs whose kernels are WGSL, or that have none.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more.
    pub fn with(mut self, kernel: impl Kernel) -> Self {
        self.kernels.push(Arc::new(kernel));
        self
    }

    /// Asks `resolve` for a kernel that the table does not have. This is where a source that nobody can check is vouched for: the program
    /// has its bytes ([`KernelInfo::source`]), and `resolve` makes a kernel of them or does not.
    pub fn or_else(mut self, resolve: impl Fn(&KernelInfo) -> Option<Arc<dyn Kernel>> + Send + Sync + 'static) -> Self {
        self.resolve = Some(Box::new(resolve));
        self
    }

    /// The names there are.
    pub fn names(&self) -> Vec<String> {
        self.kernels.iter().map(|kernel| kernel.name().to_string()).collect()
    }

    /// The kernel that stands in for the program's, prepared on the client's device.
    ///
    /// # Errors
    /// [`Unresolved`].
    pub fn prepare(&self, info: &KernelInfo, client: &Client) -> Result<KernelHandle, Unresolved> {
        let known = self.kernels.iter().filter(|kernel| kernel.name() == info.name).cloned();
        let resolved = self.resolve.as_ref().and_then(|resolve| resolve(info));
        let mut why = None;
        for candidate in known.chain(resolved).chain(own(info)) {
            match client.prepare_shared(candidate) {
                Err(error) => why = Some(Unresolved::Refused { kernel: info.name.clone(), error: Box::new(error) }),
                Ok(handle) => match info.differs(&handle) {
                    None => return Ok(handle),
                    Some(how) => why = Some(Unresolved::Differs { kernel: info.name.clone(), how }),
                },
            }
        }
        Err(why.unwrap_or_else(|| Unresolved::Absent { kernel: info.name.clone(), known: self.names() }))
    }
}

/// The kernel as the program has it, if that is safe to run.
fn own(info: &KernelInfo) -> Option<Arc<dyn Kernel>> {
    let text = (info.form == SourceForm::Wgsl).then(|| info.text())??;
    let kernel = SourceKernel::new(info.name.as_str(), info.interface.clone()).workgroup_size(info.workgroup);
    let constants = info.constants.iter();
    let kernel = constants.fold(kernel, |kernel, (name, value)| kernel.constant(name.as_str(), *value));
    Some(Arc::new(kernel.source(Source::wgsl(text))))
}

impl fmt::Debug for KernelTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelTable").field("kernels", &self.names()).finish_non_exhaustive()
    }
}

/// Why a program's kernel was not found.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unresolved {
    /// There is none of its name.
    #[error("kernel `{kernel}` is not in the table; there are: {}", known.join(", "))]
    Absent {
        /// Its name.
        kernel: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The one of its name is another kernel.
    #[error("kernel `{kernel}` of the table is another one: {how}")]
    Differs {
        /// Its name.
        kernel: String,
        /// What differs.
        how: String,
    },
    /// The device does not take it.
    #[error("kernel `{kernel}`: {error}")]
    Refused {
        /// Its name.
        kernel: String,
        /// What the device says.
        #[source]
        error: Box<Error>,
    },
}
