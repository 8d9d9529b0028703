//! What the streams of every driver do: wait for each other on the device, finish in order, are drained.

use crate::rig::{Compiled, PATIENCE, Rig, part};
use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_runtime_core::bytes::HostBuffer;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;

/// The kernels of these tests. Each works on the first number of its one buffer, of 64 bytes.
#[derive(Debug)]
pub struct Steps<D: Driver> {
    /// Adds one, and takes so long that what does not wait for it comes too early.
    pub add: Compiled<D>,
    /// Doubles it.
    pub twice: Compiled<D>,
}

/// The bytes of a kernel's buffer.
const SIZE: u64 = 64;

/// Bytes whose fill takes so long that what does not wait for it comes too early.
const LONG: u64 = 4 << 20;

/// Two streams that wait for each other in turn see what the other did.
pub fn a_stream_sees_what_it_waited_for<D: Driver>(rig: &mut Rig<D>, steps: &Steps<D>)
where
    D::Stream: fmt::Debug,
{
    let page = rig.page_of(&[0; 16]);
    let mut streams = [rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap()];
    for round in 1..=10 {
        let [a, b] = &mut streams;
        if round > 1 {
            rig.driver.wait(a, b, round - 1);
        }
        rig.launch(a, round, &steps.add, [1, 1, 1], &[part(&page, 0, SIZE)]).unwrap();
        rig.driver.submit(a, round).unwrap();
        rig.driver.wait(b, a, round);
        rig.launch(b, round, &steps.twice, [1, 1, 1], &[part(&page, 0, SIZE)]).unwrap();
        rig.driver.submit(b, round).unwrap();
    }
    assert!(rig.finish(&mut streams[1], 10).failed.is_empty());
    let expected = (0..10).fold(0, |value, _| 2 * (value + 1));
    assert_eq!(rig.read_u32(part(&page, 0, 4)), [expected]);
    streams.into_iter().for_each(|stream| rig.driver.close_stream(stream));
    rig.driver.release(page);
}

/// A batch without operations finishes when what it comes after does: what was submitted before on its stream, and what it waits for.
pub fn a_batch_of_nothing_finishes_when_what_it_came_after_does<D: Driver>(rig: &mut Rig<D>, steps: &Steps<D>)
where
    D::Stream: fmt::Debug,
{
    let page = rig.page_of(&[0; 16]);
    let mut streams = [rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap()];
    let [a, b] = &mut streams;
    rig.launch(a, 1, &steps.add, [1, 1, 1], &[part(&page, 0, SIZE)]).unwrap();
    rig.driver.submit(a, 1).unwrap();
    rig.driver.barrier(a);
    rig.driver.submit(a, 2).unwrap();
    rig.driver.wait(b, a, 1);
    rig.driver.submit(b, 7).unwrap();
    rig.driver.submit(b, 9).unwrap();
    rig.finish(b, 9);
    rig.finish(a, 2);
    // What was reported needs no waiting for.
    rig.driver.wait(b, a, 1);
    rig.driver.submit(b, 12).unwrap();
    rig.finish(b, 12);
    assert_eq!(rig.read_u32(part(&page, 0, 4)), [1]);
    streams.into_iter().for_each(|stream| rig.driver.close_stream(stream));
    rig.driver.release(page);
}

/// What is reported as finished rises, never above what was submitted. A drained device has finished everything,
/// on whichever stream, and needs no time to say so again.
pub fn completion_is_in_order_and_draining_waits_for_all_of_it<D: Driver>(rig: &mut Rig<D>, steps: &Steps<D>)
where
    D::Stream: fmt::Debug,
{
    const COUNT: u64 = 50;
    let pages: Vec<_> = (0..4).map(|_| rig.page_of(&[0; 16])).collect();
    let mut streams: Vec<_> = pages.iter().map(|_| (rig.driver.open_stream().unwrap(), 0)).collect();
    for seq in 1..=COUNT {
        for ((stream, seen), page) in streams.iter_mut().zip(&pages) {
            rig.launch(stream, seq, &steps.twice, [1, 1, 1], &[part(page, 0, SIZE)]).unwrap();
            rig.driver.barrier(stream);
            rig.driver.submit(stream, seq).unwrap();
            let now = rig.driver.poll(stream, &mut Outcome::default()).unwrap();
            assert!(now >= *seen && now <= seq, "{now} after {seen}, of {seq}");
            *seen = now;
        }
    }
    assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
    for (stream, _) in &mut streams {
        assert_eq!(rig.driver.poll(stream, &mut Outcome::default()).unwrap(), COUNT);
    }
    assert!(rig.driver.drain(&Deadline::after(Duration::ZERO)));
    streams.into_iter().for_each(|(stream, _)| rig.driver.close_stream(stream));
    pages.into_iter().for_each(|page| rig.driver.release(page));
}

/// A read gives what was there in its place of the order, not what a later operation wrote.
pub fn a_read_gives_the_bytes_of_its_place_in_the_order_not_what_came_later<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let page = rig.page_of_bytes(&vec![40; LONG as usize]);
    let mut stream = rig.driver.open_stream().unwrap();
    for seq in [1, 3] {
        rig.fill(&mut stream, seq, part(&page, 0, LONG), &[40 + seq as u8]);
        rig.driver.barrier(&mut stream);
        let into = HostBuffer::zeroed(4).unwrap();
        // SAFETY: the test waits before the page is freed.
        unsafe { rig.driver.read(&mut stream, seq + 1, 5, part(&page, LONG - 4, 4), &Rows::single(4), into) }.unwrap();
        rig.driver.barrier(&mut stream);
        rig.driver.submit(&mut stream, seq + 1).unwrap();
    }
    let outcome = rig.finish(&mut stream, 4);
    let read: Vec<_> = outcome.read.iter().map(|(seq, index, bytes)| (*seq, *index, bytes.as_slice()[0])).collect();
    assert_eq!(read, [(2, 5, 41), (4, 5, 43)]);
    rig.driver.close_stream(stream);
}

/// Whoever looks only when it was told of something finds each batch finished; nobody is told of anything when nothing is under way.
pub fn each_finished_batch_is_told_of_and_an_idle_device_tells_nothing<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let page = rig.page_of_bytes(&vec![0; LONG as usize]);
    let mut stream = rig.driver.open_stream().unwrap();
    for seq in 1..=20 {
        rig.fill(&mut stream, seq, part(&page, 0, LONG), &[seq as u8]);
        rig.driver.submit(&mut stream, seq).unwrap();
        let start = Instant::now();
        // Looked at only when something was told: what is told of too early, of another stream's end too, is told of again.
        loop {
            let told = rig.notified.load(Ordering::SeqCst);
            if rig.driver.poll(&mut stream, &mut Outcome::default()) == Ok(seq) {
                break;
            }
            while rig.notified.load(Ordering::SeqCst) == told {
                assert!(start.elapsed() < PATIENCE, "batch {seq} was not told of");
                std::thread::yield_now();
            }
        }
    }
    // What is told of the last batch may come late on a busy machine; one that told now and then would never be quiet.
    let quiet = (0..8).any(|_| {
        let before = rig.notified.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(600));
        rig.notified.load(Ordering::SeqCst) == before
    });
    assert!(quiet, "told of {} ends of 20", rig.notified.load(Ordering::SeqCst));
    rig.driver.close_stream(stream);
}
