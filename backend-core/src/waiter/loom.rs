//! Falling asleep, giving and ending in every order: a wake-up that is lost is a deadlock here.
//!
//! How many things were given is counted without any order of its own: what the thread sees of that it sees by the flags of [`Rest`].

use super::*;
use ::loom::sync::Notify;
use ::loom::sync::atomic::AtomicUsize;
use ::loom::thread::{self, JoinHandle};
use alloc::vec::Vec;
use trunnion_runtime_core::sync::explore;

/// So many things, each finished when it is waited for, and what tells that: asleep until then, who waits for it helps no thread that
/// overlooked something.
struct Things {
    given: Arc<AtomicUsize>,
    seen: usize,
    finished: Arc<Vec<Notify>>,
}

impl Watched for Things {
    type Next = usize;

    fn next(&mut self) -> Option<usize> {
        (self.given.load(Ordering::Relaxed) > self.seen).then_some(self.seen)
    }

    fn wait(&mut self, _: &usize) -> Result<bool> {
        Ok(true)
    }

    fn finished(&mut self, next: usize) {
        self.seen = next + 1;
        self.finished[next].notify();
    }
}

/// A thread that waits, and who gives it things.
#[derive(Clone)]
struct Giver {
    rest: Arc<Rest>,
    given: Arc<AtomicUsize>,
    finished: Arc<Vec<Notify>>,
}

impl Giver {
    fn new(things: usize) -> (Self, JoinHandle<()>) {
        let finished = Arc::new((0..things).map(|_| Notify::new()).collect::<Vec<_>>());
        let giver = Self { rest: Arc::default(), given: Arc::new(AtomicUsize::new(0)), finished };
        let things = Things { given: giver.given.clone(), seen: 0, finished: giver.finished.clone() };
        let rest = giver.rest.clone();
        (giver, thread::spawn(move || rest.attend(things, None)))
    }

    fn give(&self) {
        self.given.fetch_add(1, Ordering::Relaxed);
        self.rest.rouse();
    }
}

#[test]
fn what_is_given_while_the_thread_falls_asleep_is_waited_for() {
    explore(3, || {
        let (giver, waiting) = Giver::new(2);
        for finished in giver.finished.iter() {
            giver.give();
            finished.wait();
        }
        giver.rest.end();
        waiting.join().unwrap();
    });
}

#[test]
fn what_two_give_at_once_is_waited_for() {
    explore(2, || {
        let (giver, waiting) = Giver::new(2);
        let theirs = giver.clone();
        let other = thread::spawn(move || theirs.give());
        giver.give();
        giver.finished.iter().for_each(Notify::wait);
        other.join().unwrap();
        giver.rest.end();
        waiting.join().unwrap();
    });
}

#[test]
fn a_thread_that_is_told_to_end_while_it_falls_asleep_ends() {
    explore(5, || {
        let (giver, waiting) = Giver::new(0);
        giver.rest.end();
        waiting.join().unwrap();
    });
}
