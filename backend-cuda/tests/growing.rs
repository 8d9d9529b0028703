//! Pages that grow where they are: addresses beyond what is mapped, pieces of memory behind each other, and work across their seams.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, PATIENCE, Rig, all, claim, double, each, each_with, eventually, in_time, part};
use std::time::Instant;
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::Driver;
use trunnion_backend_cuda::{CudaOptions, CudaPage};

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

/// Lets a page grow, which is short of memory only until what was refused before is given back.
fn grow_in_time(rig: &mut Rig, page: &mut CudaPage, size: u64) {
    let begun = Instant::now();
    while let Err(refused) = rig.driver.grow(page, size) {
        assert!(refused.out_of_memory && begun.elapsed() < PATIENCE, "{refused:?}");
    }
    assert_eq!(page.size(), size);
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
    for (function, code) in [
        ("cuMemCreate", 2),
        ("cuMemCreate", 999),
        ("cuMemMap", 1),
        ("cuMemMap", 2),
        ("cuMemSetAccess", 1),
        ("cuMemSetAccess", 2),
        ("cuMemSetAccess", 999),
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
            eventually(&what, || rig.driver.memory().free == free);
            eventually(&what, || rig.device.memory_used().unwrap() == used);
            rig.device.fail(function, 1, 0).unwrap();
            grow_in_time(rig, &mut page, 4 * MIB);
            assert!(rig.read(part(&page, 0, 2 * MIB)) == vec![3; 2 << 20], "{what}");
            rig.driver.close_stream(stream);
            rig.driver.release(page);
        });
    }
}

#[test]
fn a_page_that_fell_short_of_memory_at_any_step_fifty_times_over_has_all_its_bytes_and_leaves_nothing() {
    const STEPS: u64 = 50;
    for function in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        each_that_maps(|rig| {
            let mut page = rig.driver.allocate_growing(2 * MIB, (STEPS + 1) * 2 * MIB).unwrap();
            let mut stream = rig.driver.open_stream().unwrap();
            for step in 1..=STEPS {
                let (seam, size) = (step * 2 * MIB, (step + 1) * 2 * MIB);
                // Once, which may be got over without anybody's doing, or for as long as it lasts.
                let is_once = step % 2 == 1;
                rig.device.fail(function, u64::from(is_once), 2).unwrap();
                let grown = rig.driver.grow(&mut page, size);
                assert!(is_once || grown.is_err(), "{function}, step {step}");
                assert_eq!(page.size(), if grown.is_ok() { size } else { seam }, "{function}, step {step}");
                rig.device.fail(function, 1, 0).unwrap();
                if let Err(refused) = grown {
                    assert!(refused.out_of_memory, "{function}, step {step}: {refused:?}");
                    grow_in_time(rig, &mut page, size);
                }
                eventually("only the page is left", || rig.device.memory_used() == Ok(size));
                rig.write(&mut stream, step, &[step as u8; 512], part(&page, seam - 256, 512));
                rig.driver.submit(&mut stream, step).unwrap();
                rig.finish(&mut stream, step);
            }
            for step in 1..=STEPS {
                assert_eq!(rig.read(part(&page, step * 2 * MIB - 256, 512)), [step as u8; 512], "{function}");
            }
            rig.driver.close_stream(stream);
            rig.driver.release(page);
            eventually("its addresses are given back", || rig.device.calls("cuMemAddressFree") == Ok(1));
            assert_eq!(rig.device.memory_used(), Ok(0), "{function}");
            assert_eq!(rig.driver.memory().free, Some(rig.driver.properties().limits.memory));
        });
    }
}

#[test]
fn a_page_that_is_short_of_memory_at_any_step_is_had_later_and_leaves_nothing() {
    for function in ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        each_that_maps(|rig| {
            for round in 1..=50 {
                rig.device.fail(function, 0, 2).unwrap();
                let refused = rig.driver.allocate_growing(2 * MIB, 8 * MIB).unwrap_err();
                assert!(refused.out_of_memory && refused.message.contains(function), "{refused:?}");
                rig.device.fail(function, 1, 0).unwrap();
                let mut page = rig.driver.allocate_growing(2 * MIB, 8 * MIB).unwrap();
                rig.driver.grow(&mut page, 4 * MIB).unwrap();
                rig.driver.release(page);
                eventually("all of it is given back", || rig.device.memory_used() == Ok(0));
                let calls = |name: &str| rig.device.calls(name).unwrap();
                let reserved = || if function == "cuMemAddressReserve" { round } else { calls("cuMemAddressReserve") };
                eventually("and its addresses", || calls("cuMemAddressFree") == reserved());
            }
        });
    }
}

#[test]
fn memory_that_was_refused_behind_a_page_keeps_nobody_while_others_use_the_device() {
    each_that_maps(|rig| {
        let mut page = rig.driver.allocate_growing(2 * MIB, 8 * MIB).unwrap();
        let (gate, mut stream) = (Gate::new(&rig.device), rig.driver.open_stream().unwrap());
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        rig.fill(&mut stream, 1, all(&page), &[7]);
        rig.driver.submit(&mut stream, 1).unwrap();
        in_time(&gate, || {
            for why in ["cuMemSetAccess: ", "is not given back yet"] {
                rig.device.fail("cuMemSetAccess", 1, 2).unwrap();
                let refused = rig.driver.grow(&mut page, 4 * MIB).unwrap_err();
                assert!(refused.out_of_memory && refused.message.contains(why), "{why}: {refused:?}");
                assert_eq!(page.size(), 2 * MIB);
            }
        });
        rig.device.fail("cuMemSetAccess", 1, 0).unwrap();
        gate.open();
        rig.finish(&mut stream, 1);
        grow_in_time(rig, &mut page, 8 * MIB);
        rig.write(&mut stream, 2, &[9; 512], part(&page, 2 * MIB - 256, 512));
        rig.driver.submit(&mut stream, 2).unwrap();
        rig.finish(&mut stream, 2);
        assert_eq!(rig.read(part(&page, 2 * MIB - 512, 768)), [[7; 256], [9; 256], [9; 256]].concat());
        rig.driver.close_stream(stream);
        rig.driver.release(page);
    });
}

#[test]
fn addresses_where_refused_memory_could_not_be_unmapped_are_kept() {
    let device = claim();
    let mut rig = Rig::new(device, &CudaOptions::default().library(double().path()));
    let mut page = rig.driver.allocate_growing(2 * MIB, 8 * MIB).unwrap();
    device.fail("cuMemSetAccess", 1, 1).unwrap();
    device.fail("cuMemUnmap", 1, 999).unwrap();
    assert!(!rig.driver.grow(&mut page, 4 * MIB).unwrap_err().out_of_memory);
    eventually("it is tried", || device.calls("cuMemUnmap").unwrap() == 1);
    let refused = rig.driver.grow(&mut page, 4 * MIB).unwrap_err();
    assert!(refused.out_of_memory && refused.message.contains("is not given back yet"), "{refused:?}");
    rig.driver.release(page);
    drop(rig);
    eventually("the context is let go of", || !device.is_retained().unwrap());
    // What lies there yet is all that is left, and nobody asked for the addresses of it.
    assert_eq!((device.calls("cuMemUnmap"), device.calls("cuMemAddressFree")), (Ok(2), Ok(0)));
    assert_eq!((device.memory_used(), device.take_reports()), (Ok(2 * MIB), Ok(Vec::new())));
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
