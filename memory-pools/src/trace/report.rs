//! What came of a replay.

use super::map::MemoryMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, Size};

/// What came of running a trace against pools. `Display` is a table. Events are counted from 0, as they stand in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReplayReport {
    /// How many requests there were.
    pub requests: u64,
    /// How many frees.
    pub frees: u64,
    /// The most bytes that were live at once, as they were asked for.
    pub peak_live: u64,
    /// The most bytes that were taken from the device at once.
    pub peak_reserved: u64,
    /// Pages that were taken.
    pub pages_taken: u64,
    /// Pages that were given back.
    pub pages_returned: u64,
    /// How often a request had to wait for work to be done.
    pub waits: u64,
    /// Requests that were not served.
    pub failed: u64,
    /// The first of them, at most [`FAILURES`](Self::FAILURES).
    pub failures: Vec<Failure>,
    /// Requests that were not served when the trace was recorded.
    pub refused_before: u64,
    /// The moment at which most was live, the first of them.
    pub peak: Peak,
    /// The pools at the end.
    pub end: MemoryReport,
    /// What stood where in the trace to be seen.
    pub labels: Vec<Label>,
    /// The memory after each event of the trace.
    pub curve: Vec<Sample>,
}

/// A request that was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Failure {
    /// The event.
    pub event: u64,
    /// The request's number in the trace.
    pub number: u32,
    /// The bytes asked for.
    pub size: u64,
    /// The stream that was to use them first.
    pub stream: StreamId,
    /// How it was to be served.
    pub mode: AllocationMode,
    /// Why it was not.
    pub cause: String,
}

/// The moment at which most was live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Peak {
    /// The event after which it was.
    pub event: u64,
    /// The pools then.
    pub report: MemoryReport,
    /// What lay where then.
    pub map: MemoryMap,
}

/// A snapshot or a mark of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Label {
    /// The event.
    pub event: u64,
    /// Its text.
    pub text: String,
    /// The usage when it was recorded, of a snapshot.
    pub recorded: Option<MemoryUsage>,
}

/// The memory after an event, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sample {
    /// Bytes asked for and in use.
    pub live: u64,
    /// Bytes of rounding inside what is in use.
    pub padding: u64,
    /// Bytes taken from the device.
    pub reserved: u64,
}

impl Sample {
    /// Bytes that are taken from the device and serve nobody: padding and what is free.
    pub fn lost(&self) -> u64 {
        self.reserved.saturating_sub(self.live)
    }
}

impl ReplayReport {
    /// The most failures that are kept with their cause.
    pub const FAILURES: usize = 100;

    /// The share of what was taken from the device that never served: `1 - peak_live / peak_reserved`, 0 where nothing was taken.
    pub fn waste(&self) -> f64 {
        match self.peak_reserved {
            0 => 0.0,
            reserved => 1.0 - self.peak_live as f64 / reserved as f64,
        }
    }
}

/// The numbers a line each, the pools where most was live and at the end as tables, and the requests that failed.
impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, frees, waits, failed, .. } = self;
        writeln!(f, "{} events: {requests} requests, {frees} frees, {waits} waits, {failed} failed", self.curve.len())?;
        writeln!(f, "peak live      {:>11}  ({} bytes)", Size(self.peak_live), self.peak_live)?;
        writeln!(f, "peak reserved  {:>11}  ({} bytes)", Size(self.peak_reserved), self.peak_reserved)?;
        writeln!(f, "waste          {:>10.1} %", self.waste() * 100.0)?;
        writeln!(f, "pages          {:>11}  taken, {} given back", self.pages_taken, self.pages_returned)?;
        writeln!(f, "\nwhere most was live, after event {}:\n{}", self.peak.event, self.peak.report)?;
        write!(f, "\nat the end:\n{}", self.end)?;
        if self.refused_before > 0 {
            write!(f, "\n\n{} requests were refused when the trace was recorded", self.refused_before)?;
        }
        if self.failed > 0 {
            write!(f, "\n\nrequests that failed:")?;
        }
        for Failure { event, number, size, stream, mode, cause } in &self.failures {
            write!(f, "\nevent {event}: request {number}, {size} bytes, {mode}, {stream}: {cause}")?;
        }
        match self.failed - (self.failures.len() as u64).min(self.failed) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}
