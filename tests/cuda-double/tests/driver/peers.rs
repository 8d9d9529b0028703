//! Several devices: copies between them, and access of kernels to each other's memory.

use cudarc::driver::{DevicePtr, PushKernelArg, sys};
use trunnion_cuda_double::ReportKind;

use crate::gpu::{Gpu, block, raw};

#[test]
fn copies_between_devices_need_no_access() {
    let (a, b) = (Gpu::claim(), Gpu::claim());
    let from = a.stream.clone_htod(&[1i32, 2, 3]).unwrap();
    a.stream.synchronize().unwrap();
    b.context.bind_to_thread().unwrap();
    let to = b.stream.alloc_zeros::<i32>(3).unwrap();
    let (from, target) = (from.device_ptr(&a.stream).0, to.device_ptr(&b.stream).0);
    b.context.bind_to_thread().unwrap();
    let (ca, cb) = (a.context.cu_ctx(), b.context.cu_ctx());
    assert_eq!(raw(unsafe { sys::cuMemcpyPeerAsync(target, cb, from, ca, 12, b.stream.cu_stream()) }), 0);
    assert_eq!(b.stream.clone_dtoh(&to).unwrap(), [1, 2, 3]);
    a.clean();
    b.clean();
}

#[test]
fn kernels_reach_another_device_only_with_access() {
    let (a, b) = (Gpu::claim(), Gpu::claim());
    b.context.bind_to_thread().unwrap();
    let mut there = 0;
    assert_eq!(raw(unsafe { sys::cuMemAlloc_v2(&raw mut there, 12) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemsetD32_v2(there, 7, 3) }), 0);
    let kernel = a.kernel("memory", "add_one");
    a.context.bind_to_thread().unwrap();
    let launched = unsafe { a.stream.launch_builder(&kernel).arg(&there).arg(&3i32).launch(block(3)) };
    assert_eq!(a.came_to(launched), 700);
    a.noticed(ReportKind::Fault, &["has no peer access"]);
    a.device.reset().unwrap();

    let mut can = 0;
    let ordinals = (a.device.ordinal(), b.device.ordinal());
    assert_eq!(raw(unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, ordinals.0, ordinals.1) }), 0);
    assert_eq!(can, 1);
    assert_eq!(raw(unsafe { sys::cuCtxEnablePeerAccess(b.context.cu_ctx(), 0) }), 0);
    assert_eq!(raw(unsafe { sys::cuCtxEnablePeerAccess(b.context.cu_ctx(), 0) }), 704);
    let launched = unsafe { a.stream.launch_builder(&kernel).arg(&there).arg(&3i32).launch(block(3)) };
    assert_eq!(a.came_to(launched), 0);
    let mut found = [0i32; 3];
    b.context.bind_to_thread().unwrap();
    assert_eq!(raw(unsafe { sys::cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), there, 12) }), 0);
    assert_eq!(found, [8; 3]);
    a.context.bind_to_thread().unwrap();
    assert_eq!(raw(unsafe { sys::cuCtxDisablePeerAccess(b.context.cu_ctx()) }), 0);
    assert_eq!(raw(unsafe { sys::cuCtxDisablePeerAccess(b.context.cu_ctx()) }), 705);
    a.clean();
}

#[test]
fn devices_that_do_not_reach_each_other_say_so() {
    let (a, b) = (Gpu::claim(), Gpu::claim());
    a.device.set_reaches(b.device, false).unwrap();
    let mut can = 1;
    let ordinals = (a.device.ordinal(), b.device.ordinal());
    assert_eq!(raw(unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, ordinals.0, ordinals.1) }), 0);
    assert_eq!(can, 0);
    a.context.bind_to_thread().unwrap();
    assert_eq!(raw(unsafe { sys::cuCtxEnablePeerAccess(b.context.cu_ctx(), 0) }), 217);
}

/// What a pointer is asked, as a number.
fn asked(wanted: sys::CUpointer_attribute, address: u64) -> (u32, u64) {
    let mut found = 99;
    let code = raw(unsafe { sys::cuPointerGetAttribute((&raw mut found).cast(), wanted, address) });
    (code, found)
}

#[test]
fn access_is_to_what_a_context_made_and_ends_with_that_context() {
    let (a, b) = (Gpu::claim(), Gpu::claim());
    let ordinal = b.device.ordinal();
    let kernel = a.kernel("memory", "add_one");
    let reach = |context: sys::CUcontext, code: u32| {
        let (mut there, mut found) = (0, [0i32; 3]);
        unsafe {
            assert_eq!(raw(sys::cuCtxSetCurrent(context)), 0);
            assert_eq!(raw(sys::cuMemAlloc_v2(&raw mut there, 12)), 0);
            assert_eq!(raw(sys::cuMemsetD32_v2(there, 7, 3)), 0);
            assert_eq!(raw(sys::cuCtxSynchronize()), 0);
            a.context.bind_to_thread().unwrap();
            let maker = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT;
            assert_eq!(asked(maker, there), (0, context.expose_provenance() as u64));
            assert_eq!(raw(sys::cuCtxEnablePeerAccess(context, 0)), code);
            assert_eq!(a.came_to(a.stream.launch_builder(&kernel).arg(&there).arg(&3i32).launch(block(3))), 0);
            assert_eq!(raw(sys::cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), there, 12)), 0);
            assert_eq!(raw(sys::cuMemFree_v2(there)), 0);
        }
        assert_eq!(found, [8; 3]);
    };
    let mut context = b.context.cu_ctx();
    reach(context, 0);
    reach(context, 704);
    // The device's primary context is another one when it was let go of by all.
    drop((b.stream, b.context));
    assert_eq!(raw(unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, ordinal) }), 0);
    reach(context, 0);
    assert_eq!(raw(unsafe { sys::cuDevicePrimaryCtxRelease_v2(ordinal) }), 0);
    a.clean();
}

#[test]
fn memory_that_is_mapped_is_opened_to_a_device_mapping_by_mapping() {
    let (a, b) = (Gpu::claim(), Gpu::claim());
    let location = |gpu: &Gpu| sys::CUmemLocation {
        type_: sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
        id: gpu.device.ordinal(),
    };
    let access = sys::CUmemAccessDesc {
        location: location(&a),
        flags: sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let mut properties: sys::CUmemAllocationProp = unsafe { core::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(&b);
    let (size, mut base, mut memory, mut kept) = (2 << 20, 0, 0, 0);
    a.context.bind_to_thread().unwrap();
    unsafe {
        assert_eq!(raw(sys::cuMemAddressReserve(&raw mut base, 2 * size, 0, 0, 0)), 0);
        let seam = base + size as u64;
        for at in [base, seam] {
            assert_eq!(raw(sys::cuMemCreate(&raw mut memory, size, &raw const properties, 0)), 0);
            assert_eq!(raw(sys::cuMemMap(at, size, 0, memory, 0)), 0);
            assert_eq!(raw(sys::cuMemRelease(memory)), 0);
        }
        use sys::CUpointer_attribute as Attribute;
        assert_eq!(asked(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, seam + 8), (0, 0));
        assert_eq!(asked(Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, seam + 8), (0, 0));
        assert_eq!(asked(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, seam + 8), (0, seam));
        assert_eq!(asked(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, seam + 8), (0, size as u64));
        // Part of a mapping is none.
        assert_eq!(raw(sys::cuMemSetAccess(base, size + 4096, &raw const access, 1)), 1);
        assert_eq!(raw(sys::cuMemSetAccess(base + 4096, size - 4096, &raw const access, 1)), 1);
        assert_eq!(raw(sys::cuMemSetAccess(base, 2 * size, &raw const access, 1)), 0);
        // A handle tells what is mapped from what is not.
        assert_eq!(raw(sys::cuMemRetainAllocationHandle(&raw mut kept, (seam + 8) as *mut _)), 0);
        assert_eq!(raw(sys::cuMemRelease(kept)), 0);
        let mut plain = 0;
        assert_eq!(raw(sys::cuMemAlloc_v2(&raw mut plain, 64)), 0);
        assert_eq!(raw(sys::cuMemRetainAllocationHandle(&raw mut kept, plain as *mut _)), 1);
        assert_eq!(raw(sys::cuMemFree_v2(plain)), 0);
        a.device.set_reaches(b.device, false).unwrap();
        assert_eq!(raw(sys::cuMemSetAccess(base, 2 * size, &raw const access, 1)), 217);
        assert_eq!(raw(sys::cuMemUnmap(base, 2 * size)), 0);
        assert_eq!(raw(sys::cuMemAddressFree(base, 2 * size)), 0);
    }
    a.clean();
}
