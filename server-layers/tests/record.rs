//! Recording on the host, and replaying what was recorded.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

use core::time::Duration;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use trunnion_backend_core::LimitOptions;
use trunnion_backend_host::{HostBackend, HostImport, HostOptions, HostResource};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::{Client, TensorView};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::KernelFault;
use trunnion_runtime_core::foreign::Event;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::{DeviceId, StreamId};
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};
use trunnion_runtime_core::layout::TensorDescriptor;
use trunnion_runtime_core::pressure::PressureAnswer;
use trunnion_runtime_core::server::Opened;
use trunnion_server_layers::program::{
    Call, Content, KernelTable, Observed, Place, Program, ReplayError, Replayed, Sink, Unresolved, replay,
};
use trunnion_server_layers::{FileSink, Layers, Record, RecordOptions, Recording};

fn open(options: &HostOptions) -> Opened {
    HostBackend::new(options.clone()).open(0, &OpenSettings::default()).unwrap()
}

fn start(opened: Opened) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(20_000);
    let backend = HostBackend::default().name();
    Client::try_init(DeviceId { backend, index: NEXT.fetch_add(1, Ordering::Relaxed) }, opened).unwrap()
}

fn on_new_stream(client: &Client) -> Client {
    let mut client = client.clone();
    client.set_stream(StreamId::new());
    client
}

/// Lines that several hold.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Sink for Lines {
    fn line(&mut self, line: &str) -> Result<(), String> {
        self.0.lock().unwrap().line(line)
    }
}

fn recorded(options: &HostOptions, record: RecordOptions, run: impl FnOnce(&Client)) -> Program {
    let lines = Lines::default();
    let (opened, recording) = Record::around(open(options), lines.clone(), record);
    let client = start(opened);
    run(&client);
    client.shutdown(Duration::from_secs(10));
    assert!(recording.has_ended() && recording.fault().is_none(), "{recording:?}");
    let text = lines.0.lock().unwrap().clone();
    let program = Program::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(program.steps.len() as u64, recording.steps());
    program
}

fn scale() -> SourceKernel {
    let interface = Interface::new().read().overwrite(256).parameters_of::<f32>();
    SourceKernel::new("scale", interface).workgroup_size([64, 1, 1]).source(Source::host(|group| {
        let (factor, from) = (group.parameters::<f32>()?, group.read::<f32>(0)?);
        let range = group.part_range::<f32>(1)?;
        group.part::<f32>(1)?.iter_mut().zip(&from[range]).for_each(|(to, from)| *to = factor * from);
        Ok(())
    }))
}

fn fails() -> SourceKernel {
    let fails = Source::host(|_| Err(KernelFault::Message("on purpose".into())));
    SourceKernel::new("fails", Interface::new().read().partition(256)).workgroup_size([64, 1, 1]).source(fails)
}

fn table() -> KernelTable {
    KernelTable::new().with(scale()).with(fails())
}

fn values(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| (i as f32).to_ne_bytes()).collect()
}

/// Several streams, ranges, rows, parameters, a dynamic grid, modes, a failure, and a large write. What it read comes back.
fn scenario(client: &Client) -> Vec<Option<Vec<u8>>> {
    let other = on_new_stream(client);
    let (scale, fails) = (client.prepare(scale()).unwrap(), client.prepare(fails()).unwrap());
    let a = client.create_from_slice(&values(256)).unwrap();
    let b = {
        let _window = other.allocation_mode(AllocationMode::Persistent);
        other.zeros(2048).unwrap()
    };
    let args = |from, to| trunnion_runtime_core::kernel::Args::new().buffer(from).buffer(to).parameters(&2.5f32);
    let (half, upper) = (a.slice(512..).unwrap(), b.slice(1024..1536).unwrap());
    client.launch(&scale, Grid::x(2), args(&half, &upper)).unwrap();
    let point = client.record().unwrap();
    other.wait(point).unwrap();
    let counts = other.create_from_slice(&[2u32, 1, 1].map(u32::to_ne_bytes).concat()).unwrap();
    other.launch(&scale, Grid::Dynamic(counts), args(&a.slice(..512).unwrap(), &b.slice(..512).unwrap())).unwrap();
    // Rows of 12 bytes at a distance of 40, and back.
    let tensor = TensorDescriptor::contiguous([5, 3], ElemType::F32);
    let view =
        TensorView { handle: &b.slice(100..400).unwrap(), shape: &[5, 3], strides: &[10, 1], elem: ElemType::F32 };
    other.write_tensor(&view, Bytes::from_vec(values(15))).unwrap();
    let dense = other.empty_tensor(&tensor).unwrap();
    other.copy_tensor(&view, &TensorView::new(&dense, &tensor)).unwrap();
    let mut seen = vec![Some(other.read_tensor(&view).unwrap().to_vec::<u8>().unwrap())];
    // A failure on a part, and a copy that inherits it.
    client.launch(&fails, Grid::x(1), [&a.slice(..256).unwrap(), &b.slice(1792..).unwrap()]).unwrap();
    let large = on_new_stream(client).create_from_slice(&values(100_000)).unwrap();
    client.copy(&b.slice(1792..).unwrap(), &large.slice(..256).unwrap()).unwrap();
    client.fill(&a.slice(4..12).unwrap(), &[1, 2, 3, 4]).unwrap();
    drop(a.clone());
    client.flush().unwrap();
    for handle in [&a, &b, &dense.memory, &large, &large.slice(256..).unwrap(), &b.slice(..1792).unwrap()] {
        seen.push(client.read_one(handle).ok().map(|bytes| bytes.to_vec::<u8>().unwrap()));
    }
    assert_eq!(seen.iter().filter(|seen| seen.is_none()).count(), 2);
    seen
}

fn as_seen(replayed: &Replayed) -> Vec<Option<Vec<u8>>> {
    let seen = |(_, observed): &(Place, Observed)| observed.failures.is_empty().then(|| observed.bytes.clone());
    replayed.reads.iter().map(seen).collect()
}

fn hard() -> HostOptions {
    HostOptions::default()
        .separate_memory(true)
        .limits(LimitOptions { row_pitch: Some(256), ..LimitOptions::default() })
        .delay(Duration::from_micros(200))
        .reorder(3)
}

#[test]
fn a_recorded_run_replays_to_the_same_bytes_on_any_device() {
    for options in [HostOptions::default(), hard()] {
        let mut seen = Vec::new();
        let program = recorded(&options, RecordOptions::default(), |client| seen = scenario(client));
        assert!(program.setting("device").is_some_and(|device| device.starts_with("host:")), "{program}");
        for options in [HostOptions::default(), hard()] {
            let client = start(open(&options));
            let replayed = replay(&program, &client, &table()).unwrap();
            assert!(as_seen(&replayed) == seen);
            assert_eq!(program.expected().unwrap().difference(&replayed), None);
            let again = replay(&program, &client, &table()).unwrap();
            assert_eq!(replayed.difference(&again), None);
        }
    }
}

#[test]
fn a_replay_recorded_again_replays_to_the_same() {
    let program = recorded(&HostOptions::default(), RecordOptions::default(), |client| drop(scenario(client)));
    let mut first = Replayed::default();
    let again =
        recorded(&hard(), RecordOptions::default(), |client| first = replay(&program, client, &table()).unwrap());
    let second = replay(&again, &start(open(&HostOptions::default())), &table()).unwrap();
    let bytes = |replayed: &Replayed| replayed.reads.iter().map(|(_, seen)| seen.clone()).collect::<Vec<_>>();
    // It has read the buffers at its end as well.
    assert!(bytes(&second)[..first.reads.len()] == bytes(&first));
}

#[test]
fn a_recording_goes_to_a_file_and_from_there_to_a_replay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.trunnion");
    let sink = FileSink::create(&path).unwrap();
    let (opened, recording) = Record::around(open(&HostOptions::default()), sink, RecordOptions::default());
    let client = start(opened);
    let seen = scenario(&client);
    // What was asked for is safe once the device was released, as it is needed where the process dies. Who is answered may see that
    // a moment before.
    client.check(&[]).unwrap();
    let start_of_wait = Instant::now();
    let (cut, error) = loop {
        let recovered = Program::recover(&std::fs::read_to_string(&path).unwrap());
        if recovered.0.steps.len() as u64 == recording.steps() || start_of_wait.elapsed() > Duration::from_secs(5) {
            break recovered;
        }
    };
    assert!(error.is_some() && cut.steps.len() > 20, "{cut}");
    assert_eq!(cut.steps.len() as u64, recording.steps());
    assert!(as_seen(&replay(&cut, &start(open(&hard())), &table()).unwrap()) == seen);
    drop(client);
    assert!(recording.has_ended());
    let program = Program::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(as_seen(&replay(&program, &start(open(&hard())), &table()).unwrap()) == seen);
}

#[test]
fn bytes_promised_by_another_device_are_written_down_when_they_come() {
    let source = start(open(&HostOptions::default()));
    let data = source.create_from_slice(&values(3000)).unwrap();
    let program = recorded(&hard(), RecordOptions::default(), |client| {
        client.wait(source.record().unwrap()).unwrap();
        let here = source.to_client(&data, client).unwrap();
        assert!(client.read_one(&here).unwrap().to_vec::<u8>().unwrap() == values(3000));
    });
    assert!(program.steps.iter().any(|step| step.call == Call::Outside), "{program}");
    let replayed = replay(&program, &start(open(&HostOptions::default())), &KernelTable::new()).unwrap();
    assert!(as_seen(&replayed) == [Some(values(3000))]);
}

#[test]
fn a_promise_that_fails_is_written_down_and_ends_the_replay_there() {
    let source = start(open(&HostOptions::default()));
    let data = source.zeros(256).unwrap();
    source.launch(&source.prepare(fails()).unwrap(), Grid::x(1), [&source.zeros(256).unwrap(), &data]).unwrap();
    let program = recorded(&HostOptions::default(), RecordOptions::default(), |client| {
        client.read_one(&source.to_client(&data, client).unwrap()).unwrap_err();
    });
    let error = replay(&program, &start(open(&HostOptions::default())), &KernelTable::new()).unwrap_err();
    assert!(matches!(&error, ReplayError::Unportable { step: 1, verb: "write", .. }), "{error}");
    assert!(error.to_string().contains("on purpose"), "{error}");
}

#[test]
fn memory_used_in_place_is_written_down_as_it_is_when_the_access_ends() {
    let large = values(200_000);
    let program = recorded(&HostOptions::default(), RecordOptions::default(), |client| {
        // Both are long enough to be done in place.
        let handle = client.create_from_slice(&large).unwrap();
        let mut back = vec![0; large.len()];
        client.read_into(&handle, &mut back).unwrap();
        assert!(back == large);
        client.with_resource::<HostResource, _>(&handle.slice(16..32).unwrap(), Access::Read, |_, _| ()).unwrap();
    });
    let reads = program.steps.iter().filter(|step| step.call.verb() == "read").count();
    assert_eq!(reads, 2, "{program}");
    let replayed = replay(&program, &start(open(&hard())), &KernelTable::new()).unwrap();
    assert!(as_seen(&replayed) == [Some(large.clone()), Some(large[16..32].to_vec())]);
    assert_eq!(program.expected().unwrap().difference(&replayed), None);
    assert_eq!(program.expected().unwrap().reads.len(), 2);
}

#[test]
fn what_was_written_where_the_host_cannot_see_is_said_to_be_lost() {
    let program = recorded(&hard(), RecordOptions::default(), |client| {
        let handle = client.zeros(64).unwrap();
        client.with_resource::<HostResource, _>(&handle, Access::Write, |_, _| ()).unwrap();
    });
    let lost = |step: &&trunnion_server_layers::program::Step| {
        matches!(&step.call, Call::Write { content: Content::Lost(_), .. })
    };
    assert_eq!(program.steps.iter().filter(lost).count(), 1, "{program}");
    let error = replay(&program, &start(open(&hard())), &KernelTable::new()).unwrap_err();
    assert!(error.to_string().contains("written in place, where the host cannot see it"), "{error}");
}

#[test]
fn expected_bytes_are_left_out_where_nobody_asks_for_them() {
    let record = RecordOptions { expected: false, config: vec![("why".into(), "a test".into())] };
    let mut seen = Vec::new();
    let program = recorded(&HostOptions::default(), record, |client| seen = scenario(client));
    assert_eq!(program.expected().unwrap(), Replayed::default());
    assert_eq!(program.setting("why"), Some("a test"));
    assert!(as_seen(&replay(&program, &start(open(&hard())), &table()).unwrap()) == seen);
}

#[test]
fn a_kernel_that_is_absent_or_another_is_named() {
    let program = recorded(&HostOptions::default(), RecordOptions::default(), |client| drop(scenario(client)));
    let client = start(open(&HostOptions::default()));
    let error = replay(&program, &client, &KernelTable::new().with(fails())).unwrap_err();
    assert_eq!(error.to_string(), "kernel `scale` is not in the table; there are: fails");
    let other = SourceKernel::new("scale", Interface::new().read().read()).source(Source::host(|_| Ok(())));
    let error = replay(&program, &client, &KernelTable::new().with(other).with(fails())).unwrap_err();
    assert!(matches!(&error, ReplayError::Kernel(Unresolved::Differs { kernel, .. }) if kernel == "scale"), "{error}");
    // One of the same name does no harm where another fits, and a resolver has the last word.
    let resolve = KernelTable::new().with(fails()).or_else(|info| match info.name.as_str() {
        "scale" => Some(Arc::new(scale())),
        _ => None,
    });
    replay(&program, &client, &resolve).unwrap();
}

/// Takes some lines and then none.
struct Full(usize);

impl Sink for Full {
    fn line(&mut self, _: &str) -> Result<(), String> {
        self.0 = self.0.checked_sub(1).ok_or("the disk is full")?;
        Ok(())
    }
}

#[test]
fn a_sink_that_fails_ends_the_recording_and_not_the_device() {
    let plain = scenario(&start(open(&HostOptions::default())));
    for lines in [0, 1, 10, 17] {
        let (opened, recording): (_, Recording) =
            Record::around(open(&HostOptions::default()), Full(lines), RecordOptions::default());
        let client = start(opened);
        assert!(scenario(&client) == plain);
        assert_eq!(recording.fault().as_deref(), Some("the disk is full"));
        client.shutdown(Duration::from_secs(10));
        assert!(!recording.has_ended());
    }
}

#[test]
fn the_layers_text_records_each_device_to_a_file_of_its_own_and_goes_on_where_there_can_be_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let layers: Layers = format!("record={}", path.display()).parse().unwrap();
    for _ in 0..2 {
        scenario(&start(layers.around(open(&HostOptions::default()))));
    }
    for name in ["run", "run-2"] {
        Program::parse(&std::fs::read_to_string(directory.path().join(name)).unwrap()).unwrap();
    }
    let nowhere: Layers = format!("record={}", directory.path().join("none/run").display()).parse().unwrap();
    scenario(&start(nowhere.around(open(&HostOptions::default()))));
}

#[test]
fn a_recorded_device_has_what_the_server_inside_has() {
    let (opened, _) = Record::around(open(&HostOptions::default()), String::new(), RecordOptions::default());
    let client = start(opened);
    let handle = client.zeros(1 << 20).unwrap();
    client.sync().unwrap().wait().unwrap();
    assert!(client.memory_usage().unwrap().reserved >= 1 << 20);
    client.with_resource::<HostResource, _>(&handle, Access::Write, |_, _| ()).unwrap();
    client.memory_cleanup().unwrap();
    client.check(&[&handle]).unwrap();
    assert_eq!(client.compile_statistics().unwrap().compiled, 0);
}

#[test]
fn a_reservation_that_was_tried_again_is_one_step_behind_what_was_freed_for_it() {
    let options = HostOptions::default().limits(LimitOptions { memory: Some(8 << 20), ..LimitOptions::default() });
    let program = recorded(&options, RecordOptions::default(), |client| {
        let cache = Arc::new(Mutex::new(vec![client.zeros(6 << 20).unwrap()]));
        let theirs = cache.clone();
        let _hook = client
            .on_memory_pressure(move |_| match theirs.lock().unwrap().pop() {
                Some(_) => PressureAnswer::Retry,
                None => PressureAnswer::Refuse,
            })
            .unwrap();
        let served = client.zeros(5 << 20).unwrap();
        assert_eq!(client.read_one(&served.slice(..4).unwrap()).unwrap().as_slice().unwrap(), [0; 4]);
        // Nothing is left to give back.
        let refused = client.empty(6 << 20).unwrap();
        assert!(client.check(&[&refused]).unwrap_err().is_out_of_memory());
    });
    let calls: Vec<&str> = program
        .steps
        .iter()
        .filter_map(|step| match &step.call {
            Call::Reserve { .. } => Some("reserve"),
            Call::Free { .. } => Some("free"),
            _ => None,
        })
        .collect();
    assert_eq!(calls[..4], ["reserve", "free", "reserve", "reserve"], "{program}");
}

#[test]
fn imported_memory_is_a_buffer_of_whose_bytes_the_recording_says_that_it_lacks_them() {
    let program = recorded(&HostOptions::default(), RecordOptions::default(), |client| {
        let imported = client.import(HostImport::new(vec![7u128; 4])).unwrap();
        client.fill(&imported, &[1]).unwrap();
        let (event, signal) = Event::new();
        client.wait(client.import_event(event).unwrap()).unwrap();
        signal.give();
        assert_eq!(client.read_one(&imported).unwrap().as_slice().unwrap(), [1; 64]);
    });
    let calls: Vec<_> = program.steps.iter().map(|step| &step.call).collect();
    assert!(matches!(calls[0], Call::Reserve { size: 64, .. }), "{:?}", calls[0]);
    assert!(matches!(calls[1], Call::Lost { why } if why.contains("somebody else")), "{:?}", calls[1]);
    assert!(calls.iter().any(|call| matches!(call, Call::Fill { .. })));
    assert!(calls.iter().any(|call| matches!(call, Call::Outside)), "{calls:?}");
}
