//! Calls of the driver, counted, and made to fail where a test wants it.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::codes::Code;
use crate::sync::lock;

/// The calls of one device's programs, and those that are to fail.
#[derive(Default)]
pub(crate) struct Calls(Mutex<State>);

#[derive(Default)]
struct State {
    counts: HashMap<String, u64>,
    /// For a function: the number of the call that fails, zero for every one, and its code.
    planned: HashMap<String, (u64, Code)>,
}

impl Calls {
    /// Counts a call; the code it is to give, if it is to fail.
    pub(crate) fn count(&self, name: &str) -> Option<Code> {
        let mut state = lock(&self.0);
        let count = match state.counts.get_mut(name) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                state.counts.insert(name.to_owned(), 1);
                1
            }
        };
        let (at, code) = *state.planned.get(name)?;
        (at == 0 || at == count).then_some(code)
    }

    /// How often a function was called since the last [`Calls::forget`].
    pub(crate) fn of(&self, name: &str) -> u64 {
        lock(&self.0).counts.get(name).copied().unwrap_or(0)
    }

    /// Every function that was called, with how often, by name.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = lock(&self.0).counts.iter().map(|(name, count)| (name.clone(), *count)).collect();
        all.sort();
        all
    }

    /// Lets the `nth` call from now fail, zero for every one. [`Code::SUCCESS`] lets none fail any more.
    pub(crate) fn plan(&self, name: &str, nth: u64, code: Code) {
        let mut state = lock(&self.0);
        if code == Code::SUCCESS {
            state.planned.remove(name);
            return;
        }
        let at = if nth == 0 { 0 } else { state.counts.get(name).copied().unwrap_or(0) + nth };
        state.planned.insert(name.to_owned(), (at, code));
    }

    /// Counts from zero again; what is to fail counts from here.
    pub(crate) fn forget(&self) {
        let mut state = lock(&self.0);
        let state = &mut *state;
        for (name, (at, _)) in &mut state.planned {
            *at = at.saturating_sub(state.counts.get(name).copied().unwrap_or(0));
        }
        state.planned.retain(|_, (at, _)| *at > 0);
        state.counts.clear();
    }

    /// Lets nothing fail any more.
    pub(crate) fn forgive(&self) {
        lock(&self.0).planned.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, Code};

    #[test]
    fn the_nth_call_from_now_fails_and_no_other() {
        let calls = Calls::default();
        assert_eq!(calls.count("f"), None);
        calls.plan("f", 2, Code::OUT_OF_MEMORY);
        let found: Vec<_> = (0..3).map(|_| calls.count("f")).collect();
        assert_eq!(found, [None, Some(Code::OUT_OF_MEMORY), None]);
        assert_eq!((calls.of("f"), calls.of("g")), (4, 0));
    }

    #[test]
    fn forgetting_counts_keeps_what_is_still_to_fail() {
        let calls = Calls::default();
        calls.count("f");
        calls.plan("f", 1, Code::UNKNOWN);
        calls.forget();
        assert_eq!(calls.count("f"), Some(Code::UNKNOWN));
    }
}
