//! How much memory a device, the process and a client may use.

use crate::report::Size;
use core::fmt;
use core::time::Duration;

/// How much memory there is to use, in bytes. What a driver does not say is `None`.
///
/// Equivalent to: `cuMemGetInfo`; `VkPhysicalDeviceMemoryBudgetPropertiesEXT`; nothing on `wgpu`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryBudget {
    /// What the device has.
    pub total: Option<u64>,
    /// What the driver says nobody uses, this process or another.
    pub free: Option<u64>,
    /// What the driver says this process may use before the driver swaps or refuses.
    pub process_limit: Option<u64>,
    /// What the driver says this process uses.
    pub process_used: Option<u64>,
    /// What the device's pools have taken from the driver.
    pub reserved: u64,
    /// What is in use of that.
    pub live: u64,
    /// The most the pools may take: the setting `memory_budget`.
    pub limit: Option<u64>,
    /// The most this client and its clones may hold live.
    pub client_limit: Option<u64>,
    /// What they hold live, where they have a limit.
    pub client_live: Option<u64>,
    /// How long ago device and driver were asked. What concerns the client is of now.
    pub age: Duration,
}

impl MemoryBudget {
    /// What can still be taken from the driver, as far as is known: the least of what is free and what limits leave. What the pools
    /// hold and nobody uses comes on top.
    pub fn room(&self) -> Option<u64> {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let process = self.process_used.and_then(|used| left(self.process_limit, used));
        let client = self.client_live.and_then(|live| left(self.client_limit, live));
        [self.free, process, left(self.limit, self.reserved), client].into_iter().flatten().min()
    }
}

/// One line, with what is not known left out.
impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reserved {}, live {}", Size(self.reserved), Size(self.live))?;
        let known = [
            ("device", self.total),
            ("free", self.free),
            ("process uses", self.process_used),
            ("process may use", self.process_limit),
            ("budget", self.limit),
            ("client holds", self.client_live),
            ("client may hold", self.client_limit),
        ];
        known
            .iter()
            .filter_map(|(name, value)| Some((name, (*value)?)))
            .try_for_each(|(name, value)| write!(f, ", {name} {}", Size(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_room_is_the_least_of_what_is_known() {
        let mut budget = MemoryBudget { reserved: 100, ..MemoryBudget::default() };
        assert_eq!(budget.room(), None);
        budget.free = Some(1000);
        assert_eq!(budget.room(), Some(1000));
        (budget.process_limit, budget.process_used) = (Some(700), Some(50));
        assert_eq!(budget.room(), Some(650));
        budget.limit = Some(600);
        assert_eq!(budget.room(), Some(500));
        (budget.client_limit, budget.client_live) = (Some(30), Some(31));
        assert_eq!(budget.room(), Some(0));
    }

    #[test]
    fn what_is_not_known_is_left_out_of_the_text() {
        let mut budget = MemoryBudget { reserved: 2048, live: 3, ..MemoryBudget::default() };
        assert_eq!(budget.to_string(), "reserved 2.0 KiB, live 3 B");
        (budget.free, budget.client_limit) = (Some(1 << 30), Some(5));
        assert_eq!(budget.to_string(), "reserved 2.0 KiB, live 3 B, free 1.0 GiB, client may hold 5 B");
    }
}
