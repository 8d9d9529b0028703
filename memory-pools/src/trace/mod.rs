//! Allocation traces: what was asked of a device's memory, as text, replayed against any pools without a device, and drawn.
//!
//! A [`Trace`] is a list of [`Event`]s. It has a text form, which [`Trace::parse`] reads, `Display` writes, and a [`Recorder`] writes as
//! the events come. [`Trace::from_text`] also reads lifetimes and logs of RMM. [`replay`] runs a trace against a [`PoolsConfig`], and a
//! [`Picture`] shows what came of it.
//!
//! ```
//! use trunnion_memory_pools::PoolsConfig;
//! use trunnion_memory_pools::trace::{Trace, replay};
//! use trunnion_runtime_core::pool_layout::PoolLayout;
//! let trace = Trace::parse("trunnion-memory-trace 1\nalloc 0 1000 s1 auto\nalloc 1 3000 s1 auto\nfree 0\nend 3\n")?;
//! let report = replay(&trace, &PoolsConfig { layout: PoolLayout::fixed(4096)?, ..PoolsConfig::default() });
//! assert_eq!((report.peak_live, report.peak_reserved), (4000, 4096));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | job |
//! |---|---|
//! | `event.rs` | a trace and its events |
//! | `defect.rs` | what can be wrong with a text |
//! | `words.rs` | how a line is cut, and how numbers and texts are written in it |
//! | `writer.rs` | writing the text form, line by line |
//! | `recorder.rs`, `watch.rs` | a recording of pools in use, and what it says of the device's progress |
//! | `parse.rs` | reading the text form |
//! | `lifetimes.rs`, `rmm.rs` | reading what others write |
//! | `replay.rs`, `imagined.rs` | running a trace against pools, and the device that stands in |
//! | `report.rs` | what came of it |
//! | `map.rs` | what lies where |
//! | `picture/` | drawing it |
//!
#![doc = include_str!("../../TRACE.md")]

mod defect;
mod event;
mod imagined;
mod lifetimes;
mod map;
mod parse;
mod picture;
mod recorder;
mod replay;
mod report;
mod rmm;
mod watch;
mod words;
mod writer;

pub use defect::{Defect, ParseError};
pub use event::{Event, Requested, Snapshot, Trace};
pub use map::{MappedBlock, MappedPage, MemoryMap};
pub use picture::Picture;
pub use recorder::Recorder;
pub use replay::{Replay, replay};
pub use report::{Failure, Label, Peak, ReplayReport, Sample};
pub use trunnion_runtime_core::sink::Sink;
pub use writer::Writer;

#[cfg(doc)]
use crate::PoolsConfig;

/// The version of the text form that is written, and the latest that is read.
pub const VERSION: u32 = 1;

/// The most bytes in a line, without its end.
pub const MAX_LINE: usize = 1 << 15;

pub use trunnion_runtime_core::text::MAX_TEXT;

/// The most bytes of one request.
pub const MAX_SIZE: u64 = 1 << 48;
