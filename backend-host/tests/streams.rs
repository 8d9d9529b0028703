//! Streams: really concurrent, ordered within, waiting for each other without holding threads.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Functions, PATIENCE, Rig, all, host, part};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::Driver;
use trunnion_backend_host::{HostDriver, HostOptions};
use trunnion_driver_rig::streams::{self, Steps};
#[cfg(feature = "std")]
use trunnion_runtime_core::error::KernelFault;
use trunnion_runtime_core::kernel::Interface;
use trunnion_runtime_core::platform::Deadline;

#[test]
#[cfg(feature = "std")]
fn two_kernels_on_two_streams_that_wait_for_each_other_finish() {
    let _threads = rig::with_all_threads();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("NOT RUN: one core");
        return;
    }
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let kernel = rig.kernel("meet", Interface::new().atomic(), |group| {
        let meeting = &group.atomic(0)?[0];
        meeting.fetch_add(1, Ordering::SeqCst);
        let start = Instant::now();
        while meeting.load(Ordering::SeqCst) < 2 {
            if start.elapsed() > PATIENCE / 2 {
                return Err(KernelFault::Message("nobody came".into()));
            }
            std::thread::yield_now();
        }
        Ok(())
    });
    let mut streams = [rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap()];
    for stream in &mut streams {
        rig.launch(stream, 1, &kernel, [1, 1, 1], &[all(&page)]).unwrap();
        rig.driver.submit(stream, 1).unwrap();
    }
    for stream in &mut streams {
        assert!(rig.finish(stream, 1).failed.is_empty());
    }
}

/// A device, and the kernels of the tests that every driver passes.
fn with_steps(test: fn(&mut Rig, &Steps<HostDriver>)) {
    let mut rig = host(HostOptions::default());
    let add = rig.kernel("add", Interface::new().partition(64), |group| {
        std::thread::sleep(Duration::from_millis(5));
        group.part::<u32>(0)?[0] += 1;
        Ok(())
    });
    let twice = rig.kernel("twice", Interface::new().partition(64), |group| {
        group.part::<u32>(0)?[0] *= 2;
        Ok(())
    });
    test(&mut rig, &Steps { add, twice });
}

#[test]
fn a_stream_sees_what_it_waited_for() {
    with_steps(streams::a_stream_sees_what_it_waited_for);
}

#[test]
fn a_batch_of_nothing_finishes_when_what_it_came_after_does() {
    with_steps(streams::a_batch_of_nothing_finishes_when_what_it_came_after_does);
}

#[test]
fn completion_is_in_order_and_draining_waits_for_all_of_it() {
    with_steps(streams::completion_is_in_order_and_draining_waits_for_all_of_it);
}

#[test]
#[cfg(feature = "std")]
fn streams_that_wait_hold_no_thread() {
    let _threads = rig::with_all_threads();
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let open = Arc::new(AtomicBool::new(false));
    let door = open.clone();
    let gate = rig.kernel("gate", Interface::new(), move |_| {
        while !door.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    });
    let opened = open.clone();
    let opener = rig.kernel("opener", Interface::new(), move |_| {
        opened.store(true, Ordering::SeqCst);
        Ok(())
    });
    let add = rig.kernel("add", Interface::new().atomic(), |group| {
        group.atomic(0)?[0].fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let mut first = rig.driver.open_stream().unwrap();
    rig.launch(&mut first, 1, &gate, [1, 1, 1], &[]).unwrap();
    rig.driver.submit(&mut first, 1).unwrap();
    let mut waiting: Vec<_> = (0..50).map(|_| rig.driver.open_stream().unwrap()).collect();
    for stream in &mut waiting {
        rig.driver.wait(stream, &mut first, 1);
        rig.launch(stream, 1, &add, [1, 1, 1], &[all(&page)]).unwrap();
        rig.driver.submit(stream, 1).unwrap();
    }
    // Fifty streams wait for the gate; only a free thread can open it. With one core that thread is the gate's own.
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        open.store(true, Ordering::SeqCst);
    }
    let mut last = rig.driver.open_stream().unwrap();
    rig.launch(&mut last, 1, &opener, [1, 1, 1], &[]).unwrap();
    rig.driver.submit(&mut last, 1).unwrap();
    for stream in &mut waiting {
        rig.finish(stream, 1);
    }
    assert_eq!(rig.read_u32(part(&page, 0, 4)), [50]);
}

#[test]
#[cfg(feature = "std")]
fn a_long_launch_gives_up_a_helper_to_a_stream_that_is_ready() {
    const GROUPS: u32 = 30_000;
    let _threads = rig::with_all_threads();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("NOT RUN: one core");
        return;
    }
    let mut rig = host(HostOptions::default());
    // How much of the long launch has run, and had when the short one did.
    let (ran, when_short) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (count, other) = (ran.clone(), when_short.clone());
    // A quarter of a minute's work for two threads, until the other stream has had its turn: no machine is that slow to give it one.
    let long = rig.kernel("long", Interface::new(), move |_| {
        if other.load(Ordering::SeqCst) == usize::MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let (so_far, tells) = (ran.clone(), when_short.clone());
    let short = rig.kernel("short", Interface::new(), move |_| {
        tells.store(so_far.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    });
    let (mut first, mut second) = (rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap());
    rig.launch(&mut first, 1, &long, [GROUPS, 1, 1], &[]).unwrap();
    rig.driver.submit(&mut first, 1).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    rig.launch(&mut second, 1, &short, [1, 1, 1], &[]).unwrap();
    rig.driver.submit(&mut second, 1).unwrap();
    rig.finish(&mut second, 1);
    rig.finish(&mut first, 1);
    assert!(when_short.load(Ordering::SeqCst) < GROUPS as usize, "the stream waited for the whole launch");
    assert_eq!(ran.load(Ordering::SeqCst), GROUPS as usize);
}

#[test]
fn an_empty_batch_finishes_after_what_was_submitted_before() {
    let mut rig = host(HostOptions::default());
    let done = Arc::new(AtomicBool::new(false));
    let mark = done.clone();
    let slow = rig.kernel("slow", Interface::new(), move |_| {
        std::thread::sleep(Duration::from_millis(20));
        mark.store(true, Ordering::SeqCst);
        Ok(())
    });
    let mut stream = rig.driver.open_stream().unwrap();
    rig.launch(&mut stream, 1, &slow, [1, 1, 1], &[]).unwrap();
    assert!(!done.load(Ordering::SeqCst), "ran before it was submitted");
    rig.driver.submit(&mut stream, 1).unwrap();
    rig.driver.barrier(&mut stream);
    rig.driver.submit(&mut stream, 2).unwrap();
    rig.finish(&mut stream, 2);
    assert!(done.load(Ordering::SeqCst));
    assert_eq!(stream.barriers(), 1);
}

#[test]
fn a_read_gives_the_bytes_of_its_place_in_the_order_not_what_came_later() {
    streams::a_read_gives_the_bytes_of_its_place_in_the_order_not_what_came_later(&mut host(HostOptions::default()));
}

#[test]
#[cfg(feature = "std")]
fn each_finished_batch_is_told_of_and_an_idle_device_tells_nothing() {
    streams::each_finished_batch_is_told_of_and_an_idle_device_tells_nothing(&mut host(HostOptions::default()));
}

#[test]
#[cfg(feature = "std")]
fn drain_gives_up_at_its_deadline_and_memory_outlives_work_that_was_abandoned() {
    let _threads = rig::with_all_threads();
    let mut rig = host(HostOptions::default());
    let free = rig.driver.free_memory();
    let page = rig.page_of(&[0; 16]);
    let open = Arc::new(AtomicBool::new(false));
    let door = open.clone();
    let gate = rig.kernel("gate", Interface::new().partition(64), move |group| {
        let part = group.part::<u32>(0)?;
        while !door.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(100));
        }
        part.fill(7);
        Ok(())
    });
    let mut stream = rig.driver.open_stream().unwrap();
    rig.launch(&mut stream, 1, &gate, [1, 1, 1], &[all(&page)]).unwrap();
    rig.driver.submit(&mut stream, 1).unwrap();
    let start = Instant::now();
    assert!(!rig.driver.drain(&Deadline::after(Duration::from_millis(50))));
    assert!(start.elapsed() >= Duration::from_millis(50) && start.elapsed() < Duration::from_secs(5));
    rig.driver.release(page);
    rig.driver.close_stream(stream);
    assert_eq!(rig.driver.free_memory(), free.map(|free| free - 64));
    open.store(true, Ordering::SeqCst);
    assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
    let start = Instant::now();
    while rig.driver.free_memory() != free {
        assert!(start.elapsed() < PATIENCE, "the page was not freed");
        std::thread::yield_now();
    }
}

#[test]
fn a_thousand_streams_in_a_random_order_of_waits_all_finish() {
    let mut rig = host(HostOptions::default());
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let kernel = rig.kernel("count", Interface::new(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut streams: Vec<_> = (0..100).map(|_| rig.driver.open_stream().unwrap()).collect();
    let mut state = 3_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut submitted = vec![0; streams.len()];
    for _ in 0..1000 {
        let one = random(streams.len());
        let mut stream = streams.swap_remove(one);
        let seq = submitted.swap_remove(one) + 1;
        for _ in 0..random(3) {
            let other = random(streams.len());
            rig.driver.wait(&mut stream, &mut streams[other], submitted[other]);
        }
        rig.launch(&mut stream, seq, &kernel, [2, 1, 1], &[]).unwrap();
        rig.driver.submit(&mut stream, seq).unwrap();
        streams.push(stream);
        submitted.push(seq);
    }
    for (stream, seq) in streams.iter_mut().zip(submitted) {
        rig.finish(stream, seq);
    }
    assert_eq!(ran.load(Ordering::Relaxed), 2000);
}
