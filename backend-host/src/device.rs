//! Discovery, properties and limits: the processor as one device or several.

use crate::NAME;
use crate::driver::HostDriver;
use crate::options::HostOptions;
use crate::pool;
use crate::storage::BINDING_ALIGNMENT;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::kernel::{DeclaredInterface, MAX_PARAMETERS};
use trunnion_runtime_core::properties::{
    BoundsAbility, DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties, TimingMethod,
};
use trunnion_runtime_core::server::Opened;

/// Bytes of device memory where the machine does not say how much it has.
const MEMORY: u64 = 256 << 20;

/// The processor the program runs on, as a backend named `host`.
///
/// Its devices take [`Source::host`](trunnion_runtime_core::kernel::Source::host). They compute with every element type that Rust has: `f16` and
/// `bf16` can be stored and moved, not computed with.
#[derive(Clone, Debug, Default)]
pub struct HostBackend {
    options: HostOptions,
}

impl HostBackend {
    /// A backend whose devices behave so.
    pub fn new(options: HostOptions) -> Self {
        Self { options }
    }

    /// What its devices are told.
    pub fn options(&self) -> &HostOptions {
        &self.options
    }
}

impl Backend for HostBackend {
    fn name(&self) -> BackendName {
        NAME
    }

    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        Ok((0..self.options.devices).map(|index| info(index, &self.options)).collect())
    }

    /// Starts a server on a device. The options of the settings ([`HostOptions::set`]) come on top of those the backend was made with.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::BadOption`], [`Error::NoDevice`]; [`Error::BackendUnavailable`] for an option that cannot be had
    /// on this machine.
    fn open(&self, index: u32, settings: &OpenSettings) -> Result<Opened> {
        let options = self.options.clone().apply(&settings.options)?;
        let driver = HostDriver::new(index, &options)?;
        Ok(trunnion_backend_core::open(driver, settings))
    }
}

/// What reads kernels for host devices: their interface is what they declare.
pub(crate) fn reader() -> Arc<DeclaredInterface> {
    Arc::new(DeclaredInterface(alloc::vec![SourceForm::Host]))
}

/// The index of a device that exists.
pub(crate) fn checked_index(index: u32, options: &HostOptions) -> Result<u32> {
    match index < options.devices {
        true => Ok(index),
        false => Err(Error::NoDevice { device: DeviceId { backend: NAME, index }, count: options.devices }),
    }
}

fn info(index: u32, options: &HostOptions) -> DeviceInfo {
    let device = DeviceId { backend: NAME, index };
    let driver = concat!("trunnion-host ", env!("CARGO_PKG_VERSION"));
    let mut info = DeviceInfo::new(device, DeviceKind::Cpu, processor(), driver, "host")
        .detail("threads", alloc::format!("{}", pool::cores()))
        .detail("memory", alloc::format!("{}", trunnion_runtime_core::report::Size(memory(options))));
    if *options != HostOptions::default() {
        info = info.detail("options", alloc::format!("{options}"));
    }
    info
}

/// The properties of the device `index` with these options.
pub(crate) fn properties(index: u32, options: &HostOptions) -> DeviceProperties {
    let elems = ElemType::ALL.into_iter().filter(|elem| !matches!(elem, ElemType::F16 | ElemType::BF16)).collect();
    let mut features = Features::new(elems, alloc::vec![SourceForm::Host]);
    features.timing = TimingMethod::Host;
    features.bounds = BoundsAbility::Reported;
    features.indirect_dispatch = true;
    features.host_visible = !options.separate_memory;

    let memory = memory(options);
    let mut limits = Limits::default();
    limits.memory = memory;
    (limits.max_allocation, limits.max_binding) = (memory, memory);
    limits.max_buffers = 32;
    limits.max_parameters = MAX_PARAMETERS as u32;
    // As on CUDA, so that a grid that fits there fits here.
    limits.max_grid = [i32::MAX as u32, 65_535, 65_535];
    limits.max_workgroup = [1024, 1024, 64];
    limits.max_invocations = 1024;
    limits.max_shared = if cfg!(feature = "std") { 64 << 10 } else { 16 << 10 };
    limits.binding_alignment = BINDING_ALIGNMENT;
    limits.copy_alignment = 1;
    limits.row_pitch = 64;
    options.limits.lower(&mut limits);

    let cores = u32::try_from(pool::cores()).unwrap_or(u32::MAX);
    let target = TargetProperties::new(architecture(), load_width(), cores);
    DeviceProperties::new(info(index, options), features, limits, target)
}

/// Bytes of device memory.
pub(crate) fn memory(options: &HostOptions) -> u64 {
    // No allocation can be larger than what a pointer difference holds.
    options.limits.memory.unwrap_or_else(|| total_memory().map_or(MEMORY, |total| total / 2)).min(isize::MAX as u64)
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "x86_64"
    } else if cfg!(target_arch = "x86") {
        "x86"
    } else if cfg!(target_arch = "aarch64") {
        "aarch64"
    } else if cfg!(target_arch = "arm") {
        "arm"
    } else if cfg!(target_arch = "riscv64") {
        "riscv64"
    } else if cfg!(target_arch = "riscv32") {
        "riscv32"
    } else if cfg!(target_arch = "wasm32") {
        "wasm32"
    } else {
        "unknown"
    }
}

/// The widest load in bytes: asked of the processor where that is possible, else what the code is compiled for.
fn load_width() -> u32 {
    #[cfg(all(feature = "std", any(target_arch = "x86", target_arch = "x86_64")))]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return 64;
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return 32;
        }
    }
    if cfg!(target_feature = "avx512f") {
        64
    } else if cfg!(target_feature = "avx2") {
        32
    } else if cfg!(any(target_feature = "sse2", target_feature = "neon", target_feature = "simd128")) {
        16
    } else {
        size_of::<usize>() as u32
    }
}

#[cfg(all(feature = "std", target_os = "linux"))]
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (String::from(name.trim()), String::from(value.trim())));
    text.lines()
        .filter_map(field)
        .find(|(name, value)| (name == "model name" || name == "Model") && !value.is_empty())
        .map_or_else(|| String::from(architecture()), |(_, value)| value)
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
fn processor() -> String {
    String::from(architecture())
}

#[cfg(all(feature = "std", target_os = "linux"))]
fn total_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
fn total_memory() -> Option<u64> {
    None
}
