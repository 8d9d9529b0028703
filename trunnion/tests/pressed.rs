//! Devices used as nobody would on purpose: ended while they are used, waited for by others, given more than they keep.
#![cfg(feature = "host")]

extern crate alloc;

use alloc::sync::Arc;
use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Instant;
use trunnion::Access;
use trunnion::executor::Execution;
use trunnion::layers::{FaultInjector, FaultKind, FaultPlan, Validate, Violations};
use trunnion::prelude::*;
use trunnion::service::Settings;
use trunnion::{Error, Result};
use trunnion_backend_host::HostResource;

const SOON: Duration = Duration::from_secs(10);
const BOTH: [Execution; 2] = [Execution::Inline, Execution::Runner];

fn settings(execution: Execution) -> Settings {
    let mut settings = Settings::default();
    settings.executor.execution = execution;
    settings.wait_timeout = Duration::from_secs(4);
    settings
}

/// A device of its own.
fn device(settings: &Settings) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(2000);
    trunnion::devices();
    let host = trunnion::backend::backend("host").unwrap();
    let device = DeviceId { backend: host.name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init_with(device, host.open(0, &settings.open).unwrap(), settings).unwrap()
}

fn on_new_stream(client: &Client) -> Client {
    let mut client = client.clone();
    client.set_stream(StreamId::new());
    client
}

/// Sets its buffer to 9, after a time.
fn slow(time: Duration) -> SourceKernel {
    SourceKernel::new("slow", Interface::new().overwrite(64 * 4)).source(Source::host(move |group| {
        thread::sleep(time);
        group.part::<u32>(0)?.fill(9);
        Ok(())
    }))
}

// ---- devices that wait for each other

#[test]
fn whoever_waits_for_bytes_of_a_device_without_a_thread_drives_that_too() {
    for (from, to) in [(0, 0), (0, 1), (1, 0)].map(|(from, to)| (BOTH[from], BOTH[to])) {
        let (source, target) = (device(&settings(from)), device(&settings(to)));
        let slow = source.prepare(slow(Duration::from_millis(60))).unwrap();
        let bytes = source.zeros(256).unwrap();
        source.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        let copy = source.to_client(&bytes, &target).unwrap();
        let read = target.read_one(&copy);
        assert_eq!(read.unwrap().to_vec::<u32>().unwrap(), [9; 64], "{from:?} to {to:?}");
        // Over one in between, and back to where they came from.
        let between = device(&settings(Execution::Runner));
        source.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        let there = source.to_client(&bytes, &between).unwrap();
        let back = between.to_client(&there, &target).unwrap();
        let home = target.to_client(&back, &source).unwrap();
        assert_eq!(target.read_one(&back).unwrap().to_vec::<u32>().unwrap(), [9; 64], "{from:?} to {to:?}");
        assert_eq!(source.read_one(&home).unwrap().to_vec::<u32>().unwrap(), [9; 64], "{from:?} to {to:?}");
    }
}

#[test]
fn whoever_waits_for_a_point_of_a_device_without_a_thread_drives_that_too() {
    for (from, to) in [(0, 0), (0, 1), (1, 0)].map(|(from, to)| (BOTH[from], BOTH[to])) {
        let (source, target) = (device(&settings(from)), device(&settings(to)));
        let slow = source.prepare(slow(Duration::from_millis(60))).unwrap();
        let bytes = source.zeros(256).unwrap();
        let point = source.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        target.wait(point).unwrap();
        let own = target.create_from_slice(&[1; 64]).unwrap();
        target.sync().unwrap().wait().unwrap_or_else(|error| panic!("{from:?} to {to:?}: {error}"));
        assert!(source.is_done(point).unwrap());
        // Who only asks, again and again, drives it as well.
        let point = source.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        target.wait(point).unwrap();
        let (then, start) = (target.record().unwrap(), Instant::now());
        while !target.is_done(then).unwrap() {
            assert!(start.elapsed() < SOON, "{from:?} to {to:?}: never done");
            thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(target.read_one(&own).unwrap().as_slice().unwrap(), [1; 64]);
    }
}

#[test]
fn whoever_awaits_bytes_of_a_device_without_a_thread_drives_that_too() {
    for (from, to) in [(0, 0), (0, 1), (1, 0)].map(|(from, to)| (BOTH[from], BOTH[to])) {
        let (source, target) = (device(&settings(from)), device(&settings(to)));
        let slow = source.prepare(slow(Duration::from_millis(60))).unwrap();
        let bytes = source.zeros(256).unwrap();
        source.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        let copy = source.to_client(&bytes, &target).unwrap();
        let reading = target.read_async(&[&copy]).unwrap();
        let read = trunnion::platform::block_on(reading, &trunnion::platform::Deadline::after(Duration::from_secs(4)));
        let read = read.unwrap_or_else(|| panic!("{from:?} to {to:?}: never ready")).unwrap();
        assert_eq!(read[0].to_vec::<u32>().unwrap(), [9; 64], "{from:?} to {to:?}");
    }
}

#[test]
fn whoever_waits_for_staging_that_waits_for_a_device_without_a_thread_drives_that_too() {
    for to in BOTH {
        let mut limited = settings(to);
        limited.staging_limit = Some(1000);
        limited.wait_timeout = Duration::from_secs(60);
        let (source, target) = (device(&settings(Execution::Inline)), device(&limited));
        let slow = source.prepare(slow(Duration::from_millis(60))).unwrap();
        let bytes = source.zeros(256).unwrap();
        let point = source.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        target.wait(point).unwrap();
        let staged = target.create_from_slice_pinned(&[3; 400]).unwrap();
        let start = Instant::now();
        assert_eq!(target.reserve_staging(&[1000]).unwrap().len(), 1);
        assert!(start.elapsed() < SOON, "{to:?}: waited {:?}", start.elapsed());
        assert_eq!(target.read_one(&staged).unwrap().as_slice().unwrap(), [3; 400]);
    }
}

// ---- times

#[test]
fn times_as_long_as_can_be_said_are_no_overflow() {
    for execution in BOTH {
        let mut settings = settings(execution);
        (settings.wait_timeout, settings.drop_timeout) = (Duration::MAX, Duration::MAX);
        settings.executor.full_timeout = Duration::MAX;
        let client = device(&settings);
        let slow = client.prepare(slow(Duration::from_millis(5))).unwrap();
        let bytes = client.zeros(256).unwrap();
        client.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        assert_eq!(client.read_one(&bytes).unwrap().to_vec::<u32>().unwrap(), [9; 64]);
        client.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        client.sync_timeout(Duration::MAX).unwrap();
        client.read_timeout(&[&bytes], Duration::MAX).unwrap();
        client.exclusive_timeout(Duration::MAX, || client.flush()).unwrap().unwrap();
        client.launch(&slow, Grid::x(1), [&bytes]).unwrap();
        assert_eq!(client.shutdown(Duration::MAX).abandoned, 0);
    }
}

// ---- more than is kept

#[test]
fn what_is_more_than_can_be_put_aside_says_so_on_its_bytes_and_the_rest_is_right() {
    for execution in BOTH {
        let client = device(&settings(execution));
        let (gate, held) = (client.create_from_slice(&[7; 64]).unwrap(), on_new_stream(&client));
        let buffers: Vec<_> = (0..6000).map(|_| client.zeros(16).unwrap()).collect();
        let ((), _) = client
            .with_resource(&gate, Access::Write, |_: &HostResource, _| {
                for buffer in &buffers {
                    held.copy(&gate.slice(..16).unwrap(), buffer).unwrap();
                }
                // Nobody else is held up.
                let free = on_new_stream(&client);
                let own = free.create_from_slice(&[3; 64]).unwrap();
                assert_eq!(free.read_one(&own).unwrap().as_slice().unwrap(), [3; 64]);
                // What is full is said to whoever asks now, without a wait for what is held up.
                let start = Instant::now();
                let full = held.read_async(&[&gate]).unwrap().wait_for(SOON).unwrap_err();
                assert!(full.is_busy() && start.elapsed() < SOON / 2, "{full:?}");
            })
            .unwrap();
        held.sync().unwrap().wait().unwrap();
        let (mut right, mut busy) = (0, 0);
        for buffer in &buffers {
            match client.read_one(buffer) {
                Ok(bytes) => {
                    assert_eq!(bytes.as_slice().unwrap(), [7; 16]);
                    right += 1;
                }
                Err(error) => {
                    assert!(error.root().is_busy(), "{error:?}");
                    busy += 1;
                }
            }
        }
        assert_eq!((right, busy), (4096, 6000 - 4096));
        // The stream is as good as before, and so are the bytes once they are written.
        for buffer in &buffers {
            held.fill(buffer, &[5]).unwrap();
        }
        assert_eq!(held.read_one(&buffers[5999]).unwrap().as_slice().unwrap(), [5; 16]);
        assert_eq!(client.shutdown(SOON).abandoned, 0);
    }
}

// ---- ends

/// What a device that ends while it is used may answer.
fn is_the_end(error: &Error) -> bool {
    matches!(error.root(), Error::ShutDown { .. } | Error::ForeignHandle { .. } | Error::ForeignPoint { .. })
}

fn use_until_the_end(client: &Client, other: &Client, round: u32) -> Result<()> {
    let step = client.prepare(slow(Duration::from_micros(u64::from(round % 50))))?;
    let bytes = client.zeros(4096)?;
    loop {
        client.launch(&step, Grid::x(16), [&bytes])?;
        let lazy = client.read_lazy(&bytes)?;
        let reading = client.read_async(&[&bytes])?;
        let copy = client.to_client(&bytes, other)?;
        client.write_slice(&bytes, &[1; 4096])?;
        client.exclusive_timeout(SOON, || client.fill(&bytes, &[2]))??;
        client.with_resource(&bytes, Access::Read, |_: &HostResource, _| ())?;
        client.sync()?.wait()?;
        lazy.as_slice()?;
        reading.wait()?;
        other.read_one(&copy)?;
        client.memory_cleanup()?;
    }
}

#[test]
fn a_device_may_be_ended_at_any_moment_of_its_use_by_many_threads() {
    for round in 0..24 {
        for execution in BOTH {
            let (client, other) = (device(&settings(execution)), device(&settings(Execution::Runner)));
            let barrier = Barrier::new(5);
            let (answers, took) = thread::scope(|scope| {
                let users: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            use_until_the_end(&on_new_stream(&client), &other, round)
                        })
                    })
                    .collect();
                barrier.wait();
                thread::sleep(Duration::from_micros(300 * u64::from(round)));
                let start = Instant::now();
                client.shutdown(Duration::from_millis(if round % 3 == 0 { 0 } else { 500 }));
                let answers: Vec<_> = users.into_iter().map(|user| user.join().unwrap()).collect();
                (answers, start.elapsed())
            });
            for answer in answers {
                let error = answer.unwrap_err();
                assert!(is_the_end(&error), "round {round}, {execution:?}: {error:?}");
            }
            assert!(took < SOON / 2, "round {round}, {execution:?}: {took:?}");
            // The other device is as good as before.
            assert_eq!(other.read_one(&other.zeros(64).unwrap()).unwrap().as_slice().unwrap(), [0; 64]);
        }
    }
}

/// Uses a device when its thread ends, after the values of that thread it may lean on are gone.
struct LastWords(RefCell<Option<Words>>);

/// What they are said with, and to whom.
type Words = (Client, Handle, mpsc::Sender<Result<u8>>);

impl Drop for LastWords {
    fn drop(&mut self) {
        let Some((client, bytes, tell)) = self.0.take() else { return };
        let said = client.exclusive(|| {
            client.fill(&bytes, &[8])?;
            client.sync()?.wait()?;
            Ok(client.read_one(&bytes)?.as_slice()?[5])
        });
        tell.send(said.and_then(|said| said)).ok();
        drop((client, bytes));
    }
}

#[test]
fn a_device_can_be_used_and_ended_by_a_thread_that_is_ending() {
    thread_local! {
        static FIRST: LastWords = const { LastWords(RefCell::new(None)) };
        static LATER: LastWords = const { LastWords(RefCell::new(None)) };
    }
    for execution in BOTH {
        let (tell, told) = mpsc::channel();
        let client = device(&settings(execution));
        let bytes = client.zeros(64).unwrap();
        thread::spawn(move || {
            // Destroyed in the order in which they are first used here, the device's own values in between.
            FIRST.with(|words| *words.0.borrow_mut() = Some((client.clone(), bytes.clone(), tell.clone())));
            client.read_one(&bytes).unwrap();
            client.exclusive(|| ()).unwrap();
            LATER.with(|words| *words.0.borrow_mut() = Some((client, bytes, tell)));
        })
        .join()
        .unwrap();
        for _ in 0..2 {
            assert_eq!(told.recv_timeout(SOON).unwrap().unwrap(), 8, "{execution:?}");
        }
    }
}

#[test]
fn threads_that_wait_for_the_device_are_told_when_its_owner_ends_it() {
    for execution in BOTH {
        let client = device(&settings(execution));
        let bytes = client.zeros(64).unwrap();
        let started = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = client
                .exclusive(|| {
                    let waiting: Vec<_> = (0..3)
                        .map(|_| {
                            scope.spawn(|| {
                                started.store(true, Ordering::SeqCst);
                                (client.read_one(&bytes).map(drop), client.exclusive(|| ()))
                            })
                        })
                        .collect();
                    while !started.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    thread::sleep(Duration::from_millis(20));
                    client.shutdown(Duration::from_secs(1));
                    waiting
                })
                .unwrap();
            let start = Instant::now();
            for waiting in waiting {
                let (read, exclusive) = waiting.join().unwrap();
                assert!(read.as_ref().is_err_and(is_the_end), "{execution:?}: {read:?}");
                assert!(exclusive.as_ref().is_err_and(is_the_end), "{execution:?}: {exclusive:?}");
            }
            assert!(start.elapsed() < SOON, "{execution:?}: {:?}", start.elapsed());
        });
    }
}

#[test]
fn the_last_client_may_go_with_a_kernel_that_holds_it() {
    for execution in BOTH {
        let client = device(&settings(execution));
        let held = Arc::new(client.clone());
        let captured = held.clone();
        let kernel = SourceKernel::new("holds", Interface::new().overwrite(256)).source(Source::host(move |group| {
            group.part::<u32>(0)?.fill(captured.device_id().index);
            Ok(())
        }));
        let kernel = client.prepare(kernel).unwrap();
        let bytes = client.zeros(256).unwrap();
        client.launch(&kernel, Grid::x(1), [&bytes]).unwrap();
        client.read_one(&bytes).unwrap();
        let start = Instant::now();
        client.shutdown(Duration::from_secs(1));
        drop((kernel, bytes, client));
        assert_eq!(Arc::strong_count(&held), 1, "{execution:?}: the kernel is kept by what it holds");
        drop(held);
        assert!(start.elapsed() < SOON / 2);
    }
}

// ---- with layers around the server

/// A device with layers around it, and a look at the contract on both sides of them.
fn layered(execution: Execution, plan: FaultPlan) -> (Client, [Violations; 2]) {
    static NEXT: AtomicU32 = AtomicU32::new(3000);
    trunnion::devices();
    let settings = settings(execution);
    let host = trunnion::backend::backend("host").unwrap();
    let device = DeviceId { backend: host.name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
    let (opened, inner) = Validate::around(host.open(0, &settings.open).unwrap());
    let (opened, _) = FaultInjector::around(opened, plan);
    let (opened, outer) = Validate::around(opened);
    (Client::try_init_with(device, opened, &settings).unwrap(), [inner, outer])
}

#[test]
fn layers_keep_the_contract_however_a_device_is_used_and_whenever_it_ends() {
    let plans = [
        FaultPlan::new(),
        FaultPlan::new().delay(Duration::from_micros(200)).reorder(5),
        FaultPlan::new().fail(40, FaultKind::Late).fail(41, FaultKind::Refused),
        FaultPlan::new().fail(30, FaultKind::Lost),
        FaultPlan::new().fail(60, FaultKind::Never),
    ];
    for (round, plan) in plans.iter().cycle().take(25).enumerate() {
        for execution in BOTH {
            let (client, violations) = layered(execution, plan.clone());
            let other = device(&settings(Execution::Runner));
            let barrier = Barrier::new(4);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        barrier.wait();
                        use_until_the_end(&on_new_stream(&client), &other, round as u32)
                    });
                }
                barrier.wait();
                thread::sleep(Duration::from_micros(400 * round as u64));
                let start = Instant::now();
                client.shutdown(Duration::from_millis(50));
                assert!(start.elapsed() < SOON / 2, "{plan}, {execution:?}: {:?}", start.elapsed());
            });
            drop(client);
            for violations in &violations {
                assert_eq!(violations.count(), 0, "round {round}, {plan}, {execution:?}: {violations:?}");
            }
        }
    }
}

#[test]
fn a_device_that_is_lost_inside_exclusive_ends_every_wait() {
    for execution in BOTH {
        for number in 1..12 {
            let (client, violations) = layered(execution, FaultPlan::new().fail(number, FaultKind::Lost));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let answer = use_until_the_end(&on_new_stream(&client), &client, 1);
                        assert!(answer.is_err_and(|error| error.is_device_lost() || error.is_busy()));
                    });
                }
                let start = Instant::now();
                let inside = client.exclusive_timeout(SOON, || {
                    let bytes = client.zeros(64)?;
                    for _ in 0..12 {
                        client.fill(&bytes, &[1])?;
                        client.sync()?.wait()?;
                    }
                    Ok::<_, Error>(())
                });
                let error = inside.and_then(|inside| inside).unwrap_err();
                assert!(error.is_device_lost(), "{number}, {execution:?}: {error:?}");
                assert!(start.elapsed() < SOON / 2);
            });
            client.shutdown(Duration::from_secs(1));
            for violations in &violations {
                assert_eq!(violations.count(), 0, "{number}, {execution:?}: {violations:?}");
            }
        }
    }
}
