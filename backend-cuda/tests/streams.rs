//! Streams: ordered within, waiting for each other on the device, told of when they finish, and ended whatever is under way.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, PATIENCE, Rig, all, each, each_with, part};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_backend_cuda::CudaOptions;
use trunnion_driver_rig::streams;
use trunnion_runtime_core::platform::Deadline;

#[test]
fn a_stream_sees_what_it_waited_for() {
    for seed in 1..=5 {
        each(|rig| {
            rig.device.set_delays(seed).unwrap();
            let page = rig.page_of_bytes(&[0; 1024]);
            let mut streams: Vec<_> = (0..3).map(|_| rig.driver.open_stream().unwrap()).collect();
            for round in 1..=10_u64 {
                let [a, b, c] = &mut streams[..] else { panic!("three streams were opened") };
                if round > 1 {
                    rig.driver.wait(a, c, round - 1);
                }
                rig.fill(a, round, part(&page, 0, 256), &[round as u8]);
                rig.driver.submit(a, round).unwrap();
                rig.driver.wait(b, a, round);
                rig.copy(b, round, part(&page, 0, 256), part(&page, 512, 256));
                rig.driver.submit(b, round).unwrap();
                rig.driver.wait(c, b, round);
                // A second wait, for what the first one comes after.
                rig.driver.wait(c, a, round);
                rig.read_later(c, round, part(&page, 512, 256));
                rig.driver.submit(c, round).unwrap();
            }
            let outcome = rig.finish(&mut streams[2], 10);
            assert!(outcome.failed.is_empty());
            let read: Vec<_> = outcome.read.iter().map(|(seq, _, bytes)| (*seq, bytes.as_slice()[255])).collect();
            assert_eq!(read, (1..=10).map(|round| (round, round as u8)).collect::<Vec<_>>());
            assert_eq!(
                (rig.finish(&mut streams[0], 10).read.len(), rig.finish(&mut streams[1], 10).read.len()),
                (0, 0)
            );
            streams.into_iter().for_each(|stream| rig.driver.close_stream(stream));
        });
    }
}

#[test]
fn nothing_of_a_batch_is_done_before_it_is_submitted() {
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[1; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.fill(&mut stream, 1, all(&page), &[2]);
        rig.read_later(&mut stream, 2, all(&page));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rig.read(all(&page)), [1; 256]);
        rig.driver.submit(&mut stream, 2).unwrap();
        assert_eq!(rig.finish(&mut stream, 2).read[0].2.as_slice(), [2; 256]);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn a_batch_of_nothing_finishes_when_what_it_came_after_does() {
    each_with(&CudaOptions::default(), |rig| {
        let gate = Gate::new(&rig.device);
        let mut streams = [rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap()];
        let [a, b] = &mut streams;
        rig.driver.import_event(a, &gate.event()).unwrap();
        rig.driver.submit(a, 1).unwrap();
        rig.driver.wait(b, a, 1);
        rig.driver.submit(b, 7).unwrap();
        rig.driver.submit(b, 9).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rig.driver.poll(b, &mut Outcome::default()), Ok(0));
        gate.open();
        rig.finish(b, 9);
        rig.finish(a, 1);
        // What was reported needs no waiting for.
        rig.driver.wait(b, a, 1);
        rig.driver.submit(b, 12).unwrap();
        rig.finish(b, 12);
        streams.into_iter().for_each(|stream| rig.driver.close_stream(stream));
    });
}

#[test]
fn a_read_gives_the_bytes_of_its_place_in_the_order_not_what_came_later() {
    each(|rig| streams::a_read_gives_the_bytes_of_its_place_in_the_order_not_what_came_later(rig));
}

#[test]
fn each_finished_batch_is_told_of_and_an_idle_device_tells_nothing() {
    each_with(&CudaOptions::default(), |rig| {
        streams::each_finished_batch_is_told_of_and_an_idle_device_tells_nothing(rig)
    });
}

#[test]
fn a_stream_that_stands_still_keeps_no_other_one() {
    each_with(&CudaOptions::default(), |rig| {
        let gate = Gate::new(&rig.device);
        let page = rig.page_of_bytes(&[0; 256]);
        let (mut standing, mut going) = (rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap());
        rig.driver.import_event(&mut standing, &gate.event()).unwrap();
        rig.driver.submit(&mut standing, 1).unwrap();
        for seq in 1..=5 {
            rig.fill(&mut going, seq, all(&page), &[seq as u8]);
            rig.driver.submit(&mut going, seq).unwrap();
            let told = Instant::now();
            while rig.driver.poll(&mut going, &mut Outcome::default()) != Ok(seq) {
                assert!(told.elapsed() < PATIENCE);
                std::thread::yield_now();
            }
        }
        // Nor does memory that is given back meanwhile keep whoever gives it.
        let another = rig.page_of_bytes(&[1; 256]);
        rig.driver.release(another);
        assert_eq!(rig.driver.poll(&mut standing, &mut Outcome::default()), Ok(0));
        gate.open();
        rig.finish(&mut standing, 1);
        rig.driver.close_stream(standing);
        rig.driver.close_stream(going);
    });
}

#[test]
fn draining_waits_for_all_streams_and_no_longer_than_its_deadline() {
    each(|rig| {
        let gate = Gate::new(&rig.device);
        let page = rig.page_of_bytes(&[0; 1024]);
        let mut streams: Vec<_> = (0..4).map(|_| rig.driver.open_stream().unwrap()).collect();
        for (i, stream) in (0..).zip(&mut streams) {
            if i == 2 {
                rig.driver.import_event(stream, &gate.event()).unwrap();
            }
            rig.fill(stream, 1, part(&page, 256 * i, 256), &[1]);
            rig.driver.submit(stream, 1).unwrap();
        }
        let begun = Instant::now();
        assert!(!rig.driver.drain(&Deadline::after(Duration::from_millis(30))));
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
        gate.open();
        assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
        for stream in &mut streams {
            assert_eq!(rig.driver.poll(stream, &mut Outcome::default()), Ok(1));
        }
        assert!(rig.driver.drain(&Deadline::after(Duration::ZERO)));
        assert_eq!(rig.read(all(&page)), [1; 1024]);
        streams.into_iter().for_each(|stream| rig.driver.close_stream(stream));
    });
}

#[test]
fn pages_streams_and_page_locked_memory_may_outlive_their_driver() {
    each(|rig| {
        let page = rig.page_of_bytes(&[0; 4]);
        let large = rig.driver.allocate(4 << 20).unwrap();
        let mut pinned = rig.driver.pin(100).unwrap();
        let stream = rig.driver.open_stream().unwrap();
        // The rig's driver is replaced, and so dropped before them.
        drop(rig.replace());
        drop((stream, page, large));
        pinned.as_mut_slice()[99] = 7;
        assert_eq!(pinned.as_slice()[99], 7);
    });
}

#[test]
fn a_driver_can_be_dropped_while_work_is_under_way() {
    let device = rig::claim();
    let mut rig = Rig::new(device, &CudaOptions::default().library(rig::double().path()));
    let gate = Gate::new(&device);
    let page = rig.page_of_bytes(&[0; 256]);
    let mut stream = rig.driver.open_stream().unwrap();
    rig.driver.import_event(&mut stream, &gate.event()).unwrap();
    for seq in 1..=50 {
        rig.fill(&mut stream, seq, all(&page), &[seq as u8]);
        rig.driver.submit(&mut stream, seq).unwrap();
    }
    let start = Instant::now();
    // As a server does with what did not end in time.
    std::mem::forget(page);
    drop((stream, rig));
    assert!(start.elapsed() < Duration::from_secs(5));
    gate.open();
    drop(gate);
    device.reset().unwrap();
    assert_eq!(device.take_reports().unwrap(), []);
}

#[test]
fn as_many_batches_as_one_likes_are_under_way_at_once() {
    each(|rig| {
        let gate = Gate::new(&rig.device);
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.driver.import_event(&mut stream, &gate.event()).unwrap();
        for seq in 1..=200 {
            rig.fill(&mut stream, seq, all(&page), &[seq as u8]);
            rig.driver.submit(&mut stream, seq).unwrap();
        }
        gate.open();
        assert!(rig.finish(&mut stream, 200).failed.is_empty());
        assert_eq!(rig.read(all(&page)), [200; 256]);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn a_warm_batch_asks_for_its_operations_and_its_event_and_makes_nothing() {
    each_with(&CudaOptions::default(), |rig| {
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        for seq in 1..=8 {
            if seq == 5 {
                rig.device.forget_calls().unwrap();
            }
            rig.fill(&mut stream, seq, all(&page), &[seq as u8]);
            rig.write(&mut stream, seq, &[9; 16], part(&page, 16, 16));
            rig.read_later(&mut stream, seq, part(&page, 0, 64));
            rig.driver.submit(&mut stream, seq).unwrap();
            rig.finish(&mut stream, seq);
        }
        let calls = |name| rig.device.calls(name).unwrap();
        let each = ["cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord"];
        assert_eq!(each.map(calls), [4; 4]);
        let none = ["cuEventCreate", "cuMemHostAlloc", "cuMemAlloc_v2", "cuStreamSynchronize", "cuCtxSynchronize"];
        assert_eq!(none.map(calls), [0; 5]);
        rig.driver.close_stream(stream);
    });
}
