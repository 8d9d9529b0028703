//! Pieces of memory on the double: side by side they are as one, and nothing of them is left.

use core::ptr;
use trunnion_cuda_double::Double;
use trunnion_cuda_raw::{Driver, Pieces};

/// Bytes on either side of a seam.
const SIDE: usize = 64;

/// Runs a test with addresses for two pieces, on a device of the double's own whose context is current.
fn with_pieces(test: impl FnOnce(&'static Driver, &mut Pieces)) {
    let device = Double::open().unwrap().claim_device().unwrap();
    let (driver, mut context) = (Driver::of_process().unwrap(), ptr::null_mut());
    // SAFETY: the place is for a handle, and what is taken is given back.
    unsafe {
        assert_eq!(driver.cuInit(0), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, device.ordinal()), 0);
        assert_eq!(driver.cuCtxSetCurrent(context), 0);
    }
    let mut pieces = Pieces::reserve(driver, device.ordinal(), 2).unwrap().unwrap();
    test(driver, &mut pieces);
    // SAFETY: the device is done with them.
    unsafe { pieces.give_back() }.unwrap();
    assert_eq!((device.memory_used().unwrap(), device.take_reports().unwrap()), (0, Vec::new()));
    // SAFETY: it was retained once.
    unsafe {
        assert_eq!(driver.cuCtxSetCurrent(ptr::null_mut()), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(device.ordinal()), 0);
    }
    device.release().unwrap();
}

/// What is read around a seam that was filled in one call.
fn filled(driver: &Driver, seam: u64, value: u8) -> [u8; 2 * SIDE] {
    let mut found = [0; 2 * SIDE];
    // SAFETY: as many bytes on the device and here.
    unsafe {
        assert_eq!(driver.cuMemsetD8_v2(seam - SIDE as u64, value, found.len()), 0);
        assert_eq!(driver.cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), seam - SIDE as u64, found.len()), 0);
    }
    found
}

#[test]
fn pieces_are_used_as_one_whether_they_are_held_or_not() {
    for is_held in [true, false] {
        with_pieces(|driver, pieces| {
            pieces.add().unwrap();
            let seam = pieces.end();
            pieces.add().unwrap();
            assert_eq!((seam, pieces.held()), (pieces.address + pieces.size as u64, 2 * pieces.size));
            if !is_held {
                pieces.let_go().unwrap();
            }
            assert_eq!(filled(driver, seam, 7), [7; 2 * SIDE]);
        });
    }
}

#[test]
fn a_piece_that_is_not_counted_makes_way_for_another() {
    with_pieces(|driver, pieces| {
        pieces.add().unwrap();
        let seam = pieces.end();
        pieces.map().unwrap();
        assert_eq!(pieces.held(), pieces.size);
        pieces.unmap().unwrap();
        pieces.add().unwrap();
        assert_eq!(filled(driver, seam, 9), [9; 2 * SIDE]);
    });
}
