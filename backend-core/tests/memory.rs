//! Reservations under pressure, use in place, shutdown, and the cache of compiled code on disk.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{first, io, out, rig, rig_of, rig_with};
use std::fs;
use std::time::{Duration, Instant};
use trunnion_backend_core::ServerSettings;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Rung};
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{AccessServer, Bounds, MemoryServer, Payload, Region, Server, Until};

/// What has a deadline of milliseconds ends by then on a busy machine too, and what has none never does.
const SOON: Duration = Duration::from_secs(5);

fn tight(bytes: u64) -> ServerSettings {
    ServerSettings { memory_budget: Some(bytes), pressure_wait: Duration::from_millis(50), ..ServerSettings::default() }
}

#[test]
fn a_reservation_waits_for_work_that_frees_memory() {
    let mut rig = rig_with(tight(4096));
    let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 4096);
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&a]);
    drop(a);
    rig.free_dropped();
    rig.script.get().drains = true;
    let b = rig.buffer(t, 4096);
    assert_eq!(rig.server.check(std::slice::from_ref(&b)), Ok(()));
    rig.write(t, &b, 6);
    let read = rig.read(t, &b);
    rig.run();
    assert_eq!(first(&read), Ok(6));
}

#[test]
fn a_reservation_that_waits_in_vain_fails_in_time_and_names_everything() {
    let mut rig = rig_with(tight(4096));
    let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 4096);
    rig.launch(s, &k, &[&a]);
    drop(a);
    rig.free_dropped();
    let start = Instant::now();
    let b = rig.buffer(t, 4096);
    assert!((Duration::from_millis(50)..SOON).contains(&start.elapsed()));
    let Err(Error::OutOfMemory(numbers)) = rig.server.check(std::slice::from_ref(&b)) else { panic!() };
    assert_eq!((numbers.requested, numbers.reserved, numbers.budget), (4096, 4096, Some(4096)));
    assert!(numbers.tried.contains(&Rung::Wait));
    // Not even an overwrite can be carried out where there is no memory.
    rig.write(t, &b, 1);
    assert!(rig.server.check(std::slice::from_ref(&b)).is_err_and(|e| e.is_out_of_memory()));
    drop(b);
    rig.run();
    rig.free_dropped();
    let c = rig.buffer(t, 4096);
    assert_eq!(rig.server.check(&[c]), Ok(()));
}

#[test]
fn a_try_that_finds_no_memory_leaves_nothing_behind_and_can_be_made_again() {
    let mut rig = rig_with(tight(4096));
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 4096);
    let (b, at) = (rig.handles.create(4096).unwrap(), rig.at(s));
    let usage = rig.server.usage();
    let Err(Error::OutOfMemory(numbers)) = rig.server.try_reserve(at, &b, AllocationMode::Auto) else { panic!() };
    assert_eq!((numbers.requested, numbers.live, numbers.budget), (4096, 4096, Some(4096)));
    assert_eq!(rig.server.usage(), usage);
    assert!(matches!(rig.server.check(std::slice::from_ref(&b)), Err(Error::StaleHandle { .. })), "it is reserved");
    drop(a);
    rig.free_dropped();
    assert_eq!(rig.server.try_reserve(at, &b, AllocationMode::Auto), Ok(()));
    assert_eq!(rig.server.check(std::slice::from_ref(&b)), Ok(()));
    rig.launch(s, &k, &[&b]);
    rig.write(s, &b, 7);
    let read = rig.read(s, &b);
    rig.run();
    assert_eq!(first(&read), Ok(7));
}

#[test]
fn memory_that_is_refused_in_the_end_carries_the_cause_until_it_is_freed() {
    let mut rig = rig_with(tight(4096));
    let s = StreamId::new();
    let a = rig.buffer(s, 4096);
    let (b, at) = (rig.handles.create(100).unwrap(), rig.at(s));
    let cause = rig.server.try_reserve(at, &b, AllocationMode::Persistent).unwrap_err();
    rig.server.refuse(at, &b, cause.clone());
    assert_eq!(rig.server.check(std::slice::from_ref(&b)), Err(cause));
    // Not even an overwrite helps where there is no memory.
    rig.write(s, &b, 1);
    assert!(rig.server.check(std::slice::from_ref(&b)).is_err_and(|e| e.is_out_of_memory()));
    drop((a, b));
    rig.run();
    rig.free_dropped();
    let c = rig.buffer(s, 4096);
    assert_eq!(rig.server.check(&[c]), Ok(()));
    assert_eq!((rig.server.usage().live, rig.server.usage().allocations), (4096, 1));
}

#[test]
fn a_budget_says_what_the_driver_says_and_what_the_pools_hold() {
    let mut rig = rig_with(tight(1 << 20));
    let s = StreamId::new();
    let before = rig.server.budget();
    let (a, _b) = (rig.buffer(s, 1000), rig.buffer(s, 200));
    let budget = rig.server.budget();
    assert_eq!((budget.live, budget.reserved, budget.limit), (1200, 4096, Some(1 << 20)));
    assert_eq!((budget.total, budget.free), (before.total, before.free));
    assert_eq!((budget.process_used, budget.client_limit), (None, None));
    drop(a);
    rig.free_dropped();
    assert_eq!(rig.server.budget().live, 200);
}

#[test]
fn a_driver_without_page_locked_memory_gives_no_staging() {
    let mut rig = rig();
    assert!(rig.server.staging().is_none());
}

#[test]
fn a_reservation_does_not_wait_for_what_only_the_host_will_signal() {
    let mut rig = rig_with(ServerSettings { pressure_wait: Duration::from_secs(60), ..tight(4096) });
    let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 4096);
    rig.launch(s, &k, &[&a]);
    let at = rig.at(s);
    let never = Promise::new();
    rig.server.wait(at, Until::Promised(never.clone()));
    rig.launch(s, &k, &[&a]);
    drop(a);
    rig.free_dropped();
    let b = rig.buffer(t, 4096);
    assert!(rig.server.check(&[b]).is_err_and(|e| e.is_out_of_memory()));
}

#[test]
fn over_the_budget_and_too_large_are_typed() {
    let mut rig = rig_with(tight(8192));
    let s = StreamId::new();
    let a = rig.buffer(s, 8192);
    let b = rig.buffer(s, 16);
    assert_eq!(rig.server.check(std::slice::from_ref(&a)), Ok(()));
    assert!(matches!(rig.server.check(&[b]), Err(Error::OutOfMemory(_))));
    let huge = rig.buffer(s, 1 << 30);
    assert_eq!(rig.server.check(&[huge]), Err(Error::TooLarge { requested: 1 << 30, limit: 1 << 20 }));
}

#[test]
fn allocating_and_dropping_returns_to_the_baseline_every_round() {
    let mut rig = rig();
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    rig.script.get().instant = true;
    for round in 0..1000 {
        let all: Vec<_> = (0..4).map(|i| rig.buffer(s, 100 + 700 * i)).collect();
        rig.launch(s, &k, &[&all[round % 4]]);
        drop(all);
        rig.free_dropped();
        rig.server.progress();
        rig.server.memory().unwrap().cleanup().unwrap();
        assert_eq!(rig.server.memory().unwrap().usage().reserved, 0, "round {round}");
        assert_eq!(rig.script.get().pages, 0);
    }
}

#[test]
fn rows_are_written_and_read_without_touching_the_gaps() {
    let mut rig = rig();
    let s = StreamId::new();
    let a = rig.buffer(s, 64);
    rig.write(s, &a, 1);
    let rows = Rows { row: 4, outer: vec![(4, 16)] };
    let region = Region { handle: a.clone(), rows: Some(rows) };
    let at = rig.at(s);
    rig.server.write(at, &region, Payload::Bytes(Bytes::from_vec((10..26).collect())));
    let (at, read) = (rig.at(s), Promise::new());
    rig.server.read(at, &[region, Region::whole(&a)], read.clone());
    rig.run();
    let both = read.get().unwrap().unwrap();
    assert_eq!(both[0].as_slice().unwrap(), (10..26).collect::<Vec<u8>>());
    assert_eq!(both[1].as_slice().unwrap()[..20], [10, 11, 12, 13, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 14, 15, 16, 17]);
    let at = rig.at(s);
    rig.server.write(at, &Region::whole(&a), Payload::Bytes(Bytes::from_vec(vec![0; 3])));
    assert!(matches!(rig.server.check(&[a]), Err(Error::WrongLength { got: 3, expected: 64, .. })));
}

#[test]
fn an_access_is_granted_after_what_came_before_and_holds_up_only_who_needs_its_bytes() {
    let mut rig = rig();
    let (s, t, u, copy) = (StreamId::new(), StreamId::new(), StreamId::new(), rig.kernel("io", io()));
    let (a, b, c) = (rig.buffer(s, 16), rig.buffer(t, 16), rig.buffer(t, 16));
    rig.write(s, &a, 5);
    let (at, granted) = (rig.at(u), Promise::new());
    rig.server.open(at, &a, Access::ReadWrite, granted.clone());
    assert!(!granted.is_given());
    rig.run();
    let grant = granted.get().unwrap().unwrap();
    let mut byte = [0];
    grant.host.as_ref().unwrap().read(0, &mut byte);
    assert_eq!(byte, [5]);
    rig.launch(t, &copy, &[&a, &b]);
    let other = rig.write(s, &c, 1);
    rig.run();
    assert!(rig.is_done(other) && !rig.is_done(at));
    assert_eq!(rig.server.parked(), 1);
    grant.host.unwrap().write(0, &[9; 16]);
    rig.server.close(at, None);
    let read = rig.read(t, &b);
    rig.run();
    assert!(rig.is_done(at));
    assert_eq!(first(&read), Ok(10));
}

#[test]
fn an_access_that_fails_marks_its_bytes_and_one_to_marked_bytes_is_refused() {
    let mut rig = rig();
    let (s, u, v, w) = (StreamId::new(), StreamId::new(), StreamId::new(), StreamId::new());
    let a = rig.buffer(s, 16);
    let (at, granted) = (rig.at(u), Promise::new());
    rig.server.open(at, &a, Access::Write, granted.clone());
    assert!(granted.get().unwrap().is_ok(), "nothing comes before it");
    let cause = Error::Busy { what: "the visitor".into() };
    rig.server.close(at, Some(cause.clone()));
    assert_eq!(rig.server.check(std::slice::from_ref(&a)), Err(cause.clone()));
    let (at, refused) = (rig.at(v), Promise::new());
    rig.server.open(at, &a, Access::Read, refused.clone());
    assert_eq!(refused.get().unwrap().err(), Some(cause));
    rig.server.close(at, None);
    let (at, granted) = (rig.at(w), Promise::new());
    rig.server.open(at, &a, Access::Overwrite, granted.clone());
    assert!(granted.get().unwrap().is_ok());
    rig.server.close(at, None);
    assert_eq!(rig.server.check(&[a]), Ok(()));
}

#[test]
fn an_access_closed_before_it_is_granted_keeps_the_order() {
    let mut rig = rig();
    let (s, t, u, copy) = (StreamId::new(), StreamId::new(), StreamId::new(), rig.kernel("io", io()));
    let (a, b) = (rig.buffer(s, 16), rig.buffer(s, 16));
    rig.launch(s, &copy, &[&a, &b]);
    let (at, granted) = (rig.at(u), Promise::new());
    rig.server.open(at, &a, Access::Write, granted.clone());
    rig.server.close(at, None);
    assert!(granted.get().unwrap().is_err_and(|e| e.is_busy()));
    rig.log();
    rig.write(t, &a, 7);
    assert!(rig.log().iter().all(|l| !l.contains("write")), "the first launch still reads it");
    rig.run();
    let read = rig.read(t, &b);
    rig.run();
    assert_eq!(first(&read), Ok(1));
}

#[test]
fn shutdown_ends_in_time_answers_everything_and_gives_memory_back() {
    let mut rig = rig();
    let (s, t) = (StreamId::new(), StreamId::new());
    let (a, b) = (rig.buffer(s, 16), rig.buffer(t, 16));
    rig.script.get().drains = true;
    rig.write(s, &a, 2);
    let read = rig.read(s, &a);
    let at = rig.at(t);
    rig.server.wait(at, Until::Promised(Promise::new()));
    rig.write(t, &b, 2);
    let lost = rig.read(t, &b);
    assert_eq!(
        rig.server.shutdown(&Deadline::after(Duration::from_secs(5))),
        3,
        "the wait, the write and the read behind it"
    );
    assert_eq!(first(&read), Ok(2));
    let service = rig.service;
    assert_eq!(first(&lost), Err(Error::ShutDown { service }));
    let pages = rig.script.get().pages;
    assert_eq!((pages, rig.script.get().open_streams()), (0, 0));
    assert_eq!(rig.server.shutdown(&Deadline::after(Duration::from_secs(5))), 0);
    assert_eq!(first(&rig.read(s, &a)), Err(Error::ShutDown { service }));
    assert_eq!(rig.server.fault(), None);
}

#[test]
fn shutdown_leaves_memory_that_somebody_may_still_use() {
    let mut rig = rig();
    let (s, u) = (StreamId::new(), StreamId::new());
    let a = rig.buffer(s, 16);
    let start = Instant::now();
    rig.write(s, &a, 2);
    assert_eq!(rig.server.shutdown(&Deadline::after(Duration::from_millis(50))), 1);
    assert!(start.elapsed() < SOON);
    assert_eq!(rig.script.get().pages, 1, "the device never finished the write");

    let mut rig = mock::rig();
    let a = rig.buffer(s, 16);
    let (at, granted) = (rig.at(u), Promise::new());
    rig.server.open(at, &a, Access::Write, granted.clone());
    rig.server.shutdown(&Deadline::after(Duration::from_millis(50)));
    assert_eq!(rig.script.get().pages, 1);
    let grant = granted.get().unwrap().unwrap();
    drop(rig);
    grant.host.unwrap().write(0, &[1]);
}

#[test]
fn a_dropped_server_answers_what_is_pending() {
    let mut rig = rig();
    let s = StreamId::new();
    let a = rig.buffer(s, 16);
    let promise: Promise<Vec<Bytes>> = Promise::new();
    let at = rig.at(s);
    rig.server.write(at, &Region::whole(&a), Payload::Promised(promise.clone()));
    let read = rig.read(s, &a);
    drop(rig);
    assert!(matches!(first(&read), Err(Error::ShutDown { .. })));
    promise.fulfil(Ok(Vec::new()), &mut Wakers::new());
}

fn cached(folder: &tempfile::TempDir) -> ServerSettings {
    ServerSettings {
        kernel_cache: Some(folder.path().join("kernels").display().to_string()),
        ..ServerSettings::default()
    }
}

#[test]
fn a_second_server_finds_compiled_code_on_disk_and_an_edited_source_never_meets_it() {
    let folder = tempfile::tempdir().unwrap();
    for (run, source, compiler, expected) in [
        (1, "one", "mock compiler 1", (1, 0)),
        (2, "one", "mock compiler 1", (0, 1)),
        (3, "one, edited", "mock compiler 1", (1, 0)),
        (4, "one", "mock compiler 2", (1, 0)),
        (5, "one", "mock compiler 1", (0, 1)),
    ] {
        let mut rig = rig_of(compiler, cached(&folder));
        let k = rig.kernel_of("k", source, out());
        rig.server.compile(&k, Bounds::Checked).unwrap();
        rig.server.compile(&k, Bounds::Checked).unwrap();
        let statistics = rig.server.compile_statistics();
        assert_eq!((statistics.compiled, statistics.from_disk), expected, "run {run}");
        assert!(statistics.damaged.is_empty());
    }
    let mut rig = rig_of("mock compiler 1", cached(&folder));
    let k = rig.kernel_of("k", "one", out());
    rig.server.compile(&k, Bounds::Unchecked).unwrap();
    assert_eq!(rig.server.compile_statistics().compiled, 1, "another mode is other code");
}

#[test]
fn a_damaged_file_is_named_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let compile = |folder: &tempfile::TempDir, refuse: bool| {
        let mut rig = rig_with(cached(folder));
        rig.script.get().stored_is_refused = refuse;
        let k = rig.kernel_of("k", "one", out());
        rig.server.compile(&k, Bounds::Checked).unwrap();
        rig.server.compile_statistics()
    };
    compile(&folder, false);
    let file = fs::read_dir(folder.path().join("kernels")).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&file).unwrap();
    for length in 0..whole.len() {
        let mut bytes = whole.clone();
        if length % 2 == 0 {
            bytes.truncate(length)
        } else {
            bytes[length] ^= 0x10
        }
        fs::write(&file, &bytes).unwrap();
        let statistics = compile(&folder, false);
        assert_eq!(statistics.damaged, [file.display().to_string()], "byte {length}");
        assert_eq!((statistics.compiled, statistics.from_disk), (1, 0));
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
    assert_eq!(compile(&folder, false).from_disk, 1);
    let statistics = compile(&folder, true);
    assert_eq!((statistics.compiled, statistics.damaged.len()), (1, 1), "the driver did not take it");
    assert_eq!(fs::read_dir(folder.path().join("kernels")).unwrap().count(), 1, "nothing is left lying about");
}
