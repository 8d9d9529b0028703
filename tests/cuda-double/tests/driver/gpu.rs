//! A device of a test's own, the kernels that lie beside the tests, and what is looked at in the end.

use alloc::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, DriverError, LaunchConfig, sys};
use cudarc::nvrtc::Ptx;
use trunnion_cuda_double::{Device, Double, Report, ReportKind};

/// A device that one test has.
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
}

impl Gpu {
    pub(crate) fn claim() -> Self {
        let device = Double::open().unwrap().claim_device().unwrap();
        let context = CudaContext::new(device.ordinal() as usize).unwrap();
        let stream = context.new_stream().unwrap();
        Self { device, context, stream }
    }

    /// A device whose slices keep no events, so that nothing is ordered but what the test orders.
    pub(crate) fn claim_with_events_off() -> Self {
        let gpu = Self::claim();
        unsafe { gpu.context.disable_event_tracking() };
        gpu
    }

    /// Gives the context back, and the device to who claims next.
    pub(crate) fn release(self) {
        let device = self.device;
        drop(self);
        device.release().unwrap();
    }

    /// A module of `tests/kernels`.
    pub(crate) fn module(&self, name: &str) -> Arc<CudaModule> {
        self.context.load_module(Ptx::from_src(text(name))).unwrap()
    }

    pub(crate) fn kernel(&self, module: &str, name: &str) -> CudaFunction {
        self.module(module).load_function(name).unwrap()
    }

    /// The code that a launch and what it did come to, 0 for none: work that died may be told of by either.
    pub(crate) fn came_to<T>(&self, launched: Result<T, DriverError>) -> u32 {
        code(launched).max(code(self.stream.synchronize()))
    }

    /// What was noticed, as kinds and texts.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.device.take_reports().unwrap()
    }

    /// The one thing that was noticed, which must be of this kind and say all of this.
    #[track_caller]
    pub(crate) fn noticed(&self, kind: ReportKind, words: &[&str]) {
        let reports = self.reports();
        let found = reports.iter().find(|report| report.kind == kind);
        let text = found.unwrap_or_else(|| panic!("no {kind:?} among {reports:#?}")).text.clone();
        for word in words {
            assert!(text.contains(word), "`{word}` is not in `{text}`");
        }
    }

    /// Nothing was noticed.
    #[track_caller]
    pub(crate) fn clean(&self) {
        let reports = self.reports();
        assert!(reports.is_empty(), "{reports:#?}");
    }
}

/// The PTX of a file of `tests/kernels`.
pub(crate) fn text(name: &str) -> &'static str {
    match name {
        "arithmetic" => include_str!("../kernels/arithmetic.ptx"),
        "calls" => include_str!("../kernels/calls.ptx"),
        "copies" => include_str!("../kernels/copies.ptx"),
        "memory" => include_str!("../kernels/memory.ptx"),
        "threads" => include_str!("../kernels/threads.ptx"),
        _ => panic!("there are no kernels called {name}"),
    }
}

/// One block of so many threads.
pub(crate) fn block(threads: u32) -> LaunchConfig {
    shape(1, threads)
}

pub(crate) fn shape(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// The code of an outcome, 0 for none.
pub(crate) fn code<T>(outcome: Result<T, DriverError>) -> u32 {
    outcome.map_or_else(|error| error.0 as u32, |_| 0)
}

/// The code a function of the driver gives.
pub(crate) fn raw(result: sys::CUresult) -> u32 {
    result as u32
}
