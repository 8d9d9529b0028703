//! Memory: budgets, pools, pages apart from addresses, memory of the program, copies of every shape.

use core::ffi::c_void;
use core::ptr;

use cudarc::driver::{PushKernelArg, sys};
use trunnion_cuda_double::ReportKind;

use crate::gpu::{Gpu, block, code, raw};

const MIB: usize = 1 << 20;

fn info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    assert_eq!(raw(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }), 0);
    (free, total)
}

#[test]
fn a_device_has_as_much_memory_as_it_is_given() {
    let gpu = Gpu::claim();
    gpu.device.set_memory(3 * MIB as u64).unwrap();
    assert_eq!(info(), (3 * MIB, 3 * MIB));
    let mut address = 0;
    assert_eq!(raw(unsafe { sys::cuMemAlloc_v2(&raw mut address, 2 * MIB) }), 0);
    assert_eq!(info(), (MIB, 3 * MIB));
    let mut other = 0;
    assert_eq!(raw(unsafe { sys::cuMemAlloc_v2(&raw mut other, 2 * MIB) }), 2);
    assert_eq!(raw(unsafe { sys::cuMemAlloc_v2(&raw mut other, 0) }), 1);
    assert_eq!(raw(unsafe { sys::cuMemFree_v2(address) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemAlloc_v2(&raw mut other, 2 * MIB) }), 0);
    assert_ne!(other, address);
    assert_eq!(raw(unsafe { sys::cuMemFree_v2(other) }), 0);
    assert_eq!(gpu.device.memory_used().unwrap(), 0);
    gpu.clean();
}

#[test]
fn allocations_in_the_order_of_a_stream_come_from_its_pool() {
    let gpu = Gpu::claim();
    let (stream, other) = (gpu.stream.cu_stream(), gpu.context.new_stream().unwrap());
    let mut pool = ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, gpu.device.ordinal()) }), 0);
    let used = |attribute| {
        let mut bytes = 0u64;
        assert_eq!(raw(unsafe { sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()) }), 0);
        bytes as usize
    };
    let reserved = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    let in_use = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    let threshold = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;

    let mut address = 0;
    assert_eq!(raw(unsafe { sys::cuMemAllocAsync(&raw mut address, MIB, stream) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemsetD8Async(address, 1, MIB, stream) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemFreeAsync(address, stream) }), 0);
    gpu.stream.synchronize().unwrap();
    assert_eq!((used(in_use), used(reserved)), (0, MIB));
    // Synchronising the context gives back what is above the threshold, which is zero.
    gpu.context.synchronize().unwrap();
    assert_eq!(used(reserved), 0);
    let mut most = u64::MAX;
    assert_eq!(raw(unsafe { sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut most).cast()) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemAllocAsync(&raw mut address, MIB, stream) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemFreeAsync(address, stream) }), 0);
    gpu.context.synchronize().unwrap();
    assert_eq!(used(reserved), MIB);
    assert_eq!(raw(unsafe { sys::cuMemPoolTrimTo(pool, 0) }), 0);
    assert_eq!(used(reserved), 0);
    gpu.clean();

    // Another stream uses it, and nothing orders that after the allocation.
    assert_eq!(raw(unsafe { sys::cuMemAllocAsync(&raw mut address, MIB, stream) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemsetD8Async(address, 1, 64, other.cu_stream()) }), 0);
    gpu.context.synchronize().unwrap();
    gpu.noticed(ReportKind::StreamRace, &["whose allocation"]);
    // It is freed while another stream may still use it.
    assert_eq!(raw(unsafe { sys::cuMemsetD8Async(address, 1, 64, other.cu_stream()) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemFreeAsync(address, stream) }), 0);
    gpu.context.synchronize().ok();
    let reports = gpu.reports();
    assert!(
        reports.iter().any(|report| report.text.contains("frees") || report.text.contains("use after free")),
        "{reports:?}"
    );
    gpu.device.reset().unwrap();
}

#[test]
fn memory_and_addresses_come_apart() {
    let gpu = Gpu::claim();
    let granularity = 2 * MIB;
    let mut properties: sys::CUmemAllocationProp = unsafe { core::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu.device.ordinal();
    let grant = sys::CUmemAccessDesc {
        location: properties.location,
        flags: sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let (mut base, mut first, mut second) = (0, 0, 0);
    unsafe {
        assert_eq!(raw(sys::cuMemAddressReserve(&raw mut base, 3 * granularity, 0, 0, 0)), 0);
        assert_eq!(raw(sys::cuMemCreate(&raw mut first, granularity, &raw const properties, 0)), 0);
        assert_eq!(raw(sys::cuMemCreate(&raw mut second, granularity, &raw const properties, 0)), 0);
        assert_eq!(raw(sys::cuMemCreate(&raw mut second, 1000, &raw const properties, 0)), 1);
        assert_eq!(raw(sys::cuMemMap(base, granularity, 0, first, 0)), 0);
        assert_eq!(raw(sys::cuMemMap(base + granularity as u64, granularity, 0, second, 0)), 0);
    }
    assert_eq!(gpu.device.memory_used().unwrap(), 2 * granularity as u64);
    let border = base + granularity as u64 - 32;
    let mut seen = [0u8; 64];
    unsafe {
        // Mapped, and not yet anybody's to touch.
        assert_eq!(raw(sys::cuMemsetD8Async(border, 3, 64, gpu.stream.cu_stream())), 0);
        assert_eq!(code(gpu.stream.synchronize()), 700);
        gpu.noticed(ReportKind::Fault, &["was given no access"]);
        gpu.device.reset().unwrap();
        assert_eq!(raw(sys::cuMemSetAccess(base, 2 * granularity, &raw const grant, 1)), 0);
        // One range, of two pieces.
        let (start, size) = (
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        );
        let (mut piece, mut range, mut bytes) = (0, 0u64, 0usize);
        assert_eq!(raw(sys::cuPointerGetAttribute((&raw mut range).cast(), start, border + 32)), 0);
        assert_eq!(raw(sys::cuPointerGetAttribute((&raw mut bytes).cast(), size, border + 32)), 0);
        assert_eq!((range, bytes), (base, 3 * granularity));
        assert_eq!(raw(sys::cuMemGetAddressRange_v2(&raw mut piece, &raw mut bytes, border + 32)), 0);
        assert_eq!((piece, bytes), (base + granularity as u64, granularity));
        // Side by side, they are as one.
        assert_eq!(raw(sys::cuMemsetD8Async(border, 3, 64, gpu.stream.cu_stream())), 0);
        assert_eq!(raw(sys::cuMemcpyDtoHAsync_v2(seen.as_mut_ptr().cast(), border, 64, gpu.stream.cu_stream())), 0);
        assert_eq!(seen, [3; 64]);
        // Beyond lies nothing.
        assert_eq!(raw(sys::cuMemsetD8Async(base + 2 * granularity as u64 - 8, 3, 64, gpu.stream.cu_stream())), 1);
        gpu.noticed(ReportKind::BadCall, &["out of bounds"]);
        // The same memory elsewhere holds the same.
        assert_eq!(raw(sys::cuMemUnmap(base, granularity)), 0);
        assert_eq!(raw(sys::cuMemMap(base + 2 * granularity as u64, granularity, 0, first, 0)), 0);
        assert_eq!(raw(sys::cuMemSetAccess(base + 2 * granularity as u64, granularity, &raw const grant, 1)), 0);
        let moved = border + 2 * granularity as u64;
        assert_eq!(raw(sys::cuMemcpyDtoHAsync_v2(seen.as_mut_ptr().cast(), moved, 32, gpu.stream.cu_stream())), 0);
        assert_eq!(seen[..32], [3; 32]);
        gpu.clean();
        // Addresses in use are not given back, and memory lives as long as it is mapped.
        assert_eq!(raw(sys::cuMemAddressFree(base, 3 * granularity)), 1);
        gpu.noticed(ReportKind::BadFree, &["while something is mapped"]);
        assert_eq!(raw(sys::cuMemRelease(first)), 0);
        assert_eq!(raw(sys::cuMemRelease(second)), 0);
        assert_eq!(gpu.device.memory_used().unwrap(), 2 * granularity as u64);
        assert_eq!(raw(sys::cuMemUnmap(base + granularity as u64, 2 * granularity)), 0);
        assert_eq!(raw(sys::cuMemAddressFree(base, 3 * granularity)), 0);
    }
    assert_eq!(gpu.device.memory_used().unwrap(), 0);
    gpu.clean();
}

#[test]
fn page_locked_memory_is_touched_when_its_turn_comes() {
    let gpu = Gpu::claim();
    let mut pointer: *mut c_void = ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuMemHostAlloc(&raw mut pointer, 64, 0) }), 0);
    let numbers: *mut i32 = pointer.cast();
    let device = gpu.stream.alloc_zeros::<i32>(16).unwrap();
    let address = {
        use cudarc::driver::DevicePtr;
        device.device_ptr(&gpu.stream).0
    };
    unsafe {
        for i in 0..16 {
            *numbers.add(i) = i as i32;
        }
        assert_eq!(raw(sys::cuMemcpyHtoDAsync_v2(address, pointer, 64, gpu.stream.cu_stream())), 0);
        assert_eq!(raw(sys::cuMemsetD8Async(address, 0, 4, gpu.stream.cu_stream())), 0);
        assert_eq!(raw(sys::cuMemcpyDtoHAsync_v2(pointer, address, 64, gpu.stream.cu_stream())), 0);
        gpu.stream.synchronize().unwrap();
        assert_eq!((*numbers, *numbers.add(15)), (0, 15));
        // A kernel reaches it at the address the program has it at.
        let kernel = gpu.kernel("memory", "add_one");
        let at = pointer.expose_provenance() as u64;
        gpu.stream.launch_builder(&kernel).arg(&at).arg(&16i32).launch(block(16)).unwrap();
        gpu.stream.synchronize().unwrap();
        assert_eq!((*numbers, *numbers.add(15)), (1, 16));
        assert_eq!(raw(sys::cuMemFreeHost(pointer)), 0);
        assert_eq!(raw(sys::cuMemFreeHost(pointer)), 1);
    }
    gpu.noticed(ReportKind::BadFree, &["no allocation begins"]);
}

#[test]
fn rectangles_and_cuboids_are_copied_row_by_row() {
    let gpu = Gpu::claim();
    let from: Vec<u8> = (0..60).collect();
    let device = gpu.stream.alloc_zeros::<u8>(16 * 8).unwrap();
    let address = {
        use cudarc::driver::DevicePtr;
        device.device_ptr(&gpu.stream).0
    };
    gpu.stream.synchronize().unwrap();
    let mut copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 2,
        srcY: 1,
        srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
        srcHost: from.as_ptr().cast(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 10,
        dstXInBytes: 4,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: address,
        dstArray: ptr::null_mut(),
        dstPitch: 16,
        WidthInBytes: 5,
        Height: 3,
    };
    assert_eq!(raw(unsafe { sys::cuMemcpy2D_v2(&raw const copy) }), 0);
    let found = gpu.stream.clone_dtoh(&device).unwrap();
    for row in 0..3 {
        let at = row * 16 + 4;
        let start = (row + 1) * 10 + 2;
        assert_eq!(found[at..at + 5], from[start..start + 5]);
        assert_eq!(found[at + 5], 0);
    }
    copy.WidthInBytes = 20;
    assert_eq!(raw(unsafe { sys::cuMemcpy2D_v2(&raw const copy) }), 1);
    gpu.clean();
}

#[test]
fn pointers_say_what_they_point_to() {
    let gpu = Gpu::claim();
    let mut address = 0;
    assert_eq!(raw(unsafe { sys::cuMemAlloc_v2(&raw mut address, 1000) }), 0);
    let (mut base, mut size, mut ordinal) = (0, 0, -1i32);
    assert_eq!(raw(unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address + 400) }), 0);
    assert_eq!((base, size), (address, 1000));
    let attribute = sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    assert_eq!(raw(unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, address + 1) }), 0);
    assert_eq!(ordinal, gpu.device.ordinal());
    assert_eq!(raw(unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, 16) }), 1);
    assert_eq!(raw(unsafe { sys::cuMemFree_v2(address + 8) }), 1);
    gpu.noticed(ReportKind::BadFree, &["no allocation begins"]);
    assert_eq!(raw(unsafe { sys::cuMemFree_v2(address) }), 0);
}
