//! Failures that come at once, late, from a submission, from a panic, and from the device itself.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{Fate, Rig, first, io, out, rig};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{AccessServer, Payload, Region, Server, Until};

fn broken(what: &str) -> Error {
    Error::Driver { call: what.into(), code: 7, message: "broken".into() }
}

#[test]
fn an_encoding_error_marks_what_would_have_been_written_and_the_next_works() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
    rig.script.next("launch", 0, Fate::Fails(broken("launch")));
    let at = rig.launch(s, &k, &[&a]);
    assert!(rig.is_done(at), "nothing of it is under way");
    assert_eq!(first(&rig.read(s, &a)), Err(broken("launch")));
    rig.launch(s, &k, &[&b]);
    let read = rig.read(s, &b);
    rig.run();
    assert_eq!(first(&read), Ok(1));
}

#[test]
fn a_failed_submission_fails_the_whole_batch_once_and_the_next_works() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let (a, b, c) = (rig.buffer(s, 16), rig.buffer(s, 16), rig.buffer(s, 16));
    rig.launch(s, &k, &[&c]);
    rig.launch(s, &k, &[&a]);
    let last = rig.launch(s, &k, &[&b]);
    rig.script.next("submit", 0, Fate::Fails(broken("submit")));
    rig.server.flush(s).unwrap();
    assert_eq!(rig.server.check(&[a.clone(), b.clone()]), Err(broken("submit")), "one event, named once");
    assert_eq!(rig.server.check(std::slice::from_ref(&c)), Ok(()));
    rig.run();
    assert!(rig.is_done(last));
    rig.write(s, &a, 4);
    let read = rig.read(s, &a);
    rig.run();
    assert_eq!(first(&read), Ok(4));
}

#[test]
fn a_read_in_a_failed_batch_is_answered() {
    let mut rig = rig();
    let s = StreamId::new();
    let a = rig.buffer(s, 16);
    rig.write(s, &a, 1);
    rig.run();
    rig.script.next("submit", 0, Fate::Fails(broken("submit")));
    let read = rig.read(s, &a);
    assert_eq!(first(&read), Err(broken("submit")));
}

#[test]
fn moments_of_a_failed_batch_are_done_only_when_what_it_waited_for_is() {
    let mut rig = rig();
    let (s, t, u, k, copy) =
        (StreamId::new(), StreamId::new(), StreamId::new(), rig.kernel("k", out()), rig.kernel("io", io()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
    rig.launch(s, &copy, &[&a, &b]);
    rig.script.next("submit", 0, Fate::Fails(broken("submit")));
    // It would replace `a`, which the first launch still reads.
    let failed = rig.write(t, &a, 9);
    assert_eq!(rig.server.check(std::slice::from_ref(&a)), Err(broken("submit")));
    assert!(!rig.is_done(failed));
    rig.log();
    rig.write(u, &a, 5);
    assert!(rig.log().iter().all(|l| !l.contains("write")), "it must not run beside the first launch");
    rig.run();
    assert!(rig.is_done(failed));
    let (read, copied) = (rig.read(u, &a), rig.read(u, &b));
    rig.run();
    assert_eq!((first(&read), first(&copied)), (Ok(5), Ok(1)));
    let _ = k;
}

#[test]
fn a_late_failure_reaches_what_was_made_from_it_and_the_read_under_way() {
    let mut rig = rig();
    let (s, t, k, copy) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()), rig.kernel("io", io()));
    let (a, b, c) = (rig.buffer(s, 16), rig.buffer(t, 16), rig.buffer(s, 16));
    let bad = rig.launch(s, &k, &[&a]);
    rig.launch(t, &copy, &[&a, &b]);
    let (tainted, clean) = (rig.read(t, &b), rig.read(s, &c));
    // Later work on the same bytes does not reach the reads before it.
    rig.write(t, &b, 3);
    rig.script.get().failing.insert(bad.seq, broken("late"));
    rig.run();
    let error = first(&tainted).unwrap_err();
    assert_eq!(error.root(), &broken("late"));
    let Error::Inherited { chain, .. } = error else { panic!("{error:?}") };
    assert_eq!(chain.iter().map(|link| link.operation.as_str()).collect::<Vec<_>>(), ["io"], "what is on the bytes");
    assert_eq!(first(&clean), Ok(0));
    assert_eq!(rig.server.check(std::slice::from_ref(&b)), Ok(()), "it was overwritten since");
    assert_eq!(rig.server.check(std::slice::from_ref(&a)), Err(broken("late")));
}

#[test]
fn a_late_failure_is_known_before_anything_that_depends_on_it_is_done() {
    let mut rig = rig();
    // The reading stream is asked first, because it is the older one.
    let (t, s) = (StreamId::new(), StreamId::new());
    let (k, copy) = (rig.kernel("k", out()), rig.kernel("io", io()));
    let (b, a) = (rig.buffer(t, 16), rig.buffer(s, 16));
    rig.write(t, &b, 0);
    rig.run();
    let bad = rig.launch(s, &k, &[&a]);
    rig.launch(t, &copy, &[&a, &b]);
    let read = rig.read(t, &b);
    rig.script.get().failing.insert(bad.seq, broken("late"));
    rig.script.get().finish_all();
    rig.server.progress();
    rig.script.get().finish_all();
    rig.server.progress();
    assert_eq!(first(&read).unwrap_err().root(), &broken("late"));
}

#[test]
fn a_kernel_that_does_not_compile_marks_its_outputs_and_is_not_compiled_again() {
    let mut rig = rig();
    let s = StreamId::new();
    let k = rig.kernel_of("k", "error", out());
    let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&b]);
    let is_compile = |result: Result<(), Error>| matches!(result, Err(Error::Compile { kernel, line: Some(1), .. }) if kernel == "k");
    assert!(is_compile(rig.server.check(&[a])));
    assert!(is_compile(rig.server.check(&[b])));
    assert_eq!(rig.log(), ["compile k"]);
    let statistics = rig.server.compile_statistics();
    assert_eq!((statistics.compiled, statistics.failed), (0, 1));
}

/// What the executor does with a call that panics.
fn panics(rig: &mut Rig, call: impl FnOnce(&mut Rig)) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let caught = catch_unwind(AssertUnwindSafe(|| call(rig)));
    std::panic::set_hook(hook);
    assert!(caught.is_err());
    rig.server.panicked(0, "the mock panics");
}

fn is_panic(result: Result<(), Error>) -> bool {
    matches!(result, Err(error) if matches!(error.root(), Error::Panicked { .. }))
}

#[test]
fn a_panic_while_launching_marks_the_outputs_and_the_device_goes_on() {
    for call in ["compile", "launch", "submit", "open"] {
        let mut rig = rig();
        let (s, k) = (StreamId::new(), rig.kernel("k", out()));
        let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
        rig.script.next(call, 0, Fate::Panics);
        panics(&mut rig, |rig| {
            rig.launch(s, &k, &[&a]);
        });
        assert!(is_panic(rig.server.check(std::slice::from_ref(&a))), "{call}");
        rig.launch(s, &k, &[&b]);
        let read = rig.read(s, &b);
        rig.run();
        assert_eq!(first(&read), Ok(1), "{call}");
        assert!(rig.server.fault().is_none());
    }
}

#[test]
fn a_panic_while_reading_answers_the_read() {
    let mut rig = rig();
    let s = StreamId::new();
    let a = rig.buffer(s, 16);
    rig.write(s, &a, 1);
    rig.script.next("read", 0, Fate::Panics);
    let promise = Promise::new();
    let kept = promise.clone();
    panics(&mut rig, move |rig| {
        let at = rig.at(s);
        rig.server.read(at, &[Region::whole(&a)], kept);
    });
    assert!(is_panic(first(&promise).map(|_| ())));
}

#[test]
fn a_panic_while_a_parked_operation_is_encoded_marks_its_bytes() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
    let promise = Promise::new();
    let at = rig.at(s);
    rig.server.wait(at, Until::Promised(promise.clone()));
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&b]);
    promise.fulfil(Ok(()), &mut Wakers::new());
    rig.script.next("launch", 0, Fate::Panics);
    panics(&mut rig, |rig| rig.server.progress());
    assert!(is_panic(rig.server.check(std::slice::from_ref(&a))));
    let read = rig.read(s, &b);
    rig.run();
    assert_eq!((first(&read), rig.server.parked()), (Ok(1), 0));
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_lost_device_answers_everything_with_the_same_error() {
    let lost = Error::DeviceLost { cause: broken("poll").to_string() };
    let mut rig = rig();
    let (s, t, u) = (StreamId::new(), StreamId::new(), StreamId::new());
    let (a, b) = (rig.buffer(s, 16), rig.buffer(t, 16));
    let at = rig.write(s, &a, 1);
    let read = rig.read(s, &a);
    let (parked, granted, signalled) = (Promise::new(), Promise::new(), Promise::new());
    let put_aside = rig.at(t);
    rig.server.write(put_aside, &Region::whole(&b), Payload::Promised(parked));
    let access = rig.at(u);
    rig.server.open(access, &a, Access::Write, granted.clone());
    let count = Arc::new(Count(AtomicUsize::new(0)));
    assert!(rig.server.poll(at, &Waker::from(count.clone())).is_pending());
    rig.server.signal(put_aside, signalled.clone());
    rig.script.next("poll", 0, Fate::Fails(broken("poll")));
    rig.server.progress();
    rig.server.leave().into_iter().for_each(Waker::wake);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(rig.server.fault(), Some(&lost));
    assert_eq!(first(&read), Err(lost.clone()));
    assert_eq!(granted.get().unwrap().err(), Some(lost.clone()));
    assert_eq!(signalled.get(), Some(Err(lost.clone())));
    assert!(matches!(rig.server.poll(at, Waker::noop()), std::task::Poll::Ready(Err(error)) if error == lost));
    let k = rig.kernel("k", out());
    rig.launch(s, &k, &[&a]);
    assert_eq!(first(&rig.read(s, &b)), Err(lost.clone()));
    assert_eq!(rig.server.check(std::slice::from_ref(&a)), Err(lost.clone()));
    assert_eq!(rig.server.flush(s), Err(lost.clone()));
    assert_eq!(rig.server.compile(&k, Default::default()), Err(lost.clone()));
    rig.server.close(access, None);
    drop((a, b));
    rig.free_dropped();
    rig.script.get().finish_all();
}

#[test]
fn a_device_can_be_lost_in_any_call() {
    for call in ["open", "write", "launch", "fill", "copy", "read", "submit", "compile", "poll"] {
        let mut rig = rig();
        let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
        let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
        let lost = Error::DeviceLost { cause: call.into() };
        rig.script.next(call, 0, Fate::Fails(lost.clone()));
        rig.write(s, &a, 1);
        let at = rig.at(t);
        rig.server.fill(at, &b, trunnion_runtime_core::server::Pattern::new(&[1]).unwrap());
        let at = rig.at(t);
        rig.server.copy(at, &Region::whole(&a), &Region::whole(&b));
        rig.launch(s, &k, &[&a]);
        let read = rig.read(t, &b);
        rig.run();
        assert_eq!(first(&read), Err(lost.clone()), "{call}");
        assert_eq!(rig.server.fault(), Some(&lost), "{call}");
        drop((a, b));
        rig.free_dropped();
    }
}

#[test]
fn a_stale_handle_is_named() {
    let mut rig = rig();
    let s = StreamId::new();
    let never = rig.handles.create(16).unwrap();
    let stale = Err(Error::StaleHandle { memory: never.memory() });
    assert_eq!(rig.server.check(std::slice::from_ref(&never)), stale);
    assert_eq!(first(&rig.read(s, &never)).map(|_| ()), stale);
    let a = rig.buffer(s, 16);
    let at = rig.at(s);
    rig.server.copy(at, &Region::whole(&never), &Region::whole(&a));
    assert_eq!(rig.server.check(&[a]), stale);
}
