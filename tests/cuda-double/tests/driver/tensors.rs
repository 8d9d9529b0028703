//! Asynchronous copies, barrier objects and tensor maps.

use core::ptr;

use cudarc::driver::{DevicePtr, PushKernelArg, sys};
use trunnion_cuda_double::ReportKind;

use crate::gpu::{Gpu, block, raw};

/// A tensor map, as a kernel takes it by value.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Map(sys::CUtensorMap);

unsafe impl cudarc::driver::DeviceRepr for Map {}

/// A map of numbers of 32 bits, `w` in a row and `h` rows, of which a box has 8 by 4.
fn map(address: u64, w: u64, h: u64, pitch: u64) -> (u32, Map) {
    let mut map: sys::CUtensorMap = unsafe { core::mem::zeroed() };
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            sys::CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_INT32,
            2,
            ptr::with_exposed_provenance_mut(address as usize),
            [w, h].as_ptr(),
            [pitch].as_ptr(),
            [8u32, 4].as_ptr(),
            [1u32, 1].as_ptr(),
            sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_NONE,
            sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    (raw(result), Map(map))
}

#[test]
fn a_tile_comes_with_zeros_where_it_hangs_over() {
    let gpu = Gpu::claim();
    let (w, h) = (20usize, 10usize);
    let input: Vec<i32> = (1..=(w * h) as i32).collect();
    let device = gpu.stream.clone_htod(&input).unwrap();
    let (code, map) = map(device.device_ptr(&gpu.stream).0, w as u64, h as u64, w as u64 * 4);
    assert_eq!(code, 0);
    let kernel = gpu.kernel("copies", "tile");
    for (x, y) in [(0i32, 0i32), (5, 3), (16, 8), (-3, -1)] {
        let mut out = gpu.stream.alloc_zeros::<i32>(32).unwrap();
        unsafe { gpu.stream.launch_builder(&kernel).arg(&map).arg(&mut out).arg(&x).arg(&y).launch(block(32)) }
            .unwrap();
        let found = gpu.stream.clone_dtoh(&out).unwrap();
        for (at, found) in found.iter().enumerate() {
            let (column, row) = (x + at as i32 % 8, y + at as i32 / 8);
            let inside = (0..w as i32).contains(&column) && (0..h as i32).contains(&row);
            let expected = if inside { input[row as usize * w + column as usize] } else { 0 };
            assert_eq!(*found, expected, "tile at {x}, {y}, element {at}");
        }
    }
    gpu.clean();
}

#[test]
fn a_tile_is_put_back_where_it_lies_inside() {
    let gpu = Gpu::claim();
    let (w, h) = (12usize, 5usize);
    let device = gpu.stream.alloc_zeros::<i32>(w * h).unwrap();
    let (_, map) = map(device.device_ptr(&gpu.stream).0, w as u64, h as u64, w as u64 * 4);
    let kernel = gpu.kernel("copies", "put_tile");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&map).arg(&8i32).arg(&3i32).launch(block(32)) }.unwrap();
    let found = gpu.stream.clone_dtoh(&device).unwrap();
    for (at, found) in found.iter().enumerate() {
        let (column, row) = (at % w, at / w);
        let expected = if column >= 8 && row >= 3 { (row - 3) * 8 + column - 8 } else { 0 };
        assert_eq!(*found, expected as i32, "element {at}");
    }
    gpu.clean();
}

#[test]
fn maps_that_hardware_refuses_are_refused() {
    let gpu = Gpu::claim();
    assert_eq!(map(0x2_0000_0008, 16, 4, 64).0, 1);
    gpu.noticed(ReportKind::BadCall, &["tensor map", "no multiple of 16"]);
    assert_eq!(map(0x2_0000_0000, 16, 4, 40).0, 1);
    gpu.noticed(ReportKind::BadCall, &["a stride of 40 bytes"]);
}

#[test]
fn small_copies_are_there_once_they_are_waited_for() {
    let gpu = Gpu::claim();
    let input: Vec<i32> = (0..64).collect();
    let device = gpu.stream.clone_htod(&input).unwrap();
    let kernel = gpu.kernel("copies", "small_copies");
    for (waits, expected) in [(1i32, input.iter().rev().copied().collect::<Vec<_>>()), (0, vec![-1; 64])] {
        let mut out = gpu.stream.alloc_zeros::<i32>(64).unwrap();
        unsafe { gpu.stream.launch_builder(&kernel).arg(&device).arg(&mut out).arg(&waits).launch(block(64)) }.unwrap();
        assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), expected, "waits: {waits}");
    }
}

#[test]
fn phases_of_a_barrier_object_order_the_block() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.alloc_zeros::<i32>(64).unwrap();
    let kernel = gpu.kernel("copies", "phases");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(64)) }.unwrap();
    let found = gpu.stream.clone_dtoh(&out).unwrap();
    assert_eq!(found, (0..64).map(|t: i32| 3 * 64 + (t + 61) % 64).collect::<Vec<_>>());
    gpu.clean();
}
