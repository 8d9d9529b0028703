//! Tensors of a device for other libraries of the process, and theirs for a device, without a copy: by [DLPack], which NumPy, PyTorch, JAX and
//! others speak.
//!
//! [`to_dlpack`] hands out a tensor, [`from_dlpack`] takes one in. Both are for devices of the backend `host`; to any other device
//! [`copy_from_dlpack`] copies. The structs of the C interface, and what owns one, are those of [`dlpark`]: a
//! [`Managed`]`<`[`DLManagedTensorVersioned`]`>` for the form of DLPack 1.x, whose capsules Python calls `dltensor_versioned`, a
//! [`Managed`]`<`[`DLManagedTensor`]`>` for the form before.
//!
//! ```
//! # use trunnion_backend_host::HostBackend;
//! # use trunnion_runtime_core::{backend::Backend, client::Client, elem::ElemType, id::DeviceId, layout::TensorDescriptor};
//! # let backend = HostBackend::default();
//! # let device = DeviceId { backend: backend.name(), index: 0 };
//! # let client = Client::init(device, || backend.open(0, &Default::default()))?;
//! use trunnion_dlpack::{DLManagedTensorVersioned, from_dlpack, to_dlpack};
//! let descriptor = TensorDescriptor::contiguous([2, 3], ElemType::U8);
//! let layout = client.create_tensor_from_slice(&descriptor, &[1, 2, 3, 4, 5, 6])?;
//! // What another library is given, as the pointer `into_raw` answers.
//! let given = to_dlpack::<DLManagedTensorVersioned>(&client, &descriptor, &layout)?;
//! // SAFETY: a tensor of this process, which nobody else uses.
//! let (_, back) = unsafe { from_dlpack(&client, given) }?;
//! client.fill(&back.memory, &[9])?;
//! assert_eq!(client.read_one(&layout.memory)?.as_slice()?, [9; 6]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [DLPack]: https://dmlc.github.io/dlpack/latest/

extern crate alloc;

mod elem;
mod error;
mod export;
mod import;

pub use error::DlpackError;
pub use export::to_dlpack;
pub use import::{copy_from_dlpack, from_dlpack};

/// The C interface, and what owns a tensor of it.
pub use dlpark;
pub use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
pub use dlpark::{Managed, ManagedTensorBase};
