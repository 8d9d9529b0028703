//! The check of the contract: each breach is told, by whoever's it is, and nothing else is.

extern crate alloc;

mod rig;

use core::task::Waker;
use core::time::Duration;
use rig::{Direct, Remote, Scripted, Wrong, failure, notifier, on_new_stream, prepared, spread, start, step};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handles;
use trunnion_runtime_core::id::{ServiceId, StreamId};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{Bounds, Launch, Pattern, Payload, Region};
use trunnion_runtime_core::timeline::Moment;
use trunnion_server_layers::{Operation, Party, Validate, Violation, Violations};

/// A checked server that behaves as the test says.
fn checked() -> (Direct, Remote, Violations) {
    let (server, remote) = Scripted::new(true, true);
    let layer = Validate::new(server, rig::host().properties.limits);
    let violations = layer.violations();
    (Direct::new(Box::new(layer)), remote, violations)
}

fn bytes(count: usize) -> Payload<'static> {
    Payload::Bytes(Bytes::from_vec(vec![1; count]))
}

/// The only breach, which must be the caller's.
#[track_caller]
fn the_callers(violations: &Violations) -> Violation {
    let all = violations.all();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].party(), Party::Caller, "{all:?}");
    all[0].clone()
}

#[track_caller]
fn the_servers(violations: &Violations) -> Violation {
    let all = violations.all();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].party(), Party::Server, "{all:?}");
    all[0].clone()
}

// ---- the caller

#[test]
fn a_caller_that_keeps_the_contract_is_told_nothing() {
    let (mut it, _, violations) = checked();
    let (a, b) = (it.reserved(64), it.reserved(64));
    let at = it.next();
    it.server.write(at, &Region::whole(&a), bytes(64));
    let at = it.next();
    it.server.write(at, &Region::whole(&a), Payload::Slice(&[0; 64]));
    let at = it.next();
    it.server.copy(at, &Region::whole(&a), &Region::whole(&b));
    let at = it.next();
    it.server.fill(at, &a, Pattern::new(&[1, 2]).unwrap());
    let promise = Promise::new();
    let at = it.next();
    it.server.read(at, &[Region::whole(&a), Region::whole(&b)], promise.clone());
    assert!(promise.is_given());
    let at = it.next();
    let granted = Promise::new();
    it.server.access().unwrap().open(at, &a, Access::Write, granted);
    it.server.access().unwrap().close(at, None);
    let at = it.next();
    assert!(it.server.poll(at, Waker::noop()).is_ready());
    it.server.leave();
    for handle in [a, b] {
        it.server.free(handle.memory());
    }
    // Memory of no bytes is freed without having been reserved.
    let nothing = it.handles.create(0).unwrap();
    it.server.free(nothing.memory());
    assert_eq!(it.server.shutdown(&Deadline::after(Duration::ZERO)), 3);
    assert_eq!(violations.count(), 0, "{violations:?}");
}

#[test]
fn a_start_that_is_missing_or_comes_twice_is_told() {
    let (mut it, remote, violations) = checked();
    it.server.start(notifier());
    assert_eq!(the_callers(&violations), Violation::StartedTwice);
    assert_eq!(remote.lock().unwrap().started, 2, "it is handed on all the same");

    let (server, _) = Scripted::new(false, false);
    let mut layer = Validate::new(server, rig::host().properties.limits);
    trunnion_runtime_core::server::Server::mark(&mut layer, Moment { stream: StreamId::new(), seq: 1 });
    assert_eq!(the_callers(&layer.violations()), Violation::NotStarted { operation: Operation::Mark });
}

#[test]
fn numbers_that_do_not_increase_are_told() {
    let (mut it, _, violations) = checked();
    let first = it.next();
    it.server.mark(first);
    it.server.mark(first);
    assert_eq!(the_callers(&violations), Violation::NotIncreasing { operation: Operation::Mark, at: first, last: 1 });

    let (mut it, _, violations) = checked();
    let (a, at) = (it.reserved(8), it.next());
    // The parts of a write share a number.
    it.server.write(at, &Region::whole(&a.slice(..4).unwrap()), bytes(4));
    it.server.write(at, &Region::whole(&a.slice(4..).unwrap()), bytes(4));
    assert_eq!(violations.count(), 0);
    it.server.write(Moment { stream: StreamId::new(), ..at }, &Region::whole(&a), bytes(8));
    assert!(matches!(the_callers(&violations), Violation::NotIncreasing { operation: Operation::Write, .. }));
}

#[test]
fn memory_that_is_not_there_is_told() {
    let (mut it, _, violations) = checked();
    let (a, at) = (it.handles.create(8).unwrap(), it.next());
    it.server.fill(at, &a, Pattern::new(&[0]).unwrap());
    let memory = a.memory();
    let expected = Violation::NotReserved { operation: Operation::Fill, at, memory, freed: false };
    assert_eq!(the_callers(&violations), expected);

    let (mut it, _, violations) = checked();
    let a = it.reserved(8);
    it.server.free(a.memory());
    let at = it.next();
    it.server.copy(at, &Region::whole(&a.slice(..4).unwrap()), &Region::whole(&a.slice(4..4).unwrap()));
    assert!(matches!(violations.all()[0], Violation::NotReserved { freed: true, .. }), "{violations:?}");

    let (mut it, _, violations) = checked();
    let a = it.reserved(8);
    it.server.free(a.memory());
    it.server.free(a.memory());
    assert_eq!(the_callers(&violations), Violation::FreedTwice { memory: a.memory() });

    let (mut it, _, violations) = checked();
    let (a, at) = (it.reserved(8), it.next());
    it.server.reserve(at, &a, AllocationMode::Auto);
    assert_eq!(the_callers(&violations), Violation::ReservedTwice { at, memory: a.memory() });
}

#[test]
fn a_handle_of_another_server_is_told() {
    let (mut it, _, violations) = checked();
    it.reserved(8);
    let (got, at) = (ServiceId::new(), it.next());
    let foreign = Handles::new(got).unwrap().create(0).unwrap();
    it.server.fill(at, &foreign, Pattern::new(&[0]).unwrap());
    let expected = it.service;
    assert_eq!(the_callers(&violations), Violation::AnotherService { operation: Operation::Fill, at, got, expected });
}

#[test]
fn arguments_a_client_would_have_refused_are_told() {
    let (mut it, _, _) = checked();
    let a = it.reserved(256);
    let whole = Region::whole(&a);
    let part = |range| Region::whole(&a.slice(range).unwrap());
    type Call<'a> = Box<dyn Fn(&mut Direct, Moment) + 'a>;
    let calls: Vec<(&str, Call<'_>)> = vec![
        ("WrongLength", Box::new(|it, at| it.server.write(at, &whole, bytes(9)))),
        ("WrongLength", Box::new(|it, at| it.server.write(at, &whole, Payload::Slice(&[])))),
        ("WrongLength", Box::new(|it, at| it.server.copy(at, &part(0..8), &part(8..24)))),
        ("Overlap", Box::new(|it, at| it.server.copy(at, &part(0..8), &part(4..12)))),
        ("Misaligned", Box::new(|it, at| it.server.fill(at, &a.slice(..9).unwrap(), Pattern::new(&[0; 2]).unwrap()))),
        (
            "OutsideHandle",
            Box::new(|it, at| {
                let rows = Rows { row: 8, outer: vec![(2, 64)] };
                let target = Region { handle: a.slice(..32).unwrap(), rows: Some(rows) };
                it.server.write(at, &target, bytes(16));
            }),
        ),
        (
            "OutOfRange",
            Box::new(|it, at| {
                it.server.access().unwrap().open(at, &a.slice(3..3).unwrap(), Access::Read, Promise::new());
            }),
        ),
        ("NotOpen", Box::new(|it, at| it.server.access().unwrap().close(at, None))),
    ];
    for (says, call) in calls {
        let (server, _) = Scripted::new(true, true);
        let layer = Validate::new(server, rig::host().properties.limits);
        let violations = layer.violations();
        it.server = Box::new(layer);
        it.server.start(notifier());
        let at = it.next();
        it.server.reserve(at, &a, AllocationMode::Auto);
        let at = it.next();
        call(&mut it, at);
        let told = the_callers(&violations);
        assert!(format!("{told:?}").contains(says), "{says}: {told:?}");
    }
}

#[test]
fn launches_that_do_not_fit_their_kernel_are_told() {
    let (mut it, _, violations) = checked();
    let (kernel, a, b) = (prepared(spread(), it.service), it.reserved(256), it.reserved(256));
    let grid = Grid::x(1);
    let part = |range| a.slice(range).unwrap();
    let good = [part(0..64), part(64..128), b.slice(..64).unwrap()];
    let launch = |it: &mut Direct, grid: &Grid, buffers: &[_], parameters: &[u8]| {
        let at = it.next();
        it.server.launch(at, &Launch { kernel: &kernel, grid, buffers, parameters, bounds: Bounds::Checked });
    };
    launch(&mut it, &grid, &good, &[]);
    assert_eq!(violations.count(), 0, "{violations:?}");
    launch(&mut it, &grid, &good[..2], &[]);
    launch(&mut it, &grid, &good, &[1]);
    launch(&mut it, &Grid::Static(1, 1 << 20, 1), &good, &[]);
    launch(&mut it, &Grid::Dynamic(part(0..8)), &good, &[]);
    launch(&mut it, &grid, &[part(0..64), part(32..96), b.clone()], &[]);
    launch(&mut it, &grid, &[part(0..64), part(65..129), b.clone()], &[]);
    let foreign = prepared(spread(), ServiceId::new());
    let at = it.next();
    let buffers = &good;
    it.server.launch(at, &Launch { kernel: &foreign, grid: &grid, buffers, parameters: &[], bounds: Bounds::Checked });
    let told = format!("{violations:?}");
    assert_eq!(violations.count(), 7, "{told}");
    for says in
        ["BufferCount", "ParameterSize", "GridTooLarge", "WrongLength", "Overlap", "Misaligned", "AnotherService"]
    {
        assert!(told.contains(says), "{says}: {told}");
    }
}

// ---- the server

#[test]
fn promises_that_are_not_answered_in_time_are_told() {
    for (wrong, operation) in [
        (Wrong::LeavesReadsOpen, Operation::Read),
        (Wrong::LeavesSignalsOpen, Operation::Mark),
        (Wrong::LeavesGrantsOpen, Operation::Access),
    ] {
        for end in 0..3 {
            let (mut it, remote, violations) = checked();
            remote.lock().unwrap().wrong.insert(wrong);
            let (a, at) = (it.reserved(8), it.next());
            match operation {
                Operation::Read => it.server.read(at, &[Region::whole(&a)], Promise::new()),
                Operation::Mark => it.server.signal(at, Promise::new()),
                _ => it.server.access().unwrap().open(at, &a, Access::Read, Promise::new()),
            }
            it.server.leave();
            assert_eq!(violations.count(), 0, "not due yet: {violations:?}");
            match end {
                0 => drop(it.server.poll(at, Waker::noop())),
                1 => drop(it.server.shutdown(&Deadline::after(Duration::ZERO))),
                _ => {
                    remote.lock().unwrap().fault = Some(Error::DeviceLost { cause: "x".into() });
                    it.server.leave();
                    it.server.leave();
                }
            }
            let told = the_servers(&violations);
            assert!(
                matches!(&told, Violation::Unanswered { operation: of, at: when, .. } if *of == operation && *when == at)
            );
        }
    }
}

#[test]
fn reads_that_bring_the_wrong_bytes_are_told() {
    let (mut it, remote, violations) = checked();
    remote.lock().unwrap().wrong.insert(Wrong::ReadsTooLittle);
    let (a, at) = (it.reserved(8), it.next());
    it.server.read(at, &[Region::whole(&a)], Promise::new());
    it.server.leave();
    assert_eq!(the_servers(&violations), Violation::WrongBytes { at, got: vec![7], expected: vec![8] });

    let (mut it, remote, violations) = checked();
    let (a, at) = (it.reserved(8), it.next());
    remote.lock().unwrap().failing.insert(a.memory().index);
    it.server.read(at, &[Region::whole(&a)], Promise::new());
    it.server.leave();
    assert_eq!(violations.count(), 0, "{violations:?}");
    remote.lock().unwrap().wrong.insert(Wrong::ReadsOverFailure);
    let at = it.next();
    it.server.read(at, &[Region::whole(&a)], Promise::new());
    it.server.leave();
    assert_eq!(the_servers(&violations), Violation::FailureLost { at });
}

#[test]
fn a_failure_that_is_not_handed_on_is_told() {
    for wrong in [false, true] {
        let (mut it, remote, violations) = checked();
        let (a, b, c) = (it.reserved(64), it.reserved(64), it.reserved(64));
        remote.lock().unwrap().failing.insert(a.memory().index);
        if wrong {
            remote.lock().unwrap().wrong.insert(Wrong::HandsNothingOn);
        }
        let at = it.next();
        it.server.copy(at, &Region::whole(&a), &Region::whole(&b));
        let kernel = prepared(spread(), it.service);
        let (at, buffers) = (it.next(), [a, b, c]);
        let launch =
            Launch { kernel: &kernel, grid: &Grid::x(1), buffers: &buffers, parameters: &[], bounds: Bounds::Checked };
        it.server.launch(at, &launch);
        assert_eq!(violations.count(), if wrong { 3 } else { 0 }, "{violations:?}");
        assert!(violations.all().iter().all(|told| matches!(told, Violation::NotHandedOn { .. })), "{violations:?}");
    }
}

#[test]
fn moments_and_counts_that_go_back_are_told() {
    let (mut it, remote, violations) = checked();
    let (first, second) = (it.next(), it.next());
    it.server.mark(first);
    it.server.mark(second);
    // What has no number yet stands for the latest: a later one is not done by it.
    drop(it.server.poll(Moment { seq: 99, ..first }, Waker::noop()));
    remote.lock().unwrap().wrong.insert(Wrong::UndoesMoments);
    let third = it.next();
    it.server.mark(third);
    drop(it.server.poll(third, Waker::noop()));
    assert_eq!(violations.count(), 0, "{violations:?}");
    drop(it.server.poll(first, Waker::noop()));
    assert_eq!(the_servers(&violations), Violation::Undone { at: first, done: 2 });

    let (mut it, remote, violations) = checked();
    remote.lock().unwrap().wrong.insert(Wrong::FindsMoreUnfinished);
    let at = it.next();
    it.server.mark(at);
    // Of what is not accepted yet there may be more later.
    it.server.unfinished(5);
    it.server.unfinished(5);
    it.server.unfinished(1);
    assert_eq!(violations.count(), 0, "{violations:?}");
    it.server.unfinished(1);
    assert_eq!(the_servers(&violations), Violation::UnfinishedRose { up_to: 1, from: 3, to: 4 });
}

#[test]
fn answers_other_than_the_fault_are_told() {
    for wrong in [Wrong::PollFails, Wrong::FlushFails] {
        let (mut it, remote, violations) = checked();
        remote.lock().unwrap().wrong.insert(wrong);
        let at = it.next();
        match wrong {
            Wrong::PollFails => drop(it.server.poll(at, Waker::noop())),
            _ => drop(it.server.flush(at.stream)),
        }
        assert!(matches!(the_servers(&violations), Violation::NotTheFault { fault: None, .. }));
    }
    let lost = Error::DeviceLost { cause: "x".into() };
    let (mut it, remote, violations) = checked();
    remote.lock().unwrap().fault = Some(lost.clone());
    it.server.leave();
    let at = it.next();
    drop((it.server.poll(at, Waker::noop()), it.server.flush(at.stream)));
    assert_eq!(violations.count(), 0, "{violations:?}");
    remote.lock().unwrap().wrong.insert(Wrong::PendsAfterFault);
    drop(it.server.poll(at, Waker::noop()));
    assert_eq!(the_servers(&violations), Violation::PendingAfterFault { at });

    let (mut it, remote, violations) = checked();
    remote.lock().unwrap().fault = Some(lost.clone());
    remote.lock().unwrap().wrong.insert(Wrong::ChangesFault);
    it.server.leave();
    it.server.leave();
    assert_eq!(the_servers(&violations), Violation::FaultChanged { from: lost, to: Some(failure()) });
}

#[test]
fn grants_that_conflict_are_told() {
    for (first, second, conflict) in [
        (Access::Read, Access::Read, false),
        (Access::Read, Access::Write, true),
        (Access::Overwrite, Access::Read, true),
    ] {
        let (mut it, _, violations) = checked();
        let (a, one) = (it.reserved(8), it.next());
        it.server.access().unwrap().open(one, &a, first, Promise::new());
        it.server.leave();
        let two = it.next();
        it.server.access().unwrap().open(two, &a.slice(4..).unwrap(), second, Promise::new());
        it.server.leave();
        let told = violations.all();
        let expected = conflict.then_some(Violation::GrantsConflict { first: one, second: two });
        assert_eq!(told, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn memory_that_does_not_add_up_is_told() {
    let (mut it, remote, violations) = checked();
    remote.lock().unwrap().wrong.insert(Wrong::HoldsMemory);
    let a = it.reserved(64);
    assert!(it.server.memory().is_some());
    assert_eq!(violations.count(), 0, "{violations:?}");
    it.server.free(a.memory());
    assert!(it.server.memory().is_some());
    assert_eq!(the_servers(&violations), Violation::LiveWithoutHandles { live: 64 });

    let (mut it, remote, violations) = checked();
    let _held = it.reserved(64);
    remote.lock().unwrap().wrong.insert(Wrong::ReportsOtherwise);
    assert!(it.server.memory().is_some());
    assert_eq!(the_servers(&violations), Violation::ReportDisagrees { reported: 0, used: 64 });
}

#[test]
fn an_end_that_is_late_and_a_compilation_without_answers_are_told() {
    let (mut it, remote, violations) = checked();
    remote.lock().unwrap().wrong.insert(Wrong::EndsLate);
    it.server.shutdown(&Deadline::after(Duration::from_millis(1)));
    assert!(matches!(the_servers(&violations), Violation::EndedLate { .. }));

    let (mut it, remote, violations) = checked();
    let kernel = prepared(step(), it.service);
    assert_eq!(it.server.compile_together(&[(kernel.clone(), Bounds::Checked)]), [Ok(())]);
    assert_eq!(it.server.compile_together(&[]), []);
    remote.lock().unwrap().wrong.insert(Wrong::CompilesNone);
    it.server.compile_together(&[(kernel, Bounds::Checked)]);
    assert_eq!(the_servers(&violations), Violation::CompiledCount { asked: 1, answered: 0 });
}

#[test]
fn breaches_without_end_are_counted_and_kept_up_to_a_limit() {
    let (mut it, _, violations) = checked();
    for _ in 0..Violations::KEPT + 10 {
        it.server.start(notifier());
    }
    assert_eq!((violations.all().len(), violations.count()), (Violations::KEPT, Violations::KEPT as u64 + 10));
    assert!(violations.all()[0].to_string().contains("started a second time"));
}

// ---- a real device

#[test]
fn a_host_device_used_from_several_threads_keeps_the_contract() {
    let (opened, violations) = Validate::around(rig::host());
    let client = start(opened);
    let kernel = client.prepare(step()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (client, kernel) = (on_new_stream(&client), &kernel);
            scope.spawn(move || {
                for round in 0..40u8 {
                    let a = client.create_from_slice(&[round; 64]).unwrap();
                    let b = client.zeros(64).unwrap();
                    client.launch(kernel, Grid::x(1), [&a]).unwrap();
                    client.copy(&a, &b).unwrap();
                    assert_eq!(client.read_one(&b).unwrap().as_slice().unwrap(), [round + 1; 64], "{thread}");
                    client.sync().unwrap().wait().unwrap();
                    client.memory_usage().unwrap();
                }
            });
        }
    });
    assert_eq!(client.memory_usage().unwrap().live, 0);
    assert_eq!(client.shutdown(Duration::from_secs(5)).abandoned, 0);
    assert_eq!(violations.count(), 0, "{violations:?}");
}
