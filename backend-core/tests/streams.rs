//! When batches are submitted, what waits for what, and what is parked.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{first, io, out, rig, rig_with};
use std::sync::Arc;
use std::task::{Wake, Waker};
use trunnion_backend_core::ServerSettings;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{Pattern, Payload, Region, Server, Until};

#[test]
fn the_first_launch_is_submitted_at_once_and_the_next_ones_when_it_is_finished() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 64);
    let b = rig.buffer(s, 64);
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&b]);
    rig.launch(s, &k, &[&a]);
    assert_eq!(
        rig.log(),
        ["compile k", "open 1", "k on 1 #3", "submit 1 #3", "k on 1 #4", "barrier on 1", "k on 1 #5"]
    );
    rig.script.get().finish(1);
    rig.server.progress();
    assert_eq!(rig.log(), ["submit 1 #5"]);
    rig.run();
    assert!(rig.log().is_empty());
}

#[test]
fn a_batch_is_submitted_when_it_is_full_and_on_flush() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let buffers: Vec<_> = (0..70).map(|_| rig.buffer(s, 16)).collect();
    for b in &buffers {
        rig.launch(s, &k, &[b]);
    }
    let submits = |log: Vec<String>| log.into_iter().filter(|l| l.starts_with("submit")).collect::<Vec<_>>();
    assert_eq!(submits(rig.log()), ["submit 1 #71", "submit 1 #135"]);
    rig.server.flush(s).unwrap();
    assert_eq!(submits(rig.log()), ["submit 1 #140"]);
    rig.server.flush(s).unwrap();
    assert!(rig.log().is_empty(), "there is nothing more");
}

#[test]
fn one_barrier_serves_every_hazard_before_it() {
    let mut rig = rig();
    let (s, k, copy) = (StreamId::new(), rig.kernel("k", out()), rig.kernel("io", io()));
    let (a, b, c) = (rig.buffer(s, 16), rig.buffer(s, 16), rig.buffer(s, 16));
    let d = rig.buffer(s, 16);
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&b]);
    rig.log();
    rig.launch(s, &copy, &[&a, &c]);
    assert_eq!(rig.log(), ["compile io", "barrier on 1", "io on 1 #7"]);
    rig.launch(s, &copy, &[&b, &d]);
    assert_eq!(rig.log(), ["io on 1 #8"], "the barrier lies behind the launch on b already");
}

#[test]
fn a_stream_waits_for_exactly_the_operation_that_wrote_its_bytes_and_that_is_submitted_first() {
    let mut rig = rig();
    let (s, t) = (StreamId::new(), StreamId::new());
    let (k, copy) = (rig.kernel("k", out()), rig.kernel("io", io()));
    let (a, b, c) = (rig.buffer(s, 16), rig.buffer(s, 16), rig.buffer(t, 16));
    let other = rig.buffer(t, 16);
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&b]);
    rig.launch(t, &k, &[&other]);
    rig.launch(t, &k, &[&other]);
    rig.log();
    rig.launch(t, &copy, &[&b, &c]);
    assert_eq!(rig.log(), ["compile io", "submit 1 #6", "submit 2 #8", "wait on 2 for 1 #6", "io on 2 #9"]);
    rig.launch(t, &copy, &[&a, &other]);
    assert_eq!(rig.log(), ["barrier on 2", "io on 2 #10"], "what came before on that stream is ordered already");
    let read = rig.read(t, &c);
    rig.run();
    assert_eq!(first(&read), Ok(2), "one for the launch on b, and the copy's own");
}

#[test]
fn a_mark_is_done_when_the_streams_work_before_it_is_and_at_once_on_an_idle_stream() {
    let mut rig = rig();
    let (s, idle) = (StreamId::new(), StreamId::new());
    let k = rig.kernel("k", out());
    let a = rig.buffer(s, 16);
    let nothing = rig.at(idle);
    rig.server.mark(nothing);
    assert!(rig.is_done(nothing));
    let launched = rig.launch(s, &k, &[&a]);
    let mark = rig.at(s);
    rig.server.mark(mark);
    assert!(!rig.is_done(launched) && !rig.is_done(mark));
    assert_eq!((rig.server.unfinished(launched.seq - 1), rig.server.unfinished(launched.seq)), (0, 1));
    rig.run();
    assert!(rig.is_done(launched) && rig.is_done(mark));
    assert_eq!(rig.server.unfinished(u64::MAX), 0);
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn whoever_polls_is_woken_once_and_whoever_signals_is_given_the_promise() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 16);
    let at = rig.launch(s, &k, &[&a]);
    let waker = Waker::from(Arc::new(Nobody));
    assert!(rig.server.poll(at, &waker).is_pending());
    assert!(rig.server.poll(at, &waker).is_pending());
    let promise = Promise::new();
    rig.server.signal(at, promise.clone());
    assert!(rig.server.leave().is_empty() && !promise.is_given());
    rig.run();
    assert_eq!(rig.server.leave().len(), 1, "the same waker is kept once a moment");
    assert_eq!(promise.get(), Some(Ok(())));
}

#[test]
fn polling_submits_what_is_asked_for() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 16);
    rig.launch(s, &k, &[&a]);
    let second = rig.launch(s, &k, &[&a]);
    rig.log();
    assert!(!rig.is_done(second));
    assert_eq!(rig.log(), ["submit 1 #3"]);
}

#[test]
fn a_wait_for_a_moment_orders_what_follows_without_bytes_in_common() {
    let mut rig = rig();
    let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(t, 16));
    let on = rig.launch(s, &k, &[&a]);
    let at = rig.at(t);
    rig.server.wait(at, Until::Moment(on));
    rig.log();
    let after = rig.launch(t, &k, &[&b]);
    assert!(!rig.is_done(at) && !rig.is_done(after));
    let again = rig.at(t);
    rig.log();
    rig.server.wait(again, Until::Moment(on));
    assert!(rig.log().is_empty(), "it is ordered already");
    rig.run();
    assert!(rig.is_done(at) && rig.is_done(after) && rig.is_done(again));
}

#[test]
fn a_promised_write_parks_its_stream_and_who_needs_its_bytes_but_nobody_else() {
    let mut rig = rig();
    let (s, t, u) = (StreamId::new(), StreamId::new(), StreamId::new());
    let (k, copy) = (rig.kernel("k", out()), rig.kernel("io", io()));
    let (a, b, c, d) = (rig.buffer(s, 16), rig.buffer(s, 16), rig.buffer(t, 16), rig.buffer(u, 16));
    let promise = Promise::new();
    let at = rig.at(s);
    rig.server.write(at, &Region::whole(&a), Payload::Promised(promise.clone()));
    rig.launch(s, &k, &[&b]);
    rig.launch(t, &copy, &[&a, &c]);
    let free = rig.launch(u, &k, &[&d]);
    assert_eq!(rig.server.parked(), 3);
    rig.run();
    assert!(rig.is_done(free) && !rig.is_done(at));
    assert_eq!(rig.log(), ["compile k", "compile io", "open 1", "k on 1 #8", "submit 1 #8"]);
    let mut wakers = Wakers::new();
    promise.fulfil(Ok(vec![Bytes::from_vec(vec![7; 16])]), &mut wakers);
    assert_eq!(wakers.len(), 1, "the server waits for it");
    let read = rig.read(t, &c);
    rig.server.progress();
    assert_eq!(rig.server.parked(), 0);
    rig.run();
    assert_eq!(first(&read), Ok(8));
    let log = rig.log();
    let position = |text: &str| log.iter().position(|l| l == text).unwrap_or_else(|| panic!("{text} in {log:?}"));
    assert!(position("submit 2 #5") < position("wait on 3 for 2 #5"));
    assert!(position("wait on 3 for 2 #5") < position("io on 3 #7"));
}

#[test]
fn a_failed_promise_marks_the_target_and_what_was_made_from_it_is_skipped() {
    let mut rig = rig();
    let (s, t, copy) = (StreamId::new(), StreamId::new(), rig.kernel("io", io()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(t, 16));
    let promise = Promise::new();
    let at = rig.at(s);
    rig.server.write(at, &Region::whole(&a), Payload::Promised(promise.clone()));
    rig.launch(t, &copy, &[&a, &b]);
    let read = rig.read(t, &b);
    let cause = Error::Busy { what: "the source".into() };
    promise.fulfil(Err(cause.clone()), &mut Wakers::new());
    rig.log();
    rig.run();
    assert!(
        rig.log().iter().all(|l| !l.contains("io on") && !l.contains("read on")),
        "nothing runs on bytes that never came"
    );
    assert_eq!(rig.server.check(std::slice::from_ref(&a)), Err(cause.clone()));
    let error = first(&read).unwrap_err();
    assert_eq!(error.root(), &cause);
    assert!(matches!(error, Error::Inherited { .. }));
    rig.write(s, &a, 3);
    let read = rig.read(s, &a);
    rig.run();
    assert_eq!(first(&read), Ok(3), "an overwrite clears it");
}

#[test]
fn a_wait_for_the_host_parks_only_its_stream_and_goes_on_whatever_the_result() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 16);
    let promise = Promise::new();
    let at = rig.at(s);
    rig.server.wait(at, Until::Promised(promise.clone()));
    let launched = rig.launch(s, &k, &[&a]);
    rig.run();
    assert!(!rig.is_done(at) && !rig.is_done(launched));
    promise.fulfil(Err(Error::Busy { what: "x".into() }), &mut Wakers::new());
    rig.run();
    assert!(rig.is_done(launched));
}

#[test]
fn one_more_than_can_be_parked_fails_with_busy_on_its_bytes() {
    let mut rig = rig_with(ServerSettings { park_limit: 2, ..ServerSettings::default() });
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
    let promise = Promise::new();
    let at = rig.at(s);
    rig.server.wait(at, Until::Promised(promise.clone()));
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&b]);
    assert!(rig.server.check(&[b]).is_err_and(|e| e.is_busy()));
    assert_eq!(rig.server.check(&[a]), Ok(()));
    promise.fulfil(Ok(()), &mut Wakers::new());
    rig.run();
    assert_eq!(rig.server.parked(), 0);
}

#[test]
fn what_is_parked_keeps_its_memory_until_it_is_with_the_driver() {
    let mut rig = rig();
    let (s, t) = (StreamId::new(), StreamId::new());
    let a = rig.buffer(s, 64);
    let (promise, read) = (Promise::new(), Promise::new());
    let at = rig.at(s);
    rig.server.wait(at, Until::Promised(promise.clone()));
    rig.write(s, &a, 9);
    let at = rig.at(s);
    rig.server.read(at, &[Region::whole(&a)], read.clone());
    drop(a);
    rig.free_dropped();
    let b = rig.buffer(t, 64);
    rig.write(t, &b, 1);
    promise.fulfil(Ok(()), &mut Wakers::new());
    rig.run();
    assert_eq!(first(&read), Ok(9));
    rig.free_dropped();
    assert_eq!(rig.server.memory().unwrap().usage().allocations, 1);
}

#[test]
fn memory_freed_with_work_unfinished_is_not_given_to_another_stream() {
    let mut rig = rig();
    let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 64);
    rig.launch(s, &k, &[&a]);
    drop(a);
    rig.free_dropped();
    let b = rig.buffer(t, 64);
    rig.write(t, &b, 5);
    let read = rig.read(t, &b);
    rig.script.get().finish(2);
    rig.script.get().finish(2);
    rig.server.progress();
    rig.script.get().finish(1);
    rig.run();
    assert_eq!(first(&read), Ok(5));
}

#[test]
fn a_thousand_short_lived_streams_cost_a_bounded_number() {
    let mut rig = rig();
    rig.script.get().instant = true;
    let k = rig.kernel("k", out());
    for _ in 0..1000 {
        let s = StreamId::new();
        let a = rig.buffer(s, 64);
        rig.launch(s, &k, &[&a]);
        rig.server.progress();
        drop(a);
        rig.free_dropped();
    }
    assert!(rig.server.streams() <= 64, "{}", rig.server.streams());
    assert!(rig.script.get().open_streams() <= 64 + 4);
    assert!(rig.server.memory().unwrap().usage().reserved <= 2 * 4096);
}

#[test]
fn zero_bytes_succeed_everywhere_and_touch_no_pool() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 0);
    rig.write(s, &a, 1);
    let at = rig.at(s);
    rig.server.fill(at, &a, Pattern::new(&[1]).unwrap());
    let at = rig.at(s);
    rig.server.copy(at, &Region::whole(&a), &Region::whole(&a));
    let read = rig.read(s, &a);
    assert_eq!(read.get().unwrap().unwrap()[0].len(), 0);
    assert_eq!(rig.server.check(std::slice::from_ref(&a)), Ok(()));
    assert_eq!(rig.server.memory().unwrap().usage().reserved, 0);
    let at = rig.launch(s, &k, &[&a]);
    rig.run();
    assert!(rig.is_done(at));
    assert_eq!(rig.server.memory().unwrap().usage().reserved, 0);
}

#[test]
fn a_short_write_is_carried_out_at_once_where_it_has_nothing_to_wait_for() {
    let mut rig = rig();
    rig.script.get().writes_now = true;
    let (s, t, k, copy) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()), rig.kernel("io", io()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
    let at = rig.write(s, &a, 1);
    assert_eq!(rig.log(), ["write now"]);
    assert!(rig.is_done(at), "nothing was encoded for it");
    // Beside the stream's own work on other bytes too; but it is done only when that is.
    rig.launch(s, &k, &[&b]);
    rig.log();
    let at = rig.write(s, &a, 2);
    assert_eq!(rig.log(), ["write now"]);
    assert!(!rig.is_done(at), "what the stream did before is not done");
    // Behind another stream's use of the bytes, or its own, it takes its place like any other.
    rig.launch(t, &copy, &[&a, &b]);
    rig.write(s, &a, 3);
    rig.write(s, &b, 3);
    assert!(!rig.log().contains(&"write now".to_string()));
    rig.run();
    assert!(rig.is_done(at));
    rig.log();
    rig.write(t, &a, 4);
    assert_eq!(rig.log(), ["write now"]);
    let read = rig.read(s, &a);
    rig.run();
    assert_eq!(first(&read), Ok(4));
}

#[test]
fn a_short_write_is_not_carried_out_before_what_its_stream_was_told_to_wait_for() {
    let mut rig = rig();
    rig.script.get().writes_now = true;
    let (s, t) = (StreamId::new(), StreamId::new());
    let (k, copy) = (rig.kernel("k", out()), rig.kernel("io", io()));
    let (a, b, c) = (rig.buffer(s, 16), rig.buffer(s, 16), rig.buffer(t, 16));
    let on = rig.launch(s, &copy, &[&a, &b]);
    let at = rig.at(t);
    rig.server.wait(at, Until::Moment(on));
    rig.log();
    // The launch reads these bytes, and the stream is ordered behind it already: the write is told of no wait of its own.
    rig.write(t, &a, 7);
    // Nor may it come before where no bytes tell.
    rig.write(t, &c, 7);
    assert!(!rig.log().contains(&"write now".to_string()));
    rig.run();
    rig.log();
    rig.launch(t, &k, &[&b]);
    rig.write(t, &c, 8);
    assert!(rig.log().contains(&"write now".to_string()), "what was waited for is done");
}
