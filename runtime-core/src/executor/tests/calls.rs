//! Blocking calls, and the wait under them.

use super::*;

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
            assert!(begin.elapsed() < secs(10));
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
        let left = AtomicBool::new(false);
        thread::scope(|scope| {
            let opener = scope.spawn(|| {
                // Where the machine is slow the caller leaves before its entry begins, which then never does: it is dropped all the same.
                eventually(|| started.load(Ordering::SeqCst) || left.load(Ordering::SeqCst));
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
            left.store(true, Ordering::SeqCst);
            holder.join().unwrap();
            opener.join().unwrap();
        });
        executor.call(|_, _| (), &soon()).unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
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

#[test]
fn a_future_that_wakes_itself_ends_at_its_deadline_too() {
    let mut polls = 0;
    let again = core::future::poll_fn(|context: &mut Context<'_>| {
        polls += 1;
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    assert_eq!(block_on(again, &Deadline::after(Duration::from_millis(5))), None);
    assert!(polls > 1);
}
