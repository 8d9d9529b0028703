//! Streams: batches in order, waits for other streams, and what came of it.
//!
//! A stream with work is in exactly one of three places: on the pool's list or on one of its threads, on the list of waiters of another
//! stream's [`Timeline`], or in `submit` on its caller. `Line::active` says that it is in one of them; whoever ends it there passes it on.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::sync::atomic::Ordering;
use smallvec::SmallVec;
use trunnion_backend_core::driver::Outcome;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::server::Pattern;
use trunnion_runtime_core::sync::AtomicU64;

use crate::finish::{Finish, later};
use crate::kernel::{LaunchJob, WORTH_WAKING};
use crate::lock::Lock;
use crate::pool::{self, Errand, Team};
use crate::storage::{HostPage, Span};
use crate::transfer::Mover;
use crate::unwind::contain;

/// As many bytes may be moved on the thread that submits them, when nothing is before them: less work than to wake another thread.
const INLINE: u64 = 64 << 10;

/// A queue of the device, with the batch that is being encoded.
pub struct HostStream {
    queue: Arc<Queue>,
    batch: Batch,
    /// What was reported last.
    reported: u64,
    barriers: u64,
}

/// What runs a device's batches.
pub(crate) struct Engine {
    pub(crate) finish: Finish,
    pub(crate) mover: Mover,
    pub(crate) threads: usize,
}

/// An encoded operation. It holds the pages it touches: memory is never given back under work that was abandoned.
pub(crate) enum Operation {
    Launch(Arc<LaunchJob>),
    Copy { source: Memory, source_rows: Rows, target: Memory, target_rows: Rows },
    Fill { target: Memory, pattern: Pattern },
    Write { data: Bytes, target: Memory, rows: Rows },
    Read { index: usize, source: Memory, rows: Rows, into: HostBuffer },
}

/// A span and the page it lies in.
pub(crate) struct Memory {
    pub(crate) span: Span,
    pub(crate) _page: HostPage,
}

#[derive(Default)]
struct Batch {
    waits: SmallVec<[(Arc<Queue>, u64); 2]>,
    /// When what it waited for is reported.
    after: Option<Deadline>,
    operations: Vec<(u64, Operation)>,
    seq: u64,
    /// Bytes moved, or `None` once it holds a launch.
    weight: Weight,
}

#[derive(Clone, Copy)]
enum Weight {
    Bytes(u64),
    Launches,
}

impl Default for Weight {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

/// The part of a stream that the threads share.
struct Queue {
    engine: Arc<Engine>,
    line: Lock<Line>,
    timeline: Timeline,
    finished: Lock<VecDeque<Finished>>,
    team: Team,
}

#[derive(Default)]
struct Line {
    batches: VecDeque<Batch>,
    active: bool,
    /// Lists of operations that were run, to be filled again.
    spare: Vec<Vec<(u64, Operation)>>,
}

/// How far a stream is, and who waits for that.
#[derive(Default)]
struct Timeline {
    completed: AtomicU64,
    /// When all of that is reported.
    due: Lock<Option<Deadline>>,
    waiters: Lock<Vec<(u64, Arc<Queue>)>>,
}

struct Finished {
    seq: u64,
    outcome: Outcome,
    due: Option<Deadline>,
}

impl HostStream {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        let queue = Queue {
            engine: engine.clone(),
            line: Lock::default(),
            timeline: Timeline::default(),
            finished: Lock::default(),
            team: Team::new(),
        };
        Self { queue: Arc::new(queue), batch: Batch::default(), reported: 0, barriers: 0 }
    }

    /// How many barriers were encoded. A stream of the host runs in order with or without them.
    pub fn barriers(&self) -> u64 {
        self.barriers
    }

    pub(crate) fn barrier(&mut self) {
        self.barriers += 1;
    }

    pub(crate) fn wait(&mut self, other: &Self, seq: u64) {
        self.batch.waits.push((other.queue.clone(), seq));
    }

    pub(crate) fn encode(&mut self, seq: u64, operation: Operation) {
        self.batch.weight = match (self.batch.weight, operation.bytes()) {
            (Weight::Bytes(known), Some(bytes)) => Weight::Bytes(known.saturating_add(bytes)),
            _ => Weight::Launches,
        };
        self.batch.operations.push((seq, operation));
    }

    /// Forgets what was encoded.
    pub(crate) fn discard(&mut self) {
        self.batch = Batch::default();
    }

    pub(crate) fn submit(&mut self, seq: u64) {
        let mut batch = mem::take(&mut self.batch);
        batch.seq = seq;
        let queue = &self.queue;
        queue.engine.finish.begin();
        let mut line = queue.line.lock();
        if let Some(spare) = line.spare.pop() {
            self.batch.operations = spare;
        }
        if line.active {
            line.batches.push_back(batch);
            return;
        }
        line.active = true;
        if batch.is_small() && batch.waits.iter().all(|(other, seq)| other.timeline.has_reached(*seq)) {
            drop(line);
            batch.waits.drain(..).for_each(|(other, _)| batch.after = later(batch.after, other.timeline.due()));
            queue.run_batch(batch);
            // Only the stream's owner submits, so nothing was added meanwhile.
            queue.line.lock().active = false;
        } else {
            line.batches.push_back(batch);
            drop(line);
            queue.clone().resume();
        }
    }

    pub(crate) fn poll(&mut self, outcome: &mut Outcome) -> u64 {
        if self.queue.timeline.completed.load(Ordering::Acquire) != self.reported {
            let mut finished = self.queue.finished.lock();
            while finished.front().is_some_and(|batch| batch.due.is_none_or(|due| due.expired())) {
                if let Some(mut batch) = finished.pop_front() {
                    self.reported = batch.seq;
                    outcome.failed.append(&mut batch.outcome.failed);
                    outcome.read.append(&mut batch.outcome.read);
                }
            }
        }
        self.reported
    }
}

impl fmt::Debug for HostStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostStream")
            .field("completed", &self.queue.timeline.completed.load(Ordering::Relaxed))
            .field("reported", &self.reported)
            .field("encoded", &self.batch.operations.len())
            .finish_non_exhaustive()
    }
}

impl Operation {
    /// How many bytes it moves; `None` for a launch.
    fn bytes(&self) -> Option<u64> {
        match self {
            Self::Launch(_) => None,
            Self::Copy { target_rows, .. } => Some(target_rows.size()),
            Self::Fill { target, .. } => Some(target.span.size() as u64),
            Self::Write { rows, .. } | Self::Read { rows, .. } => Some(rows.size()),
        }
    }

    /// Runs it; `called` says that a thread was called to the team.
    fn run(self, engine: &Engine, seq: u64, team: &Team, called: bool, outcome: &mut Outcome) -> Result<()> {
        match self {
            Self::Launch(job) => job.run(engine.threads, team, called),
            Self::Copy { source, source_rows, target, target_rows } => {
                engine.mover.copy(source.span, &source_rows, target.span, &target_rows);
                Ok(())
            }
            Self::Fill { target, pattern } => {
                engine.mover.fill(target.span, pattern);
                Ok(())
            }
            Self::Write { data, target, rows } => {
                engine.mover.write(data.as_slice()?, target.span, &rows);
                Ok(())
            }
            Self::Read { index, source, rows, mut into } => {
                engine.mover.read(source.span, &rows, into.as_mut_slice());
                outcome.read.push((seq, index, into));
                Ok(())
            }
        }
    }
}

impl Batch {
    fn is_small(&self) -> bool {
        matches!(self.weight, Weight::Bytes(bytes) if bytes <= INLINE)
    }
}

impl Timeline {
    fn has_reached(&self, seq: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= seq
    }

    /// Whether it has reached `seq`; else the queue is resumed when it has.
    fn has_reached_or_keep(&self, seq: u64, queue: &Arc<Queue>) -> bool {
        if self.has_reached(seq) {
            return true;
        }
        let mut waiters = self.waiters.lock();
        // Looked at again under the lock: `advance` takes it after it has moved on, so one sees the other.
        if self.has_reached(seq) {
            return true;
        }
        waiters.push((seq, queue.clone()));
        false
    }

    fn due(&self) -> Option<Deadline> {
        *self.due.lock()
    }

    fn advance(&self, seq: u64, due: Option<Deadline>) {
        if due.is_some() {
            let mut all = self.due.lock();
            *all = later(*all, due);
        }
        self.completed.store(seq, Ordering::Release);
        let mut ready: SmallVec<[Arc<Queue>; 4]> = SmallVec::new();
        self.waiters.lock().retain(|(until, queue)| {
            let waits = *until > seq;
            if !waits {
                ready.push(queue.clone());
            }
            waits
        });
        ready.into_iter().for_each(Queue::resume);
    }
}

impl Queue {
    /// Puts the queue on the pool's list, or back among the waiters of what its first batch waits for.
    fn resume(self: Arc<Self>) {
        let ready = match self.line.lock().batches.front_mut() {
            Some(batch) => self.may_start(batch),
            None => true,
        };
        if ready {
            pool::push(self);
        }
    }

    fn may_start(self: &Arc<Self>, batch: &mut Batch) -> bool {
        while let Some((other, seq)) = batch.waits.last() {
            if !other.timeline.has_reached_or_keep(*seq, self) {
                return false;
            }
            batch.after = later(batch.after, other.timeline.due());
            batch.waits.pop();
        }
        true
    }

    /// The next batch; `None` when there is none, or when it waits.
    fn next(self: &Arc<Self>) -> Option<Batch> {
        let mut line = self.line.lock();
        match line.batches.front_mut() {
            Some(batch) => {
                if !self.may_start(batch) {
                    return None;
                }
            }
            None => line.active = false,
        }
        line.batches.pop_front()
    }

    fn run_batch(&self, mut batch: Batch) {
        let mut outcome = Outcome::default();
        // Launches too short to wake a thread for may be worth it together.
        let to_share = |(_, operation): &(u64, Operation)| match operation {
            Operation::Launch(job) => job.to_share(),
            _ => 0,
        };
        let ahead = batch.operations.iter().map(to_share).fold(0, u64::saturating_add);
        let called = self.engine.threads > 1 && ahead > WORTH_WAKING;
        if called {
            pool::attract();
        }
        for (seq, operation) in batch.operations.drain(..) {
            let ran = contain(|| operation.run(&self.engine, seq, &self.team, called, &mut outcome)).unwrap_or_else(
                |message| Err(Error::Panicked { what: "an operation of the host device".into(), message }),
            );
            if let Err(error) = ran {
                outcome.failed.push((seq, error));
            }
        }
        self.team.dismiss();
        let due = self.engine.finish.due(batch.after);
        self.finished.lock().push_back(Finished { seq: batch.seq, outcome, due });
        {
            let mut line = self.line.lock();
            if line.spare.len() < 2 {
                line.spare.push(batch.operations);
            }
        }
        self.timeline.advance(batch.seq, due);
        self.engine.finish.end(due);
    }
}

impl Errand for Queue {
    fn run(self: Arc<Self>) {
        while let Some(batch) = self.next() {
            self.run_batch(batch);
            if pool::is_awaited() {
                // Others are ready: to the end of the list, so that a long stream starves nobody.
                return pool::push(self);
            }
        }
    }
}
