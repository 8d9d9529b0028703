//! What a shim does differently from the driver below it.

use core::fmt;
use core::time::Duration;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use ash::vk;

use crate::calls::Failure;

/// Changes a structure that the device filled in.
pub(crate) type Change<T> = Box<dyn Fn(&mut T) + Send + Sync>;

type Admit = Box<dyn Fn(&vk::PhysicalDeviceProperties) -> bool + Send + Sync>;
type Delay = Box<dyn Fn(u32, u64) -> Duration + Send + Sync>;

type Compiler = Box<dyn Fn() + Send + Sync>;

/// What a [`Shim`](crate::Shim) does differently from the driver below it. An empty plan changes nothing and only observes.
#[derive(Default)]
pub struct Plan {
    pub(crate) failures: Vec<Failure>,
    pub(crate) pipelines: Vec<(String, vk::Result)>,
    pub(crate) compiler: Option<Compiler>,
    pub(crate) hidden_extensions: Vec<String>,
    pub(crate) hidden_layers: Vec<String>,
    pub(crate) missing: Vec<String>,
    pub(crate) instance_version: Option<u32>,
    pub(crate) admit: Option<Admit>,
    pub(crate) properties: Vec<Change<vk::PhysicalDeviceProperties>>,
    pub(crate) properties11: Vec<Change<vk::PhysicalDeviceVulkan11Properties<'static>>>,
    pub(crate) features: Vec<Change<vk::PhysicalDeviceFeatures>>,
    pub(crate) features11: Vec<Change<vk::PhysicalDeviceVulkan11Features<'static>>>,
    pub(crate) features12: Vec<Change<vk::PhysicalDeviceVulkan12Features<'static>>>,
    pub(crate) queues: Option<u32>,
    pub(crate) families: Vec<Change<vk::QueueFamilyProperties>>,
    pub(crate) memory_types: Vec<vk::MemoryType>,
    pub(crate) heaps: Vec<vk::MemoryHeap>,
    pub(crate) delay: Option<Delay>,
    pub(crate) linger: Duration,
}

impl Plan {
    /// A plan that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The `nth` call of `function`, counted from 1, answers `code` and does nothing. A function without a result just does nothing
    /// that time. After [`ERROR_DEVICE_LOST`](vk::Result::ERROR_DEVICE_LOST) every later call on that device that can say so does.
    pub fn fail(mut self, function: &str, nth: u32, code: vk::Result) -> Self {
        self.failures.push(Failure { function: function.to_owned(), nth, code });
        self
    }

    /// Every creation of a compute pipeline whose entry point is called `entry_point` answers `code`, as a driver does that cannot
    /// compile it. Other pipelines that the same call was to make are not made either.
    pub fn fail_pipeline(mut self, entry_point: &str, code: vk::Result) -> Self {
        self.pipelines.push((entry_point.to_owned(), code));
        self
    }

    /// Every creation of compute pipelines does this first, in the driver as it were: a compiler that takes its time, or one that
    /// tells when it is at work.
    pub fn compiler(mut self, work: impl Fn() + Send + Sync + 'static) -> Self {
        self.compiler = Some(Box::new(work));
        self
    }

    /// Changes the device's limits.
    pub fn limits(self, change: impl Fn(&mut vk::PhysicalDeviceLimits) + Send + Sync + 'static) -> Self {
        self.properties(move |properties| change(&mut properties.limits))
    }

    /// Changes the device's properties: its type, name, version of the API, limits.
    pub fn properties(mut self, change: impl Fn(&mut vk::PhysicalDeviceProperties) + Send + Sync + 'static) -> Self {
        self.properties.push(Box::new(change));
        self
    }

    /// Changes the properties that came with Vulkan 1.1, among them the UUIDs of device and driver, the width of a subgroup and the
    /// greatest allocation; also where they are asked for in structures of their own.
    pub fn properties11(
        mut self,
        change: impl Fn(&mut vk::PhysicalDeviceVulkan11Properties<'static>) + Send + Sync + 'static,
    ) -> Self {
        self.properties11.push(Box::new(change));
        self
    }

    /// Changes the features of Vulkan 1.0. A device that is created with a feature so hidden is refused.
    pub fn features(mut self, change: impl Fn(&mut vk::PhysicalDeviceFeatures) + Send + Sync + 'static) -> Self {
        self.features.push(Box::new(change));
        self
    }

    /// Changes the features of Vulkan 1.1, also where they are asked for in structures of their own.
    pub fn features11(
        mut self,
        change: impl Fn(&mut vk::PhysicalDeviceVulkan11Features<'static>) + Send + Sync + 'static,
    ) -> Self {
        self.features11.push(Box::new(change));
        self
    }

    /// Changes the features of Vulkan 1.2, timeline semaphores among them, also where they are asked for in structures of their own.
    pub fn features12(
        mut self,
        change: impl Fn(&mut vk::PhysicalDeviceVulkan12Features<'static>) + Send + Sync + 'static,
    ) -> Self {
        self.features12.push(Box::new(change));
        self
    }

    /// The version of Vulkan that the loader says, as by [`vk::make_api_version`].
    pub fn instance_version(mut self, version: u32) -> Self {
        self.instance_version = Some(version);
        self
    }

    /// The version of Vulkan that every device says.
    pub fn device_version(self, version: u32) -> Self {
        self.properties(move |properties| properties.api_version = version)
    }

    /// Keeps only the devices whose true properties pass.
    pub fn devices(mut self, admit: impl Fn(&vk::PhysicalDeviceProperties) -> bool + Send + Sync + 'static) -> Self {
        self.admit = Some(Box::new(admit));
        self
    }

    /// Keeps only the devices whose name contains `name`.
    pub fn device_named(self, name: &'static str) -> Self {
        self.devices(move |properties| {
            properties.device_name_as_c_str().is_ok_and(|own| own.to_string_lossy().contains(name))
        })
    }

    /// There is no device.
    pub fn no_device(self) -> Self {
        self.devices(|_| false)
    }

    /// An extension, of the instance or of the device, is not there: not listed, and an error to ask for.
    pub fn hide_extension(mut self, name: &str) -> Self {
        self.hidden_extensions.push(name.to_owned());
        self
    }

    /// A layer is not there: not listed, and an error to ask for.
    pub fn hide_layer(mut self, name: &str) -> Self {
        self.hidden_layers.push(name.to_owned());
        self
    }

    /// The driver lacks a function: its address is null.
    pub fn missing(mut self, function: &str) -> Self {
        self.missing.push(function.to_owned());
        self
    }

    /// Every family has `count` queues. They are handles of their own, and share the real queues of the family between them.
    pub fn queues(mut self, count: u32) -> Self {
        self.queues = Some(count);
        self
    }

    /// Changes what is said of each queue family.
    pub fn families(mut self, change: impl Fn(&mut vk::QueueFamilyProperties) + Send + Sync + 'static) -> Self {
        self.families.push(Box::new(change));
        self
    }

    /// The memory types the device says it has, each with its properties and its heap. Behind each lies the first real type that has
    /// those properties, or the first of all.
    ///
    /// Memory of a type that is not host-visible cannot be mapped. Memory that is host-visible and not coherent is mapped as a copy
    /// of its own, so that bytes move only by `vkFlushMappedMemoryRanges` and `vkInvalidateMappedMemoryRanges`.
    pub fn memory_types(mut self, types: impl IntoIterator<Item = (vk::MemoryPropertyFlags, u32)>) -> Self {
        let types = types.into_iter();
        self.memory_types =
            types.map(|(property_flags, heap_index)| vk::MemoryType { property_flags, heap_index }).collect();
        self
    }

    /// The heaps the device says it has, each with its size in bytes. A heap gives no more than its size.
    pub fn heaps(mut self, heaps: impl IntoIterator<Item = (u64, vk::MemoryHeapFlags)>) -> Self {
        self.heaps = heaps.into_iter().map(|(size, flags)| vk::MemoryHeap { size, flags }).collect();
        self
    }

    /// The host sees that a timeline semaphore has a value as long after its submission as `delay` says, given the semaphore's number
    /// in order of creation, from 1, and the value. Delays of several semaphores that differ bring progress in another order.
    pub fn delay(mut self, delay: impl Fn(u32, u64) -> Duration + Send + Sync + 'static) -> Self {
        self.delay = Some(Box::new(delay));
        self
    }

    /// Calls that must not be made from two threads at once take at least this long, so that such a pair is seen more surely.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    pub(crate) fn hides(&self, extension: &str) -> bool {
        self.hidden_extensions.iter().any(|hidden| hidden == extension)
    }

    pub(crate) fn hides_layer(&self, layer: &str) -> bool {
        self.hidden_layers.iter().any(|hidden| hidden == layer)
    }

    /// What the creation of a pipeline with this entry point answers instead.
    pub(crate) fn pipeline(&self, entry_point: &str) -> Option<vk::Result> {
        self.pipelines.iter().find(|(name, _)| name == entry_point).map(|(_, code)| *code)
    }

    pub(crate) fn lacks(&self, function: &str) -> bool {
        self.missing.iter().any(|missing| missing == function)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("failures", &self.failures)
            .field("pipelines", &self.pipelines)
            .field("hidden_extensions", &self.hidden_extensions)
            .field("hidden_layers", &self.hidden_layers)
            .field("missing", &self.missing)
            .field("instance_version", &self.instance_version)
            .field("queues", &self.queues)
            .field("memory_types", &self.memory_types)
            .field("heaps", &self.heaps)
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}
