//! What is queued, and what the resident is told between two entries.

use super::*;

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
