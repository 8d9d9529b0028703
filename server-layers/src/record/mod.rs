//! [`Record`]: a server that writes down what it is asked, as a program that any device can be asked again.
//!
//! Calls are written in the order in which the server accepts them, before they are handed on. Bytes that come later are written when
//! they are there: those that somebody promised, those a read brings, and those written in place, which are looked at when the access
//! ends. What no program can say is written as that, with the reason. The device never notices: when the sink fails, that is told once
//! and the recording ends.
//!
//! | file | job |
//! |---|---|
//! | `contract.rs` | the `Server` trait, call by call |
//! | `later.rs` | bytes that are not there when the call is made |
//! | `file.rs` | a recording to a file |

mod contract;
#[cfg(feature = "std")]
mod file;
mod later;

#[cfg(feature = "std")]
pub(crate) use file::to_file;
#[cfg(feature = "std")]
pub use trunnion_runtime_core::sink::FileSink;

use crate::program::{KernelInfo, MAX_DIMENSIONS, MAX_SIZE, Sink, Writer};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use hashbrown::HashMap;
use later::Later;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::kernel::{KernelHandle, KernelId};
use trunnion_runtime_core::server::{Opened, Region, Server};
use trunnion_runtime_core::timeline::Moment;

/// A server around a server that writes down what it is asked.
///
/// Equivalent to: an API trace, as `gfxreconstruct` and `apitrace` take them.
pub struct Record<S: Server + ?Sized, K: Sink + Send + 'static> {
    log: Log<K>,
    inside: Box<S>,
}

/// What a recording is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Whether the bytes that reads bring are written down too, so that a replay can be compared with the run itself. Default true.
    pub expected: bool,
    /// What is written at the head, as name and value. Default nothing; [`Record::around`] adds what the device says it is.
    pub config: Vec<(String, String)>,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self { expected: true, config: Vec::new() }
    }
}

/// How a recording goes, to be asked for while the server is in use.
#[derive(Clone, Debug, Default)]
pub struct Recording(Arc<spin::Mutex<Status>>);

#[derive(Debug, Default)]
struct Status {
    steps: u64,
    fault: Option<String>,
    ended: bool,
}

impl Recording {
    /// How many steps were written.
    pub fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    /// Why the sink took no more, if it failed.
    pub fn fault(&self) -> Option<String> {
        self.0.lock().fault.clone()
    }

    /// Whether the program is complete: its server has ended.
    pub fn has_ended(&self) -> bool {
        self.0.lock().ended
    }
}

impl<S: Server + ?Sized, K: Sink + Send + 'static> Record<S, K> {
    /// Puts a recording around a server that was not started.
    pub fn new(inside: Box<S>, sink: K, options: RecordOptions) -> Self {
        let mut writer = Writer::new(sink);
        options.config.iter().for_each(|(name, value)| writer.config(name, value));
        let mut log = Log {
            writer: Some(writer),
            expected: options.expected,
            number: 0,
            streams: HashMap::new(),
            next_stream: 0,
            buffers: HashMap::new(),
            next_buffer: 0,
            tried: AllocationMode::Auto,
            trying: None,
            kernels: HashMap::new(),
            later: Vec::new(),
            accesses: HashMap::new(),
            fault_seen: false,
            dirty: true,
            recording: Recording::default(),
        };
        log.tell();
        Self { log, inside }
    }

    /// How it goes.
    pub fn recording(&self) -> Recording {
        self.log.recording.clone()
    }
}

impl<K: Sink + Send + 'static> Record<dyn Server, K> {
    /// Puts a recording around a server as a backend opened it. What the device says it is goes to the head.
    pub fn around(opened: Opened, sink: K, mut options: RecordOptions) -> (Opened, Recording) {
        let info = &opened.properties.info;
        let said = [
            ("device", info.device.to_string()),
            ("adapter", info.adapter.clone()),
            ("driver", info.driver.clone()),
            ("api", info.api.clone()),
        ];
        options.config.extend(said.map(|(name, value)| (name.to_string(), value)));
        let layer = Self::new(opened.server, sink, options);
        let recording = layer.recording();
        (Opened { server: Box::new(layer), ..opened }, recording)
    }
}

impl<S: Server + ?Sized, K: Sink + Send + 'static> fmt::Debug for Record<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("recording", &self.log.recording).finish_non_exhaustive()
    }
}

/// The recording itself: what was written, and under which numbers.
struct Log<K: Sink + Send + 'static> {
    /// Gone when the recording has ended.
    writer: Option<Writer<K>>,
    expected: bool,
    /// The number of the last operation.
    number: u64,
    streams: HashMap<StreamId, u32>,
    next_stream: u32,
    buffers: HashMap<MemoryId, Known>,
    next_buffer: u32,
    /// How memory was last asked for that may be refused.
    tried: AllocationMode,
    /// The reservation under way that may be refused.
    trying: Option<(Moment, Handle)>,
    /// The kernels by their slot, which another may have by now.
    kernels: HashMap<u32, (KernelId, u32)>,
    later: Vec<Later>,
    accesses: HashMap<Moment, later::Access>,
    fault_seen: bool,
    /// Something was written that may not be safe yet.
    dirty: bool,
    recording: Recording,
}

/// A buffer, and the stream that reserved it.
struct Known {
    buffer: u32,
    stream: u32,
}

impl<K: Sink + Send + 'static> Log<K> {
    /// Writes a step; `None` where nothing is written any more.
    fn start(&mut self, at: Moment, verb: &str) -> Option<&mut Writer<K>> {
        self.number = self.number.max(at.seq);
        let number = self.number;
        let stream = self.stream(at.stream);
        self.dirty = true;
        let writer = self.writer.as_mut()?;
        writer.start(number, stream, verb);
        Some(writer)
    }

    /// A step without further words.
    fn plain(&mut self, at: Moment, verb: &str) {
        if let Some(writer) = self.start(at, verb) {
            writer.finish();
        }
    }

    /// A step that no program can say.
    fn lost(&mut self, at: Moment, why: &str) {
        if let Some(writer) = self.start(at, "lost") {
            writer.quoted(why);
            writer.finish();
        }
    }

    fn stream(&mut self, stream: StreamId) -> u32 {
        let next = &mut self.next_stream;
        *self.streams.entry(stream).or_insert_with(|| {
            let number = *next;
            *next += 1;
            number
        })
    }

    /// The buffer behind a handle: `Some(None)` where it has no bytes at all, `None` where it is not known.
    fn buffer(&self, handle: &Handle) -> Option<Option<u32>> {
        match self.buffers.get(&handle.memory()) {
            Some(known) => Some(Some(known.buffer)),
            None => handle.is_empty().then_some(None),
        }
    }

    /// Why a step on these regions cannot be written, if it cannot.
    fn unsayable(&self, regions: &[&Region]) -> Option<&'static str> {
        let rows = |region: &&&Region| region.rows.as_ref().is_some_and(|rows| rows.outer.len() > MAX_DIMENSIONS);
        if regions.iter().any(|region| self.buffer(&region.handle).is_none()) {
            Some("it uses memory that was reserved before the recording began")
        } else if regions.iter().any(|region| region.handle.range().end > MAX_SIZE) {
            Some("it uses more bytes than a buffer of a program has")
        } else if regions.iter().find(rows).is_some() {
            Some("it has rows in more dimensions than a program has")
        } else {
            None
        }
    }

    /// One more word: the region.
    fn region(&mut self, region: &Region) {
        let buffer = self.buffer(&region.handle).flatten();
        // Rows that are all of the bytes say no more than the bytes.
        let whole = region.handle.size_in_used();
        let rows = region.rows.as_ref().filter(|rows| !rows.is_dense() || rows.row != whole);
        if let Some(writer) = &mut self.writer {
            writer.view(buffer, &region.handle.range(), rows);
        }
    }

    /// The kernel's place, written down when it is launched first.
    fn kernel(&mut self, kernel: &KernelHandle) -> Option<u32> {
        let id = kernel.kernel().id();
        if let Some((known, place)) = self.kernels.get(&kernel.slot())
            && *known == id
        {
            return Some(*place);
        }
        let place = self.writer.as_mut()?.kernel(&KernelInfo::of(kernel));
        self.kernels.insert(kernel.slot(), (id, place));
        Some(place)
    }

    /// A line for people.
    fn comment(&mut self, text: &str) {
        self.dirty = true;
        if let Some(writer) = &mut self.writer {
            writer.comment(text);
        }
    }

    /// Lets whoever asks know how it goes, and tells a failure of the sink once.
    fn tell(&mut self) {
        let Some(writer) = &self.writer else { return };
        let mut status = self.recording.0.lock();
        status.steps = writer.steps();
        if let Some(fault) = writer.fault()
            && status.fault.is_none()
        {
            log::error!("the recording ended after {} steps: {fault}", status.steps);
            status.fault = Some(fault.to_string());
            drop(status);
            self.writer = None;
        }
    }

    /// The device is released: what is known by now is written, and made safe.
    fn settle(&mut self) {
        self.look_later();
        if core::mem::take(&mut self.dirty)
            && let Some(writer) = &mut self.writer
        {
            writer.flush();
            self.tell();
        }
    }

    /// The program is complete.
    fn end(&mut self) {
        if self.writer.is_none() {
            return;
        }
        self.give_up_later();
        if let Some(writer) = &mut self.writer {
            writer.end();
        }
        self.tell();
        if self.writer.take().is_some() {
            self.recording.0.lock().ended = true;
        }
    }
}

impl<K: Sink + Send + 'static> Drop for Log<K> {
    fn drop(&mut self) {
        self.end();
    }
}
