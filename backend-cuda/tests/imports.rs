//! Memory of somebody else, of every kind that a driver has: used where it is, as far as it goes.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Context, Rig, all, claim, done, double, each_with, part, raw};
use std::ptr;
use trunnion_backend_core::driver::{Driver, Imported};
use trunnion_backend_cuda::{CudaImport, CudaOptions, CudaPage};
use trunnion_cuda_raw::Pieces;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;

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
        let (context, mut start) = (Context::of(&rig.device), ptr::null_mut());
        // SAFETY: the place is for an address, and the context is current.
        context.within(|| unsafe { done(raw().cuMemHostAlloc(&mut start, 4096, 0)) });
        let address = start.expose_provenance() as u64;
        let page = import(rig, address + 16, 4080).unwrap();
        fill(rig, &page, 7);
        // SAFETY: as long as this, and the device is done with it.
        assert_eq!(unsafe { std::slice::from_raw_parts(start.cast::<u8>().add(16), 4080) }, [7; 4080]);
        let refused = import(rig, address + 16, 4081).unwrap_err();
        assert!(matches!(&refused, Error::OutOfRange { range, size: 4096, .. } if *range == (16..4097)), "{refused}");
        rig.driver.release(page);
        // SAFETY: the device is done with it.
        context.within(|| unsafe { done(raw().cuMemFreeHost(start)) });
    });
}

#[test]
fn memory_that_is_mapped_piece_by_piece_is_used_across_its_seams() {
    each_with(&CudaOptions::default(), |rig| {
        let context = Context::of(&rig.device);
        let pieces = context.within(|| {
            let mut pieces = Pieces::reserve(raw(), context.ordinal(), 2).unwrap().unwrap();
            (0..2).for_each(|_| pieces.add().unwrap());
            pieces.let_go().unwrap();
            pieces
        });
        let seam = pieces.address + pieces.size as u64;
        let page = import(rig, seam - 1024, 2048).unwrap();
        fill(rig, &page, 9);
        assert_eq!(rig.read(all(&page)), [9; 2048]);
        let refused = import(rig, seam - 1024, pieces.size as u64 + 1025).unwrap_err();
        assert!(matches!(&refused, Error::OutOfRange { size: 0x40_0000, .. }), "{refused}");
        rig.driver.release(page);
        // SAFETY: the device is done with it.
        context.within(|| unsafe { pieces.give_back() }.unwrap());
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
