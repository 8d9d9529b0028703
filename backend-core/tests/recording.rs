//! What a server writes down of its memory.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{Rig, out, rig, rig_with};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trunnion_backend_core::ServerSettings;
use trunnion_memory_pools::trace::{Trace, replay};
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::server::{MemoryServer, RecordingServer, Server};
use trunnion_runtime_core::sink::Sink;

/// Lines that the test keeps; the line of this number, from 0, makes the sink panic.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>, Option<usize>);

impl Sink for Lines {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut text = self.0.lock().unwrap();
        if Some(text.lines().count()) == self.1 {
            drop(text);
            panic!("the sink panics, on purpose");
        }
        text.line(line)
    }
}

impl Lines {
    fn events(&self) -> Vec<String> {
        let text = self.0.lock().unwrap().clone();
        let is_event = |line: &&str| !["trunnion", "config", "pool", "end"].iter().any(|word| line.starts_with(word));
        text.lines().filter(is_event).map(String::from).collect()
    }

    fn trace(&self) -> Trace {
        Trace::parse(&self.0.lock().unwrap()).unwrap()
    }
}

fn start(rig: &mut Rig) -> Lines {
    let lines = Lines::default();
    rig.server.start_recording(Box::new(lines.clone())).unwrap();
    lines
}

fn tight(bytes: u64) -> ServerSettings {
    ServerSettings { memory_budget: Some(bytes), pressure_wait: Duration::from_millis(50), ..ServerSettings::default() }
}

#[test]
fn what_freed_memory_waits_for_is_written_with_it_and_that_it_is_done_before_the_next_request() {
    let mut rig = rig();
    let lines = start(&mut rig);
    let (s, k) = (StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 1000);
    let at = rig.launch(s, &k, &[&a]);
    drop(a);
    rig.free_dropped();
    let b = rig.buffer(s, 500);
    rig.run();
    drop(b);
    rig.free_dropped();
    let c = rig.buffer(s, 600);
    let (stream, seq) = (s.get(), at.seq);
    let expected = [
        format!("alloc 0 1000 s{stream} auto"),
        format!("free 0 s{stream}@{seq}"),
        format!("alloc 1 500 s{stream} auto"),
        format!("done s{stream}@{seq}"),
        "free 1".into(),
        format!("alloc 2 600 s{stream} auto"),
    ];
    assert_eq!(lines.events(), expected);
    drop(c);
}

#[test]
fn what_another_stream_waited_for_is_written_before_its_request() {
    let mut rig = rig();
    let lines = start(&mut rig);
    let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
    let (a, b) = (rig.buffer(s, 1000), rig.buffer(s, 1000));
    rig.launch(s, &k, &[&a]);
    rig.launch(s, &k, &[&b]);
    // Stream t comes after all of s by using what s wrote last.
    rig.launch(t, &k, &[&b]);
    drop(a);
    rig.free_dropped();
    let c = rig.buffer(t, 1000);
    let events = lines.events();
    assert_eq!(events.len(), 5, "{events:?}");
    assert!(events[3].starts_with(&format!("order s{} s{}@", t.get(), s.get())), "{events:?}");
    let end = rig.server.report(trunnion_runtime_core::report::ReportScope::Device);
    rig.server.stop_recording();
    let report = replay(&lines.trace(), &lines.trace().pools.unwrap());
    assert_eq!(report.end, end);
    drop((b, c));
}

#[test]
fn a_request_that_waited_waits_in_the_replay_and_one_that_waited_in_vain_is_there_with_its_cause() {
    let mut rig = rig_with(tight(4096));
    let lines = start(&mut rig);
    let (s, t, k) = (StreamId::new(), StreamId::new(), rig.kernel("k", out()));
    let a = rig.buffer(s, 4096);
    rig.launch(s, &k, &[&a]);
    drop(a);
    rig.free_dropped();
    let none = rig.buffer(t, 4096);
    assert!(rig.server.check(std::slice::from_ref(&none)).is_err());
    drop(none);
    rig.free_dropped();
    rig.script.get().drains = true;
    let b = rig.buffer(t, 4096);
    assert_eq!(rig.server.check(std::slice::from_ref(&b)), Ok(()));
    assert_eq!(rig.server.stop_recording().unwrap().fault, None);
    let trace = lines.trace();
    let refused = lines.events().into_iter().find(|line| line.starts_with("fail 1 4096")).unwrap();
    assert!(refused.contains("out of memory: 4096 bytes requested") && refused.contains("Wait"), "{refused}");
    let report = replay(&trace, &trace.pools.clone().unwrap());
    // The replay does not run out of patience: what it waited for is done.
    assert_eq!((report.requests, report.refused_before, report.failed), (3, 1, 0));
    assert!(report.waits >= 1 && report.peak_reserved == 4096, "{report}");
}

#[test]
fn what_the_driver_refuses_is_written_with_its_words() {
    let mut rig = rig();
    let lines = start(&mut rig);
    rig.script.get().device_memory = Some(4096);
    let s = StreamId::new();
    let (a, b) = (rig.buffer(s, 4096), rig.buffer(s, 4096));
    let events = lines.events();
    assert!(events[1].starts_with("fail 1 4096") && events[1].contains("the mock is full"), "{events:?}");
    for handle in [a, b] {
        drop(handle);
        rig.free_dropped();
    }
    assert_eq!(lines.events()[2..], ["free 0", "free 1"]);
}

#[test]
fn a_sink_that_panics_ends_the_recording_and_not_the_device() {
    let mut rig = rig();
    let head = start(&mut rig).0.lock().unwrap().lines().count();
    rig.server.stop_recording();
    let lines = Lines(Arc::default(), Some(head + 1));
    rig.server.start_recording(Box::new(lines.clone())).unwrap();
    let s = StreamId::new();
    let a = rig.buffer(s, 100);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let b = catch_unwind(AssertUnwindSafe(|| rig.buffer(s, 200)));
    std::panic::set_hook(hook);
    assert!(b.is_err());
    rig.server.panicked(0, "the sink panics, on purpose");
    assert!(!rig.server.is_recording());
    let recording = rig.server.stop_recording().unwrap();
    assert_eq!((recording.events, recording.fault.as_deref()), (1, Some("the sink panicked")));
    assert_eq!(rig.server.check(&[a]), Ok(()));
    rig.free_dropped();
    let c = rig.buffer(s, 300);
    assert_eq!(rig.server.check(&[c]), Ok(()));
}

#[test]
fn the_end_of_the_server_writes_the_last_line_once() {
    let mut rig = rig();
    let lines = start(&mut rig);
    let s = StreamId::new();
    let a = rig.buffer(s, 100);
    rig.server.shutdown(&Deadline::after(Duration::from_secs(1)));
    assert_eq!(lines.trace().events.len(), 1);
    rig.server.shutdown(&Deadline::after(Duration::from_secs(1)));
    drop(a);
    rig.free_dropped();
    drop(rig);
    assert_eq!(lines.trace().events.len(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told() {
    let mut rig = rig();
    let sink = trunnion_runtime_core::sink::FileSink::create("/dev/full").unwrap();
    let error = rig.server.start_recording(Box::new(sink)).unwrap_err().to_string();
    assert!(error.contains("/dev/full: No space left on device"), "{error}");
    assert!(!rig.server.is_recording());
}
