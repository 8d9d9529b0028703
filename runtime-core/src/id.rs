//! The names of things: devices, running servers, streams, memory.

use crate::sync::AtomicU64;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

/// The name of a backend, at most [`BackendName::MAX`] bytes, kept inline so that a [`DeviceId`] is `Copy` without an interner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendName {
    length: u8,
    bytes: [u8; Self::MAX],
}

impl BackendName {
    /// The longest name, in bytes.
    pub const MAX: usize = 23;

    /// The name, or `None` when it is empty or longer than [`MAX`](Self::MAX) bytes.
    pub const fn new(name: &str) -> Option<Self> {
        if name.is_empty() || name.len() > Self::MAX {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        let mut i = 0;
        while i < name.len() {
            bytes[i] = name.as_bytes()[i];
            i += 1;
        }
        Some(Self { length: name.len() as u8, bytes })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // The bytes were copied whole from a `str`, so this never falls back.
        core::str::from_utf8(&self.bytes[..self.length as usize]).unwrap_or("")
    }
}

impl fmt::Debug for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for BackendName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for BackendName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let name = <alloc::string::String as serde::Deserialize>::deserialize(d)?;
        Self::new(&name).ok_or_else(|| serde::de::Error::invalid_length(name.len(), &"a name of 1 to 23 bytes"))
    }
}

/// A device in the one registry of the process: the backend's name and the index among that backend's devices.
///
/// Equivalent to: a CUDA device ordinal, the position in `vkEnumeratePhysicalDevices`, an adapter of `wgpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceId {
    /// Which backend drives the device.
    pub backend: BackendName,
    /// Which of that backend's devices, from 0.
    pub index: u32,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.index)
    }
}

/// A server running on a device. A device that is shut down and started again has another one; numbers are never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServiceId(u32);

impl ServiceId {
    /// A number no other server of this process has.
    #[allow(clippy::new_without_default, reason = "every call answers another value")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number, for logs and tables; never 0.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The id with this number; for reading back what was logged.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {}", self.0)
    }
}

/// A sequence of operations that run in order. Operations of different streams run concurrently unless they touch the same bytes.
///
/// A stream costs nothing until it is used, and what a device keeps for it goes away when its work is done: numbers are never reused,
/// and a stream a device does not know has nothing unfinished.
///
/// Equivalent to: a CUDA stream; a Vulkan queue with its timeline semaphore.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StreamId(u64);

impl StreamId {
    /// A stream no other part of this process has.
    #[allow(clippy::new_without_default, reason = "every call answers another value")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number, for logs and tables; never 0.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The id with this number; for reading back what was logged.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// One allocation of a device. The generation tells a slot's tenants apart, so a stale id is noticed, never mistaken for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryId {
    /// The slot, dense from 0: tables may be indexed by it.
    pub index: u32,
    /// How often the slot was given out.
    pub generation: u32,
}

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory {}.{}", self.index, self.generation)
    }
}
