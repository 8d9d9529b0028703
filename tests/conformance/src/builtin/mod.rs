//! The backends that are built in, one feature and one file each, and the tests of what is above the library's floor.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "facade")]
mod facade;
#[cfg(feature = "host")]
mod host;
#[cfg(feature = "vulkan")]
mod vulkan;

use alloc::sync::Arc;
use trunnion_conformance::{Factory, Test};

/// The backends that are built in, which the process then knows.
pub fn factories() -> Vec<Arc<dyn Factory>> {
    #[cfg(feature = "facade")]
    trunnion::register_built_in();
    vec![
        #[cfg(feature = "host")]
        Arc::new(host::Host::plain()),
        #[cfg(feature = "host")]
        Arc::new(host::Host::hard()),
        #[cfg(feature = "vulkan")]
        Arc::new(vulkan::Vulkan::llvmpipe()),
        #[cfg(feature = "vulkan")]
        Arc::new(vulkan::Vulkan::swiftshader()),
        #[cfg(feature = "cuda")]
        Arc::new(cuda::Cuda::double()),
        #[cfg(feature = "cuda")]
        Arc::new(cuda::Cuda::gpu()),
    ]
}

/// The tests of the facade, and what only some backend needs.
pub fn tests() -> Vec<Test> {
    let tests: Vec<Vec<Test>> = vec![
        #[cfg(feature = "facade")]
        facade::tests(),
        #[cfg(feature = "vulkan")]
        vulkan::tests(),
        #[cfg(feature = "cuda")]
        cuda::tests(),
    ];
    tests.concat()
}
