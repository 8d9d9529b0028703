//! A tensor of a device for another library.

#![allow(unsafe_code)]

use crate::elem::to_data_type;
use crate::error::DlpackError;
use alloc::vec::Vec;
use dlpark::ffi::DLDevice;
use dlpark::metadata::Dynamic;
use dlpark::{Managed, ManagedTensorBase};
use trunnion_backend_host::{HostResource, NAME};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::{MemoryLayout, Rows, TensorDescriptor};

/// The tensor that lies so on a device of the host, for another library of the process, without a copy. The device's memory stays alive and
/// where it is until the tensor's deleter is called, which dropping the answer does; on any thread, and perhaps after the device has ended.
///
/// Waits until everything issued on the memory is done. What the other library does with the tensor after that is in no order with the
/// device's work: a program calls the two in turn, or uses [points](trunnion_runtime_core::client::Client::import_event).
///
/// # Errors
/// [`Error::Unsupported`] for another backend than the host's, [`Error::UnsupportedStrides`] and [`Error::OutOfRange`] for a layout that is
/// not one of its memory, and as for [`Client::export`].
pub fn to_dlpack<M: ManagedTensorBase>(
    client: &Client,
    tensor: &TensorDescriptor,
    layout: &MemoryLayout,
) -> Result<Managed<M>, DlpackError> {
    check_host(client, "to_dlpack")?;
    let data_type = to_data_type(tensor.elem)?;
    let rows = Rows::new(&tensor.shape, &layout.strides, tensor.elem.size(), layout.memory.size_in_used())?;
    let (shape, strides) = (signed(&tensor.shape)?, signed(&layout.strides)?);
    let metadata = Dynamic::new(shape, strides);
    let too_many = |error: dlpark::metadata::Error| {
        let why = error.to_string().into();
        Error::UnsupportedStrides { shape: tensor.shape.clone(), strides: layout.strides.clone(), why }
    };
    let (mut initialized, data) = if rows.size() == 0 {
        (metadata.initialize_as::<M>(Box::new(())).map_err(too_many)?, core::ptr::null_mut())
    } else {
        let resource = client.export::<HostResource>(&layout.memory)?;
        let data = resource.pointer();
        (metadata.initialize_as::<M>(Box::new(resource)).map_err(too_many)?, data)
    };
    initialized.set_data(data.cast()).set_device(DLDevice::CPU).set_dtype(data_type);
    // SAFETY: the resource, which the tensor owns, keeps the memory; the rows lie inside it, as was checked; it may be written.
    Ok(unsafe { initialized.finish() })
}

/// A device of another backend has no memory that DLPack could name.
pub(crate) fn check_host(client: &Client, what: &'static str) -> Result<(), Error> {
    let backend = client.device_id().backend;
    if backend == NAME { Ok(()) } else { Err(Error::Unsupported { what: what.into(), backend }) }
}

fn signed(values: &[u64]) -> Result<Vec<i64>, Error> {
    let convert = |value: &u64| i64::try_from(*value).map_err(|_| Error::SizeOverflow { what: "tensor".into() });
    values.iter().map(convert).collect()
}
