//! F7, F9, C17, C18: every operation of a program fails in every way, with a fault injector around the device.

use crate::check::{Failure, Outcome, raw};
use crate::context::{AT_ONCE, Context, SOON, eventually, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use std::sync::mpsc;
use std::time::Instant;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::pressure::PressureAnswer;
use trunnion_runtime_core::service::Settings;
use trunnion_server_layers::{FaultInjector, FaultKind, FaultPlan, FaultRecord, Operation, Validate, Violations};

tests! {
    F9 every_operation_fails_in_every_way_and_harms_nothing_else .seconds(240);
    F9 a_reservation_fails_in_every_way_also_where_hooks_are_asked .seconds(120);
    F9 what_turns_out_to_have_failed_is_followed_through_what_came_after_it;
    F9 failures_that_come_late_on_many_streams_reach_only_what_was_built_on_them;
    F7 a_fault_of_the_device_is_told_by_sync_and_by_every_later_call;
    F7 a_fault_that_the_driver_meets_is_told_by_sync;
    F7 a_fault_met_by_several_threads_at_once_is_one_fault;
    C17 lost_with_any_operation_every_call_answers_the_same_cause .seconds(120);
    C17 devices_lost_or_stuck_again_and_again_leave_no_memory_behind .child().seconds(480);
    C18 what_never_completes_is_waited_for_to_the_deadline_and_hardly_longer .seconds(240);
    C18 many_threads_that_wait_for_what_never_completes_each_end_in_time;
}

/// How long is waited for what never completes.
const PATIENCE: Duration = Duration::from_secs(1);

/// A device with a plan around its server, and a look at the contract on both sides of that.
struct Faulty {
    client: Client,
    /// What the program launches: `accumulate`, `step` and `sum`.
    kernels: [KernelHandle; 3],
    faults: FaultRecord,
    violations: [Violations; 2],
}

impl Faulty {
    fn start(cx: &Context, plan: FaultPlan, settings: &Settings) -> Outcome<Self> {
        let (opened, inner) = Validate::around(cx.opened(&Variant::plain(), &settings.open)?);
        let (opened, faults) = FaultInjector::around(opened, plan);
        let (opened, outer) = Validate::around(opened);
        let client = Client::try_init_with(cx.device()?, opened, settings)?;
        let kernels =
            [client.prepare(kernels::accumulate())?, client.prepare(kernels::step())?, client.prepare(kernels::sum())?];
        Ok(Self { client, kernels, faults, violations: [outer, inner] })
    }

    /// Somebody is asked before memory is refused, and has none to give.
    fn hooked(self, hooked: bool) -> Outcome<Self> {
        if hooked {
            self.client.on_memory_pressure(|_| PressureAnswer::Refuse)?.keep();
        }
        Ok(self)
    }

    /// Nobody broke the contract, and the fault came if there was one.
    fn check(&self, what: &str, fired: usize) -> Outcome {
        for violations in &self.violations {
            ensure!(violations.count() == 0, "{what}: {violations:?}");
        }
        ensure_eq!(self.faults.fired().len(), fired, "{what}: faults that came");
        Ok(())
    }
}

/// What a run of the program left.
struct Run {
    errors: Vec<Error>,
    handles: Vec<Handle>,
}

impl Run {
    fn note<T>(&mut self, answer: Result<T>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    /// The device is gone, or somebody waited in vain.
    fn is_over(&self) -> bool {
        self.errors.iter().any(|error| error.is_device_lost() || error.is_timeout())
    }
}

/// A program that uses every operation, and reads what each has written before something else is written there.
fn program(cx: &Context, it: &Faulty) -> Outcome<Run> {
    let client = &it.client;
    let other = on_new_stream(client);
    let [accumulate, step, sum] = &it.kernels;
    let mut run = Run { errors: Vec::new(), handles: Vec::new() };
    for _ in 0..4 {
        match client.empty(256) {
            Ok(handle) => run.handles.push(handle),
            Err(error) => run.errors.push(error),
        }
    }
    let [a, b, c, total] = run.handles.as_slice() else { return Ok(run) };
    let (a, b, c, total) = (a.clone(), b.clone(), c.clone(), total.clone());
    run.note(client.write(&a, Bytes::from_vec(raw(&[1u32; 64]).to_vec())));
    run.note(client.fill(&b, raw(&[2u32])));
    run.note(client.launch(accumulate, cover(64)?, [&a, &b]));
    if let Some(point) = run.note(client.record()) {
        run.note(other.wait(point));
    }
    run.note(other.copy(&b, &c));
    run.note(other.fill(&total, &[0]));
    run.note(other.launch(sum, cover(64)?, [&c, &total]));
    for (handle, access) in [(&a, Access::Read), (&c, Access::Write)] {
        run.note(cx.factory().with_resource(client, handle, access, &mut |_| {}));
        if run.is_over() {
            return Ok(run);
        }
    }
    for (client, handles) in [(&other, &[&total][..]), (client, &[&a, &b, &c])] {
        let read = client.read_async(handles).and_then(|reading| reading.wait());
        run.note(read);
        if run.is_over() {
            return Ok(run);
        }
    }
    run.note(client.sync().and_then(|done| done.wait()));
    run.note(client.write(&a, Bytes::from_vec(raw(&[5u32; 64]).to_vec())));
    run.note(client.launch(step, cover(64)?, [&a]));
    if !run.is_over() {
        run.note(client.read_one(&a));
    }
    Ok(run)
}

/// What the four buffers hold after a run without a fault: their first elements.
const RIGHT: [u32; 4] = [6, 3, 3, 192];

fn works(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[9; 64])?;
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [9; 64], "a fresh device");
    Ok(())
}

/// How many operations the program has.
fn operations(cx: &Context) -> Outcome<u64> {
    let it = Faulty::start(cx, FaultPlan::new(), &cx.settings())?;
    let run = program(cx, &it)?;
    ensure!(run.errors.is_empty(), "without a fault: {:?}", run.errors);
    let operations = it.faults.operations();
    for (handle, right) in run.handles.iter().zip(RIGHT) {
        ensure_eq!(it.client.read_one(handle)?.to_vec::<u32>()?[0], right, "without a fault");
    }
    it.check("without a fault", 0)?;
    ensure!(operations >= 12, "the program has {operations} operations");
    Ok(operations)
}

/// The `k`-th operation fails in a way that has a name.
fn named(cx: &Context, k: u64, kind: FaultKind, hooked: bool) -> Outcome {
    let it = Faulty::start(cx, FaultPlan::new().fail(k, kind), &cx.settings())?.hooked(hooked)?;
    let what = format!("{kind} at operation {k}");
    let start = Instant::now();
    let mut run = program(cx, &it)?;
    ensure_eq!(run.handles.len(), 4, "{what}");
    for (handle, right) in run.handles.clone().iter().zip(RIGHT) {
        if let Some(bytes) = run.note(it.client.read_one(handle)) {
            ensure_eq!(bytes.to_vec::<u32>()?[0], right, "{what}: bytes without a failure");
        }
    }
    ensure!(start.elapsed() < SOON, "{what}: the program took {:?}", start.elapsed());
    it.check(&what, 1)?;
    let operation = it.faults.fired()[0].operation;
    let cause = format!("on purpose, in {operation} ");
    for error in &run.errors {
        ensure!(error.root().to_string().contains(&cause), "{what} ({operation}): {error}");
    }
    let writes_nothing = matches!(operation, Operation::Mark | Operation::Wait);
    ensure_eq!(run.errors.is_empty(), writes_nothing, "{what} ({operation}): whether it is named");
    // Whatever is written again is there again, where there is memory.
    for handle in &run.handles {
        it.client.write(handle, Bytes::from_vec(vec![8; 256]))?;
        match it.client.read_one(handle) {
            Ok(bytes) => ensure_eq!(bytes.as_slice()?, [8; 256], "{what}"),
            Err(error) => ensure!(operation == Operation::Reserve, "{what}: {error}"),
        }
    }
    drop(run);
    let usage = it.client.memory_usage()?;
    ensure_eq!((usage.live, usage.allocations), (0, 0), "{what}: memory that is in use");
    ensure_eq!(it.client.shutdown(SOON).abandoned, 0, "{what}");
    it.check(&what, 1)
}

/// The device is lost with the `k`-th operation.
fn lost(cx: &Context, k: u64, hooked: bool) -> Outcome {
    let it = Faulty::start(cx, FaultPlan::new().fail(k, FaultKind::Lost), &cx.settings())?.hooked(hooked)?;
    let what = format!("lost at operation {k}");
    let start = Instant::now();
    let mut run = program(cx, &it)?;
    run.note(it.client.sync().and_then(|done| done.wait()));
    run.note(it.client.record());
    run.note(it.client.memory_cleanup());
    ensure!(start.elapsed() < SOON, "{what}: the program took {:?}", start.elapsed());
    ensure!(run.errors.len() >= 3, "{what}: {:?}", run.errors);
    for error in &run.errors {
        ensure!(matches!(error, Error::DeviceLost { .. }), "{what}: {error:?}");
        ensure_eq!(*error, run.errors[0], "{what}");
    }
    drop(run);
    it.client.shutdown(SOON);
    it.check(&what, 1)
}

/// A device whose `k`-th operation never completes, and which has nothing to compile any more: a wait begins again with everything that
/// was done meanwhile, and the first launch is done when a busy machine has compiled its kernel.
fn never(cx: &Context, k: u64, hooked: bool) -> Outcome<Faulty> {
    let mut settings = cx.settings();
    settings.wait_timeout = PATIENCE;
    let it = Faulty::start(cx, FaultPlan::new().fail(k, FaultKind::Never), &settings)?.hooked(hooked)?;
    // It waits no longer for that either, and goes on with it.
    eventually("the kernels are compiled", || match it.client.compile_queued() {
        Err(error) if error.is_timeout() || error.is_busy() => Ok(false),
        answer => answer.map(|_| true),
    })?;
    Ok(it)
}

/// The `k`-th operation never completes, and is waited for until the deadline and hardly longer: that starts again while what came before it
/// gets on, which takes as long as the program without a fault does. A machine that is busy with other things is late now and then, and not
/// each time.
fn stuck(cx: &Context, k: u64, hooked: bool) -> Outcome {
    let mut all_waited = Vec::new();
    for _ in 0..3 {
        let sound = Faulty::start(cx, FaultPlan::new(), &cx.settings())?;
        let start = Instant::now();
        program(cx, &sound)?;
        let before = start.elapsed();
        drop(sound);
        let waited = wait_for_the_stuck(cx, &never(cx, k, hooked)?, k)?;
        if in_time(waited, before) {
            return Ok(());
        }
        all_waited.push((waited, before));
    }
    Err(Failure::new(format!(
        "operation {k}, which never completes, was waited for {all_waited:?}, the deadline is {PATIENCE:?}"
    )))
}

fn in_time(waited: Option<Duration>, before: Duration) -> bool {
    waited.is_some_and(|waited| (PATIENCE..=PATIENCE * 6 / 5 + before).contains(&waited))
}

/// Runs the program on such a device, and ends it. How long was waited for what never completes, if it was: on a machine that is busy with
/// other things, the deadline may pass while what came before it is waited for.
fn wait_for_the_stuck(cx: &Context, it: &Faulty, k: u64) -> Outcome<Option<Duration>> {
    let what = format!("never at operation {k}");
    let run = program(cx, it)?;
    let [Error::Timeout { waited, .. }] = run.errors[..] else {
        return Err(Failure::new(format_args!("{what}: {:?}", run.errors)));
    };
    drop(run);
    let start = Instant::now();
    it.client.shutdown(PATIENCE);
    ensure!(start.elapsed() < PATIENCE * 4, "{what}: an end within {PATIENCE:?} took {:?}", start.elapsed());
    let fired = it.faults.fired().len();
    it.check(&what, fired.min(1))?;
    Ok((fired > 0).then_some(waited))
}

/// Every operation in turn is stuck, all at the same time since nearly all of it is waiting.
fn all_stuck(cx: &Context, operations: u64) -> Outcome {
    // No device is made or let go of while another one works: see `Factory::one_at_a_time`.
    let devices = (1..=operations).map(|k| Ok((k, never(cx, k, false)?))).collect::<Outcome<Vec<_>>>()?;
    let all_waited: Vec<_> = std::thread::scope(|scope| {
        let wait = |(k, it)| (k, scope.spawn(move || wait_for_the_stuck(cx, it, k)));
        let threads: Vec<_> = devices.iter().map(|(k, it)| wait((*k, it))).collect();
        threads.into_iter().map(|(k, thread)| (k, thread.join())).collect()
    });
    drop(devices);
    for (k, waited) in all_waited {
        let waited = waited.map_err(|_| Failure::new(format_args!("operation {k} panicked")))??;
        // So many at once keep a machine busy.
        if !in_time(waited, Duration::ZERO) {
            stuck(cx, k, false)?;
        }
    }
    Ok(())
}

fn every_operation_fails_in_every_way_and_harms_nothing_else(cx: &Context) -> Outcome {
    let (start, operations) = (Instant::now(), operations(cx)?);
    for kind in FaultKind::ALL {
        match kind {
            FaultKind::Never => all_stuck(cx, operations)?,
            FaultKind::Lost => (1..=operations).try_for_each(|k| lost(cx, k, false))?,
            kind => (1..=operations).try_for_each(|k| named(cx, k, kind, false))?,
        }
        works(cx)?;
    }
    // Each combination was checked to have come.
    let (kinds, names) = (FaultKind::ALL.len() as u64, FaultKind::ALL.map(FaultKind::name).join(", "));
    let combinations = operations * kinds;
    println!(
        "{}: {operations} operations × {kinds} kinds ({names}) = {combinations} combinations in {:.1?}",
        cx.factory().name(),
        start.elapsed()
    );
    ensure!(combinations >= 40, "{combinations} combinations are fewer than 40");
    Ok(())
}

// ---- F9

fn a_reservation_fails_in_every_way_also_where_hooks_are_asked(cx: &Context) -> Outcome {
    // The program begins with its reservations.
    for (k, kind) in (1..=4).flat_map(|k| FaultKind::ALL.map(|kind| (k, kind))) {
        match kind {
            FaultKind::Never => stuck(cx, k, true)?,
            FaultKind::Lost => lost(cx, k, true)?,
            kind => named(cx, k, kind, true)?,
        }
    }
    works(cx)
}

/// A device on which the operations of this name and these numbers fail so.
fn failing(cx: &Context, operation: Operation, numbers: &[u64], kind: FaultKind) -> Outcome<Faulty> {
    let plan = numbers.iter().fold(FaultPlan::new(), |plan, number| plan.fail_operation(operation, *number, kind));
    Faulty::start(cx, plan, &cx.settings())
}

fn what_turns_out_to_have_failed_is_followed_through_what_came_after_it(cx: &Context) -> Outcome {
    let it = failing(cx, Operation::Launch, &[1], FaultKind::Late)?;
    let (client, other) = (&it.client, on_new_stream(&it.client));
    let (step, add) = (client.prepare(kernels::step())?, client.prepare(kernels::add())?);
    let (a, b) = (client.create_from_slice(raw(&[1u32; 64]))?, other.zeros(256)?);
    let (out, beside) = (other.zeros(256)?, client.create_from_slice(raw(&[7u32; 64]))?);
    client.launch(&step, cover(64)?, [&a])?;
    other.copy(&a, &b)?;
    other.launch(&add, cover(64)?, [&b, &b, &out])?;
    let (reading, well) = (other.read_async(&[&out])?, other.read_async(&[&beside])?);
    // Replaced whole, its bytes are well again, and what was made of them before is not.
    client.fill(&a, &[0])?;
    let error = ensure_err!(reading.wait(), Error::Inherited { .. });
    let Error::Inherited { cause, chain, dropped: 0 } = &error else { return Err(Failure::new(error)) };
    let names: Vec<_> = chain.iter().map(|link| link.operation.as_str()).collect();
    ensure_eq!(names, ["copy", "add"]);
    ensure!(cause.to_string().contains("failed late, on purpose"), "{cause}");
    ensure_eq!(well.wait()?[0].to_vec::<u32>()?, [7; 64]);
    ensure_eq!(client.read_one(&a)?.to_vec::<u32>()?, [0; 64]);
    ensure_eq!(client.check(&[&b, &out]).err().as_ref().map(Error::root), Some(&**cause));
    it.check("late", 1)
}

fn failures_that_come_late_on_many_streams_reach_only_what_was_built_on_them(cx: &Context) -> Outcome {
    let numbers: Vec<u64> = (1..=20).map(|k| k * 7).collect();
    let it = failing(cx, Operation::Launch, &numbers, FaultKind::Late)?;
    let step = it.client.prepare(kernels::step())?;
    let failed = std::thread::scope(|scope| -> Outcome<usize> {
        let thread = || -> Outcome<usize> {
            let client = on_new_stream(&it.client);
            let mut failed = 0;
            for round in 0..20u32 {
                let (a, b) = (client.create_from_slice(raw(&[round; 64]))?, client.empty(256)?);
                client.launch(&step, cover(64)?, [&a])?;
                client.copy(&a, &b)?;
                client.launch(&step, cover(64)?, [&b])?;
                // A launch over a failure is skipped, and its own is then none.
                match (client.read_one(&a), client.read_one(&b)) {
                    (Ok(a), Ok(b)) => {
                        ensure_eq!((a.to_vec::<u32>()?[0], b.to_vec::<u32>()?[0]), (round + 1, round + 2))
                    }
                    (Ok(a), Err(_)) => ensure_eq!(a.to_vec::<u32>()?[0], round + 1),
                    (Err(first), Err(second)) => ensure_eq!(first.root(), second.root()),
                    (Err(error), Ok(_)) => {
                        return Err(Failure::new(format_args!("a copy of what failed is well: {error}")));
                    }
                }
                failed += usize::from(client.check(&[&b]).is_err());
            }
            Ok(failed)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(thread)).collect();
        let mut failed = 0;
        for thread in threads {
            failed += thread.join().map_err(|_| Failure::new("a thread panicked"))??;
        }
        Ok(failed)
    })?;
    ensure!((10..=20).contains(&failed), "{failed} of 80 chains failed, with 20 faults in 160 launches");
    ensure_eq!(it.client.memory_usage()?.live, 0);
    it.check("late on many streams", 20)
}

// ---- F7, C17

fn a_fault_of_the_device_is_told_by_sync_and_by_every_later_call(cx: &Context) -> Outcome {
    let it = failing(cx, Operation::Copy, &[1], FaultKind::Lost)?;
    let client = &it.client;
    let (a, b) = (client.zeros(64)?, client.zeros(64)?);
    let done = client.sync()?;
    client.copy(&a, &b)?;
    let lost = ensure_err!(client.sync().and_then(|done| done.wait()), Error::DeviceLost { .. });
    let answers = [
        client.flush().err(),
        client.check(&[&a]).err(),
        client.read_one(&a).err(),
        client.fill(&a, &[0]).err(),
        client.empty(64).err(),
        client.record().err(),
        client.memory_usage().err(),
        on_new_stream(client).sync_buffers(&[&b]).err(),
    ];
    for answer in answers {
        ensure_eq!(answer.as_ref(), Some(&lost));
    }
    // What was asked before is answered as well, with what was done or with the fault.
    ensure!(done.wait().err().is_none_or(|error| error == lost), "a sync before it");
    ensure!(lost.is_device_lost() && !lost.is_refusal() && !lost.is_timeout(), "{lost:?}");
    it.check("lost at a copy", 1)
}

fn a_fault_that_the_driver_meets_is_told_by_sync(cx: &Context) -> Outcome {
    // How many batches it takes to begin is the device's own affair.
    for batches in 1..8 {
        let variant = Variant { delay: Some(Duration::from_secs(3)), ..Variant::lost_after(batches) };
        let client = cx.open(&variant)?;
        let step = client.prepare(kernels::step())?;
        let grid = cover(64)?;
        // Not done for some seconds; until then the driver is given more than it takes.
        let begun = client.create_from_slice(raw(&[1u32; 64])).and_then(|bytes| {
            client.launch(&step, grid, [&bytes])?;
            client.flush()?;
            client.sync()
        });
        let Ok(pending) = begun else { continue };
        for _ in 0..8 {
            let other = on_new_stream(&client);
            other.zeros(64).ok();
            other.flush().ok();
        }
        let lost = ensure_err!(client.record(), Error::DeviceLost { .. });
        ensure_eq!(pending.wait().err(), Some(lost), "a sync of what was under way");
        return Ok(());
    }
    Err(Failure::new("the device was always lost before it had begun"))
}

fn a_fault_met_by_several_threads_at_once_is_one_fault(cx: &Context) -> Outcome {
    let it = failing(cx, Operation::Fill, &[60], FaultKind::Lost)?;
    let answers: Vec<Error> = std::thread::scope(|scope| {
        let thread = || {
            let client = on_new_stream(&it.client);
            loop {
                let answer = client.zeros(64).and_then(|bytes| client.read_one(&bytes));
                if let Err(error) = answer {
                    return error;
                }
            }
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(thread)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(answers.len(), 6);
    for answer in &answers {
        ensure_eq!(answer, &Error::DeviceLost { cause: "on purpose, in fill 60".into() });
    }
    it.check("lost under six threads", 1)
}

fn lost_with_any_operation_every_call_answers_the_same_cause(cx: &Context) -> Outcome {
    let operations = operations(cx)?;
    (1..=operations).try_for_each(|k| lost(cx, k, false))?;
    works(cx)
}

fn devices_lost_or_stuck_again_and_again_leave_no_memory_behind(cx: &Context) -> Outcome {
    let round = |kind| -> Outcome {
        let it = failing(cx, Operation::Fill, &[2], kind)?;
        let large = it.client.create_from_slice(&vec![1; 4 << 20])?;
        ensure_eq!(it.client.read_one(&large)?.len(), 4 << 20);
        it.client.fill(&large, &[1])?;
        it.client.fill(&large, &[2]).ok();
        it.client.read_async(&[&large]).ok();
        it.client.sync_timeout(Duration::from_millis(1)).err();
        it.client.shutdown(Duration::from_millis(200));
        it.check("again", 1)
    };
    for kind in [FaultKind::Lost, FaultKind::Never] {
        // The allocator of the process keeps some of what was freed; it has reached its level then.
        (0..15).try_for_each(|_| round(kind))?;
        super::shutdown::levels_off(40, 32 << 20, || round(kind))?;
    }
    Ok(())
}

// ---- C18

fn what_never_completes_is_waited_for_to_the_deadline_and_hardly_longer(cx: &Context) -> Outcome {
    let operations = operations(cx)?;
    all_stuck(cx, operations)
}

fn many_threads_that_wait_for_what_never_completes_each_end_in_time(cx: &Context) -> Outcome {
    let it = failing(cx, Operation::Fill, &[1], FaultKind::Never)?;
    let held = it.client.zeros(64)?;
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for i in 1..=8u32 {
            let (client, held, tell) = (&it.client, &held, tell.clone());
            scope.spawn(move || {
                let limit = PATIENCE / 8 * i;
                let start = Instant::now();
                let answer = client.read_timeout(&[held], limit).map(drop);
                tell.send((limit, start.elapsed(), answer)).ok();
                // The device goes on for everybody else.
                let own = on_new_stream(client);
                own.create_from_slice(&[1; 64]).and_then(|bytes| own.read_one(&bytes)).map(drop)
            });
        }
    });
    drop(tell);
    let mut count = 0;
    for (limit, took, answer) in told {
        ensure_err!(answer, Error::Timeout { .. });
        ensure!(took >= limit && took < limit + AT_ONCE, "a read of at most {limit:?} took {took:?}");
        count += 1;
    }
    ensure_eq!(count, 8);
    it.check("eight threads", 1)
}
