//! Writing the text form, line by line: what `Display` of a trace and the recorder share.

use super::VERSION;
use super::event::Event;
use super::words::{mode_name, placement_name, push_quoted};
use crate::policy::PoolsConfig;
use alloc::string::String;
use core::fmt::{self, Write};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::pool_layout::{PageSizes, PoolDescription};
use trunnion_runtime_core::report::MemoryUsage;
use trunnion_runtime_core::sink::Sink;
use trunnion_runtime_core::timeline::{Frontier, Moment};

/// The most bytes in the name of a setting.
pub(super) const MAX_NAME: usize = 64;

/// Writes a trace to a sink as its events come. After the sink's first failure it writes nothing.
#[derive(Debug)]
pub struct Writer<K> {
    sink: K,
    line: String,
    requests: u64,
    events: u64,
    fault: Option<String>,
}

impl<K: Sink> Writer<K> {
    /// Writes the first line.
    pub fn new(sink: K) -> Self {
        let mut writer = Self { sink, line: String::new(), requests: 0, events: 0, fault: None };
        writer.put(|line| write!(line, "trunnion-memory-trace {VERSION}"));
        writer
    }

    /// How many events were written.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Why the sink took no more.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// See [`Sink::flush`].
    pub fn flush(&mut self) {
        if self.fault.is_none() {
            self.fault = self.sink.flush().err();
        }
    }

    /// The sink.
    pub fn into_sink(self) -> K {
        self.sink
    }

    fn put(&mut self, write: impl FnOnce(&mut String) -> fmt::Result) {
        if self.fault.is_some() {
            return;
        }
        self.line.clear();
        // Writing to a string cannot fail.
        write(&mut self.line).ok();
        self.fault = self.sink.line(&self.line).err();
    }

    fn put_event(&mut self, write: impl FnOnce(&mut String) -> fmt::Result) {
        self.put(write);
        self.events += u64::from(self.fault.is_none());
    }

    // ---- what comes before the events

    /// Something known about the run, for people. Of the name, what is no letter, digit, dot, dash or underscore becomes an underscore.
    pub fn config(&mut self, name: &str, value: &str) {
        self.put(|line| {
            line.push_str("config ");
            let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
            line.extend(name.chars().take(MAX_NAME).map(plain));
            line.push(' ');
            push_quoted(line, value);
            Ok(())
        });
    }

    /// How the pools are set up: a line for what they have in common, and a line a pool of the layout.
    pub fn pools(&mut self, pools: &PoolsConfig) {
        let PoolsConfig { budget, layout, max_allocation, alignment, growth_step } = pools;
        self.put(|line| {
            write!(line, "pools alignment:{alignment} max_allocation:{max_allocation}")?;
            budget.map_or(Ok(()), |budget| write!(line, " budget:{budget}"))?;
            growth_step.map_or(Ok(()), |step| write!(line, " growth_step:{step}"))
        });
        layout.pools().iter().for_each(|pool| self.pool(pool));
    }

    fn pool(&mut self, pool: &PoolDescription) {
        let PageSizes { first, largest, growth } = pool.pages;
        let placement = placement_name(pool.placement);
        self.put(|line| {
            write!(line, "pool {placement} first:{first} largest:{largest} growth:{growth} ")?;
            pool.takes.map_or(Ok(()), |takes| write!(line, "takes:{takes} "))?;
            push_quoted(line, &pool.name);
            Ok(())
        });
    }

    // ---- the events

    /// An event of a trace.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Request(request) => {
                self.request(request.size, request.stream, request.mode, request.refused.as_deref());
            }
            Event::Free { number, after } => self.free((*number).into(), after.as_deref().unwrap_or(&Frontier::new())),
            Event::Done(at) => self.done(*at),
            Event::AllDone(epoch) => self.all_done(*epoch),
            Event::Ordered { stream, after } => self.ordered(*stream, *after),
            Event::Cleanup => self.cleanup(),
            Event::Snapshot(snapshot) => self.snapshot(&snapshot.label, &snapshot.usage),
            Event::Mark(text) => self.mark(text),
        }
    }

    /// A request, and why it was not served if it was not. Its number, by which it is freed.
    pub fn request(&mut self, size: u64, stream: StreamId, mode: AllocationMode, refused: Option<&str>) -> u64 {
        let number = self.requests;
        self.requests += 1;
        let verb = if refused.is_some() { "fail" } else { "alloc" };
        self.put_event(|line| {
            write!(line, "{verb} {number} {size} s{} {}", stream.get(), mode_name(mode))?;
            if let Some(cause) = refused {
                line.push(' ');
                push_quoted(line, cause);
            }
            Ok(())
        });
        number
    }

    /// The memory of a request is free once `after` is done. Served or not, a request is freed once.
    pub fn free(&mut self, number: u64, after: &Frontier) {
        self.put_event(|line| {
            write!(line, "free {number}")?;
            if after.epoch() > 0 {
                write!(line, " all@{}", after.epoch())?;
            }
            after.moments().iter().try_for_each(|at| write!(line, " s{}@{}", at.stream.get(), at.seq))
        });
    }

    /// A stream's operations up to a moment are done.
    pub fn done(&mut self, at: Moment) {
        self.put_event(|line| write!(line, "done s{}@{}", at.stream.get(), at.seq));
    }

    /// Everything the device accepted up to a number is done.
    pub fn all_done(&mut self, epoch: u64) {
        self.put_event(|line| write!(line, "done all@{epoch}"));
    }

    /// What a stream does next comes after a moment of another one.
    pub fn ordered(&mut self, stream: StreamId, after: Moment) {
        self.put_event(|line| write!(line, "order s{} s{}@{}", stream.get(), after.stream.get(), after.seq));
    }

    /// Every free page was to go back to the driver.
    pub fn cleanup(&mut self) {
        self.put_event(|line| line.write_str("cleanup"));
    }

    /// The usage of now, under a label.
    pub fn snapshot(&mut self, label: &str, usage: &MemoryUsage) {
        let MemoryUsage { allocations, live, padding, reserved } = *usage;
        self.put_event(|line| {
            write!(line, "snapshot allocations:{allocations} live:{live} padding:{padding} reserved:{reserved} ")?;
            push_quoted(line, label);
            Ok(())
        });
    }

    /// Something to be seen at this place.
    pub fn mark(&mut self, text: &str) {
        self.put_event(|line| {
            line.push_str("mark ");
            push_quoted(line, text);
            Ok(())
        });
    }

    /// The last line. Nothing may follow it.
    pub fn end(&mut self) {
        let events = self.events;
        self.put(|line| write!(line, "end {events}"));
    }
}
