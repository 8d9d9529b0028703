//! Kernels on a rig: made, compiled, launched, and run to their end.

use super::{Rig, assert_clean, claim, double, part, variants};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use trunnion_backend_core::driver::{Driver, DriverGrid, DriverLaunch, Place};
use trunnion_backend_cuda::{CudaCode, CudaOptions, CudaPage, CudaStream};
use trunnion_cuda_double::compilers::Compilers;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::id::ServiceId;
use trunnion_runtime_core::kernel::{Interface, Kernel, KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::server::Bounds;

pub struct Compiled {
    pub kernel: KernelHandle,
    pub code: CudaCode,
}

/// Runs a test with each of the options, where CUDA C++ can be compiled.
pub fn each_compiling(test: impl Fn(&mut Rig)) {
    for options in variants() {
        compiling(&options, &test);
    }
}

/// Runs a test on a device of its own, where CUDA C++ can be compiled; says so where it cannot.
pub fn compiling(options: &CudaOptions, test: impl FnOnce(&mut Rig)) {
    let Some(compilers) = Compilers::for_test(std::thread::current().name().unwrap_or("a test")) else { return };
    let device = claim();
    let options = options.clone().library(double().path()).compiler(&compilers.root);
    let mut rig = Rig::new(device, &options);
    test(&mut rig);
    drop(rig);
    assert_clean(&device);
}

/// A kernel in CUDA C++.
pub fn cuda(name: &str, text: &str, interface: Interface) -> SourceKernel {
    // SAFETY: the tests' kernels stay within what they are given.
    SourceKernel::new(name, interface).source(unsafe { Source::cuda_c(text) })
}

/// A kernel in PTX.
pub fn ptx(name: &str, text: &str, interface: Interface) -> SourceKernel {
    // SAFETY: as above.
    SourceKernel::new(name, interface).source(unsafe { Source::ptx(text) })
}

pub fn bytes_of(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

impl Rig {
    pub fn compile(&mut self, kernel: impl Kernel) -> Result<Compiled> {
        let kernel = self.prepare(kernel)?;
        let code = self.driver.compile(&kernel, Bounds::Unchecked, None)?.code;
        Ok(Compiled { kernel, code })
    }

    pub fn prepare(&mut self, kernel: impl Kernel) -> Result<KernelHandle> {
        static SLOTS: AtomicU32 = AtomicU32::new(0);
        let reader = self.driver.reader();
        let prepared =
            KernelHandle::prepare(Arc::new(kernel), self.driver.properties(), &*reader, ServiceId::from_raw(1))?;
        Ok(prepared(SLOTS.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn launch(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        kernel: &Compiled,
        grid: [u32; 3],
        buffers: &[Place<'_, CudaPage>],
    ) -> Result<()> {
        self.launch_with(stream, seq, kernel, DriverGrid::Static(grid), buffers, &[])
    }

    pub fn launch_with(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        kernel: &Compiled,
        grid: DriverGrid<'_, CudaPage>,
        buffers: &[Place<'_, CudaPage>],
        parameters: &[u8],
    ) -> Result<()> {
        let Compiled { kernel, code } = kernel;
        let launch = DriverLaunch { code, kernel, grid, buffers, parameters, bounds: Bounds::Unchecked };
        // SAFETY: as for a write.
        unsafe { self.driver.launch(stream, seq, launch) }
    }

    /// Runs one launch on a new stream, and waits for it.
    pub fn run(&mut self, kernel: &Compiled, grid: [u32; 3], buffers: &[Place<'_, CudaPage>], parameters: &[u8]) {
        let mut stream = self.driver.open_stream().unwrap();
        self.launch_with(&mut stream, 1, kernel, DriverGrid::Static(grid), buffers, parameters).unwrap();
        self.driver.submit(&mut stream, 1).unwrap();
        assert_eq!(self.finish(&mut stream, 1).failed, []);
        self.driver.close_stream(stream);
    }

    /// A page that holds these numbers at its start.
    pub fn page_of(&mut self, numbers: &[u32]) -> CudaPage {
        self.page_of_bytes(&bytes_of(numbers))
    }

    pub fn read_u32(&mut self, place: Place<'_, CudaPage>) -> Vec<u32> {
        self.read(place).chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    /// The number at the start of a page.
    pub fn first(&mut self, page: &CudaPage) -> u32 {
        self.read_u32(part(page, 0, 4))[0]
    }
}
