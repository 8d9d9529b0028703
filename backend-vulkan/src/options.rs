//! What a Vulkan device can be told, as a builder and as the names and values of a configuration file.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::options::{self, write_changed};
use trunnion_runtime_core::text::{at_least_one, axes, size};

/// How Vulkan devices are used. The default is everything a device offers; the other settings turn parts of it off, or take less of it,
/// so that what other devices lack can be tested on this one. A limit lowers what the device says and never raises it.
///
/// ```
/// use trunnion_backend_vulkan::VulkanOptions;
/// let plain = VulkanOptions::default().staging(true).push_descriptors(false).queues(1);
/// assert_eq!(plain.to_string(), "push_descriptors = false, queues = 1, staging = true");
/// ```
///
/// In text ([`set`](Self::set), [`apply`](Self::apply)) a size may end in `KiB`, `MiB` or `GiB`, counts by axis are written `x,y,z` or as
/// one number for all three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VulkanOptions {
    pub(crate) staging: bool,
    pub(crate) push_descriptors: bool,
    pub(crate) push_constants: bool,
    pub(crate) queues: Option<u32>,
    pub(crate) validation: bool,
    pub(crate) export_memory: bool,
    pub(crate) memory: Option<u64>,
    pub(crate) pinned_memory: Option<u64>,
    pub(crate) row_pitch: Option<u64>,
    pub(crate) max_allocation: Option<u64>,
    pub(crate) max_binding: Option<u64>,
    pub(crate) max_buffers: Option<u32>,
    pub(crate) max_parameters: Option<u32>,
    pub(crate) max_grid: Option<[u32; 3]>,
    pub(crate) max_workgroup: Option<[u32; 3]>,
    pub(crate) max_invocations: Option<u32>,
    pub(crate) max_shared: Option<u32>,
}

impl Default for VulkanOptions {
    fn default() -> Self {
        Self {
            staging: false,
            push_descriptors: true,
            push_constants: true,
            queues: None,
            validation: false,
            export_memory: false,
            memory: None,
            pinned_memory: None,
            row_pitch: None,
            max_allocation: None,
            max_binding: None,
            max_buffers: None,
            max_parameters: None,
            max_grid: None,
            max_workgroup: None,
            max_invocations: None,
            max_shared: None,
        }
    }
}

/// The options' names, and what their values look like.
const NAMES: [(&str, &str); 17] = [
    ("export_memory", "`true` or `false`"),
    ("max_allocation", "a size such as `64MiB`"),
    ("max_binding", "a size such as `64MiB`"),
    ("max_buffers", "a count"),
    ("max_grid", "counts of at least 1, `x,y,z` or one for all"),
    ("max_invocations", "a count of at least 1"),
    ("max_parameters", "a count of bytes"),
    ("max_shared", "a size below 4GiB"),
    ("max_workgroup", "counts of at least 1, `x,y,z` or one for all"),
    ("memory", "a size such as `64MiB`"),
    ("pinned_memory", "a size such as `64MiB`"),
    ("push_constants", "`true` or `false`"),
    ("push_descriptors", "`true` or `false`"),
    ("queues", "a count of at least 1"),
    ("row_pitch", "a size that is a power of two"),
    ("staging", "`true` or `false`"),
    ("validation", "`true` or `false`"),
];

impl VulkanOptions {
    /// Bytes go through staging memory and a copy by the device even where the host could reach device memory. Default false.
    pub fn staging(mut self, forced: bool) -> Self {
        self.staging = forced;
        self
    }

    /// Whether arguments are pushed into the command buffer where the device can (`VK_KHR_push_descriptor`); else they are written to
    /// descriptor sets. Default true.
    pub fn push_descriptors(mut self, allowed: bool) -> Self {
        self.push_descriptors = allowed;
        self
    }

    /// Whether parameters are push constants where they fit; else they are a uniform buffer. Default true.
    pub fn push_constants(mut self, allowed: bool) -> Self {
        self.push_constants = allowed;
        self
    }

    /// The most queues a device's streams are spread over, at least 1. Default as many as it has of the kind that is used.
    pub fn queues(mut self, count: u32) -> Self {
        self.queues = Some(count.max(1));
        self
    }

    /// Whether every call is checked by the layer `VK_LAYER_KHRONOS_validation`. What it says is logged, and what it calls an error is kept for
    /// [`validation_messages`](crate::validation_messages). Where the layer is not installed no device is opened. Default false.
    pub fn validation(mut self, on: bool) -> Self {
        self.validation = on;
        self
    }

    /// Whether device memory is allocated so that it can be handed out by file descriptor
    /// ([`VulkanResource::export_fd`](crate::VulkanResource)), where the device can (`VK_KHR_external_memory_fd`). Default false.
    pub fn export_memory(mut self, allowed: bool) -> Self {
        self.export_memory = allowed;
        self
    }

    /// Bytes of device memory, at most. Default the heap that pages come from.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Bytes of host memory that are page-locked for staging, at most. Default whatever the driver gives.
    pub fn pinned_memory(mut self, bytes: u64) -> Self {
        self.pinned_memory = Some(bytes);
        self
    }

    /// What rows of an optimized layout are padded to, in bytes: rounded up to a power of two. Default 64, or the alignment of buffers handed
    /// to kernels where that is more.
    pub fn row_pitch(mut self, bytes: u64) -> Self {
        self.row_pitch = Some(bytes.max(1).checked_next_power_of_two().unwrap_or(1 << 63));
        self
    }

    /// The largest allocation, in bytes.
    pub fn max_allocation(mut self, bytes: u64) -> Self {
        self.max_allocation = Some(bytes);
        self
    }

    /// The largest range a kernel can be bound to, in bytes.
    pub fn max_binding(mut self, bytes: u64) -> Self {
        self.max_binding = Some(bytes);
        self
    }

    /// The most buffers of a kernel.
    pub fn max_buffers(mut self, count: u32) -> Self {
        self.max_buffers = Some(count);
        self
    }

    /// The most bytes of parameters.
    pub fn max_parameters(mut self, bytes: u32) -> Self {
        self.max_parameters = Some(bytes);
        self
    }

    /// The most workgroups by axis, each at least 1.
    pub fn max_grid(mut self, counts: [u32; 3]) -> Self {
        self.max_grid = Some(counts.map(|count| count.max(1)));
        self
    }

    /// The most invocations of a workgroup by axis, each at least 1.
    pub fn max_workgroup(mut self, counts: [u32; 3]) -> Self {
        self.max_workgroup = Some(counts.map(|count| count.max(1)));
        self
    }

    /// The most invocations of a workgroup together, at least 1.
    pub fn max_invocations(mut self, count: u32) -> Self {
        self.max_invocations = Some(count.max(1));
        self
    }

    /// The most bytes of workgroup-shared memory.
    pub fn max_shared(mut self, bytes: u32) -> Self {
        self.max_shared = Some(bytes);
        self
    }

    /// Sets one option from text.
    ///
    /// # Errors
    /// [`Error::UnknownOption`](trunnion_runtime_core::error::Error::UnknownOption) and
    /// [`Error::BadOption`](trunnion_runtime_core::error::Error::BadOption) name it and list what is valid.
    pub fn set(self, name: &str, value: &str) -> Result<Self> {
        options::set(self, crate::NAME, &NAMES, (name, value), Self::assign)
    }

    /// Sets options from text, as they stand in a configuration.
    ///
    /// # Errors
    /// As for [`set`](Self::set), for the first one that is wrong.
    pub fn apply(self, options: &BTreeMap<String, String>) -> Result<Self> {
        options::apply(self, options, Self::set)
    }

    fn assign(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "export_memory" => self.export_memory = value.parse().ok()?,
            "max_allocation" => self.max_allocation = Some(size(value)?),
            "max_binding" => self.max_binding = Some(size(value)?),
            "max_buffers" => self.max_buffers = Some(value.parse().ok()?),
            "max_grid" => self.max_grid = Some(axes(value)?),
            "max_invocations" => self.max_invocations = Some(at_least_one(value)?),
            "max_parameters" => self.max_parameters = Some(value.parse().ok()?),
            "max_shared" => self.max_shared = Some(u32::try_from(size(value)?).ok()?),
            "max_workgroup" => self.max_workgroup = Some(axes(value)?),
            "memory" => self.memory = Some(size(value)?),
            "pinned_memory" => self.pinned_memory = Some(size(value)?),
            "push_constants" => self.push_constants = value.parse().ok()?,
            "push_descriptors" => self.push_descriptors = value.parse().ok()?,
            "queues" => self.queues = Some(at_least_one(value)?),
            "row_pitch" => self.row_pitch = Some(size(value).filter(|bytes| bytes.is_power_of_two())?),
            "staging" => self.staging = value.parse().ok()?,
            "validation" => self.validation = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    fn text(&self, name: &str) -> String {
        fn number<T: ToString>(value: Option<T>) -> String {
            value.map_or(String::new(), |value| value.to_string())
        }
        let three = |counts: Option<[u32; 3]>| counts.map_or(String::new(), |[x, y, z]| format!("{x},{y},{z}"));
        match name {
            "export_memory" => self.export_memory.to_string(),
            "max_allocation" => number(self.max_allocation),
            "max_binding" => number(self.max_binding),
            "max_buffers" => number(self.max_buffers),
            "max_grid" => three(self.max_grid),
            "max_invocations" => number(self.max_invocations),
            "max_parameters" => number(self.max_parameters),
            "max_shared" => number(self.max_shared),
            "max_workgroup" => three(self.max_workgroup),
            "memory" => number(self.memory),
            "pinned_memory" => number(self.pinned_memory),
            "push_constants" => self.push_constants.to_string(),
            "push_descriptors" => self.push_descriptors.to_string(),
            "queues" => number(self.queues),
            "row_pitch" => number(self.row_pitch),
            "staging" => self.staging.to_string(),
            _ => self.validation.to_string(),
        }
    }
}

/// The options that are not at their default, as `name = value`.
impl core::fmt::Display for VulkanOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let default = Self::default();
        write_changed(f, &NAMES, |name| self.text(name), |name| default.text(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_runtime_core::error::Error;

    #[test]
    fn every_option_can_be_set_from_text_and_shown() {
        let values = [
            ("export_memory", "true"),
            ("max_allocation", "1024"),
            ("max_binding", "512"),
            ("max_buffers", "5"),
            ("max_grid", "7,8,9"),
            ("max_invocations", "16"),
            ("max_parameters", "32"),
            ("max_shared", "64"),
            ("max_workgroup", "4,5,6"),
            ("memory", "4096"),
            ("pinned_memory", "8192"),
            ("push_constants", "false"),
            ("push_descriptors", "false"),
            ("queues", "3"),
            ("row_pitch", "256"),
            ("staging", "true"),
            ("validation", "true"),
        ];
        assert_eq!(values.map(|(name, _)| name), NAMES.map(|(name, _)| name));
        let map: BTreeMap<_, _> = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let options = VulkanOptions::default().apply(&map).unwrap();
        let shown: alloc::vec::Vec<_> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        assert_eq!(options.to_string(), shown.join(", "));
        let built = VulkanOptions::default()
            .export_memory(true)
            .max_allocation(1024)
            .max_binding(512)
            .max_buffers(5)
            .max_grid([7, 8, 9])
            .max_invocations(16)
            .max_parameters(32)
            .max_shared(64)
            .max_workgroup([4, 5, 6])
            .memory(4096)
            .pinned_memory(8192)
            .push_constants(false)
            .push_descriptors(false)
            .queues(3)
            .row_pitch(256)
            .staging(true)
            .validation(true);
        assert_eq!(options, built);
        assert_eq!(VulkanOptions::default().to_string(), "");
    }

    #[test]
    fn a_bad_value_names_it_and_what_is_valid() {
        for (name, value) in [
            ("max_buffers", "-1"),
            ("max_grid", "1,2"),
            ("max_grid", "1,2,3,4"),
            ("max_grid", "0"),
            ("max_shared", "4GiB"),
            ("memory", "99999999999999999GiB"),
            ("pinned_memory", "-1"),
            ("push_constants", "yes"),
            ("queues", "0"),
            ("row_pitch", "48"),
            ("row_pitch", "0"),
            ("staging", "1"),
            ("validation", ""),
        ] {
            let error = VulkanOptions::default().set(name, value).unwrap_err();
            let (_, valid) = NAMES.iter().find(|(known, _)| *known == name).unwrap();
            let (backend, option, value, valid) = (crate::NAME, name.into(), value.into(), valid.to_string());
            assert_eq!(error, Error::BadOption { backend, option, value, valid });
        }
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = VulkanOptions::default().set("quees", "1").unwrap_err();
        let known = NAMES.map(|(name, _)| name.to_string()).to_vec();
        assert_eq!(error, Error::UnknownOption { backend: crate::NAME, option: "quees".into(), known });
    }
}
