//! Issuing a program from several threads at once: each thread has streams of its own, and waits before a step only until the steps that
//! it depends on were issued. What does not depend on each other reaches the device in any order.

use core::time::Duration;
use std::sync::{Condvar, Mutex, PoisonError};
use trunnion_runtime_core::client::Client;
use trunnion_server_layers::program::{KernelTable, Player, Program, ReplayError, Replayed};

/// How far each thread has come, by the number of its steps that were issued; and whether all are to stop.
struct Progress {
    issued: Mutex<(Vec<usize>, bool)>,
    changed: Condvar,
}

impl Progress {
    /// Waits until every thread has issued so many steps; `false` where all are to stop.
    fn wait_for(&self, needed: &[(usize, usize)]) -> bool {
        let mut state = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.1 {
                return false;
            }
            if needed.iter().all(|(thread, count)| state.0[*thread] >= *count) {
                return true;
            }
            // A thread that panicked wakes nobody.
            let (now, _) =
                self.changed.wait_timeout(state, Duration::from_millis(100)).unwrap_or_else(PoisonError::into_inner);
            state = now;
        }
    }

    fn tell(&self, change: impl FnOnce(&mut (Vec<usize>, bool))) {
        change(&mut self.issued.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Stops the others when a thread is left early.
struct StopOthers<'a>(&'a Progress, bool);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.tell(|state| state.1 = true);
        }
    }
}

/// Runs a program on a client's device, its steps issued by `threads` threads.
///
/// # Errors
/// As for [`replay`](trunnion_server_layers::program::replay).
pub fn replay_on_threads(
    program: &Program,
    client: &Client,
    kernels: &KernelTable,
    threads: usize,
) -> Result<Replayed, ReplayError> {
    let threads = threads.max(1);
    let of = |place: usize| program.steps[place].stream as usize % threads;
    let mut mine: Vec<Vec<usize>> = vec![Vec::new(); threads];
    (0..program.steps.len()).for_each(|place| mine[of(place)].push(place));
    // By step: how many steps of each other thread must be issued before it.
    let needed: Vec<Vec<(usize, usize)>> = (0..program.steps.len())
        .map(|later| {
            let mut needed = vec![0; threads];
            for (thread, steps) in mine.iter().enumerate().filter(|(thread, _)| *thread != of(later)) {
                let before = steps.partition_point(|earlier| *earlier < later);
                let last = (0..before).rev().find(|i| program.must_follow(later, steps[*i]));
                needed[thread] = last.map_or(0, |i| i + 1);
            }
            needed.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
        })
        .collect();
    let player = Player::new(program, client, kernels)?;
    let progress = Progress { issued: Mutex::new((vec![0; threads], false)), changed: Condvar::new() };
    let run = |thread: usize| {
        let mut stop = StopOthers(&progress, false);
        for (count, place) in mine[thread].iter().enumerate() {
            if !progress.wait_for(&needed[*place]) {
                break;
            }
            player.issue(*place)?;
            progress.tell(|state| state.0[thread] = count + 1);
        }
        stop.1 = true;
        Ok(())
    };
    let results: Vec<Result<(), ReplayError>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    results.into_iter().collect::<Result<(), _>>()?;
    player.finish()
}
