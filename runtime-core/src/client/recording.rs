//! Writing down what becomes of the device's memory.

use super::Client;
use crate::error::{Result, Text};
use crate::server::{MemoryRecording, RecordingServer};
use crate::service::Core;
use crate::sink::Sink;
use alloc::boxed::Box;
use core::sync::atomic::Ordering;

impl Client {
    /// Writes every request for the device's memory, by whatever client, and every free to `sink`, from now until
    /// [`record_memory_stop`](Self::record_memory_stop) or the device's end. What is live already is written at the beginning.
    ///
    /// The text is that of `TRACE.md` in `trunnion-memory-pools`, which reads it, replays it without a device and draws it. A sink that
    /// fails ends the recording, is logged, and disturbs the device in no other way.
    ///
    /// Equivalent to: `_record_memory_history` of PyTorch; the logging resource adaptor of RMM.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::error::Error::Busy) while another recording runs, [`Error::File`](crate::error::Error::File) when the
    /// sink does not even take the beginning, [`Error::Unsupported`](crate::error::Error::Unsupported); the device's fault.
    pub fn record_memory_start(&self, sink: impl Sink + Send + 'static) -> Result<()> {
        let sink: Box<dyn Sink + Send> = Box::new(sink);
        self.ask_recording("record_memory_start", move |server| server.start_recording(sink))?
    }

    /// Writes the device's memory usage into the running recording, under this label, behind all that was asked for before. Where nothing
    /// is recorded this is a look at one flag and reads nothing, so that the call can stay in a program.
    ///
    /// # Errors
    /// The device's fault, while a recording runs.
    pub fn record_memory(&self, label: impl Into<Text>) -> Result<()> {
        if !self.service.shared.is_recording.load(Ordering::Relaxed) {
            return Ok(());
        }
        // It is waited for: what the caller drops next is still in the snapshot.
        let label: Text = label.into();
        self.ask_recording("record_memory", move |server| server.snapshot(&label))
    }

    /// Ends the recording: what was written, and why it ended early if it did. `None` where nothing was recorded since the last call.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::error::Error::Unsupported); the device's fault.
    pub fn record_memory_stop(&self) -> Result<Option<MemoryRecording>> {
        self.ask_recording("record_memory_stop", |server| server.stop_recording())
    }

    fn ask_recording<T: Send + 'static>(
        &self,
        what: &'static str,
        ask: impl FnOnce(&mut dyn RecordingServer) -> T + Send + 'static,
    ) -> Result<T> {
        let answer = self.service.call(what, move |core: &mut Core, _| {
            core.free_dropped();
            core.server.progress();
            core.ask_recording(ask)
        })?;
        answer.ok_or_else(|| self.unsupported(what))
    }
}
