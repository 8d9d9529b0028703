//! Handles under loom: their counts, the list of dropped ones, and the slots they come from.

use super::*;
use crate::sync::explore;
use ::loom::thread;
use alloc::sync::Arc;
use alloc::vec::Vec;

fn server() -> Handles {
    Handles::new(ServiceId::new()).unwrap()
}

#[test]
fn what_each_holder_did_before_its_drop_has_happened_when_the_memory_is_freed() {
    explore(6, || {
        let handles = server();
        let (mine, done) = (handles.create(16).unwrap(), [0; 2].map(|_| Arc::new(AtomicUsize::new(0))));
        let (theirs, memory, did) = (mine.clone(), mine.memory(), done[1].clone());
        let other = thread::spawn(move || {
            did.store(1, Ordering::Relaxed);
            drop(theirs);
        });
        done[0].store(1, Ordering::Relaxed);
        drop(mine);
        let mut freed = 0;
        let mut free = || {
            handles.free_dropped(|dropped| {
                assert_eq!(dropped, memory);
                assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1), "freed while it was used");
                freed += 1;
            });
        };
        // Once before the join, which orders everything, and once after it.
        free();
        other.join().unwrap();
        free();
        assert_eq!(freed, 1);
    });
}

#[test]
fn who_finds_itself_the_only_holder_sees_what_the_others_did() {
    explore(6, || {
        let handles = server();
        let (mine, done) = (handles.create(16).unwrap(), Arc::new(AtomicUsize::new(0)));
        let (theirs, did) = (mine.clone(), done.clone());
        let other = thread::spawn(move || {
            did.store(1, Ordering::Relaxed);
            drop(theirs);
        });
        assert!(!mine.can_mut() || done.load(Ordering::Relaxed) == 1);
        other.join().unwrap();
        assert!(mine.can_mut());
    });
}

#[test]
fn drops_at_once_are_each_freed_once_while_the_server_looks() {
    explore(5, || {
        let handles = server();
        let (mine, theirs) = (handles.create(1).unwrap(), handles.create(2).unwrap());
        let all = [mine.memory(), theirs.memory()];
        let other = thread::spawn(move || drop(theirs));
        drop(mine);
        let mut freed = Vec::new();
        handles.free_dropped(|memory| freed.push(memory));
        other.join().unwrap();
        handles.free_dropped(|memory| freed.push(memory));
        assert_eq!(freed.len(), 2);
        assert!(all.iter().all(|memory| freed.contains(memory)));
    });
}

#[test]
fn no_slot_has_two_tenants_while_threads_take_and_give() {
    explore(4, || {
        let handles = Arc::new(server());
        let theirs = handles.clone();
        let other = thread::spawn(move || {
            let (first, second) = (theirs.create(1).unwrap(), theirs.create(2).unwrap());
            drop(first);
            theirs.free_dropped(|_| ());
            second
        });
        let mine = [handles.create(3).unwrap(), handles.create(4).unwrap()];
        let other = other.join().unwrap();
        let indices = [mine[0].memory().index, mine[1].memory().index, other.memory().index];
        assert!(indices[0] != indices[1] && indices[1] != indices[2] && indices[0] != indices[2], "{indices:?}");
    });
}

#[test]
fn a_handle_dropped_while_its_server_ends_frees_nothing_of_the_next() {
    explore(5, || {
        let first = server();
        let old = first.create(16).unwrap();
        let other = thread::spawn(move || drop(old));
        drop(first);
        let second = server();
        let live = second.create(16).unwrap();
        let memory = live.memory();
        second.free_dropped(|memory| panic!("{memory} is not the next one's to free"));
        other.join().unwrap();
        second.free_dropped(|memory| panic!("{memory} is not the next one's to free"));
        drop(live);
        let mut freed = Vec::new();
        second.free_dropped(|memory| freed.push(memory));
        assert_eq!(freed, [memory]);
    });
}

#[test]
fn an_account_is_given_out_again_when_nothing_is_counted_in_it_any_more() {
    explore(4, || {
        let (handles, account) = (Arc::new(server()), Account::new(10).unwrap());
        let (theirs, shared) = (handles.clone(), account.clone());
        let other = thread::spawn(move || {
            let held = theirs.create_within(6, &shared);
            // What is held outlives the client that was counted.
            drop(shared);
            held.is_ok()
        });
        let mine = handles.create_within(6, &account);
        assert!(account.live() <= 10, "both are over the limit");
        drop((account, mine));
        let next = Account::new(1).unwrap();
        assert_eq!((next.limit(), next.live()), (1, 0));
        other.join().unwrap();
        assert_eq!(next.live(), 0, "what was counted before is taken off the next one's");
    });
}
