//! A recording of pools in use, written as things happen.

use super::watch::Watch;
use super::writer::Writer;
use crate::pools::{MemoryPools, Request};
use crate::storage::Storage;
use alloc::string::ToString;
use core::fmt;
use hashbrown::HashMap;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::report::{MemoryUsage, PoolKind};
use trunnion_runtime_core::sink::Sink;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// Writes the trace of pools as they are used: whoever uses them tells it what they were asked, and what of it was refused.
///
/// Before each event it writes what that depends on: which of the last uses of freed memory are done by then, and which the stream that
/// asks comes after. So a replay on the same pools takes the same places. Every event is safe in the sink when the call returns.
#[derive(Debug)]
pub struct Recorder<K> {
    writer: Writer<K>,
    /// The requests that were not freed yet.
    numbers: HashMap<MemoryId, u64>,
    watch: Watch,
    /// The request that comes next had to wait.
    waited: bool,
}

impl<K: Sink> Recorder<K> {
    /// Begins with what is known about the run, as name and value, how the pools are set up, and what they hold. Memory that waits for
    /// unfinished work when the recording begins is not in it.
    pub fn new<S: Storage>(sink: K, config: &[(&str, &str)], pools: &MemoryPools<S>) -> Self {
        let mut writer = Writer::new(sink);
        config.iter().for_each(|(name, value)| writer.config(name, value));
        writer.pools(pools.config());
        let mut numbers = HashMap::new();
        for (memory, size, stream, kind) in pools.live() {
            numbers.insert(memory, writer.request(size, stream, mode_of(kind), None));
        }
        if !numbers.is_empty() {
            writer.mark("the recording began here");
        }
        writer.flush();
        Self { writer, numbers, watch: Watch::default(), waited: false }
    }

    /// A request is about to wait for work to be done. What was done before that is written now, and nothing more until the request is
    /// answered, so that a replay has to wait as well.
    pub fn waits(&mut self, request: &Request, timeline: &(impl Timeline + ?Sized)) {
        if !self.waited {
            self.look([request.stream].into_iter(), timeline);
            self.waited = true;
        }
    }

    /// A request was served.
    pub fn served(&mut self, request: &Request, timeline: &(impl Timeline + ?Sized)) {
        self.request(request, None, timeline);
    }

    /// A request was not served, and why.
    pub fn refused(&mut self, request: &Request, cause: &dyn fmt::Display, timeline: &(impl Timeline + ?Sized)) {
        self.request(request, Some(&cause.to_string()), timeline);
    }

    fn request(&mut self, request: &Request, refused: Option<&str>, timeline: &(impl Timeline + ?Sized)) {
        if !core::mem::take(&mut self.waited) {
            self.look([request.stream].into_iter(), timeline);
        }
        let number = self.writer.request(request.size, request.stream, request.mode, refused);
        self.numbers.insert(request.memory, number);
        self.writer.flush();
    }

    /// Memory was freed whose last uses are `frontier`. Nothing is written for memory that was never asked for.
    pub fn freed(&mut self, memory: MemoryId, frontier: &Frontier, timeline: &(impl Timeline + ?Sized)) {
        let Some(number) = self.numbers.remove(&memory) else { return };
        let mut after = frontier.clone();
        after.prune(timeline);
        self.watch.add(&after);
        self.look(after.moments().iter().map(|at| at.stream), timeline);
        self.writer.free(number, &after);
        self.writer.flush();
    }

    /// Every free page went back to the driver.
    pub fn cleaned_up(&mut self, timeline: &(impl Timeline + ?Sized)) {
        self.look(core::iter::empty(), timeline);
        self.writer.cleanup();
        self.writer.flush();
    }

    /// The usage of now, under a label.
    pub fn snapshot(&mut self, label: &str, usage: &MemoryUsage, timeline: &(impl Timeline + ?Sized)) {
        self.look(core::iter::empty(), timeline);
        self.writer.snapshot(label, usage);
        self.writer.flush();
    }

    /// Something to be seen at this place.
    pub fn mark(&mut self, text: &str) {
        self.writer.mark(text);
        self.writer.flush();
    }

    fn look(&mut self, streams: impl Iterator<Item = StreamId>, timeline: &(impl Timeline + ?Sized)) {
        self.watch.look_done(&mut self.writer, timeline);
        streams.for_each(|stream| self.watch.look_ordered(&mut self.writer, stream, timeline));
    }

    /// How many events were written.
    pub fn events(&self) -> u64 {
        self.writer.events()
    }

    /// Why the sink took no more. Nothing is written from then on.
    pub fn fault(&self) -> Option<&str> {
        self.writer.fault()
    }

    /// Writes the last line.
    pub fn end(&mut self) {
        self.writer.end();
        self.writer.flush();
    }

    /// The sink.
    pub fn into_sink(self) -> K {
        self.writer.into_sink()
    }
}

/// The mode in which a pool's memory was asked for, as far as the pool tells.
fn mode_of(kind: PoolKind) -> AllocationMode {
    match kind {
        PoolKind::Persistent => AllocationMode::Persistent,
        PoolKind::Dedicated => AllocationMode::Dedicated,
        _ => AllocationMode::Auto,
    }
}
