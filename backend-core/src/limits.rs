//! Less than a device offers: the options that lower its limits, the same for every backend.

use crate::driver::DriverRefusal;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use trunnion_runtime_core::properties::Limits;
use trunnion_runtime_core::text::{at_least_one, axes, size};

/// Limits below those of the device, so that what other devices lack can be tested on this one. `None` leaves what the device says; a
/// larger one than that changes nothing, but where the field or the backend says so.
///
/// A backend's options hold one of these, and have its options among their own by the names of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitOptions {
    /// Bytes of device memory.
    pub memory: Option<u64>,
    /// Bytes of host memory that are page-locked for staging.
    pub pinned_memory: Option<u64>,
    /// What rows of an optimized layout are padded to, in bytes: rounded up to a power of two. This one may also be larger.
    pub row_pitch: Option<u64>,
    /// The largest allocation, in bytes.
    pub max_allocation: Option<u64>,
    /// The largest range a kernel can be bound to, in bytes.
    pub max_binding: Option<u64>,
    /// Buffers of a kernel.
    pub max_buffers: Option<u32>,
    /// Bytes of a kernel's parameters.
    pub max_parameters: Option<u32>,
    /// Workgroups by axis; 0 counts as 1.
    pub max_grid: Option<[u32; 3]>,
    /// Invocations of a workgroup by axis; 0 counts as 1.
    pub max_workgroup: Option<[u32; 3]>,
    /// Invocations of a workgroup together; 0 counts as 1.
    pub max_invocations: Option<u32>,
    /// Bytes of workgroup-shared memory.
    pub max_shared: Option<u32>,
}

impl LimitOptions {
    /// The options' names, and what their values look like.
    pub const NAMES: [(&str, &str); 11] = [
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
        ("row_pitch", "a size that is a power of two"),
    ];

    /// A backend's own options and these, by name.
    pub fn among(own: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        let mut all = [own, &Self::NAMES].concat();
        all.sort_unstable();
        all
    }

    /// Sets one from text; `None`, and nothing is changed, where there is none of this name or it cannot have the value.
    pub fn assign(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
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
            "row_pitch" => self.row_pitch = Some(size(value).filter(|bytes| bytes.is_power_of_two())?),
            _ => return None,
        }
        Some(())
    }

    /// One as it is set from text; empty where it is left as it is, and for any other name.
    pub fn text(&self, name: &str) -> String {
        fn number<T: ToString>(value: Option<T>) -> String {
            value.map_or(String::new(), |value| value.to_string())
        }
        let three = |counts: Option<[u32; 3]>| counts.map_or(String::new(), |[x, y, z]| format!("{x},{y},{z}"));
        match name {
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
            "row_pitch" => number(self.row_pitch),
            _ => String::new(),
        }
    }

    /// Whether so many more bytes may be page-locked, where `held` bytes are.
    ///
    /// # Errors
    /// A refusal that names the option, and what of it is free.
    pub fn check_pinned(&self, size: u64, held: u64) -> Result<(), DriverRefusal> {
        let Some(limit) = self.pinned_memory else { return Ok(()) };
        let free = limit.saturating_sub(held);
        if size <= free {
            return Ok(());
        }
        let message = format!("option `pinned_memory`: {size} bytes requested, {free} of {limit} are free");
        Err(DriverRefusal { message, out_of_memory: true })
    }

    /// Lowers what a device says; afterwards no allocation is larger than the memory, and no binding than an allocation.
    pub fn lower(&self, limits: &mut Limits) {
        fn lower<T: Ord + Copy>(said: &mut T, most: Option<T>) {
            *said = most.map_or(*said, |most| most.min(*said));
        }
        fn lower_axes(said: &mut [u32; 3], most: Option<[u32; 3]>) {
            let most = most.unwrap_or([u32::MAX; 3]);
            said.iter_mut().zip(most).for_each(|(said, most)| lower(said, Some(most.max(1))));
        }
        lower(&mut limits.memory, self.memory);
        lower(&mut limits.max_allocation, self.max_allocation);
        lower(&mut limits.max_allocation, Some(limits.memory));
        lower(&mut limits.max_binding, self.max_binding);
        lower(&mut limits.max_binding, Some(limits.max_allocation));
        lower(&mut limits.max_buffers, self.max_buffers);
        lower(&mut limits.max_parameters, self.max_parameters);
        lower_axes(&mut limits.max_grid, self.max_grid);
        lower_axes(&mut limits.max_workgroup, self.max_workgroup);
        lower(&mut limits.max_invocations, self.max_invocations.map(|most| most.max(1)));
        lower(&mut limits.max_shared, self.max_shared);
        if let Some(bytes) = self.row_pitch {
            limits.row_pitch = bytes.max(1).checked_next_power_of_two().unwrap_or(1 << 63);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> LimitOptions {
        LimitOptions {
            memory: Some(4096),
            pinned_memory: Some(8192),
            row_pitch: Some(512),
            max_allocation: Some(1024),
            max_binding: Some(256),
            max_buffers: Some(5),
            max_parameters: Some(32),
            max_grid: Some([7, 8, 9]),
            max_workgroup: Some([4, 5, 6]),
            max_invocations: Some(16),
            max_shared: Some(64),
        }
    }

    #[test]
    fn page_locked_memory_is_refused_beyond_its_limit_and_never_without_one() {
        let limits = LimitOptions { pinned_memory: Some(100), ..LimitOptions::default() };
        assert_eq!(limits.check_pinned(60, 40), Ok(()));
        let message = "option `pinned_memory`: 61 bytes requested, 60 of 100 are free".to_string();
        assert_eq!(limits.check_pinned(61, 40), Err(DriverRefusal { message, out_of_memory: true }));
        assert!(limits.check_pinned(1, 200).is_err());
        assert_eq!(LimitOptions::default().check_pinned(u64::MAX, 1), Ok(()));
    }

    #[test]
    fn every_option_can_be_set_from_text_and_shown_and_no_other() {
        let mut read = LimitOptions::default();
        for (name, _) in LimitOptions::NAMES {
            assert_eq!(read.text(name), "", "{name}");
            let text = all().text(name);
            assert_eq!(read.assign(name, &text), Some(()), "{name} = {text}");
        }
        assert_eq!(read, all());
        assert_eq!((read.assign("max_streams", "1"), read.text("max_streams").as_str()), (None, ""));
    }

    #[test]
    fn a_bad_value_is_refused_and_changes_nothing() {
        for (name, value) in [
            ("max_buffers", "-1"),
            ("max_grid", "1,2"),
            ("max_grid", "1,2,3,4"),
            ("max_grid", "0"),
            ("max_invocations", "0"),
            ("max_shared", "4GiB"),
            ("max_workgroup", "1,0,1"),
            ("memory", "99999999999999999GiB"),
            ("pinned_memory", "-1"),
            ("row_pitch", "48"),
            ("row_pitch", "0"),
        ] {
            let mut options = all();
            assert_eq!((options.assign(name, value), &options), (None, &all()), "{name} = {value}");
        }
    }

    #[test]
    fn a_backends_own_options_stand_among_them_by_name() {
        let names: Vec<_> =
            LimitOptions::among(&[("vmm", ""), ("code", "")]).into_iter().map(|(name, _)| name).collect();
        assert!(names.is_sorted() && names.len() == 13 && names[0] == "code" && names[12] == "vmm", "{names:?}");
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let mut low = Limits::default();
        all().lower(&mut low);
        assert_eq!((low.memory, low.max_allocation, low.max_binding, low.row_pitch), (4096, 1024, 256, 512));
        assert_eq!((low.max_buffers, low.max_parameters, low.max_shared), (5, 32, 64));
        assert_eq!((low.max_grid, low.max_workgroup, low.max_invocations), ([7, 8, 9], [4, 5, 6], 16));
        let high = LimitOptions {
            memory: Some(u64::MAX),
            max_allocation: Some(u64::MAX),
            max_binding: Some(u64::MAX),
            max_buffers: Some(u32::MAX),
            max_parameters: Some(u32::MAX),
            max_grid: Some([u32::MAX; 3]),
            max_workgroup: Some([u32::MAX; 3]),
            max_invocations: Some(u32::MAX),
            max_shared: Some(u32::MAX),
            ..LimitOptions::default()
        };
        let mut same = Limits::default();
        high.lower(&mut same);
        assert_eq!(same, Limits::default());
    }

    #[test]
    fn what_is_lowered_fits_together_and_is_none_of_it_zero_that_counts_from_one() {
        let mut limits = Limits::default();
        let odd = LimitOptions {
            memory: Some(1000),
            row_pitch: Some(48),
            max_grid: Some([0, 1, 2]),
            max_invocations: Some(0),
            ..LimitOptions::default()
        };
        odd.lower(&mut limits);
        assert_eq!((limits.memory, limits.max_allocation, limits.max_binding), (1000, 1000, 1000));
        assert_eq!((limits.row_pitch, limits.max_grid, limits.max_invocations), (64, [1, 1, 2], 1));
    }
}
