//! A stream: a queue of work, and a thread that does it in order.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::capture::Capturing;
use crate::clock::{Clock, Stamp};
use crate::context::Context;
use crate::driver::driver;
use crate::handles;
use crate::sync::lock;
use crate::work::Work;

/// How much a stream takes in before it has done some: whoever asks for more waits. Of real ones about as much was seen; the manual only says
/// that calls may wait.
const DEPTH: usize = 1024;

/// A moment of a stream: when it has done so many things. Clear of what it was asked to do then.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(crate) stream: Arc<Stream>,
    pub(crate) ticket: u64,
    /// What is over then.
    pub(crate) clock: Arc<Clock>,
}

impl Moment {
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.stream.queue).done >= self.ticket
    }

    /// Waits for it; the program knows what is over then.
    pub(crate) fn wait(&self) {
        self.stream.wait_for(self.ticket);
        driver().host_learns(&self.clock);
    }
}

/// One thing to do, and what it must come after.
struct Item {
    work: Work,
    stamp: Stamp,
    clock: Arc<Clock>,
    after: Vec<(Arc<Stream>, u64)>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    accepted: u64,
    done: u64,
    is_closed: bool,
}

/// A stream. Equivalent to: `CUstream`.
pub(crate) struct Stream {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    /// Its number among the lines of work that clocks know.
    pub(crate) line: u32,
    /// It and the stream without a name wait for each other.
    pub(crate) is_blocking: bool,
    pub(crate) priority: i32,
    queue: Mutex<Queue>,
    changed: Condvar,
    clock: Mutex<Clock>,
    /// What it records, while it does.
    pub(crate) capturing: Mutex<Option<Capturing>>,
}

impl Stream {
    pub(crate) fn new(context: Arc<Context>, is_blocking: bool, priority: i32) -> Arc<Self> {
        let stream = Arc::new(Self {
            handle: handles::fresh(),
            context,
            line: driver().new_line(),
            is_blocking,
            priority,
            queue: Mutex::default(),
            changed: Condvar::new(),
            clock: Mutex::default(),
            capturing: Mutex::default(),
        });
        let worker = stream.clone();
        let name = format!("cuda-double {}", stream.line);
        // Without a thread there is nobody to do the work, and waiting for it fails at once.
        if thread::Builder::new().name(name).spawn(move || worker.work()).is_err() {
            lock(&stream.queue).is_closed = true;
        }
        stream
    }

    fn is_legacy(&self) -> bool {
        self.context.legacy_stream().is_ok_and(|stream| core::ptr::eq(&raw const *stream, self))
    }

    /// The streams that this one waits for without being told.
    fn implied(&self) -> Vec<Arc<Self>> {
        if !self.is_blocking {
            return Vec::new();
        }
        let others = self.context.streams();
        if self.is_legacy() {
            return others.into_iter().skip(1).filter(|stream| stream.is_blocking).collect();
        }
        others.into_iter().take(1).collect()
    }

    /// Waits until the stream takes in more.
    pub(crate) fn wait_for_room(&self) {
        let mut queue = lock(&self.queue);
        while queue.items.len() >= DEPTH {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Accepts work, ordered after everything before it on the stream, after what the program has waited for, and
    /// after `moments`.
    pub(crate) fn accept(&self, moments: &[Moment], work: impl FnOnce(&mut Clock, Stamp) -> Work) -> u64 {
        self.wait_for_room();
        let _accepting = lock(&self.context.accepting);
        let mut clock = lock(&self.clock);
        driver().host_tells(&mut clock);
        let mut after = Vec::new();
        for other in self.implied() {
            let accepted = {
                let queue = lock(&other.queue);
                if queue.done == queue.accepted { None } else { Some(queue.accepted) }
            };
            clock.join(&lock(&other.clock));
            after.extend(accepted.map(|accepted| (other, accepted)));
        }
        for moment in moments {
            clock.join(&moment.clock);
            if !moment.is_over() {
                after.push((moment.stream.clone(), moment.ticket));
            }
        }
        let stamp = clock.tick(self.line);
        let work = work(&mut clock, stamp);
        let item = Item { work, stamp, clock: Arc::new(clock.clone()), after };
        let mut queue = lock(&self.queue);
        queue.items.push_back(item);
        queue.accepted += 1;
        self.changed.notify_all();
        queue.accepted
    }

    /// Accepts work that needs no moment of its own.
    pub(crate) fn submit(&self, work: Work) -> u64 {
        self.accept(&[], |_, _| work)
    }

    /// The moment when everything accepted so far is done.
    pub(crate) fn moment(self: &Arc<Self>) -> Moment {
        let clock = lock(&self.clock);
        let ticket = lock(&self.queue).accepted;
        Moment { stream: self.clone(), ticket, clock: Arc::new(clock.clone()) }
    }

    pub(crate) fn is_idle(&self) -> bool {
        let queue = lock(&self.queue);
        queue.done == queue.accepted
    }

    fn wait_for(&self, ticket: u64) {
        let mut queue = lock(&self.queue);
        while queue.done < ticket {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until everything accepted so far is done; the program knows it then.
    pub(crate) fn wait(self: &Arc<Self>) {
        self.moment().wait();
    }

    /// Accepts nothing more; the thread ends when everything is done.
    pub(crate) fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Item> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(item) = queue.items.pop_front() {
                return Some(item);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some(Item { work, stamp, clock, after }) = self.next() {
            for (stream, ticket) in &after {
                stream.wait_for(*ticket);
            }
            let (seed, lateness) = (self.context.device.delays(), self.context.device.lateness());
            if let Some(pause) = pause(seed, stamp) {
                thread::sleep(pause);
            }
            if matches!(work, Work::Mark(_)) && !lateness.is_zero() {
                thread::sleep(late(lateness, seed, stamp));
            }
            work.run(&self.context, stamp, &clock);
            // What the work held is given up before anybody is told that it is done.
            drop(work);
            lock(&self.queue).done += 1;
            self.changed.notify_all();
        }
    }
}

/// How late an event comes: by the time that is asked for, or, with a seed, up to twice that, each by a time of its own.
fn late(by: Duration, seed: u64, stamp: Stamp) -> Duration {
    if seed == 0 { by } else { by + by.mul_f64((mix(seed, stamp) % 1000) as f64 / 1000.0) }
}

/// A number drawn for one thing a stream does.
fn mix(seed: u64, stamp: Stamp) -> u64 {
    let mut mixed = seed ^ u64::from(stamp.line) << 32 ^ u64::from(stamp.tick);
    mixed = (mixed ^ mixed >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

/// A pause before some of the work, the same for the same seed, so that orders come up that are allowed and rare. A stream that has done
/// much already pauses seldom, or a hundred thousand launches would take minutes.
fn pause(seed: u64, stamp: Stamp) -> Option<Duration> {
    /// Work after which a stream has done much.
    const MUCH: u32 = 5000;
    if seed == 0 {
        return None;
    }
    let (mixed, one_in) = (mix(seed, stamp), if stamp.tick < MUCH { 3 } else { 300 });
    mixed.is_multiple_of(one_in).then(|| Duration::from_micros(mixed / one_in % 2000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_pauses_often_at_first_and_seldom_when_it_has_done_much() {
        let pauses = |ticks: core::ops::Range<u32>| {
            let stamps = ticks.map(|tick| Stamp { line: 7, tick });
            stamps.filter_map(|stamp| pause(14, stamp)).fold((0, Duration::ZERO), |(n, sum), one| (n + 1, sum + one))
        };
        let ((first, _), (later, together)) = (pauses(1..3000), pauses(10_000..700_000));
        assert!((800..1200).contains(&first), "{first}");
        assert!((1500..3500).contains(&later) && together < Duration::from_secs(5), "{later}: {together:?}");
        assert_eq!(pause(0, Stamp { line: 7, tick: 9 }), None);
    }
}
