//! What a device learns of a kernel on the caller's thread, before it is asked to compile it.

use super::{Interface, Kernel, Source};
use crate::error::{Error, Result, SourceForm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

/// Reads a kernel on the caller's thread, without the device: handed out by a server when it starts.
pub trait KernelReader: Send + Sync {
    /// The sources the device takes, best first.
    fn takes(&self) -> &[SourceForm];

    /// What the kernel is, taken from its source where that can be read, else as declared.
    ///
    /// # Errors
    /// [`Error::Compile`] or [`Error::InvalidKernel`] where the source is wrong or contradicts what is declared, or where what is not
    /// declared cannot be read.
    fn read(&self, kernel: &dyn Kernel, source: &Source) -> Result<Reading>;
}

/// What a reader found.
#[derive(Clone)]
pub struct Reading {
    /// What the kernel touches.
    pub interface: Interface,
    /// Invocations in a workgroup, by axis.
    pub workgroup: [u32; 3],
    /// What came of reading the source, in the reader's own type, so that the driver does not read it again:
    /// [`KernelHandle::parsed`](super::KernelHandle::parsed) hands it on.
    pub parsed: Option<Arc<dyn Any + Send + Sync>>,
}

impl Reading {
    /// What the kernel declares, for a source that is not looked into.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`] for a kernel that leaves its interface to its source.
    pub fn declared(kernel: &dyn Kernel) -> Result<Self> {
        let Some(interface) = kernel.interface() else {
            let why = "it declares no interface, and this device does not read one from its source";
            return Err(Error::InvalidKernel { kernel: kernel.name().into(), why: why.into() });
        };
        Ok(Self { interface, workgroup: kernel.workgroup_size().unwrap_or([1; 3]), parsed: None })
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("interface", &self.interface)
            .field("workgroup", &self.workgroup)
            .field("parsed", &self.parsed.is_some())
            .finish()
    }
}

/// The reader of a device that takes sources it cannot look into: the declared interface counts.
#[derive(Clone, Debug)]
pub struct DeclaredInterface(pub Vec<SourceForm>);

impl KernelReader for DeclaredInterface {
    fn takes(&self) -> &[SourceForm] {
        &self.0
    }

    fn read(&self, kernel: &dyn Kernel, _: &Source) -> Result<Reading> {
        Reading::declared(kernel)
    }
}
