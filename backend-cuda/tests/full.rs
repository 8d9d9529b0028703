//! More work than a stream of CUDA takes in: whoever submits it is not kept, nor is anybody else, and all of it is done in its order.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::bump;
use rig::{Gate, PATIENCE, Rig, all, each_with, in_time, part};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, DriverGrid, Outcome};
use trunnion_backend_cuda::{CudaEvent, CudaOptions};
use trunnion_runtime_core::layout::Rows;

/// Calls of a stream at once, as the backend has it, with those that it may not have counted: waits and events.
const MOST: u64 = 512 + 64;

/// What the driver was asked to do on streams.
fn calls(rig: &Rig) -> u64 {
    let names = ["cuMemsetD8Async", "cuLaunchKernel", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord"];
    names.iter().map(|name| rig.device.calls(name).unwrap()).sum()
}

#[test]
fn many_batches_behind_something_that_stands_still_keep_nobody() {
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[0; 512]);
        let (mut full, mut other) = (rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap());
        let gate = Gate::new(&rig.device);
        rig.driver.import_event(&mut full, &gate.event()).unwrap();
        rig.device.forget_calls().unwrap();
        in_time(&gate, || {
            for seq in 1..=3000_u64 {
                rig.fill(&mut full, seq, part(&page, 0, 256), &[seq as u8]);
                if seq % 3 == 0 {
                    rig.driver.submit(&mut full, seq).unwrap();
                }
            }
            assert!(calls(rig) <= MOST, "{} calls", calls(rig));
            assert_eq!(rig.driver.poll(&mut full, &mut Outcome::default()), Ok(0));
            // What the stream waits for may come of another one.
            rig.fill(&mut other, 1, part(&page, 256, 256), &[7]);
            rig.driver.submit(&mut other, 1).unwrap();
            assert_eq!(rig.finish(&mut other, 1).failed, []);
        });
        gate.open();
        assert_eq!(rig.finish(&mut full, 3000).failed, []);
        assert_eq!(rig.read(part(&page, 0, 256)), [3000_u64 as u8; 256]);
        rig.driver.close_stream(full);
        rig.driver.close_stream(other);
    });
}

#[test]
fn one_batch_of_many_calls_keeps_nobody_and_goes_on_by_itself() {
    each_with(&CudaOptions::default(), |rig| {
        let kernel = bump(rig);
        let page = rig.page_of(&[0]);
        let mut stream = rig.driver.open_stream().unwrap();
        let gate = Gate::new(&rig.device);
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        rig.device.forget_calls().unwrap();
        in_time(&gate, || {
            for seq in 1..=3000 {
                rig.launch(&mut stream, seq, &kernel, [1, 1, 1], &[part(&page, 0, 4)]).unwrap();
            }
            rig.driver.submit(&mut stream, 3000).unwrap();
            assert!(calls(rig) <= MOST, "{} calls", calls(rig));
            // Another batch behind it waits for its turn.
            rig.launch(&mut stream, 3001, &kernel, [1, 1, 1], &[part(&page, 0, 4)]).unwrap();
            rig.driver.submit(&mut stream, 3001).unwrap();
        });
        gate.open();
        // Nobody looks: the stream's own thread hands the rest over, and tells of the end.
        let begun = Instant::now();
        while rig.device.calls("cuLaunchKernel").unwrap() < 3001 {
            assert!(begun.elapsed() < PATIENCE, "{} launches", rig.device.calls("cuLaunchKernel").unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(rig.finish(&mut stream, 3001).failed, []);
        assert_eq!(rig.first(&page), 3001);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn rows_that_are_calls_of_their_own_keep_nobody_either() {
    each_with(&CudaOptions::default(), |rig| {
        let bytes: Vec<u8> = (0..4 * 2000).map(|i| (i * 7 + i / 256) as u8).collect();
        let (source, target) = (rig.page_of_bytes(&bytes), rig.page_of_bytes(&[0; 8 * 2000]));
        let mut stream = rig.driver.open_stream().unwrap();
        let gate = Gate::new(&rig.device);
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        rig.device.forget_calls().unwrap();
        rig.device.fail("cuMemcpy2DAsync_v2", 1, 1).unwrap();
        in_time(&gate, || {
            let (dense, apart) = (Rows::single(4 * 2000), Rows { row: 4, outer: vec![(2000, 8)] });
            let (from, to) = (part(&source, 0, 4 * 2000), part(&target, 0, 8 * 2000));
            // SAFETY: the test waits before it frees the pages.
            unsafe { rig.driver.copy(&mut stream, 1, from, &dense, to, &apart) }.unwrap();
            rig.driver.submit(&mut stream, 1).unwrap();
            assert!(calls(rig) <= MOST, "{} calls", calls(rig));
        });
        gate.open();
        assert_eq!(rig.finish(&mut stream, 1).failed, []);
        assert_eq!(rig.device.calls("cuMemcpyDtoDAsync_v2"), Ok(2000));
        let found = rig.read_rows(part(&target, 0, 8 * 2000), &Rows { row: 4, outer: vec![(2000, 8)] });
        assert!(found == bytes);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn what_comes_after_what_is_held_is_held_and_so_is_the_event_of_it() {
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        let (mut full, mut behind) = (rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap());
        let gate = Gate::new(&rig.device);
        rig.driver.import_event(&mut full, &gate.event()).unwrap();
        let event = in_time(&gate, || {
            for seq in 1..=1500_u64 {
                rig.fill(&mut full, seq, all(&page), &[seq as u8]);
                rig.driver.submit(&mut full, seq).unwrap();
            }
            let event = rig.driver.export_event(&mut full, 1501).unwrap().downcast::<CudaEvent>().unwrap();
            rig.driver.submit(&mut full, 1501).unwrap();
            rig.driver.wait(&mut behind, &mut full, 1501);
            rig.read_later(&mut behind, 1, all(&page));
            rig.driver.submit(&mut behind, 1).unwrap();
            event
        });
        assert!(!event.is_recorded());
        gate.open();
        let outcome = rig.finish(&mut behind, 1);
        assert_eq!(outcome.read[0].2.as_slice(), [1500_u64 as u8; 256]);
        assert!(event.is_recorded());
        assert_eq!(rig.finish(&mut full, 1501).failed, []);
        rig.driver.close_stream(full);
        rig.driver.close_stream(behind);
    });
}

/// Batches of all sizes, with launches whose counts lie in memory among them, on two streams that wait for each other now and then.
#[test]
fn whatever_the_batches_are_all_of_them_is_done_in_order() {
    for seed in 1..=3_u64 {
        each_with(&CudaOptions::default(), |rig| {
            rig.device.set_delays(seed).unwrap();
            let kernel = bump(rig);
            let (page, counts) = (rig.page_of(&[0]), rig.page_of(&[1, 1, 1]));
            let mut streams = [rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap()];
            let (mut state, mut done, mut seqs) = (seed, 0, [0_u64; 2]);
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % below
            };
            for round in 0..12_usize {
                let [first, second] = &mut streams;
                let (own, other) = if round % 2 == 0 { (first, second) } else { (second, first) };
                let (mine, theirs) = (round % 2, 1 - round % 2);
                if seqs[theirs] > 0 {
                    rig.driver.wait(own, other, seqs[theirs]);
                }
                for _ in 0..1 + draw(4) {
                    for _ in 0..1 + draw(180) {
                        seqs[mine] += 1;
                        let grid = match draw(60) {
                            0 => DriverGrid::Dynamic(part(&counts, 0, 12)),
                            _ => DriverGrid::Static([1, 1, 1]),
                        };
                        let buffers = [part(&page, 0, 4)];
                        rig.launch_with(own, seqs[mine], &kernel, grid, &buffers, &[]).unwrap();
                        done += 1;
                    }
                    rig.driver.submit(own, seqs[mine]).unwrap();
                }
            }
            for (stream, seq) in streams.iter_mut().zip(seqs) {
                assert_eq!(rig.finish(stream, seq).failed, []);
            }
            assert_eq!(rig.first(&page), done);
            streams.into_iter().for_each(|stream| rig.driver.close_stream(stream));
        });
    }
}
