//! What a device is to the runtime: its description, features and limits, lowered by the options.

use crate::device::Survey;
use crate::grid;
use crate::library::version_text;
use crate::options::CudaOptions;
use crate::peer;
use crate::tensor;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use core::ffi::{c_char, c_int};
use core::fmt::Write;
use cudarc::driver::sys;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Result, SourceForm};
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::properties::{
    BoundsAbility, DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties, TimingMethod,
};

use sys::CUdevice_attribute_enum as Attribute;

/// The most buffers of a kernel. Pointers and lengths of so many, and the parameters, are within the 4 KiB that every function takes; with
/// tensor maps they need not be, so the sum is looked at when a kernel is compiled.
const MAX_BUFFERS: u32 = 64;

/// The most bytes of parameters of a kernel.
const MAX_PARAMETERS: u32 = trunnion_runtime_core::kernel::MAX_PARAMETERS as u32;

/// What rows are padded to, in bytes: a line of the device's caches.
const ROW_PITCH: u64 = 128;

/// The widest load of a thread, in bytes. What is handed to a kernel begins at a multiple of it.
const WIDEST: u32 = 16;

/// What page sizes, and places in pages, are multiples of: what `cuMemAlloc` gives.
pub(crate) const PAGE_ALIGNMENT: u64 = 256;

/// The description of a device. Name, driver and API make the identity under which compiled kernels are kept.
///
/// # Errors
/// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable) when the device does not say what it must.
pub(crate) fn info(survey: &Survey, options: &CudaOptions) -> Result<DeviceInfo> {
    let device = DeviceId { backend: crate::NAME, index: survey.index };
    let kind = match survey.number(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? {
        0 => DeviceKind::DiscreteGpu,
        _ => DeviceKind::IntegratedGpu,
    };
    let version = survey.library.version;
    let architecture = architecture(survey);
    let driver = match survey.library.is_double {
        true => format!("double of the CUDA driver ({version}), {architecture}"),
        false => format!("CUDA driver ({version}), {architecture}"),
    };
    let api = format!("CUDA {}", version_text(version));
    let (major, minor) = survey.capability;
    let mut info = DeviceInfo::new(device, kind, survey.name.as_str(), driver, api)
        .detail("capability", format!("{major}.{minor}"));
    if let Some(uuid) = uuid(survey) {
        info = info.detail("uuid", uuid);
    }
    if let Some(bus) = bus(survey) {
        info = info.detail("bus", bus);
    }
    if let Some(peers) = peers(survey) {
        info = info.detail("peers", peers);
    }
    let missing: vec::Vec<_> =
        survey.library.functions.offered().filter(|(_, is_there)| !is_there).map(|(name, _)| name).collect();
    if !missing.is_empty() {
        info = info.detail("without", missing.join(" "));
    }
    if *options != CudaOptions::default() {
        info = info.detail("options", format!("{options}"));
    }
    Ok(info)
}

fn architecture(survey: &Survey) -> String {
    let (major, minor) = survey.capability;
    format!("sm_{major}{minor}")
}

fn uuid(survey: &Survey) -> Option<String> {
    let ask = survey.library.functions.cuDeviceGetUuid_v2?;
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the place is for an identifier, and the device is the driver's.
    let code = unsafe { ask(&raw mut uuid, survey.raw) };
    (code == 0).then(|| {
        uuid.bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{:02x}", *byte as u8);
            text
        })
    })
}

fn bus(survey: &Survey) -> Option<String> {
    let ask = survey.library.functions.cuDeviceGetPCIBusId?;
    let mut text = [0 as c_char; 32];
    // SAFETY: the place is as long as it is said to be, and the device is the driver's.
    let code = unsafe { ask(text.as_mut_ptr(), text.len() as c_int, survey.raw) };
    let bytes = text.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
    (code == 0).then(|| bytes.map(char::from).collect())
}

/// The devices whose memory this one reaches, as the driver numbers them; nothing among more than anybody would list.
fn peers(survey: &Survey) -> Option<String> {
    const LISTED: u32 = 32;
    if survey.count > LISTED {
        return None;
    }
    let (functions, others) = (&survey.library.functions, 0..survey.count as c_int);
    let reached: vec::Vec<_> = others
        .filter(|other| *other != survey.raw && peer::reaches(functions, survey.raw, *other) == Ok(true))
        .map(|other| other.to_string())
        .collect();
    (!reached.is_empty()).then(|| reached.join(" "))
}

/// The properties of a device, lowered by the options.
///
/// # Errors
/// As for [`info`].
pub(crate) fn properties(survey: &Survey, options: &CudaOptions) -> Result<DeviceProperties> {
    let info = info(survey, options)?;
    let mut features = Features::new(elems(survey), vec![SourceForm::CudaC, SourceForm::Ptx, SourceForm::Cubin]);
    // Events of the device's own clock are for whoever asks for times, which nobody can yet.
    features.timing = TimingMethod::Host;
    features.bounds = BoundsAbility::None;
    features.indirect_dispatch = grid::READS_COUNTS_ON_DEVICE;
    features.host_visible = false;
    features.tensor_maps =
        survey.capability >= tensor::CAPABILITY && survey.library.functions.cuTensorMapEncodeTiled.is_some();
    let units = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1);
    let mut target = TargetProperties::new(architecture(survey), WIDEST, units);
    let subgroup = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?.max(1);
    (target.subgroup_min, target.subgroup_max) = (subgroup, subgroup);
    Ok(DeviceProperties::new(info, features, limits(survey, options)?, target))
}

/// What kernels compute with.
fn elems(survey: &Survey) -> vec::Vec<ElemType> {
    // Half precision came with 5.3, the shorter exponent's bytes as a type with 8.0.
    let has = |elem: &ElemType| match elem {
        ElemType::F16 => survey.capability >= (5, 3),
        ElemType::BF16 => survey.capability >= (8, 0),
        _ => true,
    };
    ElemType::ALL.into_iter().filter(has).collect()
}

fn limits(survey: &Survey, options: &CudaOptions) -> Result<Limits> {
    let by_axis = |[x, y, z]: [Attribute; 3]| Result::Ok([survey.number(x)?, survey.number(y)?, survey.number(z)?]);
    let shared = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
    let asked = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    let mut limits = Limits::default();
    limits.memory = survey.memory.min(isize::MAX as u64);
    (limits.max_allocation, limits.max_binding) = (limits.memory, limits.memory);
    limits.max_buffers = MAX_BUFFERS;
    limits.max_parameters = MAX_PARAMETERS;
    limits.max_grid = by_axis([
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
    ])?;
    limits.max_workgroup = by_axis([
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    ])?;
    limits.max_invocations = survey.number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    limits.max_shared = shared.max(asked);
    limits.binding_alignment = u64::from(WIDEST);
    limits.copy_alignment = 1;
    limits.row_pitch = ROW_PITCH;
    options.limits.lower(&mut limits);
    Ok(limits)
}
