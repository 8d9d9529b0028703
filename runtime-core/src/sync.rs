//! The one place that says which 64-bit atomic a target has.

#[cfg(target_has_atomic = "64")]
pub use core::sync::atomic::AtomicU64;
/// A 64-bit atomic made with a lock, for targets without one: not for interrupt handlers unless the firmware picks
/// `portable-atomic`'s critical-section or single-core feature.
#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::AtomicU64;
