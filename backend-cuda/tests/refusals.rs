//! Calls that the driver refuses while a batch is handed over: what they were for fails, nothing else does, and what was handed over before
//! keeps what it uses until it is over.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::{BUMP, bump, ptx};
use rig::{Gate, PATIENCE, Rig, all, each, each_with, eventually, part};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, DriverGrid, Outcome};
use trunnion_backend_cuda::{CudaEvent, CudaOptions, CudaPage, CudaStream};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::kernel::Interface;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;

/// A code that nobody knows a reason for.
const UNKNOWN: u32 = 999;

/// What failed, by number, each with the call that was refused.
fn refused(outcome: &Outcome) -> Vec<(u64, String)> {
    let call = |error: &Error| match error {
        Error::Driver { call, code, .. } if *code == i64::from(UNKNOWN) => call.clone(),
        other => panic!("{other}"),
    };
    outcome.failed.iter().map(|(seq, error)| (*seq, call(error))).collect()
}

#[test]
fn a_launch_that_is_refused_fails_alone_wherever_it_stands_in_its_batch() {
    each(|rig| {
        let kernel = bump(rig);
        for refused_seq in 1..=3_u64 {
            let pages: Vec<_> = (0..3).map(|_| rig.page_of(&[0])).collect();
            let mut stream = rig.driver.open_stream().unwrap();
            for (seq, page) in (1..).zip(&pages) {
                rig.launch(&mut stream, seq, &kernel, [1, 1, 1], &[part(page, 0, 4)]).unwrap();
            }
            rig.device.fail("cuLaunchKernel", refused_seq, UNKNOWN).unwrap();
            rig.driver.submit(&mut stream, 3).unwrap();
            let outcome = rig.finish(&mut stream, 3);
            assert_eq!(refused(&outcome), [(refused_seq, "cuLaunchKernel".into())]);
            let found: Vec<_> = pages.iter().map(|page| rig.first(page)).collect();
            let expected: Vec<_> = (1..=3).map(|seq| u32::from(seq != refused_seq)).collect();
            assert_eq!(found, expected);
            rig.driver.close_stream(stream);
        }
    });
}

#[test]
fn transfers_that_are_refused_fail_alone_and_a_read_of_them_is_none() {
    each(|rig| {
        let page = rig.page_of_bytes(&[1; 1024]);
        for call in ["cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"] {
            let mut stream = rig.driver.open_stream().unwrap();
            rig.fill(&mut stream, 1, part(&page, 0, 256), &[2]);
            rig.write(&mut stream, 2, &[3; 256], part(&page, 256, 256));
            rig.copy(&mut stream, 3, part(&page, 0, 256), part(&page, 512, 256));
            rig.read_later(&mut stream, 4, part(&page, 768, 256));
            rig.read_later(&mut stream, 5, part(&page, 256, 256));
            rig.device.fail(call, 1, UNKNOWN).unwrap();
            rig.driver.submit(&mut stream, 5).unwrap();
            let outcome = rig.finish(&mut stream, 5);
            let failed = refused(&outcome);
            assert!(matches!(&failed[..], [(_, known)] if known == call), "{call}: {failed:?}");
            let read: Vec<_> = outcome.read.iter().map(|(seq, ..)| *seq).collect();
            let expected: Vec<_> = [4, 5].into_iter().filter(|seq| *seq != failed[0].0).collect();
            assert_eq!(read, expected, "{call}");
            rig.driver.close_stream(stream);
        }
    });
}

#[test]
fn of_an_operation_that_is_refused_the_later_calls_are_not_made() {
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        // Eight bytes, then copies of what is there; and another one behind it.
        rig.fill(&mut stream, 1, part(&page, 0, 128), &[1, 2, 3, 4, 5, 6, 7, 8]);
        rig.fill(&mut stream, 2, part(&page, 128, 128), &[9]);
        rig.device.forget_calls().unwrap();
        rig.device.fail("cuMemsetD8Async", 3, UNKNOWN).unwrap();
        rig.driver.submit(&mut stream, 2).unwrap();
        let outcome = rig.finish(&mut stream, 2);
        assert_eq!(refused(&outcome), [(1, "cuMemsetD8Async".into())]);
        let calls = |name| rig.device.calls(name).unwrap();
        assert_eq!((calls("cuMemsetD8Async"), calls("cuMemcpyDtoDAsync_v2")), (4, 0));
        assert_eq!(rig.read(part(&page, 128, 128)), [9; 128]);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn counts_on_their_way_keep_their_place_when_the_event_behind_them_is_refused() {
    each_with(&CudaOptions::default(), |rig| {
        let kernel = bump(rig);
        let (page, counts) = (rig.page_of(&[0]), rig.page_of(&[5, 6, 7]));
        let gate = Gate::new(&rig.device);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        let grid = DriverGrid::Dynamic(part(&counts, 0, 12));
        rig.launch_with(&mut stream, 1, &kernel, grid, &[part(&page, 0, 4)], &[]).unwrap();
        rig.device.fail("cuEventRecord", 1, UNKNOWN).unwrap();
        let submitted = rig.driver.submit(&mut stream, 1);
        // What is written next is staged, and is copied to the device behind the counts.
        rig.write(&mut stream, 2, &[9; 64], part(&page, 64, 64));
        rig.driver.submit(&mut stream, 2).unwrap();
        gate.open();
        let outcome = rig.finish(&mut stream, 2);
        assert_eq!(rig.read(part(&page, 64, 64)), [9; 64]);
        assert_eq!(submitted, Ok(()));
        assert_eq!(refused(&outcome), [(1, "cuEventRecord".into())]);
        assert_eq!(rig.first(&page), 0);
        drop(gate);
        rig.driver.close_stream(stream);
    });
}

/// Encodes a copy of eight rows within a device, which a driver may refuse to make in one call.
fn copy_rows(rig: &mut Rig, stream: &mut CudaStream, seq: u64, page: &CudaPage) {
    let rows = Rows { row: 16, outer: vec![(8, 32)] };
    let (source, target) = (part(page, 0, 256), part(page, 256, 256));
    // SAFETY: the test waits before it frees the page.
    unsafe { rig.driver.copy(stream, seq, source, &rows, target, &rows) }.unwrap();
}

#[test]
fn rows_that_were_copied_before_one_was_refused_are_waited_for() {
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[1; 512]);
        let gate = Gate::new(&rig.device);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        copy_rows(rig, &mut stream, 1, &page);
        rig.fill(&mut stream, 2, part(&page, 496, 16), &[7]);
        rig.device.fail("cuMemcpy2DAsync_v2", 1, 1).unwrap();
        rig.device.fail("cuMemcpyDtoDAsync_v2", 4, UNKNOWN).unwrap();
        rig.driver.submit(&mut stream, 2).unwrap();
        let mut early = Outcome::default();
        assert_eq!(rig.driver.poll(&mut stream, &mut early), Ok(0));
        assert_eq!(early.failed, []);
        gate.open();
        assert_eq!(refused(&rig.finish(&mut stream, 2)), [(1, "cuMemcpyDtoDAsync_v2".into())]);
        assert_eq!(rig.read(part(&page, 496, 16)), [7; 16]);
        drop(gate);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn rows_that_the_driver_does_not_copy_at_once_are_copied_one_by_one() {
    each_with(&CudaOptions::default(), |rig| {
        let bytes: Vec<u8> = (0..=255).collect();
        let page = rig.page_of_bytes(&[&bytes[..], &[0; 256]].concat());
        let mut stream = rig.driver.open_stream().unwrap();
        copy_rows(rig, &mut stream, 1, &page);
        rig.device.forget_calls().unwrap();
        rig.device.fail("cuMemcpy2DAsync_v2", 1, 1).unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        assert_eq!(rig.finish(&mut stream, 1).failed, []);
        assert_eq!(rig.device.calls("cuMemcpyDtoDAsync_v2"), Ok(8));
        let expected: Vec<u8> = bytes.iter().map(|at| if at % 32 < 16 { *at } else { 0 }).collect();
        assert_eq!(rig.read(all(&page))[256..], expected);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn an_event_that_could_not_be_recorded_is_over_with_its_batch() {
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        let (mut stream, mut other) = (rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap());
        rig.fill(&mut stream, 1, all(&page), &[1]);
        let event = rig.driver.export_event(&mut stream, 2).unwrap().downcast::<CudaEvent>().unwrap();
        rig.device.fail("cuEventRecord", 1, UNKNOWN).unwrap();
        rig.driver.submit(&mut stream, 2).unwrap();
        assert!(!event.is_recorded());
        assert_eq!(refused(&rig.finish(&mut stream, 2)), [(2, "cuEventRecord".into())]);
        assert!(event.is_recorded());
        rig.driver.import_event(&mut other, &Foreign::new(Arc::into_inner(event).unwrap())).unwrap();
        rig.driver.submit(&mut other, 1).unwrap();
        assert_eq!(rig.finish(&mut other, 1).failed, []);
        rig.driver.close_stream(stream);
        rig.driver.close_stream(other);
    });
}

/// What waits for somebody else keeps memory from being given back. A stream that ends before anybody looked does so no more.
#[test]
fn a_stream_that_waited_for_somebody_else_and_ended_keeps_no_memory() {
    const SIZE: u64 = 4 << 20;
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        for is_closed in [true, false] {
            let (mut ended, mut going) = (rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap());
            let gate = Gate::new(&rig.device);
            rig.driver.import_event(&mut ended, &gate.event()).unwrap();
            rig.driver.submit(&mut ended, 1).unwrap();
            gate.open();
            assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
            match is_closed {
                true => rig.driver.close_stream(ended),
                false => drop(ended),
            }
            drop(gate);
            rig.device.set_memory(SIZE + (1 << 20)).unwrap();
            let kept = rig.driver.allocate(SIZE).unwrap();
            rig.fill(&mut going, 1, all(&page), &[1]);
            rig.driver.submit(&mut going, 1).unwrap();
            // The batch was not seen to be finished yet, so that the page is kept.
            rig.driver.release(kept);
            // A stream that is dropped ends with its thread, which may take a moment.
            let begun = Instant::now();
            let again = loop {
                match rig.driver.allocate(SIZE) {
                    Ok(page) => break page,
                    Err(refused) => assert!(begun.elapsed() < PATIENCE / 4, "{refused:?}"),
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            rig.driver.release(again);
            assert_eq!(rig.finish(&mut going, 1).failed, []);
            rig.driver.close_stream(going);
            // The next turn has it not before it is given back.
            eventually("the page is given back", || rig.device.memory_used() == Ok(256));
        }
    });
}

#[test]
fn code_that_there_is_no_memory_for_is_told_with_its_size() {
    each_with(&CudaOptions::default(), |rig| {
        rig.device.fail("cuModuleLoadDataEx", 0, 2).unwrap();
        let refused = rig.compile(ptx("bump", BUMP, Interface::new().claim(Access::ReadWrite))).map(drop);
        let Err(Error::OutOfMemory(short)) = refused else { panic!("{refused:?}") };
        assert!(short.driver.as_ref().is_some_and(|says| says.contains("cuModuleLoadDataEx")), "{short:?}");
        // With the zero that ends the text.
        assert_eq!(short.requested, BUMP.len() as u64 + 1);
        rig.device.fail("cuModuleLoadDataEx", 0, 0).unwrap();
        bump(rig);
    });
}
