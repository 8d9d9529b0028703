//! Kernels as a device reads them.

#![allow(dead_code, reason = "each test file uses a part")]

use trunnion_kernel_wgsl::{Capabilities, Module, Reader};
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::kernel::{Kernel, KernelReader, Reading, SourceKernel};
use trunnion_runtime_core::properties::{
    DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, Target, TargetProperties,
};

/// Everything the compiler knows.
pub fn everything() -> Capabilities {
    Capabilities {
        float16: true,
        float64: true,
        int64: true,
        int64_atomics: true,
        float32_atomics: true,
        subgroup_operations: u32::MAX,
    }
}

pub fn read(kernel: &SourceKernel) -> Result<Reading> {
    read_with(kernel, Capabilities::default())
}

pub fn read_with(kernel: &SourceKernel, capabilities: Capabilities) -> Result<Reading> {
    let reader = Reader::new(vec![SourceForm::Wgsl], capabilities);
    let device = trunnion_runtime_core::id::DeviceId {
        backend: trunnion_runtime_core::id::BackendName::new("test").unwrap(),
        index: 0,
    };
    let properties = DeviceProperties::new(
        DeviceInfo::new(device, DeviceKind::Other, "", "", ""),
        Features::new(Vec::new(), Vec::new()),
        Limits::default(),
        TargetProperties::new("", 16, 1),
    );
    let source = kernel.source(&Target { properties: &properties, takes: reader.takes() }).unwrap();
    // Through the trait, as a server's client has it.
    let reader: &dyn KernelReader = &reader;
    reader.read(kernel, &source)
}

/// The module of a text of which nothing is declared.
pub fn module(name: &str, text: &str) -> std::sync::Arc<Module> {
    module_of(&SourceKernel::wgsl(name, text), everything())
}

pub fn module_of(kernel: &SourceKernel, capabilities: Capabilities) -> std::sync::Arc<Module> {
    let reading = read_with(kernel, capabilities).unwrap_or_else(|error| panic!("{error}"));
    reading.parsed.unwrap().downcast().unwrap()
}

/// Why a text of which nothing is declared is refused.
pub fn refused(name: &str, text: &str) -> String {
    error(&SourceKernel::wgsl(name, text)).to_string()
}

pub fn error(kernel: &SourceKernel) -> Error {
    read(kernel).err().unwrap_or_else(|| panic!("the kernel was taken"))
}
