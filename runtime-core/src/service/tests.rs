//! Waiting, ending and starting, on a server whose every completion the test decides.

use super::scripted::{Remote, client_with, device_number, new_device};
use super::{Core, Settings, defaults};
use crate::access::Access;
use crate::allocation::AllocationMode;
use crate::backend::{self, Backend, OpenSettings};
use crate::bytes::Bytes;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::executor::Execution;
use crate::id::{BackendName, StreamId};
use crate::platform::Deadline;
use crate::properties::DeviceInfo;
use crate::server::Opened;
use crate::timeline::Point;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::Future;
use core::panic::AssertUnwindSafe;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

const SHORT: Duration = Duration::from_millis(400);

/// How late a wait may end on a busy machine; what does not keep its own timeout takes the usual one, or for ever.
const LATE: Duration = Duration::from_secs(10);

fn client() -> (Client, Remote) {
    client_with(&defaults())
}

fn inline() -> Settings {
    let mut settings = Settings::default();
    settings.executor.execution = Execution::Inline;
    settings
}

/// A client pinned to a new stream, with an operation on it that is not finished.
fn with_work(client: &Client) -> (Client, Point) {
    let mut pinned = client.clone();
    pinned.set_stream(StreamId::new());
    let point = pinned.fill(&pinned.empty(16).unwrap(), &[1]).unwrap();
    (pinned, point)
}

/// Ends a wait that took as long as it may.
fn timed_out(start: Instant, error: &Error, point: Point) -> Duration {
    assert!(matches!(error, Error::Timeout { point: Some(of), .. } if *of == point), "{error:?}");
    let took = start.elapsed();
    assert!(took >= SHORT && took < SHORT + LATE, "{took:?}");
    took
}

// ---- deadlines

#[test]
fn others_who_keep_the_device_busy_keep_nobody_waiting_for_ever() {
    for settings in [defaults(), inline()] {
        let (client, remote) = client_with(&settings);
        let (_, stuck) = with_work(&client);
        let (busy, stop) = (client.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let other = remote.clone();
        let busy = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                other.finish(with_work(&busy).1);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let (start, done) = (Instant::now(), client.done(stuck).unwrap());
        timed_out(start, &done.wait_for(SHORT).unwrap_err(), stuck);
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        remote.finish(stuck);
        done.wait_for(SHORT).unwrap();
    }
}

#[test]
fn the_deadline_starts_again_while_what_came_before_gets_on_on_any_stream() {
    let (client, remote) = client();
    let before: Vec<Point> = (0..9).map(|_| with_work(&client).1).collect();
    let (_, last) = with_work(&client);
    // Each step is far shorter than the timeout, or a machine that keeps the finisher from running decides; all of them are longer.
    let timeout = 8 * SHORT;
    let finisher = thread::spawn(move || {
        for point in before.into_iter().chain([last]) {
            thread::sleep(timeout / 9);
            remote.finish(point);
        }
    });
    client.done(last).unwrap().wait_for(timeout).unwrap();
    finisher.join().unwrap();
}

#[test]
fn progress_in_the_beginning_does_not_double_the_timeout() {
    let wait = || {
        let (client, remote) = client();
        let (_, first) = with_work(&client);
        let (_, stuck) = with_work(&client);
        let start = Instant::now();
        remote.finish(first);
        timed_out(start, &client.done(stuck).unwrap().wait_for(SHORT).unwrap_err(), stuck)
    };
    // What is doubled is so each time; a busy machine is late now and then.
    let late: Vec<_> = (0..8).map(|_| wait()).take_while(|took| *took >= SHORT.mul_f32(1.9)).collect();
    assert!(late.len() < 8, "{late:?}");
}

#[test]
fn a_read_that_timed_out_can_be_waited_for_again() {
    let (client, remote) = client();
    let reading = client.read_async(&[&client.empty(4).unwrap()]).unwrap();
    let start = Instant::now();
    timed_out(start, &reading.wait_for(SHORT).unwrap_err(), reading.point());
    remote.finish(reading.point());
    assert_eq!(reading.wait_for(SHORT).unwrap().len(), 0);
}

#[test]
fn a_wait_ends_in_time_while_another_thread_has_the_device() {
    let (client, remote) = client();
    let (_, stuck) = with_work(&client);
    let reading = client.read_async(&[&client.empty(4).unwrap()]).unwrap();
    let (take, taken) = mpsc::channel();
    let (give, given) = mpsc::channel::<()>();
    let theirs = client.clone();
    let holder = thread::spawn(move || {
        theirs.exclusive(|| {
            take.send(()).unwrap();
            given.recv().unwrap();
        })
    });
    taken.recv().unwrap();
    let start = Instant::now();
    timed_out(start, &client.done(stuck).unwrap().wait_for(SHORT).unwrap_err(), stuck);
    let start = Instant::now();
    timed_out(start, &reading.wait_for(SHORT).unwrap_err(), reading.point());
    // What is there is had all the same.
    remote.finish(reading.point());
    reading.wait_for(SHORT).unwrap();
    give.send(()).unwrap();
    holder.join().unwrap().unwrap();
}

#[test]
fn what_is_done_is_found_done_without_any_time_while_another_thread_has_the_device() {
    let (client, remote) = client();
    let (_, done) = with_work(&client);
    remote.finish(done);
    let look = || {
        let (take, taken) = mpsc::channel();
        let theirs = client.clone();
        let holder = thread::spawn(move || {
            theirs.exclusive(|| {
                take.send(()).unwrap();
                thread::sleep(Duration::from_millis(20));
            })
        });
        taken.recv().unwrap();
        let found = client.done(done).unwrap().wait_for(Duration::ZERO);
        holder.join().unwrap().unwrap();
        found
    };
    // The device is waited for a tenth of a second, which a busy machine may keep the holder from giving it back, now and then.
    let late = (0..10).map_while(|_| look().err()).collect::<Vec<_>>();
    assert!(late.len() < 10 && late.iter().all(Error::is_timeout), "{late:?}");
}

#[test]
fn a_fault_is_told_in_time_while_another_thread_has_the_device() {
    let (client, remote) = client();
    let reading = client.read_async(&[&client.empty(8).unwrap()]).unwrap();
    client.flush().unwrap();
    let cause = "unplugged".to_string();
    remote.with(|script| script.fault = Some(Error::DeviceLost { cause }));
    let (take, taken) = mpsc::channel();
    let (give, given) = mpsc::channel::<()>();
    let is_kept = Arc::new(AtomicBool::new(true));
    let kept = is_kept.clone();
    // Whoever finds the fault keeps the device for longer than anybody waits.
    let keep = move |core: &mut Core, _| {
        core.server.progress();
        take.send(()).unwrap();
        given.recv_timeout(Duration::from_secs(10)).ok();
        kept.store(false, Ordering::SeqCst);
    };
    client.service.submit(keep).unwrap();
    taken.recv().unwrap();
    let answer = reading.wait_for(Duration::from_millis(50));
    assert!(is_kept.load(Ordering::SeqCst), "it was told when the device was to be had");
    assert!(answer.as_ref().is_err_and(Error::is_device_lost), "{answer:?}");
    give.send(()).unwrap();
}

// ---- wakers

/// Does something when it is woken.
struct OnWake(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        let action = self.0.lock().unwrap().take();
        action.into_iter().for_each(|action| action());
    }
}

fn on_wake(action: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(OnWake(Mutex::new(Some(Box::new(action))))))
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn every_task_that_polls_a_future_is_woken_and_one_that_is_dropped_disturbs_nobody() {
    let (client, remote) = client();
    let handle = client.empty(4).unwrap();
    let (mut reading, dropped) = (client.read_async(&[&handle]).unwrap(), client.read_async(&[&handle]).unwrap());
    let (mut done, woken) = (client.done(reading.point()).unwrap(), mpsc::channel());
    for task in 0..3 {
        let (read, finished) = (woken.0.clone(), woken.0.clone());
        assert!(poll(&mut reading, &on_wake(move || read.send(task).unwrap())).is_pending());
        assert!(poll(&mut done, &on_wake(move || finished.send(10 + task).unwrap())).is_pending());
    }
    let (first, second) = (reading.point(), dropped.point());
    drop(dropped);
    remote.finish(first);
    let mut all: Vec<_> = (0..6).map(|_| woken.1.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 10, 11, 12]);
    assert!(poll(&mut reading, Waker::noop()).is_ready() && poll(&mut done, Waker::noop()).is_ready());
    remote.finish(second);
    client.done(second).unwrap().wait_for(SHORT).unwrap();
}

#[test]
fn a_waker_may_wait_for_the_device() {
    let (client, remote) = client();
    let (_, first) = with_work(&client);
    let (_, second) = with_work(&client);
    let (tell, told) = mpsc::channel();
    let theirs = client.clone();
    let waker = on_wake(move || tell.send(theirs.done(second).unwrap().wait_for(10 * SHORT)).unwrap());
    assert!(poll(&mut client.done(first).unwrap(), &waker).is_pending());
    drop(waker);
    remote.finish(first);
    thread::sleep(SHORT / 4);
    remote.finish(second);
    told.recv_timeout(20 * SHORT).unwrap().unwrap();
}

#[test]
fn the_last_client_may_be_dropped_in_a_waker() {
    let (client, remote) = client();
    let (pinned, point) = with_work(&client);
    let mut done = client.done(point).unwrap();
    let (tell, told) = mpsc::channel();
    let mut last = Some(pinned);
    let waker = on_wake(move || {
        last.take();
        tell.send(()).unwrap();
    });
    assert!(poll(&mut done, &waker).is_pending());
    drop((client, done, waker));
    remote.finish(point);
    told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(remote.with(|script| script.shut_down.is_some()));
}

#[test]
fn the_last_client_may_be_dropped_inside_an_entry() {
    /// Host bytes that keep a client.
    struct Keeps(#[allow(dead_code, reason = "it is dropped with this")] Client);
    impl AsRef<[u8]> for Keeps {
        fn as_ref(&self) -> &[u8] {
            &[1; 16]
        }
    }
    let (client, remote) = client();
    let handle = client.empty(16).unwrap();
    let bytes = Bytes::from_shared(Arc::new(Keeps(client.clone())));
    client.write(&handle, bytes).unwrap();
    drop(client);
    let start = Instant::now();
    while !remote.with(|script| script.shut_down.is_some()) {
        assert!(start.elapsed() < Duration::from_secs(20));
        thread::yield_now();
    }
    drop(handle);
}

#[test]
fn futures_of_an_inline_device_complete_under_any_runtime() {
    /// Knows nothing of the device: sleeps until it is woken.
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
    let (client, remote) = client_with(&inline());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let (_, point) = with_work(&client);
        let reading = client.read_async(&[&client.empty(4).unwrap()]).unwrap();
        tell.send((point, reading.point())).unwrap();
        block_on(client.done(point).unwrap()).unwrap();
        block_on(reading).unwrap();
        tell.send((point, point)).unwrap();
    });
    let (first, second) = told.recv().unwrap();
    thread::sleep(SHORT / 8);
    remote.finish(first);
    thread::sleep(SHORT / 8);
    remote.finish(second);
    told.recv_timeout(Duration::from_secs(20)).unwrap();
}

// ---- the end

#[test]
fn a_shutdown_answers_everybody_who_waits_and_wakes_them_without_the_device() {
    for settings in [defaults(), inline()] {
        let (client, remote) = client_with(&settings);
        let (_, stuck) = with_work(&client);
        let handle = client.empty(4).unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|i| {
                let (client, handle) = (client.clone(), handle.clone());
                thread::spawn(move || match i % 2 {
                    0 => client.done(stuck).and_then(|done| done.wait()).unwrap_err(),
                    _ => client.read_one(&handle).unwrap_err(),
                })
            })
            .collect();
        let (reading, theirs) = (client.read_async(&[&handle]).unwrap(), client.clone());
        let (tell, told) = mpsc::channel();
        assert!(reading.promise.poll(&on_wake(move || tell.send(theirs.flush().unwrap_err()).unwrap())).is_pending());
        thread::sleep(SHORT / 4);
        client.shutdown(SHORT);
        for error in waiting.into_iter().map(|thread| thread.join().unwrap()).chain([told.recv().unwrap()]) {
            assert!(matches!(error, Error::ShutDown { .. }), "{error:?}");
        }
        assert!(remote.with(|script| script.shut_down.is_some()));
    }
}

#[test]
fn a_promise_in_an_entry_that_never_runs_is_answered_and_its_waker_woken_without_the_device() {
    let (client, _remote) = client();
    let (block, blocked) = mpsc::channel::<()>();
    let (enter, entered) = mpsc::channel();
    client
        .service
        .submit(move |_, _| {
            enter.send(()).unwrap();
            blocked.recv().ok();
        })
        .unwrap();
    entered.recv().unwrap();
    let handle = client.empty(4).unwrap();
    let mut reading = client.read_async(&[&handle]).unwrap();
    let (tell, told) = mpsc::channel();
    let theirs = client.clone();
    assert!(poll(&mut reading, &on_wake(move || tell.send(theirs.flush().unwrap_err()).unwrap())).is_pending());
    assert!(client.shutdown(Duration::ZERO).abandoned > 0);
    block.send(()).unwrap();
    let error = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(error, Error::ShutDown { .. }), "{error:?}");
    assert!(matches!(reading.wait(), Err(Error::ShutDown { .. })));
}

#[test]
fn of_several_shutdowns_the_one_with_the_least_time_is_heard() {
    for others in [[SHORT, 100 * SHORT], [100 * SHORT, SHORT]] {
        let (client, remote) = client();
        let (leave, held) = mpsc::channel::<()>();
        client.service.submit(move |_, _| held.recv().unwrap_or_default()).unwrap();
        thread::scope(|scope| {
            for timeout in others {
                let client = client.clone();
                scope.spawn(move || client.shutdown(timeout));
                thread::sleep(SHORT / 8);
            }
            let given = || client.service.shared.shutdown.lock().and_then(|deadline| deadline.remaining());
            while given().is_none_or(|time| time > SHORT) {
                thread::yield_now();
            }
            leave.send(()).unwrap();
        });
        assert!(remote.with(|script| script.shut_down).is_some_and(|time| time <= SHORT));
    }
}

#[test]
fn exclusive_says_why_it_cannot_be_had() {
    let (client, remote) = client();
    let (tell, told) = mpsc::channel();
    let theirs = client.clone();
    client.service.submit(move |_, _| tell.send(theirs.exclusive(|| ())).unwrap()).unwrap();
    assert!(matches!(told.recv().unwrap(), Err(Error::Reentrant { .. })));
    let lost = Error::DeviceLost { cause: "unplugged".into() };
    let (_, point) = with_work(&client);
    remote.with(|script| script.fault = Some(lost.clone()));
    assert_eq!(client.done(point).and_then(|done| done.wait()), Err(lost.clone()));
    assert_eq!(client.exclusive(|| ()), Err(lost));
    let (client, _) = client_with(&defaults());
    client.shutdown(SHORT);
    assert_eq!(client.exclusive(|| ()), Err(Error::ShutDown { service: client.service_id() }));
}

#[test]
fn an_inline_device_that_somebody_has_is_busy_at_once() {
    let (client, _remote) = client_with(&inline());
    let start = Instant::now();
    let other = client.exclusive(|| thread::scope(|scope| scope.spawn(|| client.exclusive(|| ())).join().unwrap()));
    assert!(matches!(other, Ok(Err(Error::Busy { .. }))), "{other:?}");
    assert!(start.elapsed() < LATE);
}

// ---- use in place

#[test]
fn a_panic_in_a_task_that_writes_marks_the_bytes_and_one_that_reads_does_not() {
    let (client, remote) = client();
    let handle = client.empty(16).unwrap();
    for (access, marks) in
        [(Access::Read, false), (Access::Write, true), (Access::ReadWrite, true), (Access::Overwrite, true)]
    {
        let panicked =
            catch_unwind(AssertUnwindSafe(|| client.with_resource(&handle, access, |_: &u32, _| panic!("on purpose"))));
        assert!(panicked.is_err());
        client.flush().unwrap();
        let (open, closed) = remote.with(|script| (script.open.len(), script.closed.pop().unwrap()));
        assert_eq!((open, matches!(closed, Some(Error::Panicked { .. }))), (0, marks), "{access:?}");
    }
}

#[test]
fn an_access_that_came_to_nothing_is_closed_without_a_mark() {
    let mut settings = defaults();
    settings.wait_timeout = 4 * SHORT;
    let (client, remote) = client_with(&settings);
    let handle = client.empty(16).unwrap();
    let wrong = client.with_resource(&handle, Access::Overwrite, |_: &u64, _| ());
    assert!(matches!(wrong, Err(Error::ServiceMismatch { .. })));
    assert!(matches!(client.get_resource::<u64>(&handle), Err(Error::ServiceMismatch { .. })));
    remote.with(|script| script.grants = false);
    let late = client.with_resource(&handle, Access::Overwrite, |_: &u32, _| ());
    assert!(matches!(late, Err(Error::Timeout { point: Some(_), .. })), "{late:?}");
    client.flush().unwrap();
    assert_eq!(remote.with(|script| (script.open.len(), script.closed.clone())), (0, alloc::vec![None; 3]));
}

#[test]
fn an_access_is_closed_even_where_the_device_is_not_to_be_had() {
    let mut settings = defaults();
    settings.executor.full_timeout = Duration::from_millis(20);
    let (client, remote) = client_with(&settings);
    let handle = client.empty(16).unwrap();
    let theirs = client.clone();
    client
        .with_resource(&handle, Access::Read, |_: &u32, _| {
            let (take, taken) = mpsc::channel();
            thread::spawn(move || {
                theirs.exclusive(|| {
                    take.send(()).unwrap();
                    thread::sleep(SHORT);
                })
            });
            taken.recv().unwrap();
        })
        .unwrap();
    let start = Instant::now();
    while remote.with(|script| !script.open.is_empty()) {
        assert!(start.elapsed() < Duration::from_secs(20), "the access was never closed");
        thread::yield_now();
    }
}

#[test]
fn an_access_whose_end_overtakes_its_beginning_in_a_full_queue_keeps_nobody_waiting() {
    let mut settings = defaults();
    // What is asked of the device once it is free again has as long, also where the machine is busy.
    settings.wait_timeout = 2 * SHORT;
    settings.executor.full_timeout = Duration::from_millis(20);
    settings.executor.ring_bytes = 4096;
    let (client, remote) = client_with(&settings);
    let handle = client.empty(16).unwrap();
    let (go, gone) = mpsc::channel::<()>();
    let (there, arrived) = mpsc::channel();
    let held = move |_: &mut Core, _| {
        there.send(()).unwrap();
        gone.recv().unwrap();
    };
    client.flush().unwrap();
    let holding = client.clone();
    // A caller that carries out its own call leaves the device with the rest of the queue undone. Where the runner does, it waits as long.
    let held =
        thread::spawn(move || holding.service.call_until("held", &Deadline::after(Duration::from_secs(10)), held));
    arrived.recv().unwrap();
    let (asking, theirs) = (client.clone(), handle.clone());
    let asked = thread::spawn(move || asking.with_resource(&theirs, Access::Write, |_: &u32, _| ()).map(|_| ()));
    thread::sleep(Duration::from_millis(50));
    while client.record().is_ok() {}
    let asked = asked.join().unwrap();
    assert!(matches!(asked, Err(Error::Timeout { .. } | Error::Busy { .. })), "{asked:?}");
    go.send(()).unwrap();
    held.join().unwrap().unwrap();
    client.flush().unwrap();
    assert_eq!(remote.with(|script| script.open.len()), 0, "nobody would close it");
    let closed = remote.with(|script| script.closed.len());
    // The next one is granted and closed as ever.
    client.with_resource(&handle, Access::Write, |_: &u32, _| ()).unwrap();
    client.flush().unwrap();
    assert_eq!(remote.with(|script| (script.open.len(), script.closed.len())), (0, closed + 1));
}

#[test]
fn a_device_without_use_in_place_says_so() {
    let (client, remote) = client();
    remote.with(|script| script.has_access = false);
    let error = client.get_resource::<u32>(&client.empty(16).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}

#[test]
fn a_device_without_layouts_of_pools_says_so() {
    let (client, _remote) = client();
    let error = client.install_memory_pools(&crate::pool_layout::PoolLayout::adaptive()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "install_memory_pools"), "{error:?}");
}

// ---- the registry

/// What the next `open` does.
type Open = Box<dyn FnMut(u32) -> Result<Opened> + Send>;
static OPEN: Mutex<Option<Open>> = Mutex::new(None);
/// Tests that open devices through the backend take turns.
static TURN: Mutex<()> = Mutex::new(());

struct ScriptBackend;

impl Backend for ScriptBackend {
    fn name(&self) -> BackendName {
        device_number(0).backend
    }
    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }
    fn open(&self, index: u32, _: &OpenSettings) -> Result<Opened> {
        let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        open.as_mut().unwrap()(index)
    }
}

fn opening(open: impl FnMut(u32) -> Result<Opened> + Send + 'static) -> std::sync::MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    backend::register(Arc::new(ScriptBackend)).ok();
    *OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Box::new(open));
    turn
}

#[test]
fn an_open_that_fails_or_panics_leaves_the_device_to_be_opened_again() {
    let mut attempt = 0;
    let refused = Error::NoDevice { device: device_number(0), count: 0 };
    let answer = refused.clone();
    let _turn = opening(move |_| {
        attempt += 1;
        match attempt {
            1 => Err(answer.clone()),
            2 => panic!("on purpose, in open"),
            _ => Ok(Remote::default().opened()),
        }
    });
    let device = new_device();
    assert_eq!(Client::load(device).unwrap_err(), refused);
    assert!(catch_unwind(|| Client::load(device)).is_err());
    let client = Client::load(device).unwrap();
    assert_eq!(Client::load(device).unwrap().service_id(), client.service_id());
    let second = Client::try_init(device, Remote::default().opened()).unwrap_err();
    assert_eq!(second, Error::AlreadyRunning { device });
}

#[test]
fn threads_that_load_a_device_at_once_share_one_server() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let _turn = opening(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        Ok(Remote::default().opened())
    });
    let device = new_device();
    let clients: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| Client::load(device).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    assert!(clients.iter().all(|client| client.service_id() == clients[0].service_id()));
}

#[test]
fn a_load_that_races_with_the_last_drop_gives_a_device_that_works() {
    let _turn = opening(|_| Ok(Remote::default().opened()));
    let device = new_device();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let client = Client::load(device).unwrap();
                    client.flush().unwrap();
                }
            });
        }
    });
}

#[test]
fn a_load_after_a_shutdown_gives_a_new_device_while_old_clients_live() {
    let _turn = opening(|_| Ok(Remote::default().opened()));
    let device = new_device();
    let old = Client::load(device).unwrap();
    old.shutdown(SHORT);
    let new = Client::load(device).unwrap();
    assert_ne!(old.service_id(), new.service_id());
    new.flush().unwrap();
    drop(old);
    assert_eq!(Client::load(device).unwrap().service_id(), new.service_id());
}

// ---- allocation modes

#[test]
fn an_allocation_window_is_its_streams_wherever_the_call_is_made() {
    let (client, remote) = client();
    let (mut pinned, stream) = (client.clone(), StreamId::new());
    pinned.set_stream(stream);
    let modes = |run: &dyn Fn()| {
        run();
        client.flush().unwrap();
        remote.with(|script| core::mem::take(&mut script.modes)).into_iter().map(|(_, mode)| mode).collect::<Vec<_>>()
    };
    let empty = |client: &Client| drop(client.empty(8).unwrap());
    use AllocationMode::{Auto, Dedicated, Persistent};
    let seen = modes(&|| {
        client.memory_persistent_allocation(|| {
            empty(&client);
            empty(&pinned);
            thread::scope(|scope| scope.spawn(|| empty(&client)).join().unwrap());
            client.memory_dedicated_allocation(|| empty(&client));
            empty(&client);
        });
        empty(&client);
    });
    assert_eq!(seen, [Persistent, Auto, Auto, Dedicated, Persistent, Auto]);
    // Pinned: the same on any thread.
    let seen = modes(&|| {
        let window = pinned.allocation_mode(Dedicated);
        thread::scope(|scope| scope.spawn(|| empty(&pinned)).join().unwrap());
        empty(&client);
        thread::scope(|scope| scope.spawn(|| window.close().unwrap()).join().unwrap());
        empty(&pinned);
    });
    assert_eq!(seen, [Dedicated, Auto, Auto]);
    let seen = modes(&|| {
        assert!(
            catch_unwind(AssertUnwindSafe(|| client.memory_persistent_allocation(|| panic!("on purpose")))).is_err()
        );
        empty(&client);
        let (outer, inner) = (client.allocation_mode(Persistent), client.allocation_mode(Dedicated));
        let error = outer.close().unwrap_err();
        assert!(matches!(error, Error::ScopeOrder { open: 1, .. }), "{}", error.to_string());
        empty(&client);
        inner.close().unwrap();
        empty(&client);
    });
    assert_eq!(seen, [Auto, Dedicated, Auto]);
}
