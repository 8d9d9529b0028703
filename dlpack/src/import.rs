//! A tensor of another library for a device.

#![allow(unsafe_code)]

use crate::elem::from_data_type;
use crate::error::DlpackError;
use crate::export::check_host;
use alloc::vec::Vec;
use dlpark::ffi::DLDeviceType;
use dlpark::tensor::TensorRef;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use trunnion_backend_host::HostImport;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::{MemoryLayout, TensorDescriptor};

/// A tensor of another library as memory of a device of the host, without a copy. The tensor's deleter is called once: when the last
/// handle is gone and everything issued on the memory is done, on a thread that does not have the device, or where this call is refused.
///
/// A stride of 0, which repeats elements, is taken; what reads or writes such a tensor as a whole refuses it.
///
/// # Errors
/// [`DlpackError`]; of the device's own errors [`Error::Unsupported`] for another backend than the host's, [`Error::Misaligned`] for elements
/// that begin at another address than the device's kernels need, and as for [`Client::import`].
///
/// # Safety
/// The tensor is what it says: its elements are there and initialized until its deleter is called, which may be done on any thread. Nobody
/// else uses them meanwhile in a way that conflicts with what is issued on the memory.
pub unsafe fn from_dlpack<M: ManagedTensorBase + 'static>(
    client: &Client,
    tensor: Managed<M>,
) -> Result<(TensorDescriptor, MemoryLayout), DlpackError> {
    check_host(client, "from_dlpack")?;
    if tensor.flags().contains(DlpackFlags::READ_ONLY) {
        return Err(DlpackError::ReadOnly);
    }
    let form = Form::of(&tensor.validate()?)?;
    let Form { descriptor, strides, first, size } = form;
    // SAFETY: the caller promises that the elements are there, and are used by nobody else, until the deleter is called; these bytes are the
    // elements from the first to the last.
    let memory = unsafe { HostImport::from_raw(first, size, tensor) };
    Ok((descriptor, MemoryLayout { memory: client.import(memory)?, strides }))
}

/// A copy of a tensor of another library, on any device. The tensor is read before the call returns, and may be read-only; its elements lie
/// one after another.
///
/// # Errors
/// [`DlpackError`], and as for [`Client::create_tensor`].
///
/// # Safety
/// The tensor is what it says: its elements are there and initialized, and nobody writes them during the call.
pub unsafe fn copy_from_dlpack<M: ManagedTensorBase>(
    client: &Client,
    tensor: &Managed<M>,
) -> Result<(TensorDescriptor, MemoryLayout), DlpackError> {
    let view = tensor.validate()?;
    let Form { descriptor, first, size, .. } = Form::of(&view)?;
    if !view.is_compact()? {
        return Err(refuse(&view, "elements with gaps between them are not copied"));
    }
    let bytes = match size {
        0 => Bytes::from_vec(Vec::new()),
        // SAFETY: the caller promises that the elements are there, and these are their bytes.
        _ => Bytes::copy_from_slice(unsafe { core::slice::from_raw_parts(first, size) }),
    };
    let layout = client.create_tensor(&descriptor, bytes)?;
    Ok((descriptor, layout))
}

/// A tensor of DLPack as a device sees it.
struct Form {
    descriptor: TensorDescriptor,
    strides: Vec<u64>,
    /// Where its first element is.
    first: *mut u8,
    /// Its bytes from the first to the last, gaps included.
    size: usize,
}

impl Form {
    fn of(view: &TensorRef<'_>) -> Result<Self, DlpackError> {
        let device = view.device();
        if device.device_type != DLDeviceType::CPU {
            return Err(DlpackError::Device { kind: device.device_type.0, index: device.device_id });
        }
        let elem = from_data_type(view.dtype())?;
        let overflow = || Error::SizeOverflow { what: "tensor".into() };
        let unsigned = |value: &i64, why| u64::try_from(*value).map_err(|_| refuse(view, why));
        let shape: Vec<u64> = view.shape().iter().map(|n| unsigned(n, "a negative size")).collect::<Result<_, _>>()?;
        let strides = view.strides_or_compact()?;
        let strides: Vec<u64> = strides.iter().map(|n| unsigned(n, "a negative stride")).collect::<Result<_, _>>()?;
        let descriptor = TensorDescriptor::contiguous(shape, elem);
        if descriptor.shape.contains(&0) {
            return Ok(Self { descriptor, strides, first: core::ptr::null_mut(), size: 0 });
        }
        let last = descriptor
            .shape
            .iter()
            .zip(&strides)
            .try_fold(0u64, |last, (n, stride)| last.checked_add((n - 1).checked_mul(*stride)?));
        let bytes = last.and_then(|last| last.checked_add(1)?.checked_mul(elem.size())).ok_or_else(overflow)?;
        let size = isize::try_from(bytes).map_err(|_| overflow())? as usize;
        let offset = usize::try_from(view.byte_offset()).map_err(|_| overflow())?;
        let first = view.data_ptr().cast_mut().cast::<u8>();
        if first.is_null() {
            return Err(dlpark::tensor::Error::NullData.into());
        }
        Ok(Self { descriptor, strides, first: first.wrapping_add(offset), size })
    }
}

fn refuse(view: &TensorRef<'_>, why: &'static str) -> DlpackError {
    let strides = view.strides().unwrap_or_default().to_vec();
    DlpackError::Layout { shape: view.shape().to_vec(), strides, why: why.into() }
}
