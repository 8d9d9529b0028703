//! Kernels: what a device runs.
//!
//! The runtime compiles kernels but has no kernel language: a [`Kernel`] says what it is called, what it touches, and gives the best
//! source it has for a device. [`SourceKernel`] is the ready one. `Client::prepare` turns a kernel into a [`KernelHandle`], which can be launched.

mod arguments;
mod interface;
mod launch_mode;
mod launch_record;
mod reader;
mod source;
mod table;
mod tensor_map;
mod workgroup;

pub use arguments::{Args, Arguments, INLINE_BUFFERS, MAX_PARAMETERS};
pub use interface::{BufferInterface, HostUse, Interface};
pub use launch_mode::LaunchMode;
pub use launch_record::{LaunchRecord, LaunchedKernel};
pub use reader::{DeclaredInterface, KernelReader, Reading};
pub use source::{HostFunction, Source, SourceKernel};
pub(crate) use table::KernelTable;
pub use tensor_map::{Swizzle, TensorMap, TensorShape};
pub use workgroup::{HostBindings, Workgroup};

use table::Slot;

use crate::access::Access;
use crate::error::{Error, Resource, Result, SourceForm};
use crate::id::ServiceId;
use crate::properties::{DeviceProperties, Limits, Target};
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::sync::atomic::Ordering;

/// Tells kernels apart in the cache of compiled code: kernels with the same id are compiled once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(u128);

impl KernelId {
    /// An id that depends on `content` alone.
    pub fn of(content: &impl Hash) -> Self {
        // Two independent 64-bit FNV-1a hashes: stable across runs, which the standard library's hasher does not promise.
        struct Fnv(u64);
        impl Hasher for Fnv {
            fn finish(&self) -> u64 {
                self.0
            }
            fn write(&mut self, bytes: &[u8]) {
                for byte in bytes {
                    self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
                }
            }
        }
        let [mut a, mut b] = [Fnv(0xCBF2_9CE4_8422_2325), Fnv(0x6C62_272E_07BB_0142)];
        content.hash(&mut a);
        b.write_u8(0x5A);
        content.hash(&mut b);
        Self(u128::from(a.finish()) << 64 | u128::from(b.finish()))
    }

    /// An id no other kernel of this process has, for kernels whose content cannot be looked at.
    pub fn unique() -> Self {
        static NEXT: crate::sync::AtomicU64 = crate::sync::AtomicU64::new(1);
        Self(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Whether it was made by [`unique`](Self::unique). An id made [`of`](Self::of) content is taken for one in 2^64 cases.
    pub fn is_unique(self) -> bool {
        self.0 >> 64 == 0
    }
}

/// 32 hexadecimal digits, in logs and in what is serialised.
impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for KernelId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> core::result::Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for KernelId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> core::result::Result<Self, D::Error> {
        let digits = <String as serde::Deserialize>::deserialize(d)?;
        let wrong = |_| serde::de::Error::invalid_value(serde::de::Unexpected::Str(&digits), &"hexadecimal digits");
        u128::from_str_radix(&digits, 16).map(Self).map_err(wrong)
    }
}

/// Something a device can run. Implement it to bring a kernel language; [`SourceKernel`] is the implementation for ready sources.
pub trait Kernel: Send + Sync + 'static {
    /// What logs and errors call it; the entry point of a text or binary source.
    fn name(&self) -> &str;

    /// What the cache of compiled code knows it by. Kernels that differ in source, interface, workgroup size or constants MUST differ here.
    fn id(&self) -> KernelId;

    /// Invocations in a workgroup, by axis; `None` where the source says it.
    fn workgroup_size(&self) -> Option<[u32; 3]>;

    /// What it touches; `None` where the source says it. A device that does not read the source refuses such a kernel.
    fn interface(&self) -> Option<Interface>;

    /// The values of constants that the source leaves open, by name or by the number it gives them. Each is finite, and none is named twice.
    ///
    /// Equivalent to: `override` declarations of WGSL, by name or `@id`; `VkSpecializationInfo`, by number.
    fn constants(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// The best source it has for the device; `None` when it has none the device takes.
    fn source(&self, target: &Target<'_>) -> Option<Source>;

    /// The forms it could give, for errors.
    fn forms(&self) -> Vec<SourceForm> {
        Vec::new()
    }
}

/// A kernel that was checked against a device and can be launched there. Cheap to clone.
#[derive(Clone)]
pub struct KernelHandle(Arc<Prepared>);

struct Prepared {
    kernel: Arc<dyn Kernel>,
    id: KernelId,
    name: String,
    source: Source,
    interface: Interface,
    /// Which buffers it writes, by index.
    written: Vec<usize>,
    /// Which buffers its workgroups replace whole, part by part: index and bytes of a part.
    covering: Vec<(usize, u64)>,
    workgroup: [u32; 3],
    constants: Vec<(String, f64)>,
    parsed: Option<Arc<dyn Any + Send + Sync>>,
    service: ServiceId,
    slot: Slot,
}

impl KernelHandle {
    /// What errors and logs call it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the cache of compiled code knows it by.
    pub fn id(&self) -> KernelId {
        self.0.id
    }

    /// The kernel it was made from.
    pub fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.0.kernel
    }

    /// The source it gave for the device.
    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// What it touches.
    #[inline]
    pub fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// Which buffers it writes, by index.
    #[inline]
    pub fn written(&self) -> &[usize] {
        &self.0.written
    }

    /// Which buffers it replaces whole, each workgroup its part, where it runs on the host: index and bytes of a part. The grid must
    /// then cover them.
    #[inline]
    pub fn covering(&self) -> &[(usize, u64)] {
        &self.0.covering
    }

    /// Invocations in a workgroup, by axis.
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.0.workgroup
    }

    /// The values of constants that the source leaves open.
    pub fn constants(&self) -> &[(String, f64)] {
        &self.0.constants
    }

    /// What the device's [`KernelReader`] made of the source, in a type of its own.
    pub fn parsed(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.0.parsed.as_ref()
    }

    /// The server it was prepared for.
    #[inline]
    pub fn service(&self) -> ServiceId {
        self.0.service
    }

    /// Its place among the kernels of its server, dense from 0: tables of compiled code may be indexed by it. It belongs to another
    /// kernel once the server was told to [retire](crate::server::Server::retire_kernel) it.
    pub fn slot(&self) -> u32 {
        self.0.slot.index
    }

    /// Checks a kernel against a device; what is answered makes the handle with its slot. For whoever runs a server without a client.
    ///
    /// # Errors
    /// [`Error::NoSource`], [`Error::TooManyResources`], [`Error::InvalidKernel`], [`Error::Unsupported`], or what the reader answers.
    pub fn prepare(
        kernel: Arc<dyn Kernel>,
        properties: &DeviceProperties,
        reader: &dyn KernelReader,
        service: ServiceId,
    ) -> Result<impl FnOnce(u32) -> Self + use<>> {
        let checked = Self::check(kernel, properties, reader, service)?;
        Ok(move |index| checked(Slot { index, table: Weak::new() }))
    }

    fn check(
        kernel: Arc<dyn Kernel>,
        properties: &DeviceProperties,
        reader: &dyn KernelReader,
        service: ServiceId,
    ) -> Result<impl FnOnce(Slot) -> Self + use<>> {
        let (id, name) = (kernel.id(), kernel.name().to_string());
        let target = Target { properties, takes: reader.takes() };
        let source = kernel.source(&target).filter(|source| reader.takes().contains(&source.form()));
        let Some(source) = source else {
            let (backend, takes) = (properties.info.device.backend, reader.takes().to_vec());
            return Err(Error::NoSource { kernel: name, backend, has: kernel.forms(), takes });
        };
        let constants = kernel.constants();
        check_constants(&name, &constants)?;
        // What is declared is looked at first: a reader need not make sense of sizes that no device has.
        if let Some(declared) = kernel.interface() {
            check_resources(&name, kernel.workgroup_size().unwrap_or([1; 3]), &declared, &properties.limits)?;
            check_tensor_maps(&name, &declared, properties)?;
        }
        let Reading { interface, workgroup, parsed } = reader.read(&*kernel, &source)?;
        check_resources(&name, workgroup, &interface, &properties.limits)?;
        check_tensor_maps(&name, &interface, properties)?;
        let written = (0..interface.buffers.len()).filter(|i| interface.buffers[*i].access.writes()).collect();
        let part = |(index, buffer): (usize, &BufferInterface)| match (source.form(), buffer.access, buffer.host) {
            (SourceForm::Host, Access::Overwrite, HostUse::Partition(bytes)) => Some((index, bytes)),
            _ => None,
        };
        let covering = interface.buffers.iter().enumerate().filter_map(part).collect();
        Ok(move |slot| {
            Self(Arc::new(Prepared {
                kernel,
                id,
                name,
                source,
                interface,
                written,
                covering,
                workgroup,
                constants,
                parsed,
                service,
                slot,
            }))
        })
    }
}

impl fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelHandle(`{}`, slot {} of {})", self.name(), self.slot(), self.service())
    }
}

fn check_constants(name: &str, constants: &[(String, f64)]) -> Result<()> {
    for (index, (constant, value)) in constants.iter().enumerate() {
        let why = if !value.is_finite() {
            alloc::format!("constant `{constant}` is {value}, which is not finite")
        } else if constants[..index].iter().any(|(earlier, _)| earlier == constant) {
            alloc::format!("constant `{constant}` is given twice")
        } else {
            continue;
        };
        return Err(Error::InvalidKernel { kernel: name.into(), why });
    }
    Ok(())
}

fn check_tensor_maps(name: &str, interface: &Interface, properties: &DeviceProperties) -> Result<()> {
    for (index, map) in interface.tensor_maps.iter().enumerate() {
        if !properties.features.tensor_maps {
            let backend = properties.info.device.backend;
            return Err(Error::Unsupported { what: "a kernel with tensor maps".into(), backend });
        }
        if let Err(why) = map.check(interface) {
            let why = alloc::format!("tensor map {index}: {why}");
            return Err(Error::InvalidKernel { kernel: name.into(), why });
        }
    }
    Ok(())
}

fn check_resources(name: &str, workgroup: [u32; 3], interface: &Interface, limits: &Limits) -> Result<()> {
    if workgroup.contains(&0) {
        return Err(Error::InvalidKernel {
            kernel: name.into(),
            why: alloc::format!("workgroup size {workgroup:?} has a zero"),
        });
    }
    if let Some(index) = interface.buffers.iter().position(|b| !b.host.fits(b.access)) {
        let BufferInterface { access, host, .. } = interface.buffers[index];
        let why = alloc::format!("buffer {index} is declared {access:?} and used as {}", host.name());
        return Err(Error::InvalidKernel { kernel: name.into(), why });
    }
    let axes = [Resource::WorkgroupSizeX, Resource::WorkgroupSizeY, Resource::WorkgroupSizeZ];
    let invocations = workgroup.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
    let asked = (0..3).map(|i| (axes[i], u64::from(workgroup[i]), u64::from(limits.max_workgroup[i]))).chain([
        (Resource::Invocations, invocations, u64::from(limits.max_invocations)),
        (Resource::SharedMemory, u64::from(interface.shared), u64::from(limits.max_shared)),
        (Resource::Buffers, interface.buffers.len() as u64, u64::from(limits.max_buffers)),
        (
            Resource::Parameters,
            u64::from(interface.parameters),
            u64::from(limits.max_parameters).min(MAX_PARAMETERS as u64),
        ),
    ]);
    for (resource, requested, max) in asked {
        if requested > max {
            return Err(Error::TooManyResources { kernel: name.into(), resource, requested, max });
        }
    }
    Ok(())
}
