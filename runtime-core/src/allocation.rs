//! How a request for memory is served.

/// How memory is allocated.
///
/// Equivalent to: the choice between a suballocation of a shared `cudaMalloc` or `VkDeviceMemory` block and a driver allocation of
/// its own (`VkMemoryDedicatedAllocateInfo`).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AllocationMode {
    /// Placed inside a shared page; what is larger than any page gets a driver allocation of its own.
    #[default]
    Auto,
    /// Kept for good: exact fit, never trimmed while in use; what was freed waits for a request of the same size until a clean-up.
    Persistent,
    /// A driver allocation of its own, returned to the driver when it is free and the work that used it is done.
    Dedicated,
}

impl core::fmt::Display for AllocationMode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Persistent => "persistent",
            Self::Dedicated => "dedicated",
        })
    }
}
