//! What a timeline semaphore was told, and what of its progress the host is shown.

use std::time::Instant;

use alloc::vec::Vec;

use crate::objects::Object;

/// One timeline semaphore.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The semaphore.
    pub(crate) object: Object,
    /// The value that is shown at least.
    shown: u64,
    /// Values that were submitted or signalled, rising, and when the host may see them.
    signals: Vec<(u64, Instant)>,
    /// The greatest value that was submitted or signalled, or that submitted work waits for.
    last: u64,
    /// Values that submitted work waits for.
    waits: Vec<u64>,
}

impl Timeline {
    pub(crate) fn new(object: Object, value: u64) -> Self {
        Self { object, shown: value, signals: Vec::new(), last: value, waits: Vec::new() }
    }

    /// A signal was submitted, or made by the host; the host may see it from `due` on.
    pub(crate) fn signal(&mut self, value: u64, due: Instant) {
        self.last = self.last.max(value);
        self.signals.push((value, due));
    }

    /// Submitted work waits for a value.
    pub(crate) fn wait(&mut self, value: u64) {
        self.last = self.last.max(value);
        self.waits.push(value);
    }

    /// The value the semaphore has when everything submitted is done.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The first value above `real` that submitted work waits for.
    pub(crate) fn next_wait(&mut self, real: u64) -> Option<u64> {
        self.waits.retain(|&value| value > real);
        self.waits.iter().min().copied()
    }

    /// What the host was shown last.
    pub(crate) fn last_shown(&self) -> u64 {
        self.shown
    }

    /// What the host is shown, where the device has reached `real`.
    pub(crate) fn shown(&mut self, real: u64, now: Instant) -> u64 {
        let passed = self.signals.iter().take_while(|(value, due)| *value <= real && *due <= now).count();
        for (value, _) in self.signals.drain(..passed) {
            self.shown = self.shown.max(value);
        }
        self.shown
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use ash::vk;

    use super::*;

    #[test]
    fn progress_is_shown_when_it_is_due_and_not_before_the_device_has_it() {
        let object = Object { kind: vk::ObjectType::SEMAPHORE, number: 1 };
        let mut timeline = Timeline::new(object, 7);
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        timeline.signal(8, start);
        timeline.signal(12, later);
        assert_eq!(timeline.shown(7, start), 7, "the device has not reached it");
        assert_eq!(timeline.shown(12, start), 8, "the second is not due");
        assert_eq!(timeline.shown(12, later), 12);
    }

    #[test]
    fn what_is_waited_for_is_known_until_it_is_reached() {
        let object = Object { kind: vk::ObjectType::SEMAPHORE, number: 1 };
        let mut timeline = Timeline::new(object, 0);
        timeline.wait(3);
        timeline.signal(2, Instant::now());
        assert_eq!((timeline.next_wait(2), timeline.last()), (Some(3), 3));
        assert_eq!(timeline.next_wait(3), None);
    }
}
