//! A library that a program in another language loads: it hands out a tensor of a device, and doubles one it is given, where that is.
//!
//! `tests/python.rs` loads it into Python, whose NumPy is the other side.

#![allow(unsafe_code)]

use std::sync::OnceLock;
use trunnion_backend_host::HostBackend;
use trunnion_dlpack::dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use trunnion_dlpack::{Managed, ManagedTensorBase, from_dlpack, to_dlpack};
use trunnion_runtime_core::backend::Backend;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};
use trunnion_runtime_core::layout::TensorDescriptor;

type Failed = Box<dyn core::error::Error>;

/// The device, which lives as long as the process.
fn client() -> Result<&'static Client, Error> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    let backend = HostBackend::default();
    let device = DeviceId { backend: backend.name(), index: 0 };
    let client = Client::init(device, || backend.open(0, &Default::default()))?;
    Ok(CLIENT.get_or_init(|| client))
}

/// 2 by 3 floats, 1 to 6.
fn produce<M: ManagedTensorBase>() -> Result<*mut M, Failed> {
    let client = client()?;
    let descriptor = TensorDescriptor::contiguous([2, 3], ElemType::F32);
    let bytes: Vec<u8> = (1..=6).flat_map(|n| (n as f32).to_ne_bytes()).collect();
    let layout = client.create_tensor_from_slice(&descriptor, &bytes)?;
    Ok(to_dlpack::<M>(client, &descriptor, &layout)?.into_raw())
}

/// Doubles floats where they are.
fn double(tensor: Managed<DLManagedTensorVersioned>) -> Result<(), Failed> {
    let client = client()?;
    // SAFETY: whoever called this waits for it, and uses the tensor afterwards.
    let (_, layout) = unsafe { from_dlpack(client, tensor) }?;
    let kernel = SourceKernel::new("double", Interface::new().partition(layout.memory.size_in_used())).source(
        Source::host(|group| {
            group.part::<f32>(0)?.iter_mut().for_each(|x| *x *= 2.0);
            Ok(())
        }),
    );
    client.launch(&client.prepare(kernel)?, Grid::x(1), [&layout.memory])?;
    client.sync_buffers(&[&layout.memory])?;
    Ok(())
}

fn told<T>(what: &str, result: Result<T, Failed>) -> Option<T> {
    result.inspect_err(|error| eprintln!("{what}: {error}")).ok()
}

/// A tensor in the form of DLPack 1.x; null where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn capsule_produce_versioned() -> *mut DLManagedTensorVersioned {
    told("produce", produce()).unwrap_or(core::ptr::null_mut())
}

/// A tensor in the form before; null where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn capsule_produce() -> *mut DLManagedTensor {
    told("produce", produce()).unwrap_or(core::ptr::null_mut())
}

/// Doubles the tensor's elements, and calls its deleter. 0, or 1 where that failed.
///
/// # Safety
/// The tensor is the caller's, and valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capsule_double(tensor: *mut DLManagedTensorVersioned) -> i32 {
    // SAFETY: the caller's promise.
    let tensor = unsafe { Managed::from_raw(tensor) }.map_err(Failed::from);
    i32::from(told("double", tensor.and_then(double)).is_none())
}

/// The bytes of the device's memory that are in use, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn capsule_live() -> i64 {
    let live = client().and_then(|client| client.memory_usage()).map_err(Failed::from);
    told("live", live).map_or(-1, |usage| usage.live as i64)
}
