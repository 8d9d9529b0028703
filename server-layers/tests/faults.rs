//! Operations that fail on purpose: what the program sees is what a server that failed there would have shown it.

extern crate alloc;

mod rig;

use core::time::Duration;
use rig::{Direct, Rig, Scripted, host, on_new_stream, spread, start, start_with, step};
use std::time::Instant;
use trunnion_backend_host::{HostImport, HostResource};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::server::Opened;
use trunnion_runtime_core::service::Settings;
use trunnion_server_layers::{FaultInjector, FaultKind, FaultPlan, Operation, Validate};

const SOON: Duration = Duration::from_secs(5);

fn failing(operation: Operation, number: u64, kind: FaultKind) -> Rig {
    Rig::new(FaultPlan::new().fail_operation(operation, number, kind))
}

/// The one failure that lies on the bytes.
#[track_caller]
fn failure(client: &Client, handle: &Handle) -> Error {
    let error = client.read_one(handle).unwrap_err();
    assert_eq!(client.check(&[handle]).unwrap_err(), error);
    error
}

#[track_caller]
fn is_on_purpose(error: &Error) {
    let text = error.to_string();
    assert!(text.contains("on purpose, in"), "{text}");
    assert!(!matches!(error, Error::Several(_)), "{text}");
}

fn values(client: &Client, handle: &Handle) -> Vec<u8> {
    client.read_one(handle).unwrap().as_slice().unwrap().to_vec()
}

#[test]
fn an_operation_that_is_refused_marks_exactly_what_it_would_have_written() {
    for kind in [FaultKind::Refused, FaultKind::OutOfMemory, FaultKind::Late, FaultKind::Panic] {
        let rig = failing(Operation::Fill, 2, kind);
        let client = &rig.client;
        let a = client.zeros(64).unwrap();
        client.fill(&a.slice(16..32).unwrap(), &[1]).unwrap();
        client.sync().unwrap().wait().unwrap();
        is_on_purpose(&failure(client, &a));
        assert_eq!(values(client, &a.slice(..16).unwrap()), [0; 16]);
        assert_eq!(values(client, &a.slice(32..).unwrap()), [0; 32]);
        let error = failure(client, &a.slice(31..).unwrap());
        match kind {
            FaultKind::OutOfMemory => assert!(error.is_out_of_memory(), "{error}"),
            FaultKind::Panic => assert!(matches!(error, Error::Panicked { .. }), "{error}"),
            _ => assert!(matches!(error, Error::Driver { .. }), "{error}"),
        }
        // Whoever writes there again is heard.
        client.fill(&a.slice(16..32).unwrap(), &[5]).unwrap();
        assert_eq!(values(client, &a.slice(16..).unwrap())[..17], [[5; 16].as_slice(), &[0]].concat());
        assert_eq!(rig.faults.fired().len(), 1);
        rig.is_clean();
    }
}

#[test]
fn every_operation_that_writes_can_fail_and_what_reads_it_is_skipped() {
    for kind in [FaultKind::Refused, FaultKind::OutOfMemory, FaultKind::Late, FaultKind::Panic] {
        for operation in [Operation::Write, Operation::Copy, Operation::Launch] {
            let rig = failing(operation, 1 + u64::from(operation == Operation::Write), kind);
            let client = &rig.client;
            let kernel = client.prepare(step()).unwrap();
            let (a, b, c) = (client.zeros(64).unwrap(), client.zeros(64).unwrap(), client.zeros(64).unwrap());
            client.write_slice(&a, &[1; 64]).unwrap();
            match operation {
                Operation::Write => drop(client.write_slice(&b, &[2; 64])),
                Operation::Copy => drop(client.copy(&a, &b).unwrap()),
                _ => drop(client.launch(&kernel, Grid::x(1), [&b]).unwrap()),
            }
            client.copy(&b, &c).unwrap();
            let error = failure(client, &b);
            is_on_purpose(&error);
            let inherited = failure(client, &c);
            assert!(matches!(&inherited, Error::Inherited { chain, .. } if chain.len() == 1), "{inherited:?}");
            assert_eq!(inherited.root(), &error);
            // One failure on several buffers is one.
            assert_eq!(client.read(&[&b, &c, &b]).unwrap_err().root(), &error);
            assert_eq!(values(client, &a), [1; 64], "{operation} {kind}");
            rig.is_clean();
        }
    }
}

#[test]
fn a_launch_that_fails_marks_all_its_outputs_with_one_failure() {
    for kind in [FaultKind::Refused, FaultKind::Late, FaultKind::Panic] {
        let rig = failing(Operation::Launch, 1, kind);
        let client = &rig.client;
        let kernel = client.prepare(spread()).unwrap();
        let from = client.create_from_slice(&[3; 64]).unwrap();
        let (a, b) = (client.zeros(64).unwrap(), client.zeros(64).unwrap());
        client.launch(&kernel, Grid::x(1), [&from, &a, &b]).unwrap();
        let error = client.read(&[&a, &b]).unwrap_err();
        is_on_purpose(&error);
        assert_eq!((client.check(&[&a]), client.check(&[&b])), (Err(error.clone()), Err(error)));
        client.launch(&kernel, Grid::x(1), [&from, &a, &b]).unwrap();
        assert_eq!((values(client, &a), values(client, &b)), (vec![3; 64], vec![3; 64]));
        rig.is_clean();
    }
}

#[test]
fn a_reservation_that_fails_stays_failed_and_the_rest_works() {
    for kind in [FaultKind::OutOfMemory, FaultKind::Refused, FaultKind::Late, FaultKind::Panic] {
        let rig = failing(Operation::Reserve, 2, kind);
        let client = &rig.client;
        let kernel = client.prepare(spread()).unwrap();
        let a = client.create_from_slice(&[1; 64]).unwrap();
        let b = client.create_from_slice(&[2; 64]).unwrap();
        let c = client.zeros(64).unwrap();
        let error = failure(client, &b);
        is_on_purpose(error.root());
        if let Error::OutOfMemory(numbers) = error.root() {
            assert_eq!((numbers.requested, numbers.live >= 64, numbers.reserved > 0), (64, true, true), "{numbers:?}");
        }
        // Nothing that is written there is there.
        client.fill(&b, &[0]).unwrap();
        client.copy(&a, &b).unwrap();
        assert_eq!(failure(client, &b).root(), error.root());
        // What a launch would have written beside it is not there either.
        client.launch(&kernel, Grid::x(1), [&a, &b, &c]).unwrap();
        let inherited = failure(client, &c);
        assert_eq!(inherited.root(), error.root());
        assert!(matches!(inherited, Error::Inherited { .. }), "{inherited:?}");
        let access = client.with_resource::<HostResource, _>(&b, Access::Overwrite, |_, _| ());
        assert_eq!(access.unwrap_err().root(), error.root());
        drop((b, c));
        assert_eq!((values(client, &a), client.memory_usage().unwrap().live), (vec![1; 64], 64));
        rig.is_clean();
    }
}

#[test]
fn an_operation_over_a_failure_is_skipped_whatever_is_planned_for_it() {
    let plan = FaultPlan::new().fail_operation(Operation::Fill, 1, FaultKind::Refused);
    let rig = Rig::new(plan.fail_operation(Operation::Copy, 1, FaultKind::OutOfMemory));
    let (a, b) = (rig.client.zeros(64).unwrap(), rig.client.zeros(64).unwrap());
    rig.client.copy(&a, &b).unwrap();
    let error = failure(&rig.client, &b);
    assert!(matches!(&error, Error::Inherited { .. }) && !error.is_out_of_memory(), "{error:?}");
    assert_eq!(rig.faults.fired().len(), 2);
    rig.is_clean();
}

#[test]
fn a_read_that_fails_answers_why_and_leaves_the_bytes() {
    for kind in [FaultKind::Refused, FaultKind::OutOfMemory, FaultKind::Late, FaultKind::Panic] {
        let rig = failing(Operation::Read, 2, kind);
        let client = &rig.client;
        let a = client.create_from_slice(&[7; 64]).unwrap();
        let (before, fails, after) =
            (client.read_async(&[&a]).unwrap(), client.read_async(&[&a]).unwrap(), client.read_async(&[&a]).unwrap());
        is_on_purpose(&fails.wait().unwrap_err());
        assert_eq!(before.wait().unwrap()[0].as_slice().unwrap(), [7; 64]);
        assert_eq!(after.wait().unwrap()[0].as_slice().unwrap(), [7; 64]);
        client.check(&[&a]).unwrap();
        client.sync().unwrap().wait().unwrap();
        rig.is_clean();
    }
}

#[test]
fn use_in_place_fails_at_its_beginning_or_at_its_end() {
    for kind in [FaultKind::Refused, FaultKind::OutOfMemory, FaultKind::Late, FaultKind::Panic] {
        for access in [Access::Read, Access::Write] {
            let rig = failing(Operation::Access, 1, kind);
            let client = &rig.client;
            let a = client.create_from_slice(&[7; 64]).unwrap();
            let answer = client.with_resource::<HostResource, _>(&a, access, |_, _| ());
            assert_eq!(answer.is_ok(), kind == FaultKind::Late && access.writes(), "{kind} {access:?}");
            answer.err().iter().for_each(is_on_purpose);
            if access.writes() {
                is_on_purpose(&failure(client, &a));
                client.fill(&a, &[7]).unwrap();
            }
            assert_eq!(values(client, &a), [7; 64]);
            client.with_resource::<HostResource, _>(&a, access, |_, _| ()).unwrap();
            rig.is_clean();
        }
    }
}

#[test]
fn what_writes_nothing_does_its_work_whatever_is_refused() {
    for kind in [FaultKind::Refused, FaultKind::OutOfMemory, FaultKind::Late, FaultKind::Panic] {
        let plan = FaultPlan::new().fail_operation(Operation::Mark, 1, kind);
        let rig = Rig::new(plan.fail_operation(Operation::Wait, 1, kind));
        let (client, other) = (&rig.client, on_new_stream(&rig.client));
        let a = client.create_from_slice(&[7; 64]).unwrap();
        let point = client.record().unwrap();
        let b = other.zeros(64).unwrap();
        other.wait(point).unwrap();
        other.copy(&a, &b).unwrap();
        other.sync().unwrap().wait().unwrap();
        assert!(client.is_done(point).unwrap());
        assert_eq!(values(&other, &b), [7; 64]);
        assert_eq!(rig.faults.fired().len(), 2);
        rig.is_clean();
    }
}

#[test]
fn what_never_completes_holds_its_stream_until_the_end_and_nobody_beyond_a_deadline() {
    let operations = [
        (Operation::Reserve, 2),
        (Operation::Write, 1),
        (Operation::Copy, 1),
        (Operation::Fill, 3),
        (Operation::Launch, 1),
        (Operation::Mark, 1),
        (Operation::Wait, 1),
        (Operation::Read, 1),
    ];
    for (operation, number) in operations {
        let rig = failing(operation, number, FaultKind::Never);
        let (client, other) = (&rig.client, on_new_stream(&rig.client));
        let kernel = other.prepare(step()).unwrap();
        let a = other.zeros(64).unwrap();
        other.sync_timeout(SOON).ok();
        let (b, c) = (other.zeros(64).unwrap(), other.zeros(64).unwrap());
        other.write(&b, trunnion_runtime_core::bytes::Bytes::from_vec(vec![1; 64])).unwrap();
        other.copy(&a, &b).unwrap();
        other.launch(&kernel, Grid::x(1), [&c]).unwrap();
        let reading = other.read_async(&[&a]).unwrap();
        other.wait(other.record().unwrap()).unwrap();
        let done = other.sync().unwrap();
        let limit = Duration::from_millis(150);
        let start = Instant::now();
        let error = done.wait_for(limit).unwrap_err();
        assert!(error.is_timeout(), "{operation}: {error}");
        let waited = start.elapsed();
        assert!(waited >= limit && waited < SOON, "{operation}: {waited:?}");
        assert!(!client.is_done(done.point()).unwrap());
        // Other streams go on.
        let d = client.create_from_slice(&[4; 64]).unwrap();
        if operation != Operation::Read {
            assert_eq!(values(client, &d), [4; 64]);
        }
        let start = Instant::now();
        client.shutdown(Duration::from_millis(300));
        assert!(start.elapsed() < SOON, "{operation}: {:?}", start.elapsed());
        assert!(matches!(done.wait(), Err(Error::ShutDown { .. })), "{operation}");
        if operation != Operation::Wait && operation != Operation::Mark {
            assert!(matches!(reading.wait(), Err(Error::ShutDown { .. })), "{operation}");
        }
        rig.is_clean();
    }
}

#[test]
fn a_lost_device_answers_everybody_the_same_and_can_be_dropped() {
    for operation in Operation::ALL {
        let rig = failing(operation, 1, FaultKind::Lost);
        let (client, other) = (&rig.client, on_new_stream(&rig.client));
        let Ok(kernel) = client.prepare(step()) else { panic!("preparing asks no device") };
        let mut answers = Vec::new();
        let a = client.empty(64);
        if let Ok(a) = &a {
            answers.extend(client.write_slice(a, &[1; 64]).err());
            answers.extend(client.fill(a, &[1]).err());
            answers.extend(client.launch(&kernel, Grid::x(1), [a]).err());
            answers.extend(client.empty(64).and_then(|b| other.copy(a, &b)).err());
            answers.extend(other.record().and_then(|point| client.wait(point)).err());
            answers.extend(client.with_resource::<HostResource, _>(a, Access::Read, |_, _| ()).err());
            answers.extend(client.read_one(a).err());
        }
        answers.extend(client.sync().and_then(|done| done.wait()).err());
        answers.extend(client.flush().err());
        answers.extend(other.memory_usage().err());
        answers.extend(other.empty(64).err());
        let lost = Error::DeviceLost { cause: format!("on purpose, in {operation} 1") };
        assert!(answers.len() >= 4, "{operation}: {answers:?}");
        answers.iter().for_each(|answer| assert_eq!(answer, &lost, "{operation}"));
        client.shutdown(SOON);
        rig.is_clean();
    }
}

#[test]
fn a_device_that_is_lost_answers_what_was_pending() {
    let plan = FaultPlan::new().fail_operation(Operation::Fill, 1, FaultKind::Never);
    let rig = Rig::new(plan.fail_operation(Operation::Fill, 3, FaultKind::Lost));
    let (client, other) = (&rig.client, on_new_stream(&rig.client));
    let a = client.zeros(64).unwrap();
    let (reading, done) = (client.read_async(&[&a]).unwrap(), client.sync().unwrap());
    let waiting = std::thread::spawn(move || (reading.wait(), done.wait()));
    other.zeros(64).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    other.zeros(64).ok();
    let start = Instant::now();
    let (reading, done) = waiting.join().unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let lost = Error::DeviceLost { cause: "on purpose, in fill 3".into() };
    assert_eq!((reading.unwrap_err(), done.unwrap_err()), (lost.clone(), lost));
    rig.is_clean();
}

#[test]
fn operations_are_counted_over_all_names_or_over_one() {
    let rig = Rig::new(FaultPlan::new().fail(4, FaultKind::Refused));
    let a = rig.client.create_from_slice(&[1; 64]).unwrap();
    let b = rig.client.zeros(64).unwrap();
    is_on_purpose(&failure(&rig.client, &b));
    assert_eq!(values(&rig.client, &a), [1; 64]);
    let fired = rig.faults.fired();
    assert_eq!((fired.len(), fired[0].operation, fired[0].fault.number), (1, Operation::Fill, 4));
    assert_eq!(rig.faults.operations(), 6);
}

// ---- completions that are late

#[test]
fn completions_are_told_late_and_still_told() {
    for execution in [Execution::Runner, Execution::Inline] {
        let mut settings = Settings::default();
        settings.executor.execution = execution;
        let delay = Duration::from_millis(20);
        let (opened, _) = FaultInjector::around(host(), FaultPlan::new().delay(delay));
        let (opened, violations) = Validate::around(opened);
        let client = start_with(opened, &settings);
        let a = client.create_from_slice(&[1; 64]).unwrap();
        for round in 0..3 {
            let start = Instant::now();
            if round == 0 {
                drop(client.read_one(&a).unwrap())
            } else {
                client.sync().unwrap().wait().unwrap()
            }
            let took = start.elapsed();
            assert!(took >= delay && took < SOON, "{execution:?}: {took:?}");
        }
        let point = client.record().unwrap();
        client.done(point).unwrap().wait().unwrap();
        assert!(client.is_done(point).unwrap());
        client.shutdown(SOON);
        assert_eq!(violations.count(), 0, "{violations:?}");
    }
}

#[test]
fn completions_of_different_streams_come_in_another_order_and_a_streams_own_stay() {
    let (opened, _) = FaultInjector::around(host(), FaultPlan::new().delay(Duration::from_millis(4)).reorder(7));
    let client = start(opened);
    let a = client.create_from_slice(&[1; 64]).unwrap();
    let mut turned = 0;
    for _ in 0..10 {
        let (one, two) = (on_new_stream(&client), on_new_stream(&client));
        let order = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let readings = [&one, &one, &two].map(|client| client.read_async(&[&a]).unwrap());
            for (i, reading) in readings.into_iter().enumerate() {
                let order = &order;
                scope.spawn(move || {
                    reading.wait().unwrap();
                    order.lock().unwrap().push((i, Instant::now()));
                });
            }
        });
        let mut order = order.into_inner().unwrap();
        order.sort_by_key(|(_, at)| *at);
        turned += usize::from(order[0].0 == 2);
    }
    assert!(turned > 0, "in ten rounds the second stream never came first");
    client.shutdown(SOON);
}

#[test]
fn under_stress_from_several_threads_late_and_reordered_nothing_is_lost() {
    let rig = Rig::new(FaultPlan::new().delay(Duration::from_micros(200)).reorder(11));
    let client = &rig.client;
    let kernel = client.prepare(step()).unwrap();
    let shared = client.create_from_slice(&[0; 64]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (client, kernel, shared) = (on_new_stream(client), &kernel, &shared);
            scope.spawn(move || {
                for round in 0..25u8 {
                    client.launch(kernel, Grid::x(1), [shared]).unwrap();
                    let own = client.create_from_slice(&[round; 64]).unwrap();
                    client.launch(kernel, Grid::x(1), [&own]).unwrap();
                    assert_eq!(values(&client, &own), [round + 1; 64]);
                }
            });
        }
    });
    assert_eq!(values(client, &shared), [100; 64]);
    client.sync().unwrap().wait().unwrap();
    drop(shared);
    assert_eq!(client.memory_usage().unwrap().live, 0);
    assert_eq!(client.shutdown(SOON).abandoned, 0);
    rig.is_clean();
}

#[test]
fn faults_under_stress_reach_only_whom_they_concern() {
    for kind in [FaultKind::Refused, FaultKind::OutOfMemory, FaultKind::Late, FaultKind::Panic] {
        let plan = (0..12).fold(FaultPlan::new(), |plan, k| plan.fail_operation(Operation::Launch, 5 + 9 * k, kind));
        let rig = Rig::new(plan);
        let client = &rig.client;
        let kernel = client.prepare(step()).unwrap();
        let failed: u32 = std::thread::scope(|scope| {
            let thread = || {
                let (client, kernel) = (on_new_stream(client), &kernel);
                scope.spawn(move || {
                    let mut failed = 0;
                    for round in 0..30u8 {
                        let own = client.create_from_slice(&[round; 64]).unwrap();
                        client.launch(kernel, Grid::x(1), [&own]).unwrap();
                        match client.read_one(&own) {
                            Ok(bytes) => assert_eq!(bytes.as_slice().unwrap(), [round + 1; 64]),
                            Err(error) => {
                                is_on_purpose(&error);
                                failed += 1;
                            }
                        }
                    }
                    failed
                })
            };
            [thread(), thread(), thread(), thread()].into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((failed, rig.faults.fired().len()), (12, 12), "{kind}");
        assert_eq!(client.memory_usage().unwrap().live, 0);
        rig.is_clean();
    }
}

#[test]
fn an_import_fails_as_a_reservation_does_and_holds_nothing_then() {
    for kind in [FaultKind::Refused, FaultKind::OutOfMemory, FaultKind::Panic, FaultKind::Late, FaultKind::Lost] {
        let rig = failing(Operation::Reserve, 1, kind);
        let client = &rig.client;
        let words = alloc::sync::Arc::new(());
        let memory = Lent(vec![1; 8], words.clone());
        match (kind, client.import(HostImport::new(memory))) {
            (FaultKind::Late, Ok(imported)) => is_on_purpose(&failure(client, &imported)),
            (_, Err(error)) if kind != FaultKind::Late => is_on_purpose(&error),
            (_, other) => panic!("{kind:?}: {other:?}"),
        }
        client.shutdown(SOON);
        assert_eq!(alloc::sync::Arc::strong_count(&words), 1, "{kind:?}");
        rig.is_clean();
    }
}

/// Memory that tells when it is dropped.
struct Lent(Vec<u128>, #[allow(dead_code, reason = "only counted")] alloc::sync::Arc<()>);

impl AsMut<[u128]> for Lent {
    fn as_mut(&mut self) -> &mut [u128] {
        &mut self.0
    }
}

#[test]
fn an_event_of_somebody_else_fails_as_a_wait_does_and_one_for_somebody_else_as_a_mark() {
    for (kind, operation) in [(FaultKind::Refused, Operation::Wait), (FaultKind::Lost, Operation::Mark)] {
        let (server, _) = Scripted::new(true, true);
        let plan = FaultPlan::new().fail_operation(operation, 1, kind);
        let (opened, _) = FaultInjector::around(Opened { server, ..host() }, plan);
        let mut it = Direct::new(opened.server);
        let at = it.next();
        let imported = it.server.foreign().unwrap().import_event(at, &Foreign::new(7u32));
        let at = it.next();
        let exported = it.server.foreign().unwrap().export_event(at).map(|_| ());
        let (fails, passes) = if operation == Operation::Wait { (imported, exported) } else { (exported, imported) };
        is_on_purpose(&fails.unwrap_err());
        passes.unwrap();
    }
}

#[test]
fn the_host_has_no_events_of_its_own_and_says_so() {
    let client = start(host());
    let error = client.import_event(7u8).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = client.export_event::<u8>(client.record().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}
