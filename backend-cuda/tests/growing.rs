//! Pages that grow where they are: addresses beyond what is mapped, pieces of memory behind each other, and work across their seams.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, Rig, all, each, each_with, eventually, part};
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::Driver;
use trunnion_backend_cuda::CudaOptions;

const MIB: u64 = 1 << 20;

/// The device maps pages, and they grow by the 2 MiB.
fn each_that_maps(test: impl Fn(&mut Rig)) {
    each(|rig| {
        let step = rig.driver.growth_step();
        match rig.options.to_string().contains("vmm") {
            true => assert_eq!(step, None),
            false => {
                assert_eq!(step, Some(2 * MIB));
                test(rig);
            }
        }
    });
}

#[test]
fn a_page_grows_where_it_is_and_keeps_its_bytes_while_work_on_it_is_under_way() {
    each_that_maps(|rig| {
        let mut page = rig.driver.allocate_growing(2 * MIB, 8 * MIB).unwrap();
        let address = page.address();
        let gate = Gate::new(&rig.device);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        rig.fill(&mut stream, 1, all(&page), &[7]);
        rig.driver.submit(&mut stream, 1).unwrap();
        for size in [4 * MIB, 8 * MIB] {
            rig.driver.grow(&mut page, size).unwrap();
            assert_eq!((page.address(), page.size()), (address, size));
            assert_eq!(rig.device.memory_used().unwrap(), size);
        }
        gate.open();
        rig.finish(&mut stream, 1);
        // Fill, write, copy and read, each across both seams.
        let (from, bytes) = (2 * MIB - 512, 6 * MIB + 1024);
        rig.fill(&mut stream, 2, part(&page, 2 * MIB, 6 * MIB), &[9]);
        rig.write(&mut stream, 3, &[1; 512], part(&page, 4 * MIB - 256, 512));
        rig.write(&mut stream, 4, &[2; 512], part(&page, 2 * MIB - 256, 512));
        let other = rig.driver.allocate_growing(8 * MIB, 8 * MIB).unwrap();
        rig.copy(&mut stream, 5, part(&page, from, bytes - 512), part(&other, 256, bytes - 512));
        rig.driver.submit(&mut stream, 5).unwrap();
        rig.finish(&mut stream, 5);
        let mut expected = vec![7; 512];
        expected.resize((bytes - 512) as usize, 9);
        expected[256..768].fill(2);
        expected[(2 * MIB + 256) as usize..(2 * MIB + 768) as usize].fill(1);
        assert!(rig.read(part(&page, from, bytes - 512)) == expected);
        assert!(rig.read(part(&other, 256, bytes - 512)) == expected);
        rig.driver.close_stream(stream);
        rig.driver.release(other);
        rig.driver.release(page);
    });
}

#[test]
fn every_piece_and_all_addresses_are_given_back() {
    each_that_maps(|rig| {
        let mut page = rig.driver.allocate_growing(2 * MIB, 16 * MIB).unwrap();
        (2..=8).for_each(|steps| rig.driver.grow(&mut page, steps * 2 * MIB).unwrap());
        assert_eq!(rig.driver.memory().free, Some(rig.driver.properties().limits.memory - 16 * MIB));
        // No room is left, which is no shortage of memory.
        let refused = rig.driver.grow(&mut page, 18 * MIB).unwrap_err();
        assert!(!refused.out_of_memory && page.size() == 16 * MIB, "{refused:?}");
        rig.driver.release(page);
        eventually("all of it is given back", || rig.device.calls("cuMemAddressFree").unwrap() == 1);
        let calls = |name: &str| rig.device.calls(name).unwrap();
        assert_eq!((calls("cuMemCreate"), calls("cuMemRelease")), (8, 8));
        assert_eq!((calls("cuMemMap"), calls("cuMemUnmap")), (8, 8));
        assert_eq!((calls("cuMemAddressReserve"), calls("cuMemAddressFree")), (1, 1));
        assert_eq!(rig.driver.memory().free, Some(rig.driver.properties().limits.memory));
    });
}

#[test]
fn a_step_that_is_refused_leaves_the_page_as_it_was_and_nothing_behind() {
    for (function, code, grows_later) in [
        ("cuMemCreate", 2, true),
        ("cuMemCreate", 999, true),
        ("cuMemMap", 1, true),
        ("cuMemMap", 2, true),
        ("cuMemSetAccess", 1, false),
    ] {
        each_that_maps(|rig| {
            let what = format!("{function}: {code}");
            let mut page = rig.driver.allocate_growing(2 * MIB, 8 * MIB).unwrap();
            let mut stream = rig.driver.open_stream().unwrap();
            rig.fill(&mut stream, 1, all(&page), &[3]);
            rig.driver.submit(&mut stream, 1).unwrap();
            rig.finish(&mut stream, 1);
            let (free, used) = (rig.driver.memory().free, rig.device.memory_used().unwrap());
            // However often it is tried: where memory is short, it is once more when something was given back.
            rig.device.fail(function, 0, code).unwrap();
            let refused = rig.driver.grow(&mut page, 4 * MIB).unwrap_err();
            assert!(refused.message.contains(function), "{what}: {refused:?}");
            assert_eq!(refused.out_of_memory, code == 2, "{what}");
            assert_eq!(page.size(), 2 * MIB);
            // Memory without access is held and counted, for as long as the page.
            let held = if grows_later { 0 } else { 2 * MIB };
            eventually(&what, || rig.driver.memory().free == free.map(|free| free - held));
            eventually(&what, || rig.device.memory_used().unwrap() == used + held);
            rig.device.fail(function, 1, 0).unwrap();
            let (grown, size) = (rig.driver.grow(&mut page, 4 * MIB), if grows_later { 4 * MIB } else { 2 * MIB });
            assert_eq!((grown.is_ok(), page.size()), (grows_later, size), "{what}");
            assert!(rig.read(part(&page, 0, 2 * MIB)) == vec![3; 2 << 20], "{what}");
            rig.driver.close_stream(stream);
            rig.driver.release(page);
        });
    }
}

#[test]
fn a_page_without_room_behind_it_is_one_that_stays_as_it_is() {
    each_that_maps(|rig| {
        rig.device.fail("cuMemAddressReserve", 1, 2).unwrap();
        let mut page = rig.driver.allocate_growing(2 * MIB, 8 * MIB).unwrap();
        assert_eq!((page.size(), rig.device.calls("cuMemAddressReserve").unwrap()), (2 * MIB, 2));
        let refused = rig.driver.grow(&mut page, 4 * MIB).unwrap_err();
        assert!(!refused.out_of_memory, "{refused:?}");
        rig.driver.release(page);
        // So is one that is no multiple of what is mapped.
        let mut page = rig.driver.allocate(2 * MIB + 256).unwrap();
        assert!(rig.driver.grow(&mut page, 4 * MIB).unwrap_err().message.contains("stays as it is"));
        rig.driver.release(page);
    });
}

#[test]
fn a_page_that_is_refused_while_nothing_waits_to_be_given_back_is_asked_for_once_and_leaves_nothing() {
    each_that_maps(|rig| {
        rig.device.fail("cuMemCreate", 0, 2).unwrap();
        let refused = rig.driver.allocate(2 * MIB).unwrap_err();
        assert!(refused.out_of_memory && refused.message.contains("cuMemCreate"), "{refused:?}");
        let calls =
            ["cuMemCreate", "cuMemAddressReserve", "cuMemAddressFree"].map(|call| rig.device.calls(call).unwrap());
        assert_eq!(calls, [1; 3]);
        rig.device.fail("cuMemCreate", 1, 0).unwrap();
    });
}

#[test]
fn what_the_device_has_is_all_that_pages_grow_to() {
    let limits = LimitOptions { memory: Some(6 * MIB), ..LimitOptions::default() };
    each_with(&CudaOptions::default().limits(limits), |rig| {
        let mut page = rig.driver.allocate_growing(2 * MIB, 16 * MIB).unwrap();
        rig.driver.grow(&mut page, 6 * MIB).unwrap();
        let refused = rig.driver.grow(&mut page, 8 * MIB).unwrap_err();
        assert!(refused.out_of_memory && refused.message.contains("2097152 bytes requested"), "{refused:?}");
        rig.driver.release(page);
    });
}
