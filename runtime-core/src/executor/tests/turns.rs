//! What is run on its caller in place of an entry.

use super::*;

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
    // The runner may be about to leave still, for longer than the moments it is waited for.
    eventually(|| executor.try_run(|_, _| 1) == Some(Ok(1)));
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
