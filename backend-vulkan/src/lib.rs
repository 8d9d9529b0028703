#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;
extern crate std;

mod allocation;
mod backend;
mod blocks;
mod descriptors;
mod device;
mod driver;
mod event;
mod external;
mod failure;
#[cfg(unix)]
mod fd;
mod grid;
mod import;
mod instance;
mod kernel;
mod launch;
mod mapping;
mod memory;
mod options;
mod queue;
mod recording_memory;
mod resource;
#[cfg(test)]
mod rig;
mod spirv;
mod staging;
mod storage;
mod stream;
mod transfer;
mod validation;

pub use ash;
pub use backend::VulkanBackend;
pub use driver::VulkanDriver;
pub use event::VulkanEvent;
#[cfg(unix)]
pub use fd::VulkanFd;
pub use import::VulkanImport;
pub use kernel::VulkanCode;
pub use options::VulkanOptions;
pub use resource::VulkanResource;
pub use storage::VulkanPage;
pub use stream::VulkanStream;
pub use trunnion_backend_core::LimitOptions;
pub use validation::validation_messages;

use trunnion_runtime_core::id::BackendName;

/// The backend's name.
pub const NAME: BackendName = match BackendName::new("vulkan") {
    Some(name) => name,
    None => panic!("six bytes are a name"),
};
