//! Kernels on a rig: made, compiled, launched, and run to their end.

use super::{Rig, assert_clean, claim, double, part, variants};
use trunnion_backend_cuda::{CudaDriver, CudaOptions, CudaPage};
use trunnion_cuda_double::compilers::Compilers;
pub use trunnion_driver_rig::bytes_of;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

pub type Compiled = trunnion_driver_rig::Compiled<CudaDriver>;

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

impl Rig {
    /// The number at the start of a page.
    pub fn first(&mut self, page: &CudaPage) -> u32 {
        self.read_u32(part(page, 0, 4))[0]
    }
}

/// Adds one to the first element of its buffer.
pub const BUMP: &str = "
.version 8.0
.target sm_70
.address_size 64
.visible .entry bump(.param .u64 a) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [a];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
";

pub fn bump(rig: &mut Rig) -> Compiled {
    rig.compile(ptx("bump", BUMP, Interface::new().claim(Access::ReadWrite))).unwrap()
}
