//! The device to oneself.

use super::*;

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
