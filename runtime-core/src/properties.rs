//! What a device is and can do: resolved once when its server starts.

use crate::elem::ElemType;
use crate::error::SourceForm;
use crate::id::DeviceId;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Everything that is known about a device.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceProperties {
    /// What the device says it is.
    pub info: DeviceInfo,
    /// What it can do.
    pub features: Features,
    /// How much of it there is.
    pub limits: Limits,
    /// What a compiler for it needs to know.
    pub target: TargetProperties,
}

impl DeviceProperties {
    /// The properties of a device with these parts.
    pub fn new(info: DeviceInfo, features: Features, limits: Limits, target: TargetProperties) -> Self {
        Self { info, features, limits, target }
    }

    /// Equal on equal hardware and driver, across runs: the key under which measurements and compiled kernels are kept.
    pub fn hardware_identity(&self) -> String {
        let info = &self.info;
        alloc::format!("{}/{}/{}/{}", info.device.backend, info.adapter, info.driver, info.api)
    }
}

/// The backend's own description of a device. `Display` prints it as a short table.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceInfo {
    /// Where it is in the registry.
    pub device: DeviceId,
    /// The adapter's name.
    pub adapter: String,
    /// What kind of hardware it is.
    pub kind: DeviceKind,
    /// The driver and its version.
    pub driver: String,
    /// The API and its version.
    pub api: String,
    /// What else the backend has to say, as name and value.
    pub details: Vec<(String, String)>,
}

impl DeviceInfo {
    /// A description without details.
    pub fn new(
        device: DeviceId,
        kind: DeviceKind,
        adapter: impl Into<String>,
        driver: impl Into<String>,
        api: impl Into<String>,
    ) -> Self {
        Self { device, adapter: adapter.into(), kind, driver: driver.into(), api: api.into(), details: Vec::new() }
    }

    /// Adds a detail.
    pub fn detail(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.details.push((name.into(), value.into()));
        self
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12} {}", "device", self.device)?;
        writeln!(f, "{:<12} {}", "adapter", self.adapter)?;
        writeln!(f, "{:<12} {:?}", "kind", self.kind)?;
        writeln!(f, "{:<12} {}", "driver", self.driver)?;
        write!(f, "{:<12} {}", "api", self.api)?;
        for (name, value) in &self.details {
            write!(f, "\n{name:<12} {value}")?;
        }
        Ok(())
    }
}

/// What kind of hardware a device is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    DiscreteGpu,
    /// A GPU that shares the host's memory.
    IntegratedGpu,
    /// A GPU of a virtual machine.
    VirtualGpu,
    /// The processor the program runs on, or one that looks like it.
    Cpu,
    /// Anything else.
    Other,
}

/// What a device can do.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Features {
    /// The element types kernels may compute with.
    pub elems: Vec<ElemType>,
    /// The kernel sources it takes, best first.
    pub sources: Vec<SourceForm>,
    /// How it measures time.
    pub timing: TimingMethod,
    /// Whether an access outside a buffer is kept from doing harm.
    pub bounds: BoundsAbility,
    /// Whether [`Grid::Dynamic`](crate::grid::Grid::Dynamic) is read on the device.
    pub indirect_dispatch: bool,
    /// Whether the host may touch device memory in place.
    pub host_visible: bool,
    /// Whether kernels may take buffers as [tensor maps](crate::kernel::TensorMap).
    #[cfg_attr(feature = "serde", serde(default))]
    pub tensor_maps: bool,
}

impl Features {
    /// The features of a device that computes with `elems` and takes `sources`, and has nothing else.
    pub fn new(elems: Vec<ElemType>, sources: Vec<SourceForm>) -> Self {
        Self {
            elems,
            sources,
            timing: TimingMethod::None,
            bounds: BoundsAbility::None,
            indirect_dispatch: false,
            host_visible: false,
            tensor_maps: false,
        }
    }
}

/// How a device measures how long work took.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TimingMethod {
    /// Not at all.
    None,
    /// The host's clock, around the work.
    Host,
    /// The device's own clock.
    Device,
}

/// What happens to an access outside a buffer.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BoundsAbility {
    /// Nothing prevents it.
    None,
    /// It is kept inside the buffer or dropped.
    Contained,
    /// It is a failure of the launch, named with the kernel and the buffer.
    Reported,
}

/// How much of everything there is.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// Bytes of device memory.
    pub memory: u64,
    /// The largest allocation, in bytes.
    pub max_allocation: u64,
    /// The largest range a kernel can be bound to, in bytes.
    pub max_binding: u64,
    /// Buffers a kernel can take.
    pub max_buffers: u32,
    /// Bytes of parameters a kernel can take.
    pub max_parameters: u32,
    /// Workgroups in a grid, by axis.
    pub max_grid: [u32; 3],
    /// Invocations in a workgroup, by axis.
    pub max_workgroup: [u32; 3],
    /// Invocations in a workgroup, the product of the axes.
    pub max_invocations: u32,
    /// Bytes of workgroup-shared memory.
    pub max_shared: u32,
    /// What the offset of a buffer handed to a kernel is a multiple of, in bytes: a power of two.
    pub binding_alignment: u64,
    /// What the offset and size of a copy or write must be a multiple of, in bytes: a power of two.
    pub copy_alignment: u64,
    /// What a row of a tensor laid out [`Optimized`](crate::layout::LayoutStrategy::Optimized) is padded to, in bytes.
    pub row_pitch: u64,
}

impl Default for Limits {
    /// What any device is assumed to have: WebGPU's guaranteed limits.
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            max_allocation: 256 << 20,
            max_binding: 128 << 20,
            max_buffers: 7,
            max_parameters: 256,
            max_grid: [65_535; 3],
            max_workgroup: [256, 256, 64],
            max_invocations: 256,
            max_shared: 16 << 10,
            binding_alignment: 256,
            copy_alignment: 4,
            row_pitch: 256,
        }
    }
}

/// What a compiler of kernels for the device needs to know.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TargetProperties {
    /// The instruction set or compute capability, in the backend's own words.
    pub architecture: String,
    /// The fewest invocations that run in lockstep.
    pub subgroup_min: u32,
    /// The most invocations that run in lockstep.
    pub subgroup_max: u32,
    /// The widest load or store of one invocation, in bytes.
    pub load_width: u32,
    /// Units that run workgroups at the same time.
    pub compute_units: u32,
}

impl TargetProperties {
    /// A target where every invocation runs on its own and loads at most `load_width` bytes.
    pub fn new(architecture: impl Into<String>, load_width: u32, compute_units: u32) -> Self {
        Self { architecture: architecture.into(), subgroup_min: 1, subgroup_max: 1, load_width, compute_units }
    }

    /// The vector lengths, in elements, in which memory of elements of `elem_size` bytes is best moved: powers of two, widest first,
    /// as long as a vector fits the load width. None for a size of 0 or one that does not fit.
    pub fn io_optimized_vector_sizes(&self, elem_size: u64) -> impl Iterator<Item = u32> + Clone + use<> {
        let fit = u64::from(self.load_width).checked_div(elem_size).unwrap_or(0);
        let widest = fit.checked_ilog2();
        (0..widest.map_or(0, |log| log + 1)).rev().map(|log| 1 << log)
    }
}

/// What a kernel may ask before it picks a source.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The device.
    pub properties: &'a DeviceProperties,
    /// The sources this build of the backend takes, best first.
    pub takes: &'a [SourceForm],
}
