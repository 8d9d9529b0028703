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
