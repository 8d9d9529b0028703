//! What a Vulkan device can be told, as a builder and as the names and values of a configuration file.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use trunnion_backend_core::LimitOptions;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::options::{self, write_changed};
use trunnion_runtime_core::text::at_least_one;

/// How Vulkan devices are used. The default is everything a device offers; the other settings turn parts of it off, or take less of it,
/// so that what other devices lack can be tested on this one.
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
    pub(crate) limits: LimitOptions,
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
            limits: LimitOptions::default(),
        }
    }
}

/// The names of the options beside the limits, and what their values look like.
const NAMES: [(&str, &str); 6] = [
    ("export_memory", "`true` or `false`"),
    ("push_constants", "`true` or `false`"),
    ("push_descriptors", "`true` or `false`"),
    ("queues", "a count of at least 1"),
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

    /// Less of the device than it offers: its limits, lowered. Default all of it.
    pub fn limits(mut self, limits: LimitOptions) -> Self {
        self.limits = limits;
        self
    }

    /// Sets one option from text.
    ///
    /// # Errors
    /// [`Error::UnknownOption`](trunnion_runtime_core::error::Error::UnknownOption) and
    /// [`Error::BadOption`](trunnion_runtime_core::error::Error::BadOption) name it and list what is valid.
    pub fn set(self, name: &str, value: &str) -> Result<Self> {
        options::set(self, crate::NAME, &LimitOptions::among(&NAMES), (name, value), Self::assign)
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
            "push_constants" => self.push_constants = value.parse().ok()?,
            "push_descriptors" => self.push_descriptors = value.parse().ok()?,
            "queues" => self.queues = Some(at_least_one(value)?),
            "staging" => self.staging = value.parse().ok()?,
            "validation" => self.validation = value.parse().ok()?,
            _ => self.limits.assign(name, value)?,
        }
        Some(())
    }

    fn text(&self, name: &str) -> String {
        match name {
            "export_memory" => self.export_memory.to_string(),
            "push_constants" => self.push_constants.to_string(),
            "push_descriptors" => self.push_descriptors.to_string(),
            "queues" => self.queues.map_or(String::new(), |count| count.to_string()),
            "staging" => self.staging.to_string(),
            "validation" => self.validation.to_string(),
            _ => self.limits.text(name),
        }
    }
}

/// The options that are not at their default, as `name = value`.
impl core::fmt::Display for VulkanOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let default = Self::default();
        write_changed(f, &LimitOptions::among(&NAMES), |name| self.text(name), |name| default.text(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use trunnion_runtime_core::error::Error;

    #[test]
    fn every_option_can_be_set_from_text_and_shown() {
        let values = [
            ("export_memory", "true"),
            ("max_shared", "64"),
            ("push_constants", "false"),
            ("push_descriptors", "false"),
            ("queues", "3"),
            ("staging", "true"),
            ("validation", "true"),
        ];
        assert!(NAMES.iter().all(|(known, _)| values.iter().any(|(name, _)| name == known)));
        let map: BTreeMap<_, _> = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let options = VulkanOptions::default().apply(&map).unwrap();
        let shown: alloc::vec::Vec<_> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        assert_eq!(options.to_string(), shown.join(", "));
        let built = VulkanOptions::default()
            .export_memory(true)
            .push_constants(false)
            .push_descriptors(false)
            .queues(3)
            .staging(true)
            .validation(true)
            .limits(LimitOptions { max_shared: Some(64), ..LimitOptions::default() });
        assert_eq!(options, built);
        assert_eq!(VulkanOptions::default().to_string(), "");
    }

    #[test]
    fn a_bad_value_names_it_and_what_is_valid() {
        for (name, value) in
            [("max_shared", "4GiB"), ("push_constants", "yes"), ("queues", "0"), ("staging", "1"), ("validation", "")]
        {
            let error = VulkanOptions::default().set(name, value).unwrap_err();
            let (_, valid) = LimitOptions::among(&NAMES).into_iter().find(|(known, _)| *known == name).unwrap();
            let (backend, option, value, valid) = (crate::NAME, name.into(), value.into(), valid.to_string());
            assert_eq!(error, Error::BadOption { backend, option, value, valid });
        }
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = VulkanOptions::default().set("quees", "1").unwrap_err();
        let known = LimitOptions::among(&NAMES).into_iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(error, Error::UnknownOption { backend: crate::NAME, option: "quees".into(), known });
    }
}
