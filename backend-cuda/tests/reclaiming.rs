//! What is given back: off the thread that drives the device, bounded, and waited for only where memory is short.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::ptx;
use rig::{Gate, Rig, all, claim, double, each, each_with, eventually, in_time, part};
use std::thread;
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_backend_cuda::{CudaOptions, CudaPage, CudaStream};
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::kernel::Interface;
use trunnion_runtime_core::layout::Rows;

const MIB: u64 = 1 << 20;

const OUT_OF_MEMORY: u32 = 2;
const LAUNCH_FAILED: u32 = 719;
const UNKNOWN: u32 = 999;

/// A kernel that does nothing.
const NOTHING: &str = "
.version 8.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
";

/// Encodes a write of so many bytes to the start of a page.
fn write(rig: &mut Rig, stream: &mut CudaStream, seq: u64, bytes: &Bytes, page: &CudaPage) -> Result<()> {
    let size = bytes.len() as u64;
    // SAFETY: each test waits for its work before it frees a page.
    unsafe { rig.driver.write(stream, seq, bytes.clone(), part(page, 0, size), &Rows::single(size)) }
}

#[test]
fn what_others_do_on_the_device_keeps_nobody_waiting() {
    each(|rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        // Of the program's, which nobody told the driver of.
        let gate = Gate::new(&rig.device);
        let used = rig.device.memory_used().unwrap();
        in_time(&gate, || {
            // While work is under way, and while nothing is.
            for seq in 1..=4 {
                let (large, pinned) = (rig.driver.allocate(2 * MIB).unwrap(), rig.driver.pin(1000).unwrap());
                let code = rig.compile(ptx("nothing", NOTHING, Interface::new())).unwrap();
                rig.fill(&mut stream, seq, all(&page), &[seq as u8]);
                rig.driver.submit(&mut stream, seq).unwrap();
                if seq % 2 == 0 {
                    rig.finish(&mut stream, seq);
                }
                rig.driver.release(large);
                drop((pinned, code));
                rig.finish(&mut stream, seq);
            }
        });
        assert!(rig.device.memory_used().unwrap() > used);
        gate.open();
        eventually("what was given back is given back", || rig.device.memory_used().unwrap() == used);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn a_driver_ends_though_others_use_the_device_and_all_is_given_back_when_they_are_done() {
    let device = claim();
    let mut rig = Rig::new(device, &CudaOptions::default().library(double().path()));
    let (page, pinned) = (rig.page_of_bytes(&[0; 256]), rig.driver.pin(1000).unwrap());
    let gate = Gate::new(&device);
    in_time(&gate, || {
        rig.driver.release(page);
        drop(rig);
        drop(pinned);
    });
    gate.open();
    drop(gate);
    eventually("the context is let go of", || !device.is_retained().unwrap());
    rig::assert_clean(&device);
}

#[test]
fn who_is_short_of_memory_waits_for_others_only_so_long() {
    each(|rig| {
        rig.device.set_memory(6 * MIB).unwrap();
        let kept = rig.driver.allocate(4 * MIB).unwrap();
        let gate = Gate::new(&rig.device);
        let (refused, again) = in_time(&gate, || {
            rig.driver.release(kept);
            let refused = rig.driver.allocate(4 * MIB).unwrap_err();
            // A server asks for less and less, all of it for one request.
            let begun = Instant::now();
            (4..=6).for_each(|size| assert!(rig.driver.allocate(size * MIB).unwrap_err().out_of_memory));
            (refused, begun.elapsed())
        });
        assert!(refused.out_of_memory && refused.message.contains("4194304 bytes"), "{refused:?}");
        // Each would be a second.
        assert!(again < Duration::from_millis(2500), "{again:?}");
        gate.open();
        eventually("it is given back", || rig.device.memory_used().unwrap() < 4 * MIB);
        let page = rig.driver.allocate(4 * MIB).unwrap();
        rig.driver.release(page);
    });
}

#[test]
fn what_is_kept_stays_when_a_stream_begins_to_wait_for_others_while_something_before_it_is_given_back() {
    each(|rig| {
        let (page, first, second) =
            (rig.page_of_bytes(&[0; 256]), rig.driver.allocate(MIB).unwrap(), rig.driver.allocate(MIB).unwrap());
        let mut stream = rig.driver.open_stream().unwrap();
        rig.fill(&mut stream, 1, all(&page), &[1]);
        rig.driver.submit(&mut stream, 1).unwrap();
        // Nobody saw yet that it is finished, so both are kept; the first is then not given back before the gate opens.
        let (gate, used) = (Gate::new(&rig.device), rig.device.memory_used().unwrap());
        rig.driver.release(first);
        rig.driver.release(second);
        rig.finish(&mut stream, 1);
        let (device, soon) = (rig.device, Duration::from_millis(20));
        let frees = || device.calls("cuMemFree_v2").unwrap();
        eventually("the first is being given back", || frees() == 1);
        // Until it waits for what it found: a busy machine may keep it from that for a while.
        thread::sleep(20 * soon);
        let (other, mut waiting) = (Gate::new(&rig.device), rig.driver.open_stream().unwrap());
        rig.driver.import_event(&mut waiting, &other.event()).unwrap();
        rig.driver.submit(&mut waiting, 1).unwrap();
        gate.open();
        eventually("the first is given back", || device.memory_used().unwrap() == used - MIB);
        thread::sleep(soon);
        assert_eq!(frees(), 1);
        other.open();
        rig.finish(&mut waiting, 1);
        eventually("both are given back", || device.memory_used().unwrap() == used - 2 * MIB);
        [stream, waiting].into_iter().for_each(|stream| rig.driver.close_stream(stream));
        rig.driver.release(page);
    });
}

#[test]
fn what_is_kept_counts_as_free_unless_a_stream_waits_for_others() {
    each(|rig| {
        rig.device.set_memory(6 * MIB).unwrap();
        let page = rig.driver.allocate(4 * MIB).unwrap();
        let mut stream = rig.driver.open_stream().unwrap();
        let gate = Gate::new(&rig.device);
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        let free = rig.driver.memory().free.unwrap();
        rig.driver.release(page);
        assert_eq!(rig.driver.memory().free, Some(free));
        gate.open();
        rig.finish(&mut stream, 1);
        eventually("it is free", || rig.driver.memory().free == Some(free + 4 * MIB));
        rig.driver.close_stream(stream);
    });
}

#[test]
fn page_locked_memory_that_waits_to_be_given_back_is_bounded() {
    const LIMIT: usize = 256 << 20;
    const SIZE: usize = 32 << 20;
    each_with(&CudaOptions::default(), |rig| {
        let gate = Gate::new(&rig.device);
        let (refused, times) = in_time(&gate, || {
            let mut pins = (0..3 * LIMIT / SIZE).map(|times| (rig.driver.pin(SIZE).map(drop), times));
            pins.find_map(|(pinned, times)| Some((pinned.err()?, times))).unwrap()
        });
        assert!((LIMIT / SIZE..=LIMIT / SIZE + 2).contains(&times), "{times} times {SIZE} bytes");
        assert!(refused.out_of_memory, "{refused:?}");
        let waits = refused.message.contains("wait to be given back") && refused.message.contains(&LIMIT.to_string());
        assert!(waits && refused.message.contains(&SIZE.to_string()), "{refused:?}");
        gate.open();
        eventually("some is given back", || rig.device.calls("cuMemFreeHost").unwrap() >= 2);
        // Who asks now waits for the rest.
        assert_eq!(rig.driver.pin(SIZE).unwrap().as_slice().len(), SIZE);
    });
}

#[test]
fn page_locked_memory_that_runs_short_is_asked_for_again_when_some_was_given_back() {
    each(|rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        let bytes = Bytes::copy_from_slice(&vec![7_u8; MIB as usize]);
        for pins in [true, false] {
            // Nobody saw yet that it is finished.
            let pinned = rig.driver.pin(1000).unwrap();
            let seq = if pins { 1 } else { 2 };
            rig.fill(&mut stream, seq, all(&page), &[1]);
            rig.driver.submit(&mut stream, seq).unwrap();
            drop(pinned);
            rig.device.fail("cuMemHostAlloc", 1, OUT_OF_MEMORY).unwrap();
            let (asked, large) = (rig.device.calls("cuMemHostAlloc").unwrap(), rig.driver.allocate(MIB).unwrap());
            if pins {
                drop(rig.driver.pin(2000).unwrap());
            } else {
                write(rig, &mut stream, 3, &bytes, &large).unwrap();
                rig.driver.submit(&mut stream, 3).unwrap();
                rig.finish(&mut stream, 3);
            }
            assert_eq!(rig.device.calls("cuMemHostAlloc").unwrap(), asked + 2);
            rig.driver.poll(&mut stream, &mut Outcome::default()).unwrap();
            rig.driver.release(large);
        }
        rig.driver.close_stream(stream);
    });
}

#[test]
fn a_write_without_staging_memory_says_which_call_failed_and_how() {
    let bytes = Bytes::copy_from_slice(&vec![7_u8; MIB as usize]);
    for code in [OUT_OF_MEMORY, UNKNOWN, LAUNCH_FAILED] {
        let device = claim();
        let mut rig = Rig::new(device, &CudaOptions::default().library(double().path()));
        let page = rig.driver.allocate(MIB).unwrap();
        let mut stream = rig.driver.open_stream().unwrap();
        device.fail("cuMemHostAlloc", 0, code).unwrap();
        let error = write(&mut rig, &mut stream, 1, &bytes, &page).unwrap_err();
        match (code, &error) {
            (OUT_OF_MEMORY, Error::OutOfMemory(short)) => {
                assert_eq!(short.requested, MIB);
                assert!(short.driver.as_deref().is_some_and(|said| said.contains("cuMemHostAlloc")), "{error:?}");
            }
            (UNKNOWN, Error::Driver { call, code: 999, .. }) => assert_eq!(call, "cuMemHostAlloc"),
            (LAUNCH_FAILED, Error::DeviceLost { cause }) => assert!(cause.contains("cuMemHostAlloc"), "{cause}"),
            _ => panic!("{code}: {error:?}"),
        }
        let refused = rig.driver.pin(10).map(drop).unwrap_err();
        assert_eq!(refused.out_of_memory, code == OUT_OF_MEMORY, "{refused:?}");
        assert!(refused.message.contains("cuMemHostAlloc"), "{refused:?}");
        rig.driver.close_stream(stream);
        rig.driver.release(page);
        drop(rig);
        device.reset().unwrap();
    }
}

#[test]
fn transfers_of_any_length_allocate_and_free_nothing_once_they_are_warm() {
    const INVALID_VALUE: u32 = 1;
    // More than is always kept when nothing is under way.
    const WRITES: u64 = 9;
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.driver.allocate(16 * MIB).unwrap();
        let [mut busy, mut stream] = std::array::from_fn(|_| rig.driver.open_stream().unwrap());
        let bytes = Bytes::copy_from_slice(&vec![7_u8; (16 * MIB) as usize]);
        // Something is always under way.
        let gate = Gate::new(&rig.device);
        rig.driver.import_event(&mut busy, &gate.event()).unwrap();
        rig.driver.submit(&mut busy, 1).unwrap();
        for round in 0..3 {
            // To go through the blocks is enough: the copies are refused.
            rig.device.forget_calls().unwrap();
            rig.device.fail("cuMemcpyHtoDAsync_v2", 0, INVALID_VALUE).unwrap();
            for seq in 1..=WRITES {
                write(rig, &mut stream, round * WRITES + seq, &bytes, &page).unwrap();
            }
            rig.driver.submit(&mut stream, round * WRITES + WRITES).unwrap();
            let failed = rig.finish(&mut stream, round * WRITES + WRITES).failed;
            assert!(failed.iter().map(|(seq, _)| *seq).eq(round * WRITES + 1..=round * WRITES + WRITES), "{failed:?}");
            let calls = ["cuMemHostAlloc", "cuMemFreeHost"].map(|name| rig.device.calls(name).unwrap());
            assert_eq!(calls, [if round == 0 { WRITES } else { 0 }, 0], "round {round}");
        }
        rig.device.fail("cuMemcpyHtoDAsync_v2", 1, 0).unwrap();
        gate.open();
        rig.finish(&mut busy, 1);
        // What less work left over is given back.
        for seq in 2..=3 {
            rig.fill(&mut busy, seq, part(&page, 0, 256), &[1]);
            rig.write(&mut busy, seq, &[1; 16], part(&page, 0, 16));
            rig.driver.submit(&mut busy, seq).unwrap();
            rig.finish(&mut busy, seq);
        }
        eventually("staging memory is given back", || rig.device.calls("cuMemFreeHost").unwrap() >= 1);
        assert!(rig.device.calls("cuMemFreeHost").unwrap() < WRITES, "nothing is kept");
        [busy, stream].into_iter().for_each(|stream| rig.driver.close_stream(stream));
        rig.driver.release(page);
    });
}
