#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;
extern crate std;

mod backend;
mod device;
mod failure;
mod instance;
mod memory;
mod options;
mod staging;
mod storage;
mod validation;

pub use backend::VulkanBackend;
pub use options::VulkanOptions;
pub use storage::VulkanPage;
pub use validation::validation_messages;

use trunnion_runtime_core::id::BackendName;

/// The backend's name.
pub const NAME: BackendName = match BackendName::new("vulkan") {
    Some(name) => name,
    None => panic!("six bytes are a name"),
};
