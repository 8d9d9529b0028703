//! Memory of somebody else, of every kind that a driver has: used where it is, as far as it goes.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Rig, all, claim, double, each_with, part};
use std::ptr;
use trunnion_backend_core::driver::{Driver, Imported};
use trunnion_backend_cuda::cudarc::driver::sys;
use trunnion_backend_cuda::{CudaImport, CudaOptions, CudaPage};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;

const GRANULARITY: usize = 2 << 20;

fn done(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

/// Does something with the primary context of the rig's device, as the program's own code does.
fn within<T>(rig: &Rig, work: impl FnOnce() -> T) -> T {
    let (mut context, raw) = (ptr::null_mut(), rig.device.ordinal());
    // SAFETY: the places are for handles, and what is taken is given back.
    unsafe {
        done(sys::cuDevicePrimaryCtxRetain(&mut context, raw));
        done(sys::cuCtxPushCurrent_v2(context));
    }
    let result = work();
    // SAFETY: as above.
    unsafe {
        done(sys::cuCtxPopCurrent_v2(&mut context));
        done(sys::cuDevicePrimaryCtxRelease_v2(raw));
    }
    result
}

fn import(rig: &mut Rig, address: u64, size: u64) -> Result<CudaPage> {
    // SAFETY: each test keeps its memory until the page is released, and uses it only while nothing is under way.
    let foreign = Foreign::new(unsafe { CudaImport::new(address, size, ()) });
    rig.driver.import(&foreign).map(|Imported { page, offset }| {
        assert_eq!((offset, page.address(), page.size()), (0, address, size));
        page
    })
}

fn fill(rig: &mut Rig, page: &CudaPage, byte: u8) {
    let mut stream = rig.driver.open_stream().unwrap();
    rig.fill(&mut stream, 1, all(page), &[byte]);
    rig.driver.submit(&mut stream, 1).unwrap();
    assert_eq!(rig.finish(&mut stream, 1).failed, []);
    rig.driver.close_stream(stream);
}

#[test]
fn page_locked_memory_of_the_programs_own_is_used_where_it_is() {
    each_with(&CudaOptions::default(), |rig| {
        let mut start = ptr::null_mut();
        // SAFETY: the place is for an address, and the context is current.
        within(rig, || unsafe { done(sys::cuMemHostAlloc(&mut start, 4096, 0)) });
        let address = start.expose_provenance() as u64;
        let page = import(rig, address + 16, 4080).unwrap();
        fill(rig, &page, 7);
        // SAFETY: as long as this, and the device is done with it.
        assert_eq!(unsafe { std::slice::from_raw_parts(start.cast::<u8>().add(16), 4080) }, [7; 4080]);
        let refused = import(rig, address + 16, 4081).unwrap_err();
        assert!(matches!(&refused, Error::OutOfRange { range, size: 4096, .. } if *range == (16..4097)), "{refused}");
        rig.driver.release(page);
        // SAFETY: the device is done with it.
        within(rig, || unsafe { done(sys::cuMemFreeHost(start)) });
    });
}

#[test]
fn memory_that_is_mapped_piece_by_piece_is_used_across_its_seams() {
    each_with(&CudaOptions::default(), |rig| {
        let location =
            sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: rig.device.ordinal() };
        let properties = sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location,
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location, flags };
        let mut base = 0;
        // SAFETY: the places are for an address and handles, and the context is current.
        within(rig, || unsafe {
            done(sys::cuMemAddressReserve(&mut base, 2 * GRANULARITY, 0, 0, 0));
            for piece in 0..2 {
                let (mut handle, address) = (0, base + (piece * GRANULARITY) as u64);
                done(sys::cuMemCreate(&mut handle, GRANULARITY, &properties, 0));
                done(sys::cuMemMap(address, GRANULARITY, 0, handle, 0));
                done(sys::cuMemRelease(handle));
            }
            done(sys::cuMemSetAccess(base, 2 * GRANULARITY, &access, 1));
        });
        let seam = base + GRANULARITY as u64;
        let page = import(rig, seam - 1024, 2048).unwrap();
        fill(rig, &page, 9);
        assert_eq!(rig.read(all(&page)), [9; 2048]);
        let refused = import(rig, seam - 1024, GRANULARITY as u64 + 1025).unwrap_err();
        assert!(matches!(&refused, Error::OutOfRange { size: 0x40_0000, .. }), "{refused}");
        rig.driver.release(page);
        // SAFETY: the device is done with it.
        within(rig, || unsafe {
            done(sys::cuMemUnmap(base, 2 * GRANULARITY));
            done(sys::cuMemAddressFree(base, 2 * GRANULARITY));
        });
    });
}

#[test]
fn what_the_driver_cannot_say_of_memory_is_no_refusal_and_a_lost_device_is_one() {
    const NOT_SUPPORTED: u32 = 801;
    const LAUNCH_FAILED: u32 = 719;
    let device = claim();
    let mut rig = Rig::new(device, &CudaOptions::default().library(double().path()));
    let own = rig.page_of_bytes(&[3; 256]);
    // Where the range begins, and how long it is.
    for nth in [3, 4] {
        device.fail("cuPointerGetAttribute", nth, NOT_SUPPORTED).unwrap();
        let page = import(&mut rig, own.address(), 256).unwrap();
        assert_eq!(rig.read(part(&page, 0, 256)), [3; 256]);
        rig.driver.release(page);
    }
    device.fail("cuPointerGetAttribute", 3, LAUNCH_FAILED).unwrap();
    let lost = import(&mut rig, own.address(), 256).unwrap_err();
    assert!(lost.is_device_lost() && lost.to_string().contains("cuPointerGetAttribute"), "{lost}");
    drop((own, rig));
    device.reset().unwrap();
}
