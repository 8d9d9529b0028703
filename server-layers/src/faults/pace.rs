//! Completions that are told late, and in an order drawn from a seed.

use alloc::collections::VecDeque;
use core::time::Duration;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::timeline::Moment;

/// When what is done is told.
///
/// An operation comes after what it depends on, which has lower numbers: once it is told to be done, whatever has a lower number and is
/// done is told too. So nobody sees an effect before its cause.
pub(super) struct Pace {
    delay: Duration,
    seed: Option<u64>,
    /// Moments of each stream that are done and not told yet, in order.
    held: HashMap<StreamId, VecDeque<(u64, Deadline)>>,
    /// The highest number that was told.
    told: u64,
}

impl Pace {
    pub(super) fn new((delay, seed): (Duration, Option<u64>)) -> Self {
        Self { delay, seed, held: HashMap::new(), told: 0 }
    }

    /// When something that is found done now is told.
    pub(super) fn draw(&mut self) -> Deadline {
        let Some(seed) = &mut self.seed else { return Deadline::after(self.delay) };
        // An xorshift with an odd step, so that a seed of 0 moves too.
        *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = *seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
        // Up to twice the delay, in 64 steps.
        Deadline::after(self.delay.saturating_mul((x % 65) as u32) / 32)
    }

    /// A moment was found done: whether that was told. If not, it is once its time has come.
    pub(super) fn is_told(&mut self, at: Moment) -> bool {
        if at.seq > self.told {
            let known = self.held.get(&at.stream).is_some_and(|held| held.iter().any(|(seq, _)| *seq >= at.seq));
            if !known {
                let due = self.draw();
                self.held.entry(at.stream).or_default().push_back((at.seq, due));
            }
        }
        at.seq <= self.told
    }

    /// Something with this number was told.
    pub(super) fn tell(&mut self, seq: u64) {
        self.told = self.told.max(seq);
    }

    /// Tells what is due. Whether there was something, and how long until the next.
    pub(super) fn advance(&mut self) -> (bool, Option<Duration>) {
        let (before, mut next): (_, Option<Duration>) = (self.told, None);
        for held in self.held.values_mut() {
            while let Some((seq, _)) = held.pop_front_if(|(_, due)| due.expired()) {
                self.told = self.told.max(seq);
            }
            if let Some(left) = held.front().and_then(|(_, due)| due.remaining()) {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        self.held.retain(|_, held| !held.is_empty());
        (self.told > before, next)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    fn at(stream: u64, seq: u64) -> Moment {
        Moment { stream: StreamId::from_raw(stream), seq }
    }

    #[test]
    fn what_was_told_stays_told() {
        let mut pace = Pace::new((Duration::from_millis(2), Some(3)));
        for stream in 1..=600 {
            let moment = at(stream, stream * 2);
            while !pace.is_told(moment) {
                std::thread::yield_now();
                pace.advance();
            }
            assert!(pace.is_told(moment) && pace.is_told(at(stream, 1)));
            assert!(pace.held.is_empty());
        }
        assert!((1..=600).all(|stream| pace.is_told(at(stream, stream * 2))));
    }

    #[test]
    fn nothing_is_told_before_what_it_may_depend_on() {
        let mut pace = Pace::new((Duration::from_millis(1), None));
        while !pace.is_told(at(2, 9)) {
            pace.advance();
        }
        assert!(pace.is_told(at(1, 8)));
        assert!(!pace.is_told(at(1, 10)));
        pace.tell(11);
        assert!(pace.is_told(at(1, 10)));
    }

    #[test]
    fn a_seed_gives_times_within_twice_the_delay_and_not_all_the_same() {
        let mut pace = Pace::new((Duration::from_secs(100), Some(0)));
        let draws: alloc::vec::Vec<_> = (0..50).map(|_| pace.draw().remaining().unwrap()).collect();
        assert!(draws.iter().all(|time| *time <= Duration::from_secs(200)));
        assert!(draws.iter().any(|time| *time < Duration::from_secs(60)));
        assert!(draws.iter().any(|time| *time > Duration::from_secs(140)));
    }
}
