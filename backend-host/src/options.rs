//! What a host device can be told, as a builder and as the names and values of a configuration file.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;
use trunnion_backend_core::LimitOptions;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::options::{self, write_changed};
use trunnion_runtime_core::text::{at_least_one, time};

/// How host devices behave. The default is a well-behaved device that uses the whole machine; the other settings make it hard to use,
/// so that a test on this device meets what a program meets on others.
///
/// ```
/// use core::time::Duration;
/// use trunnion_backend_host::HostOptions;
/// let hard = HostOptions::default().separate_memory(true).delay(Duration::from_millis(1)).reorder(7);
/// assert_eq!(hard.to_string(), "delay = 1ms, reorder = 7, separate_memory = true");
/// ```
///
/// In text ([`set`](Self::set), [`apply`](Self::apply)) a size may end in `KiB`, `MiB` or `GiB`, a time ends in `us`, `ms` or `s`, counts by
/// axis are written `x,y,z` or as one number for all three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOptions {
    pub(crate) devices: u32,
    pub(crate) threads: usize,
    pub(crate) separate_memory: bool,
    pub(crate) delay: Duration,
    pub(crate) reorder: Option<u64>,
    pub(crate) fail_compile: Option<String>,
    pub(crate) memory_types: u32,
    pub(crate) lose_after: Option<u64>,
    pub(crate) refuse_allocation: Option<u64>,
    pub(crate) refuse_pin: Option<u64>,
    pub(crate) limits: LimitOptions,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            devices: 1,
            threads: 0,
            separate_memory: false,
            delay: Duration::ZERO,
            reorder: None,
            fail_compile: None,
            memory_types: 1,
            lose_after: None,
            refuse_allocation: None,
            refuse_pin: None,
            limits: LimitOptions::default(),
        }
    }
}

/// The names of the options beside the limits, and what their values look like.
const NAMES: [(&str, &str); 10] = [
    ("delay", "a time such as `5ms`"),
    ("devices", "a count of at least 1"),
    ("fail_compile", "a kernel's name"),
    ("lose_after", "a count"),
    ("memory_types", "a count from 1 to 16"),
    ("refuse_allocation", "a count of at least 1"),
    ("refuse_pin", "a count of at least 1"),
    ("reorder", "a number"),
    ("separate_memory", "`true` or `false`"),
    ("threads", "a count, 0 for all cores"),
];

impl HostOptions {
    /// How many virtual devices there are, at least 1. They share the machine's cores and memory, and nothing else. Default 1.
    pub fn devices(mut self, count: u32) -> Self {
        self.devices = count.max(1);
        self
    }

    /// The most threads that work on one launch or one large copy at the same time; 0 for as many as there are cores. With 1 the
    /// workgroups of a launch run one after another, in order. Streams run concurrently whatever this says. Default 0.
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// Device memory is not visible to the host: a grant has no host view, and what is written and read goes through a staging copy
    /// of 64 KiB at a time. Default false.
    pub fn separate_memory(mut self, separate: bool) -> Self {
        self.separate_memory = separate;
        self
    }

    /// A batch is reported as finished only this long after its work is done. Default zero.
    ///
    /// What is less than a microsecond, or more than 2^64 of them, is left out.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Duration::from_micros(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// A batch is reported as finished only after an additional time, drawn from this seed, of up to the [`delay`](Self::delay) or up to
    /// 1 ms where there is none: batches of different streams are then reported in another order than they finished. Within a stream
    /// the order stays. Default off.
    pub fn reorder(mut self, seed: u64) -> Self {
        self.reorder = Some(seed);
        self
    }

    /// Kernels of this name do not compile: [`Error::Compile`](trunnion_runtime_core::error::Error::Compile) in line 1. Default none.
    pub fn fail_compile(mut self, kernel: impl Into<String>) -> Self {
        self.fail_compile = Some(kernel.into());
        self
    }

    /// How many kinds of memory there are, from 1 to 16. Pages are of one kind after the other. The first kind begins at a multiple of
    /// 4,096 bytes and is zeroed; kind `k` begins `64 k` bytes past one and is filled with `0xA5`. Default 1.
    pub fn memory_types(mut self, count: u32) -> Self {
        self.memory_types = count.clamp(1, 16);
        self
    }

    /// The device is lost once it has taken this many batches: the next submission and every call that can fail after that answer
    /// [`Error::DeviceLost`](trunnion_runtime_core::error::Error::DeviceLost). Default never.
    pub fn lose_after(mut self, submissions: u64) -> Self {
        self.lose_after = Some(submissions);
        self
    }

    /// The driver refuses this allocation, counted from 1, as if memory had run out, and no other. Default none.
    pub fn refuse_allocation(mut self, allocation: u64) -> Self {
        self.refuse_allocation = Some(allocation.max(1));
        self
    }

    /// The driver refuses this request for page-locked memory, counted from 1, and no other. Default none.
    pub fn refuse_pin(mut self, request: u64) -> Self {
        self.refuse_pin = Some(request.max(1));
        self
    }

    /// Less of the device than it offers: its limits, lowered. Page-locked memory there is only where this says how much, and it is no
    /// different from other memory, but the device counts it and refuses more. Device memory, which is half of what the machine has where
    /// it says, else 256 MiB, may also be set to more.
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
            "delay" => self.delay = time(value).filter(|time| u64::try_from(time.as_micros()).is_ok())?,
            "devices" => self.devices = at_least_one(value)?,
            "fail_compile" => self.fail_compile = (!value.is_empty()).then(|| Some(value.to_string()))?,
            "lose_after" => self.lose_after = Some(value.parse().ok()?),
            "memory_types" => self.memory_types = value.parse().ok().filter(|count| (1..=16).contains(count))?,
            "refuse_allocation" => self.refuse_allocation = Some(value.parse().ok().filter(|which| *which > 0)?),
            "refuse_pin" => self.refuse_pin = Some(value.parse().ok().filter(|which| *which > 0)?),
            "reorder" => self.reorder = Some(value.parse().ok()?),
            "separate_memory" => self.separate_memory = value.parse().ok()?,
            "threads" => self.threads = value.parse().ok()?,
            _ => self.limits.assign(name, value)?,
        }
        Some(())
    }

    fn text(&self, name: &str) -> String {
        let optional = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        match name {
            "delay" => written(self.delay),
            "devices" => self.devices.to_string(),
            "fail_compile" => self.fail_compile.clone().unwrap_or_default(),
            "lose_after" => optional(self.lose_after),
            "memory_types" => self.memory_types.to_string(),
            "refuse_allocation" => optional(self.refuse_allocation),
            "refuse_pin" => optional(self.refuse_pin),
            "reorder" => optional(self.reorder),
            "separate_memory" => self.separate_memory.to_string(),
            "threads" => self.threads.to_string(),
            _ => self.limits.text(name),
        }
    }
}

/// The options that are not at their default, as `name = value`.
impl core::fmt::Display for HostOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let default = Self::default();
        write_changed(f, &LimitOptions::among(&NAMES), |name| self.text(name), |name| default.text(name))
    }
}

/// A time as it is read: a whole number of the largest unit that leaves no rest.
fn written(time: Duration) -> String {
    let microseconds = time.as_micros();
    let (size, unit) = match microseconds {
        _ if microseconds.is_multiple_of(1_000_000) => (1_000_000, "s"),
        _ if microseconds.is_multiple_of(1_000) => (1_000, "ms"),
        _ => (1, "us"),
    };
    format!("{}{unit}", microseconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_runtime_core::error::Error;

    #[test]
    fn every_option_can_be_set_from_text_and_shown() {
        let values = [
            ("delay", "5ms"),
            ("devices", "3"),
            ("fail_compile", "broken"),
            ("lose_after", "4"),
            ("max_shared", "64"),
            ("memory_types", "2"),
            ("refuse_allocation", "2"),
            ("refuse_pin", "6"),
            ("reorder", "11"),
            ("separate_memory", "true"),
            ("threads", "1"),
        ];
        let map: BTreeMap<_, _> = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let options = HostOptions::default().apply(&map).unwrap();
        let shown: alloc::vec::Vec<_> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        assert_eq!(options.to_string(), shown.join(", "));
        let built = HostOptions::default()
            .delay(Duration::from_millis(5))
            .devices(3)
            .fail_compile("broken")
            .lose_after(4)
            .memory_types(2)
            .refuse_allocation(2)
            .refuse_pin(6)
            .reorder(11)
            .separate_memory(true)
            .threads(1)
            .limits(LimitOptions { max_shared: Some(64), ..LimitOptions::default() });
        assert_eq!(options, built);
        assert_eq!(HostOptions::default().to_string(), "");
    }

    #[test]
    fn sizes_times_and_axes_are_read_with_their_units() {
        let options = HostOptions::default();
        assert_eq!(options.clone().set("memory", "3 MiB").unwrap().limits.memory, Some(3 << 20));
        assert_eq!(options.clone().set("delay", "250us").unwrap().delay, Duration::from_micros(250));
        assert_eq!(options.clone().set("delay", "2s").unwrap().delay, Duration::from_secs(2));
        assert_eq!(options.set("max_grid", "9").unwrap().limits.max_grid, Some([9; 3]));
    }

    #[test]
    fn a_time_is_shown_as_it_can_be_set() {
        for text in ["7us", "250us", "1500us", "3ms", "60s", "18446744073709551615us"] {
            let options = HostOptions::default().set("delay", text).unwrap();
            assert_eq!(options.to_string(), format!("delay = {text}"));
        }
    }

    #[test]
    fn a_bad_value_names_it_and_what_is_valid() {
        for (name, value) in [
            ("delay", "5"),
            ("delay", "fast"),
            ("devices", "0"),
            ("fail_compile", ""),
            ("max_shared", "4GiB"),
            ("memory_types", "17"),
            ("refuse_allocation", "0"),
            ("refuse_pin", "0"),
            ("separate_memory", "yes"),
            ("threads", "-1"),
        ] {
            let error = HostOptions::default().set(name, value).unwrap_err();
            let (_, valid) = LimitOptions::among(&NAMES).into_iter().find(|(known, _)| *known == name).unwrap();
            let (backend, option, value, valid) = (crate::NAME, name.into(), value.into(), valid.to_string());
            assert_eq!(error, Error::BadOption { backend, option, value, valid });
        }
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = HostOptions::default().set("treads", "1").unwrap_err();
        let known = LimitOptions::among(&NAMES).into_iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(error, Error::UnknownOption { backend: crate::NAME, option: "treads".into(), known });
    }
}
