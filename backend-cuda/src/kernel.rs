//! Kernels as functions of loaded modules.

use crate::device::Device;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use cudarc::driver::sys;
use trunnion_backend_core::driver::{CompileJob, Compiled};
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::kernel::{Kernel, KernelReader, Reading, Source};

/// A compiled kernel. Batches that use it hold it, so that it may be dropped at any time, also after its driver.
///
/// Equivalent to: a `CUfunction` with the `CUmodule` it is of.
#[derive(Clone)]
pub struct CudaCode(pub(crate) Arc<Function>);

/// A function, with its module.
pub(crate) struct Function {
    device: Arc<Device>,
    module: sys::CUmodule,
    raw: sys::CUfunction,
}

// SAFETY: handles, which the driver takes on any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let Ok(_current) = self.device.enter() else { return };
        // SAFETY: the batches that use it hold it until they are finished.
        let code = unsafe { (self.device.functions().cuModuleUnload)(self.module) };
        self.device.note("cuModuleUnload", code);
    }
}

impl fmt::Debug for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaCode").field("function", &self.0.raw).finish_non_exhaustive()
    }
}

/// What besides source and hardware the code depends on.
pub(crate) const IDENTITY: &str = concat!("trunnion-cuda ", env!("CARGO_PKG_VERSION"));

/// Takes kernels as they are declared.
struct Reader(Vec<SourceForm>);

impl KernelReader for Reader {
    fn takes(&self) -> &[SourceForm] {
        &self.0
    }

    fn read(&self, kernel: &dyn Kernel, _: &Source) -> Result<Reading> {
        Reading::declared(kernel)
    }
}

/// What reads kernels for a device.
pub(crate) fn reader(device: &Device) -> Arc<dyn KernelReader> {
    Arc::new(Reader(device.properties.features.sources.clone()))
}

/// Compiles a kernel.
///
/// # Errors
/// [`Error::Unsupported`]: this build takes no source.
pub(crate) fn compile(_: &Arc<Device>, _: &CompileJob<'_>) -> Result<Compiled<CudaCode>> {
    Err(Error::Unsupported { what: "kernels".into(), backend: crate::NAME })
}
