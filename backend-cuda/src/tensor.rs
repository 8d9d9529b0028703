//! Tensor maps, as the driver writes them: 128 bytes that a kernel takes by value.

use crate::device::Device;
use core::ptr;
use cudarc::driver::sys;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::kernel::{Swizzle, TensorMap, TensorShape};

use sys::{
    CUtensorMapDataType_enum as DataType, CUtensorMapFloatOOBfill_enum as Fill,
    CUtensorMapInterleave_enum as Interleave, CUtensorMapL2promotion_enum as Promotion,
    CUtensorMapSwizzle_enum as Permutation,
};

/// Words of a map.
pub(crate) const WORDS: usize = size_of::<sys::CUtensorMap>() / size_of::<u64>();

/// The oldest hardware that has them.
pub(crate) const CAPABILITY: (u32, u32) = (9, 0);

/// The map of a tensor of this shape at an address. The context is current.
///
/// # Errors
/// [`Error::Unsupported`] where the driver has none, or none of these elements; what the driver answers.
pub(crate) fn encode(
    device: &Device,
    map: &TensorMap,
    shape: &TensorShape,
    address: sys::CUdeviceptr,
) -> Result<[u64; WORDS]> {
    let unsupported = |what: &'static str| Error::Unsupported { what: what.into(), backend: crate::NAME };
    let encode = device.functions().cuTensorMapEncodeTiled.ok_or_else(|| unsupported("a kernel with tensor maps"))?;
    let kind = kind(map.elem).ok_or_else(|| unsupported("a tensor map of these elements"))?;
    let swizzle = match map.swizzle {
        Swizzle::Within32 => Permutation::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::Within64 => Permutation::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::Within128 => Permutation::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => Permutation::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    let steps = [1_u32; 5];
    let mut made = sys::CUtensorMap { opaque: [0; WORDS] };
    // SAFETY: the place is for a map; there are as many sizes, strides, sizes of a tile and steps as the tensor has dimensions, of the strides
    // one less. Nothing is read at the address.
    let code = unsafe {
        encode(
            &raw mut made,
            kind,
            shape.sizes().len() as u32,
            ptr::without_provenance_mut(address as usize),
            shape.sizes().as_ptr(),
            shape.strides().as_ptr(),
            map.tile.as_ptr(),
            steps.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    device.check("cuTensorMapEncodeTiled", code)?;
    Ok(made.opaque)
}

/// What the driver calls elements. Copies move bytes, so signs that it has no name for make no difference.
fn kind(elem: ElemType) -> Option<DataType> {
    Some(match elem {
        ElemType::F64 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        ElemType::F32 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        ElemType::F16 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        ElemType::BF16 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        ElemType::I64 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
        ElemType::U64 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        ElemType::I32 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        ElemType::U32 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        ElemType::I16 | ElemType::U16 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        ElemType::I8 | ElemType::U8 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        _ => return None,
    })
}
