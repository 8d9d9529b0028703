//! Making a program that fails small: steps are taken out while it still fails.

use core::time::Duration;
use std::time::Instant;
use trunnion_server_layers::program::Program;

/// How much may be spent on it.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How many programs are tried.
    pub attempts: usize,
    /// For how long. A program that is being tried is run to its end.
    pub time: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { attempts: 2000, time: Duration::from_secs(20) }
    }
}

/// The smallest program found that still fails: none of its steps can be taken out, unless the budget ended before that was known.
pub fn shrink(program: &Program, budget: Budget, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let (start, mut attempts) = (Instant::now(), 0);
    let mut smallest = program.clone();
    let mut chunk = smallest.steps.len().div_ceil(2).max(1);
    loop {
        let (mut at, before) = (0, smallest.steps.len());
        while at < smallest.steps.len() {
            if attempts == budget.attempts || start.elapsed() >= budget.time {
                return smallest;
            }
            attempts += 1;
            let without = smallest.retain(|place| !(at..at + chunk).contains(&place));
            if fails(&without) {
                // What stands there now was behind it.
                smallest = without;
            } else {
                at += chunk;
            }
        }
        // Whole rounds of single steps until one takes none out: what was needed may be so no more.
        match chunk {
            1 if smallest.steps.len() == before => return smallest,
            1 => {}
            _ => chunk = chunk.div_ceil(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Recipe;

    fn program() -> Program {
        Recipe { seed: 5, steps: 300, streams: 5, threads: 1, fails: true, fails_late: true, modes: true }.make()
    }

    #[test]
    fn only_what_is_needed_stays() {
        // It fails while a flush comes before a mark, both of stream 3.
        let fails = |program: &Program| {
            let of = |verb: &str| program.steps.iter().position(|s| s.stream == 3 && s.call.verb() == verb);
            of("flush").zip(of("mark")).is_some_and(|(flush, mark)| flush < mark)
        };
        let whole = program();
        assert!(fails(&whole));
        let small = shrink(&whole, Budget::default(), fails);
        assert_eq!(small.steps.len(), 2);
        assert_eq!(small.check(), Ok(()));
    }

    #[test]
    fn a_budget_that_ends_leaves_a_program_that_fails() {
        let fails = |program: &Program| program.steps.iter().any(|step| step.call.verb() == "copy");
        for attempts in [0, 1, 3, 10] {
            let small = shrink(&program(), Budget { attempts, ..Budget::default() }, fails);
            assert!(fails(&small) && small.check().is_ok());
        }
    }
}
