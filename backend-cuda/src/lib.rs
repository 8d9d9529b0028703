#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;
extern crate std;

mod backend;
mod batch;
mod blocks;
mod compiler;
mod context;
mod device;
mod driver;
mod event;
mod failure;
mod functions;
mod grid;
mod held;
mod image;
mod import;
mod includes;
mod kernel;
mod lane;
mod launch;
mod library;
mod mapping;
mod module;
mod nvrtc;
mod operation;
mod options;
mod peer;
mod pinned;
mod properties;
mod reader;
mod resource;
mod retired;
mod storage;
mod stream;
mod tensor;
mod toolkit;
mod transfer;
mod watch;

pub use backend::CudaBackend;
pub use cudarc;
pub use driver::CudaDriver;
pub use event::CudaEvent;
pub use import::CudaImport;
pub use kernel::CudaCode;
pub use options::{CodeForm, CudaOptions};
pub use resource::CudaResource;
pub use storage::CudaPage;
pub use stream::CudaStream;
pub use trunnion_backend_core::LimitOptions;

use trunnion_runtime_core::id::BackendName;

/// The backend's name.
pub const NAME: BackendName = match BackendName::new("cuda") {
    Some(name) => name,
    None => panic!("four bytes are a name"),
};
