//! A block: its threads in turns, until each is done or waits for others.

use std::collections::HashMap;

use super::mbarrier::BarrierObject;
use super::shared::Shared;
use super::thread::{State, Thread};
use super::{Launch, WARP};
use crate::codes::{Code, Fault};
use crate::memory::{Access, Place};
use crate::ptx::Function;
use crate::report::ReportKind;

/// A block that is executed.
pub(super) struct Block<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) at: [u32; 3],
    pub(super) shared: Shared,
    pub(super) threads: Vec<Thread>,
    /// Threads that arrived at a barrier without waiting, by its number.
    pub(super) arrived: HashMap<u32, u32>,
    /// What each thread that waits at a gathering barrier says, and where it wants the answer.
    pub(super) said: HashMap<usize, (bool, u32, crate::ptx::inst::Gather)>,
    pub(super) objects: HashMap<u64, BarrierObject>,
    executed: u64,
}

impl<'a> Block<'a> {
    pub(super) fn new(launch: &'a Launch<'a>) -> Self {
        let count = launch.block.iter().product::<u32>() as usize;
        let bytes = launch.function().shared_bytes + launch.dynamic_shared as usize;
        Self {
            launch,
            at: [0; 3],
            shared: Shared::new(bytes, count.div_ceil(WARP)),
            threads: (0..count).map(|index| Thread::new(index, launch.block)).collect(),
            arrived: HashMap::new(),
            said: HashMap::new(),
            objects: HashMap::new(),
            executed: 0,
        }
    }

    /// Puts every thread at the beginning.
    pub(super) fn begin(&mut self, at: [u32; 3]) {
        self.at = at;
        self.executed = 0;
        self.shared.begin();
        self.arrived.clear();
        self.said.clear();
        self.objects.clear();
        let (kernel, parameters) = (self.launch.kernel, self.launch.parameters);
        let function = self.launch.function();
        for thread in &mut self.threads {
            thread.begin(kernel, function, parameters);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.threads.iter().all(|thread| thread.state == State::Done)
    }

    pub(super) fn executed(&self) -> u64 {
        self.executed
    }

    pub(super) fn function(&self, thread: &Thread) -> &'a Function {
        &self.launch.module.functions[thread.function]
    }

    pub(super) fn place(&self, thread: &Thread, line: u32) -> Place {
        Place { thread: thread.position, block: self.at, line }
    }

    /// A fault of a thread, with the kernel and where it happened.
    pub(super) fn fault(&self, thread: &Thread, line: u32, code: Code, what: impl core::fmt::Display) -> Fault {
        let place = self.place(thread, line);
        Fault::new(code, format!("kernel {}, {place}: {what}", self.launch.function().name))
    }

    /// Each thread goes on until it is done, waits, or had its share; then those that wait for each other meet.
    pub(super) fn round(&mut self, access: &mut Access<'_>) -> Result<(), Fault> {
        let mut progress = false;
        for index in 0..self.threads.len() {
            if self.threads[index].state == State::Running {
                progress = true;
                self.executed += self.advance(index, access)?;
            }
        }
        for warp in 0..self.threads.len().div_ceil(WARP) {
            progress |= self.meet_in_warp(warp)?;
        }
        progress |= self.meet_at_barriers(access);
        if progress || self.is_done() {
            return Ok(());
        }
        let stuck = self.describe_waiting();
        let name = &self.launch.function().name;
        access.report(
            ReportKind::DivergentBarrier,
            format!("kernel {name}: threads wait for each other for ever: {stuck}"),
        );
        Err(Fault::new(Code::LAUNCH_TIMEOUT, format!("kernel {name} never ends: {stuck}")))
    }

    /// One thread of each line that threads wait at.
    fn describe_waiting(&self) -> String {
        let mut said: Vec<(u32, String, usize)> = Vec::new();
        for thread in self.threads.iter().filter(|thread| thread.state != State::Done) {
            match said.iter_mut().find(|(line, ..)| *line == thread.line) {
                Some((.., count)) => *count += 1,
                None => said.push((thread.line, self.place(thread, thread.line).to_string(), 1)),
            }
        }
        let texts: Vec<_> = said.iter().map(|(_, first, count)| format!("{first} ({count} there)")).collect();
        texts.join("; ")
    }
}
