//! How often which function was called, and which call fails.

use core::fmt;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use ash::vk;

/// One call that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The function.
    pub function: String,
    /// Which call of it, counted from 1.
    pub nth: u32,
    /// What it answers.
    pub code: vk::Result,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} no. {}: {:?}", self.function, self.nth, self.code)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Calls {
    counts: BTreeMap<&'static str, u32>,
    planned: Vec<Failure>,
    /// How much memory of each type was allocated, and which allocation of a type fails.
    allocations: BTreeMap<u32, u32>,
    planned_allocations: Vec<(u32, Failure)>,
    fired: Vec<Failure>,
}

impl Calls {
    pub(crate) fn new(planned: Vec<Failure>) -> Self {
        Self { planned, ..Self::default() }
    }

    /// Counts a call, and says what it answers instead of doing anything.
    pub(crate) fn count(&mut self, function: &'static str) -> Option<vk::Result> {
        let count = self.counts.entry(function).or_insert(0);
        *count += 1;
        let due = self.planned.iter().position(|failure| failure.function == function && failure.nth == *count)?;
        let failure = self.planned.remove(due);
        let code = failure.code;
        self.fired.push(failure);
        Some(code)
    }

    /// The `nth` call of `function` from now on fails.
    pub(crate) fn plan(&mut self, function: &str, nth: u32, code: vk::Result) {
        let nth = self.of(function) + nth;
        self.planned.push(Failure { function: function.into(), nth, code });
    }

    /// Counts an allocation of a memory type, and says what it answers instead of allocating.
    pub(crate) fn count_allocation(&mut self, memory_type: u32) -> Option<vk::Result> {
        let count = self.allocations.entry(memory_type).or_insert(0);
        *count += 1;
        let is_due = |(of, failure): &(u32, Failure)| *of == memory_type && failure.nth == *count;
        let due = self.planned_allocations.iter().position(is_due)?;
        let (_, failure) = self.planned_allocations.remove(due);
        let code = failure.code;
        self.fired.push(failure);
        Some(code)
    }

    /// The `nth` allocation of a memory type from now on fails.
    pub(crate) fn plan_allocation(&mut self, memory_type: u32, nth: u32, code: vk::Result) {
        let nth = self.allocations.get(&memory_type).copied().unwrap_or(0) + nth;
        self.planned_allocations.push((memory_type, Failure { function: "vkAllocateMemory".into(), nth, code }));
    }

    pub(crate) fn of(&self, function: &str) -> u32 {
        self.counts.get(function).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> Vec<(&'static str, u32)> {
        self.counts.iter().map(|(&function, &count)| (function, count)).collect()
    }

    pub(crate) fn fired(&self) -> Vec<Failure> {
        self.fired.clone()
    }
}

/// Whether a call of `function` can say that the device is lost.
pub(crate) fn tells_of_loss(function: &str) -> bool {
    matches!(
        function,
        "vkQueueSubmit"
            | "vkQueueWaitIdle"
            | "vkDeviceWaitIdle"
            | "vkWaitForFences"
            | "vkGetFenceStatus"
            | "vkWaitSemaphores"
            | "vkGetSemaphoreCounterValue"
            | "vkGetQueryPoolResults"
            | "vkGetEventStatus"
    )
}
