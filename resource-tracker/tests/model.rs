//! The tracker against a naive model that keeps the whole history and looks at every byte.

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use trunnion_resource_tracker::{Name, Resolved, Streams, Tracker, Use, Verdict};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::failure::{Failure, Failures};
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::timeline::{Moment, Timeline};

const SIZE: u64 = 24;
const MEMORIES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Land,
    Fail,
    Interrupt,
}

#[derive(Clone, Debug)]
enum Step {
    Operation { stream: u64, uses: Vec<(usize, u64, u64, Access)>, outcome: Outcome, late: Option<usize> },
    DeviceDone(usize),
    Tell(u64),
    Late(usize),
    Reopen(usize, u64),
    RetireStreams(usize),
    Retire,
}

fn steps(streams: u64) -> impl Strategy<Value = Vec<Step>> {
    let access = prop_oneof![
        4 => Just(Access::Read),
        1 => Just(Access::Write),
        2 => Just(Access::ReadWrite),
        3 => Just(Access::Overwrite),
    ];
    let range = prop_oneof![2 => Just((0, SIZE)), 3 => (0..SIZE, 0..=SIZE)];
    let one = (0..MEMORIES, range, access)
        .prop_map(|(m, (start, length), access)| (m, start, SIZE.min(start + length), access));
    let outcome = prop_oneof![16 => Just(Outcome::Land), 1 => Just(Outcome::Fail), 1 => Just(Outcome::Interrupt)];
    let late = proptest::option::weighted(0.03, 0_usize..64);
    let operation = (1..=streams, proptest::collection::vec(one, 1..4), outcome, late)
        .prop_map(|(stream, uses, outcome, late)| Step::Operation { stream, uses, outcome, late });
    let step = prop_oneof![
        12 => operation,
        6 => (0_usize..64).prop_map(Step::DeviceDone),
        4 => (1..=streams).prop_map(Step::Tell),
        1 => (0_usize..64).prop_map(Step::Late),
        1 => (0..MEMORIES, 1..=streams).prop_map(|(m, s)| Step::Reopen(m, s)),
        1 => (0_usize..3).prop_map(Step::RetireStreams),
        1 => Just(Step::Retire),
    ];
    proptest::collection::vec(step, 1..120)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Ran,
    Skipped,
    /// At once, or interrupted: it may have run in part, and its stream did not wait for anything.
    Refused,
}

#[derive(Debug)]
struct Past {
    at: Moment,
    uses: Vec<Use>,
    status: Status,
    late: bool,
    device_done: bool,
    /// What comes before it on the device.
    before: HashSet<usize>,
    /// What comes before it because it waited for other streams.
    by_waits: HashSet<usize>,
}

type Byte = (MemoryId, u64);

fn bytes(u: &Use) -> impl Iterator<Item = Byte> + '_ {
    u.range.clone().map(|b| (u.memory, b))
}

fn conflict(a: &[Use], b: &[Use]) -> bool {
    a.iter().any(|a| {
        b.iter().any(|b| {
            a.memory == b.memory
                && (a.access.writes() || b.access.writes())
                && a.range.start.max(b.range.start) < a.range.end.min(b.range.end)
        })
    })
}

struct World {
    tracker: Tracker,
    streams: Streams,
    name: Name,
    memories: Vec<MemoryId>,
    past: Vec<Past>,
    /// Where the mark on each byte began; unknown once a failure came late.
    origins: HashMap<Byte, Moment>,
    origins_known: bool,
    /// Whether the last operation was interrupted.
    pending: bool,
    seq: u64,
}

impl World {
    fn new() -> Self {
        let mut tracker = Tracker::new();
        let name = tracker.name("step");
        let mut world = Self {
            tracker,
            streams: Streams::new(),
            name,
            memories: (0..MEMORIES as u32).map(|index| MemoryId { index, generation: 0 }).collect(),
            past: Vec::new(),
            origins: HashMap::new(),
            origins_known: true,
            pending: false,
            seq: 0,
        };
        for m in 0..MEMORIES {
            world.open(m, 1);
        }
        world
    }

    fn next(&mut self, stream: u64) -> Moment {
        self.seq += 1;
        let at = Moment { stream: StreamId::from_raw(stream), seq: self.seq };
        self.streams.issue(at);
        at
    }

    fn remember(&mut self, at: Moment, uses: Vec<Use>, status: Status, by_waits: HashSet<usize>) {
        let mut before = by_waits.clone();
        for (i, p) in self.past.iter().enumerate().filter(|(_, p)| p.at.stream == at.stream) {
            before.insert(i);
            before.extend(&p.before);
        }
        self.past.push(Past { at, uses, status, late: false, device_done: false, before, by_waits });
    }

    fn open(&mut self, m: usize, stream: u64) {
        let at = self.next(stream);
        self.tracker.open(self.memories[m], SIZE, at);
        let whole = Use { memory: self.memories[m], range: 0..SIZE, access: Access::Overwrite };
        self.remember(at, vec![whole], Status::Ran, HashSet::new());
    }

    /// Whether the streams say it is done, by itself or by what came after it.
    fn known_done(&self, i: usize) -> bool {
        self.told(i) || (0..self.past.len()).any(|k| self.past[k].before.contains(&i) && self.told(k))
    }

    fn told(&self, i: usize) -> bool {
        self.streams.is_done(self.past[i].at)
    }

    /// Which bytes carry a failure, worked out from the beginning.
    fn tainted(&self) -> HashSet<Byte> {
        let mut tainted = HashSet::new();
        for p in &self.past {
            let inherits = p.uses.iter().filter(|u| u.access.reads()).flat_map(bytes).any(|b| tainted.contains(&b));
            let bad = p.status != Status::Ran || p.late || inherits;
            for u in p.uses.iter().filter(|u| u.access.writes()) {
                for b in bytes(u) {
                    if bad {
                        tainted.insert(b);
                    } else if u.access == Access::Overwrite {
                        tainted.remove(&b);
                    }
                }
            }
        }
        tainted
    }

    fn operation(
        &mut self,
        stream: u64,
        uses: Vec<Use>,
        outcome: Outcome,
        late: Option<usize>,
    ) -> Result<(), TestCaseError> {
        let tainted = self.tainted();
        let at = self.next(stream);
        let Resolved { waits, barrier, hazard, verdict } = self.tracker.resolve(at, self.name, &uses, &self.streams);
        self.pending = false;
        let first = uses.iter().filter(|u| u.access.reads()).flat_map(bytes).find(|b| tainted.contains(b));
        match &verdict {
            Verdict::Skip(failure) => {
                prop_assert!(first.is_some(), "skipped over clean input");
                prop_assert!(waits.is_empty() && !barrier);
                if self.origins_known {
                    let origin = self.origins[&first.unwrap()];
                    prop_assert_eq!(failure.origin(), origin);
                    self.set_origins(&uses, Some(origin));
                }
                prop_assert!(matches!(failure.to_error(), Error::Inherited { .. }), "the way it came is named");
                self.remember(at, uses, Status::Skipped, HashSet::new());
                return Ok(());
            }
            Verdict::Run => prop_assert!(first.is_none(), "ran over tainted input"),
        }

        let mut by_waits = HashSet::new();
        for (i, p) in self.past.iter().enumerate() {
            let waited = waits.moments().iter().any(|m| m.stream == p.at.stream && p.at.seq <= m.seq);
            if waited || p.at.seq <= waits.epoch() {
                by_waits.insert(i);
                by_waits.extend(&p.before);
            }
        }
        prop_assert!(waits.epoch() < at.seq);
        // Sufficient: whatever conflicts and may still run comes before.
        let rounded = waits.epoch() > 0;
        let touching = |p: &Past| p.status != Status::Skipped && conflict(&p.uses, &uses);
        for (i, p) in self.past.iter().enumerate() {
            if !touching(p) || self.known_done(i) {
                continue;
            }
            let later_on_stream = self.past.iter().filter(|q| q.at.stream == at.stream);
            if p.at.stream == at.stream {
                let mut by = later_on_stream.filter(|q| q.at.seq > p.at.seq);
                let ordered = by_waits.contains(&i) || by.any(|q| q.by_waits.contains(&i));
                prop_assert!(ordered || (barrier && hazard >= p.at.seq), "no barrier against {:?}", p);
            } else {
                let mut by = later_on_stream;
                let ordered = by_waits.contains(&i) || by.any(|q| q.before.contains(&i));
                prop_assert!(ordered, "{:?} does not wait for {:?}", at, p);
            }
        }
        // Exact: nothing else is waited for, but where a set was rounded up or a refused operation left its own waits behind.
        let inexact = |p: &Past| p.status == Status::Refused && touching(p);
        if !self.past.iter().any(inexact) {
            for m in waits.moments() {
                prop_assert!(m.stream != at.stream && !self.streams.is_done(*m));
                let real = |p: &Past| p.at == *m && touching(p);
                prop_assert!(self.past.iter().any(real), "waits for {:?} without need", m);
            }
            let own = |i: usize| self.past[i].at.stream == at.stream && !self.told(i) && touching(&self.past[i]);
            prop_assert!(!barrier || rounded || (0..self.past.len()).any(own), "a barrier without need");
        }
        if rounded {
            let streams: HashSet<_> = self.past.iter().map(|p| p.at.stream).collect();
            prop_assert!(streams.len() > 4, "rounded up for {} streams", streams.len());
        }

        if let Some(pick) = late {
            self.fail_late(pick);
        }
        match outcome {
            Outcome::Land => {
                self.streams.waited_for(at, &waits);
                self.tracker.landed(at);
                let overwritten: Vec<_> = uses.iter().filter(|u| !u.access.reads()).cloned().collect();
                self.set_origins(&overwritten, None);
                self.remember(at, uses, Status::Ran, by_waits);
            }
            Outcome::Fail | Outcome::Interrupt => {
                self.pending = outcome == Outcome::Interrupt;
                if !self.pending {
                    self.tracker.failed(at, &uses, &lost(at));
                }
                self.set_origins(&uses, Some(at));
                self.remember(at, uses, Status::Refused, HashSet::new());
            }
        }
        Ok(())
    }

    fn set_origins(&mut self, uses: &[Use], origin: Option<Moment>) {
        for b in uses.iter().filter(|u| u.access.writes()).flat_map(bytes) {
            match origin {
                Some(origin) => self.origins.insert(b, origin),
                None => self.origins.remove(&b),
            };
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Operation { stream, uses, outcome, late } => {
                let uses = uses.into_iter().map(|(m, start, end, access)| Use {
                    memory: self.memories[m],
                    range: start..end,
                    access,
                });
                let uses = uses.collect();
                self.operation(stream, uses, outcome, late)?;
            }
            Step::DeviceDone(pick) => {
                let ready = |p: &Past| !p.device_done && p.before.iter().all(|b| self.past[*b].device_done);
                let ready: Vec<usize> = (0..self.past.len()).filter(|i| ready(&self.past[*i])).collect();
                if !ready.is_empty() {
                    self.past[ready[pick % ready.len()]].device_done = true;
                }
            }
            Step::Tell(stream) => {
                let stream = StreamId::from_raw(stream);
                let next = (0..self.past.len()).find(|i| self.past[*i].at.stream == stream && !self.told(*i));
                if let Some(i) = next
                    && self.past[i].device_done
                {
                    self.streams.complete(stream, self.past[i].at.seq);
                }
            }
            Step::Late(pick) => self.fail_late(pick),
            Step::Reopen(m, stream) => {
                let memory = self.memories[m];
                let frontier = self.tracker.close(memory);
                for (i, p) in self.past.iter().enumerate() {
                    if p.status == Status::Skipped
                        || !p.uses.iter().any(|u| u.memory == memory && !u.range.is_empty())
                        || self.known_done(i)
                    {
                        continue;
                    }
                    // It, or something that comes after it, is waited for.
                    let held = |q: &Past| {
                        q.at.seq <= frontier.epoch()
                            || frontier.moments().iter().any(|f| f.stream == q.at.stream && q.at.seq <= f.seq)
                    };
                    let ordered = held(p) || self.past.iter().any(|q| held(q) && q.before.contains(&i));
                    prop_assert!(ordered, "{:?} is not in {:?}", p, frontier);
                }
                prop_assert!(self.tracker.close(memory).is_empty(), "it is gone");
                self.memories[m].generation += 1;
                self.open(m, stream);
            }
            Step::RetireStreams(keep) => self.streams.retire_idle(keep),
            Step::Retire => self.tracker.retire(&self.streams),
        }
        self.compare()
    }

    /// Some operation that is not done turns out to have failed.
    fn fail_late(&mut self, pick: usize) {
        // A reservation is no operation that can fail late.
        let open = |i: &usize| self.past[*i].status == Status::Ran && !self.told(*i) && !self.is_reservation(*i);
        let open: Vec<usize> = (0..self.past.len()).filter(open).collect();
        if !open.is_empty() {
            let i = open[pick % open.len()];
            self.past[i].late = true;
            self.origins_known = false;
            let (at, uses) = (self.past[i].at, self.past[i].uses.clone());
            self.tracker.failed(at, &uses, &lost(at));
        }
    }

    fn is_reservation(&self, i: usize) -> bool {
        let before = self.past[..i].iter().flat_map(|p| &p.uses);
        let memory = self.past[i].uses[0].memory;
        self.past[i].uses.len() == 1 && !before.into_iter().any(|u| u.memory == memory)
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let tainted = self.tainted();
        for memory in &self.memories {
            for b in 0..SIZE {
                let mut found = Failures::new();
                self.tracker.check(*memory, b..b + 1, &mut found);
                let expected = tainted.contains(&(*memory, b));
                prop_assert_eq!(!found.is_empty(), expected, "byte {} of {}", b, memory);
                // Under a provisional mark there may be an older one.
                if self.origins_known
                    && let Some(failure) = found.first()
                {
                    prop_assert!(self.pending || failure.origin() == self.origins[&(*memory, b)]);
                }
            }
        }
        Ok(())
    }
}

fn lost(at: Moment) -> Failure {
    Failure::new(at, Error::DeviceLost { cause: format!("at {}", at.seq) })
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut world = World::new();
    steps.into_iter().try_for_each(|step| world.step(step))
}

proptest! {
    // `PROPTEST_CASES` asks for more or fewer, four times the number of cases run.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn waits_are_sufficient_and_exact_and_marks_are_the_models_on_four_streams(steps in steps(4)) {
        run(steps)?;
    }

    #[test]
    fn waits_stay_sufficient_when_nine_streams_make_sets_round_up(steps in steps(9)) {
        run(steps)?;
    }
}
