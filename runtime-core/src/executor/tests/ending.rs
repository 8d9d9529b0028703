//! The end, bounded and repeatable.

use super::*;

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
        assert!(begin.elapsed() < secs(10));
        gate.store(true, Ordering::SeqCst);
        call.join().unwrap()
    });
    assert_eq!(waiting_call, Err(CallError::Closed));
    eventually(|| drops.load(Ordering::SeqCst) == 5);
    assert!(!executor.shutdown(&soon()).ran_all);
}

#[cfg(feature = "std")]
#[test]
fn a_shutdown_counts_a_turn_that_hangs_and_what_is_queued_behind_it() {
    for executor in both() {
        let (there, arrived) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let drops = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            let executor = &executor;
            scope.spawn(move || {
                // Until the lock is to be had.
                while executor.try_run(|_, _| (there.send(()), wait.recv()).1).is_none() {}
            });
            arrived.recv().unwrap();
            for _ in 0..5 {
                let counted = Counted(drops.clone());
                executor.submit(move |_, _| drop(counted)).unwrap();
            }
            let report = executor.shutdown(&Deadline::after(Duration::from_millis(20)));
            assert_eq!(report, ShutdownReport { ran_all: false, abandoned: 6 });
            go.send(()).unwrap();
        });
        eventually(|| drops.load(Ordering::SeqCst) == 5);
        // The turn has run to its end; what was behind it was dropped.
        assert_eq!(executor.shutdown(&soon()), ShutdownReport { ran_all: false, abandoned: 5 });
    }
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
