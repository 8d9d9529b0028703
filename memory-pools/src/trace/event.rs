//! A trace and its events.

use super::writer::Writer;
use crate::policy::PoolsConfig;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::report::MemoryUsage;
use trunnion_runtime_core::sink::Sink;
use trunnion_runtime_core::timeline::{Frontier, Moment};

/// What was asked of a device's memory, in the order in which it took effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What is known about the run, as name and value: for people.
    pub config: Vec<(String, String)>,
    /// How the pools were set up that it was recorded on, where that is known.
    pub pools: Option<PoolsConfig>,
    /// The events.
    pub events: Vec<Event>,
}

/// One event.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Memory was asked for. Requests are numbered from 0, in their order.
    Request(Requested),
    /// Nobody holds the memory of a request any more, served or not.
    Free {
        /// The request's number.
        number: u32,
        /// What used it last and was unfinished; `None` where all of it was done.
        after: Option<Box<Frontier>>,
    },
    /// A stream's operations up to this moment are done.
    Done(Moment),
    /// Everything the device accepted up to this number is done.
    AllDone(u64),
    /// What a stream does next comes after a moment of another one.
    Ordered {
        /// The stream that waited.
        stream: StreamId,
        /// What it waited for.
        after: Moment,
    },
    /// Every free page was to go back to the driver.
    Cleanup,
    /// The usage at this place, under a label.
    Snapshot(Box<Snapshot>),
    /// Something to be seen at this place.
    Mark(String),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The bytes asked for.
    pub size: u64,
    /// The stream that was to use the memory first.
    pub stream: StreamId,
    /// How it was to be served.
    pub mode: AllocationMode,
    /// Why it was not served when it was recorded, if it was not.
    pub refused: Option<Box<str>>,
}

/// What a device used, and what that moment is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The label.
    pub label: String,
    /// The usage.
    pub usage: MemoryUsage,
}

impl Trace {
    /// How many of the events are requests.
    pub fn requests(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Request(_))).count()
    }

    /// Adds a request that was served; its number among the requests, of which there are `requests`.
    pub(super) fn request(&mut self, requests: &mut u32, size: u64, stream: StreamId) -> u32 {
        self.events.push(Event::Request(Requested { size, stream, mode: AllocationMode::Auto, refused: None }));
        *requests += 1;
        *requests - 1
    }
}

struct Lines<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Sink for Lines<'_, '_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.0, "{line}").map_err(|error| error.to_string())
    }
}

/// The text form.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer::new(Lines(f));
        self.config.iter().for_each(|(name, value)| writer.config(name, value));
        if let Some(pools) = &self.pools {
            writer.pools(pools);
        }
        self.events.iter().for_each(|event| writer.event(event));
        writer.end();
        writer.fault().map_or(Ok(()), |_| Err(fmt::Error))
    }
}
