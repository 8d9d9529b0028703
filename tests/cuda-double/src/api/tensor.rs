//! Tensor maps.

use super::exports;
use super::pointers::{In, Out};
use crate::codes::Code;
use crate::context as contexts;
use crate::report::ReportKind;
use crate::tensor::{MOST_DIMENSIONS, Swizzle, TensorMap};

/// Bytes of an element, by the numbers of `CUtensorMapDataType`.
const SIZES: [u64; 13] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4];

exports! {
    fn cuTensorMapEncodeTiled(
        out: Out<[u8; TensorMap::BYTES]>, kind: u32, rank: u32, address: u64, dimensions: In<u64>, strides: In<u64>,
        sizes: In<u32>, element_strides: In<u32>, interleave: u32, swizzle: u32, _promotion: u32, fill: u32,
    ) {
        let context = contexts::current()?;
        let refuse = |code: Code, why: String| {
            context.device.report(if code == Code::NOT_SUPPORTED { ReportKind::Unsupported } else { ReportKind::BadCall }, why);
            Err(code)
        };
        let rank = rank as usize;
        if rank == 0 || rank > MOST_DIMENSIONS {
            return refuse(Code::INVALID_VALUE, format!("tensor map: {rank} dimensions, between 1 and {MOST_DIMENSIONS} are possible"));
        }
        let Some(element) = SIZES.get(kind as usize) else {
            return refuse(Code::NOT_SUPPORTED, format!("tensor map: the element type {kind} is not known to the double"));
        };
        let Some(swizzle) = Swizzle::from_number(swizzle) else {
            return refuse(Code::NOT_SUPPORTED, format!("tensor map: the swizzle {swizzle} is not known to the double"));
        };
        if interleave != 0 || element_strides.list(rank)?.iter().any(|stride| *stride != 1) {
            return refuse(Code::NOT_SUPPORTED, "tensor map: interleaving and strides of elements are not known to the double".to_owned());
        }
        let map = TensorMap {
            address,
            element: *element,
            dimensions: dimensions.list(rank)?,
            strides: strides.list(rank - 1)?,
            sizes: sizes.list(rank)?,
            swizzle,
            fills_nan: fill == 1,
        };
        match map.check() {
            Ok(()) => out.set(map.encode()),
            Err(why) => refuse(Code::INVALID_VALUE, format!("tensor map: {why}")),
        }
    }
}
