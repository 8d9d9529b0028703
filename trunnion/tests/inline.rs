//! A host device without a thread of its own: whoever calls it runs it.
#![cfg(feature = "host")]

extern crate alloc;

use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;
use trunnion::allocation::AllocationMode;
use trunnion::executor::Execution;
use trunnion::prelude::*;
use trunnion::service::Settings;
use trunnion::{Error, Result};

const SOON: Duration = Duration::from_secs(10);

fn settings(execution: Execution) -> Settings {
    let mut settings = Settings::default();
    settings.executor.execution = execution;
    settings
}

/// A device of its own.
fn device(settings: &Settings) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    trunnion::devices();
    let host = trunnion::backend::backend("host").unwrap();
    let device = DeviceId { backend: host.name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init_with(device, host.open(0, &settings.open).unwrap(), settings).unwrap()
}

fn inline() -> Client {
    device(&settings(Execution::Inline))
}

/// Adds a number to each of 64 elements a workgroup.
fn add() -> SourceKernel {
    SourceKernel::new("add", Interface::new().partition(64 * 4).parameters(4)).source(Source::host(|group| {
        let number = group.parameters::<u32>()?;
        group.part::<u32>(0)?.iter_mut().for_each(|x| *x = x.wrapping_add(number));
        Ok(())
    }))
}

fn fails() -> SourceKernel {
    SourceKernel::new("fails", Interface::new().partition(64 * 4))
        .source(Source::host(|_| Err(trunnion::error::KernelFault::Message("on purpose".into()))))
}

fn numbers(client: &Client, handle: &Handle) -> Result<Vec<u32>> {
    client.read_one(handle)?.to_vec()
}

/// A runtime that knows nothing of the device: it sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_program_runs_from_end_to_end() {
    let client = inline();
    let add = client.prepare(add()).unwrap();
    let a = client.create_from_slice(bytemuck::cast_slice(&[1u32; 1000])).unwrap();
    for number in 1..=10u32 {
        client.launch(&add, Grid::cover(1000, 64).unwrap(), ([&a], &number)).unwrap();
    }
    let b = client.empty(4000).unwrap();
    client.copy(&a, &b).unwrap();
    client.fill(&a, &7u32.to_ne_bytes()).unwrap();
    assert_eq!(numbers(&client, &b).unwrap(), [56; 1000]);
    assert_eq!(numbers(&client, &a).unwrap(), [7; 1000]);
    // Large enough to go in place.
    let large: Vec<u8> = (0..1_000_000).map(|i| i as u8).collect();
    let c = client.create_from_slice(&large).unwrap();
    let mut read = vec![0; large.len()];
    client.read_into(&c, &mut read).unwrap();
    assert_eq!(read, large);
    assert_eq!(client.read_lazy(&c).unwrap().as_slice().unwrap(), large);
    client.sync_buffers(&[&a, &b, &c]).unwrap();
    assert_eq!(client.shutdown(SOON).abandoned, 0);
}

#[test]
fn futures_complete_under_a_runtime_that_only_sleeps() {
    let client = inline();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let add = client.prepare(add()).unwrap();
        let a = client.create_from_slice(&[0; 4000]).unwrap();
        let reads: Vec<_> = (0..50u32)
            .map(|_| {
                client.launch(&add, Grid::cover(1000, 64).unwrap(), ([&a], &1u32)).unwrap();
                client.read_async(&[&a]).unwrap()
            })
            .collect();
        block_on(client.sync().unwrap()).unwrap();
        for (i, read) in reads.into_iter().enumerate().filter(|(i, _)| i % 2 == 0) {
            assert_eq!(block_on(read).unwrap()[0].to_vec::<u32>().unwrap(), [i as u32 + 1; 1000]);
        }
        tell.send(()).unwrap();
    });
    told.recv_timeout(SOON).unwrap();
}

#[test]
fn threads_share_it_and_each_sees_its_own_work_in_order() {
    let client = inline();
    let add = client.prepare(add()).unwrap();
    thread::scope(|scope| {
        for t in 0..4u32 {
            let (client, add) = (client.clone(), add.clone());
            scope.spawn(move || {
                let a = client.create_from_slice(bytemuck::cast_slice(&[t; 64])).unwrap();
                for i in 1..=200u32 {
                    client.launch(&add, Grid::x(1), ([&a], &1u32)).unwrap();
                    if i % 20 == 0 {
                        assert_eq!(numbers(&client, &a).unwrap(), [t + i; 64]);
                    }
                }
            });
        }
    });
}

#[test]
fn exclusive_nests_and_everything_that_waits_passes_inside() {
    for execution in [Execution::Inline, Execution::Runner] {
        let client = device(&settings(execution));
        let a = client.create_from_slice(&[5; 300_000]).unwrap();
        let lazy = client.read_lazy(&a).unwrap();
        let seen = client.exclusive(|| {
            client.exclusive(|| {
                client.sync().unwrap().wait().unwrap();
                client.done(client.record().unwrap()).unwrap().wait().unwrap();
                client.create_from_slice(&[6; 300_000]).unwrap();
                (lazy.as_slice().unwrap()[9], client.read_one(&a).unwrap().as_slice().unwrap()[9])
            })
        });
        assert_eq!(seen.unwrap().unwrap(), (5, 5));
        let panicked = client.exclusive(|| panic!("on purpose"));
        assert!(matches!(panicked, Err(Error::Panicked { message, .. }) if message == "on purpose"));
        let theirs = client.clone();
        thread::spawn(move || theirs.exclusive(|| theirs.read_one(&a).unwrap()).unwrap()).join().unwrap();
    }
}

#[test]
fn a_stream_that_waits_for_its_own_next_moment_or_for_a_stranger_goes_on() {
    let (client, other) = (inline(), inline());
    let point = client.record().unwrap();
    for ahead in [0, 1, 2, 1000] {
        client.wait(Point { seq: point.seq + ahead, ..point }).unwrap();
    }
    client.wait(Point { stream: StreamId::new(), ..point }).unwrap();
    client.wait(other.record().unwrap()).unwrap();
    client.sync().unwrap().wait_for(SOON).unwrap();
    assert!(client.is_done(Point { seq: u64::MAX, ..point }).unwrap());
    let gone = other.record().unwrap();
    other.shutdown(SOON);
    assert!(matches!(client.wait(gone), Err(Error::ForeignPoint { .. })));
    assert!(matches!(client.done(gone), Err(Error::ForeignPoint { .. })));
}

#[test]
fn operations_over_nothing_have_points_that_are_done_in_their_turn() {
    let client = inline();
    let add = client.prepare(add()).unwrap();
    let (none, some) = (client.empty(0).unwrap(), client.zeros(256).unwrap());
    let mut last = client.record().unwrap().seq;
    for point in [
        client.write_slice(&none, &[]).unwrap(),
        client.fill(&none, &[1]).unwrap(),
        client.copy(&none, &client.empty(0).unwrap()).unwrap(),
        client.launch(&add, Grid::Static(0, 1, 1), ([&some], &1u32)).unwrap(),
        client.launch(&add, Grid::Static(u32::MAX, 0, u32::MAX), ([&some], &1u32)).unwrap(),
        client.launch(&add, Grid::x(3), ([&none], &1u32)).unwrap(),
        client.read_async(&[&none]).unwrap().point(),
        client.read_async(&[]).unwrap().point(),
    ] {
        assert!(point.seq > last && point.stream == client.stream(), "{point}");
        last = point.seq;
        client.done(point).unwrap().wait_for(SOON).unwrap();
    }
    assert_eq!(client.read(&[&none, &some, &none]).unwrap().iter().map(Bytes::len).collect::<Vec<_>>(), [0, 256, 0]);
    assert_eq!(client.read(&[]).unwrap().len(), 0);
    client.sync_buffers(&[&none]).unwrap();
    client.check(&[]).unwrap();
}

#[test]
fn each_failure_is_named_once_whichever_way_the_bytes_are_read() {
    for execution in [Execution::Inline, Execution::Runner] {
        let client = device(&settings(execution));
        let (fails, add) = (client.prepare(fails()).unwrap(), client.prepare(add()).unwrap());
        // One buffer below and one above the size from which the host's bytes are used in place.
        for size in [256u64, 512 << 10] {
            let a = client.zeros(size).unwrap();
            client.launch(&fails, Grid::x(1), [&a]).unwrap();
            client.launch(&add, Grid::x(1), ([&a], &1u32)).unwrap();
            let (front, back) = (a.slice(..128).unwrap(), a.slice(128..).unwrap());
            let mut into = vec![0; size as usize];
            let lazy = client.read_lazy(&a).unwrap();
            for error in [
                client.read_one(&a).unwrap_err(),
                client.read(&[&a, &front, &back]).unwrap_err(),
                client.read_into(&a, &mut into).unwrap_err(),
                lazy.as_slice().map(drop).unwrap_err(),
                client.sync_buffers(&[&back, &a]).unwrap_err(),
                client.check(&[&front, &a]).unwrap_err(),
            ] {
                assert!(matches!(error.root(), Error::KernelFailed { .. }), "{size}: {error:?}");
            }
            let fresh = vec![3; size as usize];
            client.write_slice(&a, &fresh).unwrap();
            assert_eq!(client.read_one(&a).unwrap().as_slice().unwrap(), fresh);
            assert_eq!(lazy.as_slice().unwrap(), fresh, "a lazy read tries again");
        }
    }
}

#[test]
fn windows_of_allocation_modes_reach_the_device() {
    let client = inline();
    let before = client.memory_usage().unwrap().live;
    let (kept, own) = (
        client.memory_persistent_allocation(|| client.zeros(1 << 20)).unwrap(),
        client.memory_dedicated_allocation(|| client.zeros(1 << 20)).unwrap(),
    );
    let window = client.allocation_mode(AllocationMode::Dedicated);
    window.close().unwrap();
    client.sync_buffers(&[&kept, &own]).unwrap();
    drop((kept, own));
    client.sync().unwrap().wait().unwrap();
    client.memory_cleanup().unwrap();
    assert_eq!(client.memory_usage().unwrap().live, before);
}

#[test]
fn the_last_client_may_be_dropped_inside_a_kernel() {
    for execution in [Execution::Inline, Execution::Runner] {
        let mut settings = settings(execution);
        settings.drop_timeout = Duration::from_millis(300);
        let client = device(&settings);
        let last: Arc<Mutex<Option<Client>>> = Arc::default();
        let (theirs, (tell, told), (go, wait)) = (last.clone(), mpsc::channel(), mpsc::channel::<()>());
        let wait = Mutex::new(wait);
        // Too large to be run by whoever submits it.
        let drops = SourceKernel::new("drops", Interface::new().partition(16 << 20)).source(Source::host(move |_| {
            wait.lock().unwrap().recv_timeout(SOON).ok();
            let (client, start) = (theirs.lock().unwrap().take(), Instant::now());
            let had = client.is_some();
            drop(client);
            tell.send((had, start.elapsed())).ok();
            Ok(())
        }));
        let drops = client.prepare(drops).unwrap();
        let a = client.empty(16 << 20).unwrap();
        client.launch(&drops, Grid::x(1), [&a]).unwrap();
        client.flush().unwrap();
        *last.lock().unwrap() = Some(client);
        go.send(()).unwrap();
        let (had, took) = told.recv_timeout(SOON).unwrap();
        assert!(had && took < SOON / 3, "{took:?}");
    }
    // What was left to itself harms nobody.
    let client = inline();
    assert_eq!(numbers(&client, &client.zeros(256).unwrap()).unwrap(), [0; 64]);
}

#[test]
fn an_access_that_would_have_replaced_failed_bytes_and_is_refused_does_not_make_them_good() {
    let client = inline();
    let fails = client.prepare(fails()).unwrap();
    let a = client.zeros(256).unwrap();
    client.launch(&fails, Grid::x(1), [&a]).unwrap();
    let wrong = client.with_resource(&a, Access::Overwrite, |_: &u8, _| ()).unwrap_err();
    assert!(matches!(wrong, Error::ServiceMismatch { .. }), "{wrong:?}");
    client.read_one(&a).unwrap_err();
    client.check(&[&a]).unwrap_err();
    // Bytes without a failure are left as they are.
    let b = client.create_from_slice(&[4; 256]).unwrap();
    for access in [Access::Read, Access::Write, Access::ReadWrite, Access::Overwrite] {
        assert_eq!(client.with_resource(&b, access, |_: &u8, _| ()).unwrap_err(), wrong);
        assert_eq!(client.read_one(&b).unwrap().as_slice().unwrap(), [4; 256]);
    }
}

#[test]
fn staging_waits_where_nobody_but_the_caller_looks_at_the_device() {
    let mut settings = settings(Execution::Inline);
    settings.staging_limit = Some(64 << 10);
    settings.open.options.insert("delay".into(), "2ms".into());
    settings.open.options.insert("pinned_memory".into(), "64KiB".into());
    trunnion::devices();
    let host = trunnion::backend::backend("host").unwrap();
    let device = DeviceId { backend: host.name(), index: 900 };
    let client = Client::try_init_with(device, host.open(0, &settings.open).unwrap(), &settings).unwrap();
    let data: Vec<u8> = (0..500_000u32).map(|i| (i * 7) as u8).collect();
    let handle = client.create_from_slice_pinned(&data).unwrap();
    assert!(client.read_one(&handle).unwrap().as_slice().unwrap() == data);
    let usage = client.staging_usage();
    assert!(usage.waits > 0 && usage.peak <= 64 << 10 && usage.pinned > 0, "{usage}");
}

#[test]
fn the_last_client_may_be_dropped_inside_a_hook() {
    for execution in [Execution::Runner, Execution::Inline] {
        let mut settings = settings(execution);
        settings.open.memory_budget = Some(8 << 20);
        let client = device(&settings);
        let held = client.zeros(6 << 20).unwrap();
        let last: Arc<Mutex<Option<Client>>> = Arc::default();
        let theirs = last.clone();
        let hook = client.on_memory_pressure(move |_| {
            drop(theirs.lock().unwrap().take());
            trunnion::pressure::PressureAnswer::Retry
        });
        hook.unwrap().keep();
        *last.lock().unwrap() = Some(client.clone());
        let failed = client.empty(6 << 20).unwrap();
        if execution == Execution::Inline {
            // Somebody has to run it.
            assert!(client.check(&[&failed]).unwrap_err().is_out_of_memory());
        }
        drop(client);
        // The hook goes with the device.
        let start = Instant::now();
        while Arc::strong_count(&last) > 1 {
            assert!(start.elapsed() < SOON, "the device does not end");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(last.lock().unwrap().is_none());
        drop((held, failed));
    }
}
