//! Memory: taken, given back without keeping anybody, and short of.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, all, each, each_with, eventually};
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_backend_cuda::CudaOptions;

const MIB: u64 = 1 << 20;

#[test]
fn pages_are_of_the_size_asked_for_and_lie_at_whole_multiples() {
    each(|rig| {
        for size in [256, 512, 1000 * 256, 2 * MIB, 2 * MIB + 256, 6 * MIB] {
            let used = rig.device.memory_used().unwrap();
            let page = rig.driver.allocate(size).unwrap();
            assert_eq!((page.size(), page.address() % rig.driver.page_alignment()), (size, 0));
            assert_eq!(rig.device.memory_used().unwrap() - used, size);
            rig.driver.release(page);
            eventually(&format!("{size} are given back"), || rig.device.memory_used() == Ok(used));
        }
    });
}

#[test]
fn whole_pages_of_the_device_are_mapped_exactly_where_the_option_allows() {
    each(|rig| {
        let page = rig.driver.allocate(4 * MIB).unwrap();
        let mapped = rig.device.calls("cuMemMap").unwrap();
        assert_eq!(mapped == 1, !rig.options.to_string().contains("vmm"), "{}", rig.options);
        assert_eq!(rig.device.calls("cuMemAlloc_v2").unwrap(), 1 - mapped);
        rig.driver.release(page);
        eventually("it is given back", || rig.device.memory_used() == Ok(0));
        assert_eq!(rig.device.calls("cuMemUnmap").unwrap(), mapped);
        eventually("so are its addresses", || rig.device.calls("cuMemAddressFree") == Ok(mapped));
    });
}

#[test]
fn what_a_device_has_not_is_refused_with_the_numbers_and_nothing_is_left() {
    each(|rig| {
        let refused = rig.driver.allocate(2048 * MIB).unwrap_err();
        assert!(refused.out_of_memory && refused.message.contains("2147483648 bytes requested"), "{refused:?}");
        // Less than it said when it was opened.
        rig.device.set_memory(8 * MIB).unwrap();
        for size in [16 * MIB, 16 * MIB + 256] {
            let refused = rig.driver.allocate(size).unwrap_err();
            assert!(refused.out_of_memory && refused.message.contains(&size.to_string()), "{refused:?}");
            assert!(refused.message.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused:?}");
        }
        eventually("nothing is left", || rig.device.memory_used() == Ok(0));
        let page = rig.driver.allocate(8 * MIB).unwrap();
        rig.driver.release(page);
    });
}

#[test]
fn the_report_counts_what_is_taken_and_what_can_be_had() {
    each_with(
        &CudaOptions::default().limits(LimitOptions { memory: Some(64 * MIB), ..LimitOptions::default() }),
        |rig| {
            assert_eq!(rig.driver.properties().limits.memory, 64 * MIB);
            let page = rig.driver.allocate(16 * MIB).unwrap();
            let memory = rig.driver.memory();
            assert_eq!((memory.total, memory.free), (Some(64 * MIB), Some(48 * MIB)));
            assert!(rig.driver.allocate(49 * MIB).unwrap_err().out_of_memory);
            // Somebody else takes what the device has.
            rig.device.set_memory(20 * MIB).unwrap();
            assert_eq!(rig.driver.free_memory(), Some(4 * MIB));
            rig.driver.release(page);
        },
    );
}

#[test]
fn memory_that_is_given_back_while_work_is_under_way_is_freed_when_that_is_done() {
    each(|rig| {
        let gate = Gate::new(&rig.device);
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        rig.fill(&mut stream, 1, all(&page), &[1]);
        rig.driver.submit(&mut stream, 1).unwrap();
        let (large, pinned) = (rig.driver.allocate(4 * MIB).unwrap(), rig.driver.pin(1000).unwrap());
        let free = rig.driver.free_memory();
        rig.driver.release(large);
        drop(pinned);
        // It is free for nobody yet.
        assert!(rig.device.memory_used().unwrap() > 4 * MIB);
        assert_eq!(rig.driver.free_memory(), free);
        // Who waits for somebody else is not waited for, however short memory is.
        rig.device.set_memory(5 * MIB).unwrap();
        assert!(rig.driver.allocate(4 * MIB).unwrap_err().out_of_memory);
        for name in ["cuMemFree_v2", "cuMemUnmap", "cuMemFreeHost"] {
            assert_eq!(rig.device.calls(name), Ok(0), "{name}");
        }
        gate.open();
        rig.finish(&mut stream, 1);
        eventually("it is freed", || rig.device.memory_used() == Ok(256));
        let again = rig.driver.allocate(4 * MIB).unwrap();
        rig.driver.release(again);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn what_is_kept_is_given_back_when_memory_runs_short() {
    each(|rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.device.set_memory(6 * MIB).unwrap();
        rig.fill(&mut stream, 1, all(&page), &[1]);
        let kept = rig.driver.allocate(4 * MIB).unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        // The batch was not seen to be finished yet.
        rig.driver.release(kept);
        let used = rig.device.memory_used().unwrap();
        assert!(used > 4 * MIB, "{used}");
        let again = rig.driver.allocate(4 * MIB).unwrap();
        assert_eq!(rig.driver.poll(&mut stream, &mut Outcome::default()), Ok(1));
        rig.driver.release(again);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn page_locked_memory_is_bounded_by_its_option() {
    each_with(
        &CudaOptions::default().limits(LimitOptions { pinned_memory: Some(4096), ..LimitOptions::default() }),
        |rig| {
            let first = rig.driver.pin(3000).unwrap();
            let refused = rig.driver.pin(2000).map(|_| ()).unwrap_err();
            assert!(refused.out_of_memory && refused.message.contains("1096 of 4096"), "{refused:?}");
            drop(first);
            assert_eq!(rig.driver.pin(2000).unwrap().as_slice(), [0; 2000]);
        },
    );
}

#[test]
fn the_current_context_of_a_thread_stays_as_it_was() {
    let raw = rig::raw();
    each(|rig| {
        let current = || {
            let mut context = std::ptr::null_mut();
            // SAFETY: the place is for a handle.
            rig::done(unsafe { raw.cuCtxGetCurrent(&mut context) });
            context
        };
        let mut own = std::ptr::null_mut();
        let another = rig::claim();
        for context in [false, true] {
            if context {
                // SAFETY: the place is for a handle, and it is given back below.
                unsafe {
                    rig::done(raw.cuDevicePrimaryCtxRetain(&mut own, another.ordinal()));
                    rig::done(raw.cuCtxSetCurrent(own));
                }
            }
            let before = current();
            let page = rig.page_of_bytes(&[3; 256]);
            assert_eq!(rig.read(all(&page)), [3; 256]);
            let pinned = rig.driver.pin(10).unwrap();
            drop(rig.replace());
            drop((page, pinned));
            assert_eq!(current(), before);
        }
        // SAFETY: as above.
        unsafe {
            rig::done(raw.cuCtxSetCurrent(std::ptr::null_mut()));
            rig::done(raw.cuDevicePrimaryCtxRelease_v2(another.ordinal()));
        }
        another.release().unwrap();
    });
}
