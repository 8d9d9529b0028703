//! Promises, and threads that wait for them, under loom: a lost wake-up is a deadlock here.

use super::*;
use crate::platform::{Deadline, block_on};
use crate::sync::explore;
use crate::sync::explored::{AtomicUsize, Ordering};
use ::loom::thread;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::time::Duration;

fn fulfil(promise: &Promise<u32>, value: u32) {
    let mut wakers = Wakers::new();
    promise.fulfil(Ok(value), &mut wakers);
    wakers.into_iter().for_each(Waker::wake);
}

fn wait(promise: &Promise<u32>, deadline: &Deadline) -> Option<Result<u32>> {
    block_on(poll_fn(|context| promise.poll(context.waker())), deadline)
}

#[test]
fn who_waits_while_a_promise_is_fulfilled_is_woken() {
    explore(7, || {
        let promise = Promise::new();
        let theirs = promise.clone();
        let other = thread::spawn(move || fulfil(&theirs, 7));
        assert!(matches!(wait(&promise, &Deadline::never()), Some(Ok(7))));
        other.join().unwrap();
    });
}

#[test]
fn all_who_wait_are_woken_and_the_first_result_counts() {
    explore(3, || {
        let promise = Promise::new();
        let threads: Vec<_> = (1..=2)
            .map(|value| {
                let theirs = promise.clone();
                thread::spawn(move || {
                    if value == 1 {
                        fulfil(&theirs, value);
                    }
                    wait(&theirs, &Deadline::never()).unwrap().unwrap()
                })
            })
            .collect();
        let mine = wait(&promise, &Deadline::never()).unwrap().unwrap();
        fulfil(&promise, 3);
        assert_eq!(mine, 1);
        threads.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), 1));
    });
}

#[test]
fn a_wait_that_gave_up_neither_loses_the_result_nor_disturbs_the_next() {
    explore(6, || {
        let promise = Promise::new();
        let theirs = promise.clone();
        let other = thread::spawn(move || fulfil(&theirs, 7));
        // Passed already: gives up where it would sleep.
        assert!(matches!(wait(&promise, &Deadline::after(Duration::ZERO)), None | Some(Ok(7))));
        assert!(matches!(wait(&promise, &Deadline::never()), Some(Ok(7))));
        other.join().unwrap();
    });
}

#[test]
fn a_wait_inside_a_wait_gives_back_the_wake_up_it_took() {
    explore(6, || {
        let (outer, inner) = (Promise::new(), Promise::new());
        let theirs = (outer.clone(), inner.clone());
        let other = thread::spawn(move || {
            fulfil(&theirs.0, 1);
            fulfil(&theirs.1, 2);
        });
        let answer = block_on(
            poll_fn(|context| {
                let answer = outer.poll(context.waker());
                if answer.is_pending() {
                    assert!(matches!(wait(&inner, &Deadline::never()), Some(Ok(2))));
                }
                answer
            }),
            &Deadline::never(),
        );
        assert!(matches!(answer, Some(Ok(1))));
        other.join().unwrap();
    });
}

#[test]
fn who_sleeps_sees_what_each_of_two_wakers_wrote() {
    explore(3, || {
        let written = [0; 2].map(|_| Arc::new(AtomicUsize::new(0)));
        let mut threads = Vec::new();
        let all = block_on(
            poll_fn(|context| {
                if threads.is_empty() {
                    threads.extend(written.clone().map(|written| {
                        let waker = context.waker().clone();
                        thread::spawn(move || {
                            written.store(1, Ordering::Relaxed);
                            waker.wake();
                        })
                    }));
                }
                let sum: usize = written.iter().map(|written| written.load(Ordering::Relaxed)).sum();
                if sum == 2 { Poll::Ready(()) } else { Poll::Pending }
            }),
            &Deadline::never(),
        );
        assert_eq!(all, Some(()));
        threads.into_iter().for_each(|other| other.join().unwrap());
    });
}
