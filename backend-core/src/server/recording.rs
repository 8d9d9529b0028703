//! Writing down what becomes of the device's memory, while somebody wants that.

use super::DriverServer;
use crate::driver::Driver;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use trunnion_memory_pools::Request;
use trunnion_memory_pools::trace::Recorder;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::server::{MemoryRecording, RecordingServer};
use trunnion_runtime_core::sink::Sink;
use trunnion_runtime_core::timeline::Frontier;

type Sinks = Box<dyn Sink + Send>;

/// The recording that runs, and what came of the last one.
#[derive(Default)]
pub(super) struct Recording {
    running: Option<Box<Recorder<Sinks>>>,
    ended: Option<MemoryRecording>,
}

impl Recording {
    /// Whether there is something to be told.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.running.is_some()
    }

    /// Tells it something. It is out of its place meanwhile, so that a sink that panics is not called again; one that fails is logged,
    /// and the recording over.
    #[cold]
    fn tell(&mut self, what: impl FnOnce(&mut Recorder<Sinks>)) {
        let Some(mut recorder) = self.running.take() else { return };
        self.ended = Some(MemoryRecording { events: recorder.events(), fault: Some("the sink panicked".to_string()) });
        what(&mut recorder);
        self.ended = None;
        match recorder.fault() {
            None => self.running = Some(recorder),
            Some(fault) => {
                log::error!("the recording of the memory ended after {} events: {fault}", recorder.events());
                self.ended = Some(MemoryRecording { events: recorder.events(), fault: Some(fault.to_string()) });
            }
        }
    }

    /// Writes the last line.
    pub(super) fn end(&mut self) {
        self.tell(Recorder::end);
        if let Some(recorder) = self.running.take() {
            self.ended = Some(MemoryRecording { events: recorder.events(), fault: None });
        }
    }
}

impl<D: Driver> DriverServer<D> {
    /// A request is about to wait for memory.
    #[cold]
    pub(super) fn record_wait(&mut self, request: &Request) {
        let timeline = &self.timeline;
        self.recording.tell(|recorder| recorder.waits(request, timeline));
    }

    /// A request was answered.
    #[cold]
    pub(super) fn record_request(&mut self, request: &Request, refused: Option<&Error>) {
        let timeline = &self.timeline;
        self.recording.tell(|recorder| match refused {
            None => recorder.served(request, timeline),
            Some(cause) => recorder.refused(request, cause, timeline),
        });
    }

    /// Memory is about to be freed.
    #[cold]
    pub(super) fn record_free(&mut self, memory: MemoryId, frontier: &Frontier) {
        let timeline = &self.timeline;
        self.recording.tell(|recorder| recorder.freed(memory, frontier, timeline));
    }

    /// Another layout was installed. A replay has one throughout, so it is something to be seen and no more.
    #[cold]
    pub(super) fn record_layout(&mut self, layout: &PoolLayout) {
        self.recording.tell(|recorder| recorder.mark(&format!("pools from here on: {layout}")));
    }

    /// Free pages were given back.
    #[cold]
    pub(super) fn record_cleanup(&mut self) {
        let timeline = &self.timeline;
        self.recording.tell(|recorder| recorder.cleaned_up(timeline));
    }
}

impl<D: Driver> RecordingServer for DriverServer<D> {
    fn is_recording(&self) -> bool {
        self.recording.is_on()
    }

    fn start_recording(&mut self, sink: Sinks) -> Result<()> {
        if self.recording.is_on() {
            return Err(Error::Busy { what: "a recording of the device's memory runs already".into() });
        }
        let info = &self.hardware.driver.properties().info;
        let device = info.device.to_string();
        let config = [("device", &*device), ("adapter", &*info.adapter), ("driver", &*info.driver)];
        let recorder = Recorder::new(sink, &config, &self.pools);
        if let Some(fault) = recorder.fault() {
            return Err(Error::File { path: "the memory's recording".to_string(), message: fault.to_string() });
        }
        self.recording = Recording { running: Some(Box::new(recorder)), ended: None };
        Ok(())
    }

    fn snapshot(&mut self, label: &str) {
        if self.recording.is_on() {
            let (usage, timeline) = (self.pools.usage(), &self.timeline);
            self.recording.tell(|recorder| recorder.snapshot(label, &usage, timeline));
        }
    }

    fn stop_recording(&mut self) -> Option<MemoryRecording> {
        self.recording.end();
        self.recording.ended.take()
    }
}
