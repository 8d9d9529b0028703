//! What the executor promises, on real threads.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
#[cfg(feature = "std")]
use core::sync::atomic::AtomicU32;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
#[cfg(feature = "std")]
use std::sync::mpsc;
#[cfg(feature = "std")]
use std::thread;
#[cfg(feature = "std")]
use std::time::Instant;

use super::*;
use crate::platform::{Deadline, block_on};

#[derive(Default)]
struct Log {
    tickets: Vec<u64>,
    panics: Vec<(u64, String)>,
    progress: Arc<AtomicUsize>,
    entered: usize,
    closed: Arc<AtomicUsize>,
    wakers: Wakers,
    fail_progress: bool,
}

impl Resident for Log {
    fn enter(&mut self) {
        self.entered += 1;
    }
    fn progress(&mut self) {
        self.progress.fetch_add(1, Ordering::SeqCst);
        assert!(!self.fail_progress, "no progress");
    }
    fn leave(&mut self) -> Wakers {
        core::mem::take(&mut self.wakers)
    }
    fn panicked(&mut self, ticket: u64, message: &str) {
        self.panics.push((ticket, message.to_string()));
    }
    fn closing(&mut self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn config(execution: Execution) -> Config {
    Config { execution, ring_bytes: 4096, full_timeout: secs(5), ..Config::default() }
}

fn inline() -> Executor<Log> {
    Executor::new(Log::default(), config(Execution::Inline)).unwrap()
}

#[cfg(feature = "std")]
fn runner() -> Executor<Log> {
    Executor::new(Log::default(), config(Execution::Runner)).unwrap()
}

/// The executors there are: one with a runner where there are threads.
fn both() -> Vec<Executor<Log>> {
    alloc::vec![
        inline(),
        #[cfg(feature = "std")]
        runner(),
    ]
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn soon() -> Deadline {
    Deadline::after(secs(5))
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(feature = "std")]
fn eventually(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < secs(5), "never came true");
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn entries_run_in_the_order_of_their_tickets_and_get_them() {
    for executor in both() {
        let mut given = Vec::new();
        for _ in 0..500 {
            given.push(executor.submit(|log, ticket| log.tickets.push(ticket)).unwrap());
        }
        let seen = executor.call(|log, _| log.tickets.clone(), &soon()).unwrap();
        assert_eq!(seen, given);
        assert!(given[0] != 0 && given.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn entries_of_every_size_and_alignment_arrive_intact() {
    #[repr(align(128))]
    struct Aligned([u8; 128]);
    fn one<const N: usize>(executor: &Executor<Log>, byte: u8) {
        let data = [byte; N];
        executor
            .submit(move |log, ticket| {
                assert!(data.iter().all(|found| *found == byte));
                log.tickets.push(ticket);
            })
            .unwrap();
    }
    for executor in both() {
        for round in 0..40 {
            one::<0>(&executor, round);
            one::<1>(&executor, round);
            one::<55>(&executor, round);
            one::<56>(&executor, round);
            one::<57>(&executor, round);
            one::<200>(&executor, round);
            one::<1016>(&executor, round);
            one::<1017>(&executor, round);
            one::<70_000>(&executor, round);
            let aligned = Aligned([round; 128]);
            executor
                .submit(move |log, ticket| {
                    assert_eq!((&raw const aligned).addr() % 128, 0);
                    assert_eq!(aligned.0[127], round);
                    log.tickets.push(ticket);
                })
                .unwrap();
        }
        let (count, panics) = executor.call(|log, _| (log.tickets.len(), log.panics.clone()), &soon()).unwrap();
        assert_eq!((count, panics), (400, Vec::new()));
    }
}

#[test]
fn a_call_returns_what_the_entry_returned_however_large() {
    for executor in both() {
        assert_eq!(executor.call(|_, _| 7, &soon()), Ok(7));
        assert_eq!(executor.call(|_, _| [3u8; 5000], &soon()).unwrap()[4999], 3);
        assert_eq!(executor.call(|_, _| Box::new(5), &soon()), Ok(Box::new(5)));
    }
}

#[test]
fn a_call_from_inside_an_entry_is_refused_and_a_submit_works() {
    for executor in both() {
        let executor = Arc::new(executor);
        let inner = executor.clone();
        let (call, reserve) = executor
            .call(
                move |_, _| {
                    inner.submit(|log, ticket| log.tickets.push(ticket)).unwrap();
                    (inner.call(|_, _| (), &soon()), inner.reserve(&soon()).is_err())
                },
                &soon(),
            )
            .unwrap();
        assert_eq!((call, reserve), (Err(CallError::Reentrant), true));
        assert_eq!(executor.call(|log, _| log.tickets.len(), &soon()), Ok(1));
    }
}

#[test]
fn a_submit_from_inside_an_entry_into_a_full_ring_is_busy_not_stuck() {
    for executor in both() {
        let executor = Arc::new(executor);
        let inner = executor.clone();
        let taken = executor
            .call(
                move |_, _| {
                    let mut taken = 0;
                    while inner.submit(|log, ticket| log.tickets.push(ticket)).is_ok() {
                        taken += 1;
                    }
                    assert_eq!(inner.try_submit(|_, _| ()), Err(SubmitError::Busy));
                    taken
                },
                &soon(),
            )
            .unwrap();
        assert!(taken > 32 && taken < 64, "{taken} of 64 units");
        assert_eq!(executor.call(|log, _| log.tickets.len(), &soon()), Ok(taken));
    }
}

#[test]
fn try_submit_inline_leaves_the_entry_to_the_next_drain() {
    let executor = inline();
    let ran = Arc::new(AtomicUsize::new(0));
    let seen = ran.clone();
    executor.try_submit(move |_, _| _ = seen.fetch_add(1, Ordering::SeqCst)).unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    executor.drain();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    while executor.try_submit(|_, _| ()).is_ok() {}
    assert_eq!(executor.try_submit(|_, _| ()), Err(SubmitError::Busy));
    // A submit makes room by running what is there.
    executor.submit(|_, _| ()).unwrap();
}

#[test]
fn notifications_reach_the_resident_and_coalesce() {
    let executor = inline();
    let progress = executor.call(|log, _| log.progress.clone(), &soon()).unwrap();
    let notifier = executor.notifier();
    notifier.notify();
    notifier.clone().notify();
    executor.notify();
    assert_eq!(progress.load(Ordering::SeqCst), 0);
    executor.drain();
    assert_eq!(progress.load(Ordering::SeqCst), 1);
    drop(executor);
    notifier.notify();
    assert_eq!(progress.load(Ordering::SeqCst), 1);
}

#[cfg(feature = "std")]
#[test]
fn a_notification_wakes_a_sleeping_runner() {
    let executor = runner();
    let progress = executor.call(|log, _| log.progress.clone(), &soon()).unwrap();
    let notifier = executor.notifier();
    for round in 1..20 {
        thread::sleep(Duration::from_micros(300));
        thread::scope(|scope| _ = scope.spawn(|| notifier.notify()));
        eventually(|| progress.load(Ordering::SeqCst) >= round);
    }
}

#[test]
fn wakers_are_woken_after_the_lock_is_released() {
    struct Probe(Arc<Executor<Log>>, AtomicBool);
    impl alloc::task::Wake for Probe {
        fn wake(self: Arc<Self>) {
            // From inside an entry this would be `Reentrant`.
            self.1.store(self.0.call(|_, _| 1, &soon()) == Ok(1), Ordering::SeqCst);
        }
    }
    for executor in both() {
        let executor = Arc::new(executor);
        let probe = Arc::new(Probe(executor.clone(), AtomicBool::new(false)));
        let waker = Waker::from(probe.clone());
        executor.call(move |log, _| log.wakers.push(waker), &soon()).unwrap();
        #[cfg(feature = "std")]
        eventually(|| probe.1.load(Ordering::SeqCst));
        assert!(probe.1.load(Ordering::SeqCst));
    }
}

#[test]
fn enter_is_told_only_when_the_thread_changes() {
    let executor = inline();
    for _ in 0..5 {
        executor.submit(|_, _| ()).unwrap();
    }
    assert_eq!(executor.call(|log, _| log.entered, &soon()), Ok(1));
    #[cfg(feature = "std")]
    {
        thread::scope(|scope| _ = scope.spawn(|| executor.submit(|_, _| ()).unwrap()));
        assert_eq!(executor.call(|log, _| log.entered, &soon()), Ok(3));
    }
}

#[cfg(feature = "std")]
#[test]
fn a_panicking_entry_is_reported_drops_its_captures_once_and_the_executor_goes_on() {
    for executor in both() {
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Counted(drops.clone());
        let ticket = executor
            .submit(move |_, _| {
                let _kept = &counted;
                panic!("entry {}", 1);
            })
            .unwrap();
        let counted = Counted(drops.clone());
        let call = executor.call(
            move |_, _| {
                let _kept = &counted;
                panic!("call");
            },
            &soon(),
        );
        assert_eq!(call, Err::<(), _>(CallError::Panicked { message: "call".to_string() }));
        let panics = executor.call(|log, _| log.panics.clone(), &soon()).unwrap();
        assert_eq!(panics.len(), 2);
        assert_eq!(panics[0], (ticket, "entry 1".to_string()));
        assert_eq!(panics[1].1, "call");
        assert!(panics[1].0 > ticket);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }
}

#[cfg(feature = "std")]
#[test]
fn a_panicking_method_of_the_resident_is_reported_with_ticket_zero() {
    for executor in both() {
        executor.call(|log, _| log.fail_progress = true, &soon()).unwrap();
        executor.notify();
        executor.drain();
        eventually(|| executor.call(|log, _| log.panics.len(), &soon()) == Ok(1));
        assert_eq!(
            executor.call(|log, _| log.panics.clone(), &soon()).unwrap(),
            alloc::vec![(0, "no progress".to_string())]
        );
    }
}

#[cfg(feature = "std")]
#[test]
fn a_call_that_times_out_before_it_began_never_runs_and_drops_its_captures() {
    for executor in both() {
        let gate = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicBool::new(false));
        let (opens, says) = (gate.clone(), started.clone());
        thread::scope(|scope| {
            scope.spawn(|| {
                executor
                    .submit(move |_, _| {
                        says.store(true, Ordering::SeqCst);
                        while !opens.load(Ordering::SeqCst) {
                            thread::yield_now();
                        }
                    })
                    .unwrap()
            });
            eventually(|| started.load(Ordering::SeqCst));
            let drops = Arc::new(AtomicUsize::new(0));
            let counted = Counted(drops.clone());
            let begin = Instant::now();
            let late = executor.call(
                move |log, ticket| {
                    log.tickets.push(ticket);
                    drop(counted);
                },
                &Deadline::after(Duration::from_millis(20)),
            );
            assert!(matches!(late, Err(CallError::Timeout { waited }) if waited >= Duration::from_millis(20)));
            assert!(begin.elapsed() < secs(2));
            gate.store(true, Ordering::SeqCst);
            assert_eq!(executor.call(|log, _| log.tickets.len(), &soon()), Ok(0));
            assert_eq!(drops.load(Ordering::SeqCst), 1);
        });
    }
}

#[cfg(feature = "std")]
#[test]
fn an_answer_nobody_waits_for_is_dropped() {
    for executor in both() {
        let drops = Arc::new(AtomicUsize::new(0));
        let (gate, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (opens, says, counted) = (gate.clone(), started.clone(), Counted(drops.clone()));
        thread::scope(|scope| {
            let opener = scope.spawn(|| {
                eventually(|| started.load(Ordering::SeqCst));
                thread::sleep(Duration::from_millis(30));
                gate.store(true, Ordering::SeqCst);
            });
            // Held by another thread, so that the caller does not run its own entry and can leave.
            let occupied = Arc::new(AtomicBool::new(false));
            let occupies = occupied.clone();
            let holder = scope.spawn({
                let executor = &executor;
                move || {
                    executor
                        .submit(move |_, _| {
                            occupies.store(true, Ordering::SeqCst);
                            thread::sleep(Duration::from_millis(10));
                        })
                        .unwrap()
                }
            });
            eventually(|| occupied.load(Ordering::SeqCst));
            let late = executor.call(
                move |_, _| {
                    says.store(true, Ordering::SeqCst);
                    while !opens.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    counted
                },
                &Deadline::after(Duration::from_millis(20)),
            );
            // Inline the caller may have run it itself, and then has its answer.
            drop(late);
            holder.join().unwrap();
            opener.join().unwrap();
        });
        executor.call(|_, _| (), &soon()).unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

#[cfg(feature = "std")]
#[test]
fn what_is_tried_runs_on_its_caller_after_what_was_queued_and_takes_a_ticket() {
    for executor in both() {
        let me = thread::current().id();
        let mut last = 0;
        for round in 0..200 {
            let queued = executor.submit(|log, ticket| log.tickets.push(ticket)).unwrap();
            // What it borrows is its caller's.
            let (mut ran_on, mut seen) = (None, 0);
            let tried = executor.try_run(|log, ticket| {
                ran_on = Some(thread::current().id());
                seen = log.tickets.len();
                log.tickets.push(ticket);
                ticket
            });
            let Some(ticket) = tried else { continue };
            let ticket = ticket.unwrap();
            assert!(ticket > queued && queued > last, "{last} {queued} {ticket}");
            assert_eq!(ran_on, Some(me));
            assert!(seen > 0, "round {round}: what was queued before had not run");
            last = ticket;
        }
        assert!(last > 0, "it was never to be had");
        let tickets = executor.call(|log, _| log.tickets.clone(), &soon()).unwrap();
        assert!(tickets.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn what_is_tried_sees_to_a_notification_first() {
    let executor = inline();
    let progress = executor.call(|log, _| log.progress.clone(), &soon()).unwrap();
    executor.notify();
    assert_eq!(executor.try_run(|log, _| log.progress.load(Ordering::SeqCst)), Some(Ok(1)));
    assert_eq!(progress.load(Ordering::SeqCst), 1);
}

#[cfg(feature = "std")]
#[test]
fn what_is_tried_is_not_run_while_somebody_has_the_device_or_after_the_end() {
    let executor = Arc::new(runner());
    let (go, wait) = mpsc::channel::<()>();
    let (there, arrived) = mpsc::channel();
    executor
        .submit(move |_, _| {
            there.send(()).unwrap();
            wait.recv().unwrap();
        })
        .unwrap();
    arrived.recv().unwrap();
    assert_eq!(executor.try_run(|_, _| ()), None);
    go.send(()).unwrap();
    executor.call(|_, _| (), &soon()).unwrap();
    let reserved = executor.reserve(&soon()).unwrap();
    assert_eq!(executor.try_run(|_, _| 1), Some(Ok(1)), "the owner passes");
    let other = executor.clone();
    assert_eq!(thread::spawn(move || other.try_run(|_, _| 1)).join().unwrap(), None);
    drop(reserved);
    let inside = executor.clone();
    assert_eq!(executor.call(move |_, _| inside.try_run(|_, _| 1), &soon()), Ok(None), "from inside it is queued");
    executor.shutdown(&soon());
    assert_eq!(executor.try_run(|_, _| ()), None);
}

#[cfg(feature = "std")]
#[test]
fn a_panic_in_what_is_tried_is_answered_and_reported_and_the_executor_goes_on() {
    for executor in both() {
        executor.call(|_, _| (), &soon()).unwrap();
        let answer = loop {
            if let Some(answer) = executor.try_run(|_, _| -> u8 { panic!("on purpose") }) {
                break answer;
            }
        };
        assert_eq!(answer, Err(CallError::Panicked { message: "on purpose".into() }));
        assert_eq!(executor.call(|log, _| log.panics.len(), &soon()), Ok(1));
    }
}

#[cfg(feature = "std")]
#[test]
fn entries_queued_while_something_is_tried_again_and_again_are_run() {
    let executor = Arc::new(runner());
    let stop = Arc::new(AtomicUsize::new(0));
    let (theirs, stopped) = (executor.clone(), stop.clone());
    let trying = thread::spawn(move || {
        let mut ran = 0u64;
        while stopped.load(Ordering::Relaxed) == 0 {
            ran += u64::from(theirs.try_run(|_, _| ()).is_some());
        }
        ran
    });
    for round in 0..300 {
        let before = Arc::new(AtomicUsize::new(0));
        let ran = before.clone();
        executor.submit(move |_, _| _ = ran.fetch_add(1, Ordering::Release)).unwrap();
        if round % 50 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        eventually(|| before.load(Ordering::Acquire) == 1);
    }
    stop.store(1, Ordering::Relaxed);
    assert!(trying.join().unwrap() > 0);
}

#[test]
fn a_reservation_nests_and_lets_its_owner_pass() {
    for executor in both() {
        let outer = executor.reserve(&Deadline::after(Duration::ZERO)).unwrap();
        let inner = executor.reserve(&Deadline::after(Duration::ZERO)).unwrap();
        assert!(!executor.is_reserved_by_other());
        executor.submit(|log, ticket| log.tickets.push(ticket)).unwrap();
        drop(outer);
        assert_eq!(executor.call(|log, _| log.tickets.len(), &soon()), Ok(1));
        drop(inner);
        executor.submit(|_, _| ()).unwrap();
    }
}

#[cfg(feature = "std")]
#[test]
fn others_wait_for_the_end_of_a_reservation_or_are_busy_at_their_deadline() {
    for executor in both() {
        let reservation = executor.reserve(&soon()).unwrap();
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    assert!(executor.is_reserved_by_other());
                    let short = Deadline::after(Duration::from_millis(10));
                    assert_eq!(executor.call(|_, _| (), &short), Err(CallError::Busy));
                    assert_eq!(executor.reserve(&Deadline::after(Duration::from_millis(10))).err(), Some(Busy));
                    assert_eq!(executor.try_submit(|_, _| ()), Err(SubmitError::Busy));
                })
                .join()
                .unwrap();
            let waiting = scope.spawn(|| {
                executor.submit(|log, ticket| log.tickets.push(ticket)).unwrap();
                Instant::now()
            });
            thread::sleep(Duration::from_millis(30));
            assert_eq!(executor.call(|log, _| log.tickets.len(), &soon()), Ok(0));
            let end = Instant::now();
            drop(reservation);
            assert!(waiting.join().unwrap() >= end);
        });
        assert_eq!(executor.call(|log, _| log.tickets.len(), &soon()), Ok(1));
    }
}

#[cfg(feature = "std")]
#[test]
fn no_straggler_lands_inside_a_reservation() {
    for executor in both() {
        let stop = AtomicBool::new(false);
        let inside = Arc::new(AtomicBool::new(false));
        let strays = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let (inside, strays) = (inside.clone(), strays.clone());
                        executor
                            .submit(move |_, _| {
                                strays.fetch_add(usize::from(inside.load(Ordering::SeqCst)), Ordering::SeqCst);
                            })
                            .unwrap();
                    }
                });
            }
            let begin = Instant::now();
            let mut reservations = 0;
            while reservations < 200 && begin.elapsed() < secs(1) {
                let reservation = executor.reserve(&soon()).unwrap();
                inside.store(true, Ordering::SeqCst);
                for _ in 0..20 {
                    executor.call(|log, ticket| log.tickets.push(ticket), &soon()).unwrap();
                }
                inside.store(false, Ordering::SeqCst);
                drop(reservation);
                reservations += 1;
            }
            stop.store(true, Ordering::Relaxed);
            assert!(reservations > 0);
        });
        assert_eq!(strays.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_shutdown_runs_what_is_queued_refuses_the_rest_and_can_be_repeated() {
    for executor in both() {
        let ran = Arc::new(AtomicUsize::new(0));
        let closed = executor.call(|log, _| log.closed.clone(), &soon()).unwrap();
        for _ in 0..20 {
            let ran = ran.clone();
            executor.try_submit(move |_, _| _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        for _ in 0..3 {
            let report = executor.shutdown(&soon());
            assert_eq!(report, ShutdownReport { ran_all: true, abandoned: 0 });
        }
        assert_eq!(ran.load(Ordering::SeqCst), 20);
        assert_eq!(closed.load(Ordering::SeqCst), 1);
        assert_eq!(executor.submit(|_, _| ()), Err(SubmitError::Closed));
        assert_eq!(executor.try_submit(|_, _| ()), Err(SubmitError::Closed));
        assert_eq!(executor.call(|_, _| (), &soon()), Err(CallError::Closed));
        assert_eq!(executor.reserve(&soon()).err(), Some(Busy));
        executor.notify();
        executor.drain();
    }
}

#[test]
fn entries_left_at_the_deadline_are_counted_and_dropped() {
    let executor = inline();
    let drops = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let counted = Counted(drops.clone());
        executor
            .try_submit(move |log, ticket| {
                let _kept = &counted;
                log.tickets.push(ticket);
            })
            .unwrap();
    }
    // The deadline has passed before the first entry: with the bell ringing they are dropped.
    executor.shared().bell.ring(bell::ABANDON);
    let report = executor.shutdown(&Deadline::after(Duration::ZERO));
    assert_eq!(report, ShutdownReport { ran_all: false, abandoned: 10 });
    assert_eq!(drops.load(Ordering::SeqCst), 10);
}

#[cfg(feature = "std")]
#[test]
fn a_shutdown_does_not_wait_for_an_entry_that_hangs() {
    let executor = runner();
    let (gate, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (opens, says) = (gate.clone(), started.clone());
    executor
        .submit(move |_, _| {
            says.store(true, Ordering::SeqCst);
            while !opens.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        })
        .unwrap();
    eventually(|| started.load(Ordering::SeqCst));
    let drops = Arc::new(AtomicUsize::new(0));
    for _ in 0..5 {
        let counted = Counted(drops.clone());
        executor.submit(move |_, _| drop(counted)).unwrap();
    }
    let waiting_call = thread::scope(|scope| {
        let call = scope.spawn(|| executor.call(|_, _| (), &soon()));
        eventually(|| executor.shared().ring.count() == 7);
        let begin = Instant::now();
        let report = executor.shutdown(&Deadline::after(Duration::from_millis(30)));
        assert_eq!(report, ShutdownReport { ran_all: false, abandoned: 7 });
        assert!(begin.elapsed() < secs(2));
        gate.store(true, Ordering::SeqCst);
        call.join().unwrap()
    });
    assert_eq!(waiting_call, Err(CallError::Closed));
    eventually(|| drops.load(Ordering::SeqCst) == 5);
    assert!(!executor.shutdown(&soon()).ran_all);
}

#[cfg(feature = "std")]
#[test]
fn a_shutdown_from_several_threads_and_from_inside_an_entry_ends_everywhere() {
    for _ in 0..30 {
        for executor in both() {
            let executor = Arc::new(executor);
            let inner = executor.clone();
            executor.submit(move |_, _| _ = inner.shutdown(&soon())).unwrap();
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let _ = executor.submit(|_, _| ());
                        assert!(executor.shutdown(&soon()).ran_all);
                    });
                }
            });
        }
    }
}

#[cfg(feature = "std")]
#[test]
fn the_last_handle_may_be_dropped_on_the_runner_itself() {
    struct Owner(#[allow(dead_code)] Arc<AtomicUsize>);
    impl Resident for Owner {}
    let alive = Arc::new(AtomicUsize::new(0));
    let executor = Arc::new(Executor::new(Owner(alive.clone()), config(Execution::Runner)).unwrap());
    let gate = Arc::new(AtomicBool::new(false));
    let (inner, opens) = (executor.clone(), gate.clone());
    executor
        .submit(move |_, _| {
            while !opens.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            drop(inner);
        })
        .unwrap();
    drop(executor);
    gate.store(true, Ordering::SeqCst);
    eventually(|| Arc::strong_count(&alive) == 1);
}

#[cfg(feature = "std")]
#[test]
fn many_threads_submit_call_reserve_and_notify_and_nothing_is_lost() {
    for executor in both() {
        let submitted = AtomicU32::new(0);
        let begin = Instant::now();
        thread::scope(|scope| {
            for seed in 0..4u32 {
                let (executor, submitted) = (&executor, &submitted);
                scope.spawn(move || {
                    let mut random = seed.wrapping_mul(0x9E37_79B9) | 1;
                    let mut mine = 0;
                    while begin.elapsed() < Duration::from_millis(400) {
                        random ^= random << 13;
                        random ^= random >> 17;
                        random ^= random << 5;
                        match random % 64 {
                            0 => executor.notify(),
                            1 => drop(executor.reserve(&soon()).unwrap()),
                            2 => _ = executor.call(|_, _| (), &Deadline::after(Duration::ZERO)),
                            3..9 => executor.call(|_, _| (), &soon()).unwrap(),
                            9 => thread::sleep(Duration::from_micros(u64::from(random % 200))),
                            10..20 => {
                                let big = [random; 150];
                                executor.submit(move |log, _| log.entered += big[100] as usize & 1).unwrap();
                            }
                            _ => {
                                executor.submit(|log, ticket| log.tickets.push(ticket)).unwrap();
                                mine += 1;
                            }
                        }
                    }
                    submitted.fetch_add(mine, Ordering::SeqCst);
                });
            }
        });
        let tickets = executor.call(|log, _| core::mem::take(&mut log.tickets), &soon()).unwrap();
        assert_eq!(tickets.len(), submitted.load(Ordering::SeqCst) as usize);
        assert!(tickets.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(executor.shutdown(&soon()).ran_all);
    }
}

#[cfg(target_os = "linux")]
#[cfg(feature = "std")]
#[test]
fn an_idle_runner_makes_no_context_switches() {
    fn switches(name: &str) -> Option<u64> {
        for task in std::fs::read_dir("/proc/self/task").ok()? {
            let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            if status.starts_with(&alloc::format!("Name:\t{name}\n")) {
                let count = |line: &str| line.split_whitespace().last().and_then(|n| n.parse::<u64>().ok());
                return Some(status.lines().filter(|line| line.contains("ctxt_switches")).filter_map(count).sum());
            }
        }
        None
    }
    let config = Config { name: "idle-runner".to_string(), ..config(Execution::Runner) };
    let executor = Executor::new(Log::default(), config).unwrap();
    executor.submit(|_, _| ()).unwrap();
    thread::sleep(Duration::from_millis(100));
    let Some(before) = switches("idle-runner") else {
        return; // A kernel that does not count them.
    };
    thread::sleep(Duration::from_millis(500));
    assert_eq!(switches("idle-runner"), Some(before));
}

#[test]
fn a_configuration_the_host_cannot_serve_is_refused_by_name() {
    let asked = Config::MAX_RING_BYTES + 1;
    let refused = Executor::new(Log::default(), Config { ring_bytes: asked, ..config(Execution::Inline) }).err();
    assert_eq!(refused, Some(StartError::RingTooLarge { asked, limit: Config::MAX_RING_BYTES }));
    #[cfg(not(feature = "std"))]
    {
        let refused = Executor::new(Log::default(), config(Execution::Runner)).err();
        assert_eq!(refused, Some(StartError::NoThreads));
    }
}

#[test]
fn a_future_that_is_never_ready_ends_at_its_deadline() {
    let never = core::future::poll_fn(|_: &mut Context<'_>| Poll::<()>::Pending);
    assert_eq!(block_on(never, &Deadline::after(Duration::from_millis(5))), None);
    assert_eq!(block_on(core::future::ready(3), &Deadline::after(Duration::ZERO)), Some(3));
    assert_eq!(Deadline::never().remaining(), None);
    assert!(!Deadline::never().expired());
}

#[cfg(feature = "std")]
#[test]
fn a_wait_inside_a_wait_loses_nobodys_wake() {
    let flag = Arc::new(AtomicBool::new(false));
    let mut first = true;
    let outer = core::future::poll_fn(|context: &mut Context<'_>| {
        if core::mem::take(&mut first) {
            let (waker, sets) = (context.waker().clone(), flag.clone());
            thread::spawn(move || {
                sets.store(true, Ordering::SeqCst);
                waker.wake();
            })
            .join()
            .unwrap();
            // Takes the wake-up meant for the outer wait.
            let never = core::future::poll_fn(|_: &mut Context<'_>| Poll::<()>::Pending);
            assert_eq!(block_on(never, &Deadline::after(Duration::from_millis(5))), None);
            return Poll::Pending;
        }
        if flag.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    });
    assert_eq!(block_on(outer, &soon()), Some(()));
}
