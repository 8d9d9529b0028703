//! Host devices for the tests of this crate, and kernels that are functions.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use trunnion_backend_core::driver::Place;
use trunnion_backend_host::{HostDriver, HostOptions, HostPage};
pub use trunnion_driver_rig::{PATIENCE, part};
use trunnion_runtime_core::error::{Error, KernelFault, Result};
use trunnion_runtime_core::kernel::{Interface, KernelHandle, Source, SourceKernel, Workgroup};

pub type Rig = trunnion_driver_rig::Rig<HostDriver>;
pub type Compiled = trunnion_driver_rig::Compiled<HostDriver>;

/// A rig with a device of these options.
pub fn host(options: HostOptions) -> Rig {
    Rig::new(HostDriver::new(0, &options).unwrap())
}

/// For tests that hold threads of the process's pool until others come: one at a time.
pub fn with_all_threads() -> MutexGuard<'static, ()> {
    static THREADS: Mutex<()> = Mutex::new(());
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of a page.
pub fn all(page: &HostPage) -> Place<'_, HostPage> {
    part(page, 0, page.size())
}

/// Kernels that are functions.
pub trait Functions {
    /// One with its code.
    fn kernel(
        &mut self,
        name: &str,
        interface: Interface,
        function: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> Compiled;

    /// One without code.
    fn prepare_function(
        &mut self,
        name: &str,
        interface: Interface,
        function: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> KernelHandle;
}

impl Functions for Rig {
    fn kernel(
        &mut self,
        name: &str,
        interface: Interface,
        function: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> Compiled {
        self.compile(SourceKernel::new(name, interface).source(Source::host(function))).unwrap()
    }

    fn prepare_function(
        &mut self,
        name: &str,
        interface: Interface,
        function: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> KernelHandle {
        self.prepare(SourceKernel::new(name, interface).source(Source::host(function))).unwrap()
    }
}

/// The fault of a kernel that failed, and the workgroup it failed in.
pub fn fault_of(result: Result<()>, name: &str) -> ([u32; 3], KernelFault) {
    match result {
        Err(Error::KernelFailed { kernel, workgroup, fault }) if kernel == name => (workgroup, fault),
        other => panic!("kernel `{name}` should have failed: {other:?}"),
    }
}
