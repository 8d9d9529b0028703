//! Devices that are lost, and processes that exit while work is under way.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, PATIENCE, Rig, all, claim, double, eventually, open};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_backend_cuda::{CudaBackend, CudaEvent, CudaOptions, CudaStream, NAME};
use trunnion_cuda_double::Device;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::service::Settings;

const LAUNCH_FAILED: u32 = 719;

fn options() -> CudaOptions {
    CudaOptions::default().library(double().path())
}

#[test]
fn a_lost_device_answers_every_call_with_what_was_seen_first_and_the_next_one_works() {
    let device = claim();
    let mut rig = Rig::new(device, &options());
    let page = rig.page_of_bytes(&[1; 256]);
    let pinned = rig.driver.pin(100).unwrap();
    let (mut stream, mut idle) = (rig.driver.open_stream().unwrap(), rig.driver.open_stream().unwrap());
    rig.fill(&mut stream, 1, all(&page), &[2]);
    rig.driver.submit(&mut stream, 1).unwrap();
    rig.finish(&mut stream, 1);
    device.fail("cuMemcpyHtoDAsync_v2", 1, LAUNCH_FAILED).unwrap();
    rig.write(&mut stream, 2, &[3; 16], rig::part(&page, 0, 16));
    let lost = rig.driver.submit(&mut stream, 2).unwrap_err();
    assert!(lost.is_device_lost() && lost.to_string().contains("cuMemcpyHtoDAsync_v2"), "{lost}");
    let (rows, bytes) = (Rows::single(1), Bytes::copy_from_slice(&[1_u8]));
    // SAFETY: refused.
    let written = unsafe { rig.driver.write(&mut stream, 3, bytes, all(&page), &rows) };
    let answers = [
        written.map(drop),
        rig.driver.submit(&mut idle, 1),
        rig.driver.poll(&mut idle, &mut Outcome::default()).map(drop),
        rig.driver.open_stream().map(drop),
        rig.driver.export_event(&mut idle, 2).map(drop),
    ];
    assert_eq!(answers, [const { Ok::<(), Error>(()) }; 5].map(|_| Err(lost.clone())));
    let refused = rig.driver.allocate(256).unwrap_err();
    assert!(!refused.out_of_memory && refused.message.contains("lost"), "{refused:?}");
    let begun = Instant::now();
    assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
    rig.driver.close_stream(stream);
    rig.driver.close_stream(idle);
    drop((page, pinned, rig));
    assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
    // The context went with the last who used it.
    let mut rig = Rig::new(device, &options());
    let page = rig.page_of_bytes(&[5; 256]);
    assert_eq!(rig.read(all(&page)), [5; 256]);
}

#[test]
fn whoever_waits_when_a_device_is_lost_is_told() {
    let device = claim();
    let mut rig = Rig::new(device, &options());
    let mut other = open(&device, &options());
    let page = rig.page_of_bytes(&[1; 256]);
    let mut stream = rig.driver.open_stream().unwrap();
    let before = rig.notified.load(Ordering::SeqCst);
    // The wait of the stream's own thread, unless whoever polls sees the end of the work first.
    device.fail("cuEventSynchronize", 0, LAUNCH_FAILED).unwrap();
    let (begun, mut seq) = (Instant::now(), 0);
    let lost = loop {
        assert!(begun.elapsed() < PATIENCE, "nobody saw that the device is lost");
        seq += 1;
        rig.fill(&mut stream, seq, all(&page), &[2]);
        if let Err(lost) = rig.driver.submit(&mut stream, seq) {
            break lost;
        }
        std::thread::sleep(Duration::from_millis(1));
        if let Err(lost) = rig.driver.poll(&mut stream, &mut Outcome::default()) {
            break lost;
        }
    };
    assert!(lost.is_device_lost(), "{lost}");
    while rig.notified.load(Ordering::SeqCst) == before {
        assert!(begun.elapsed() < PATIENCE, "nobody was told");
        std::thread::yield_now();
    }
    assert_eq!(rig.driver.open_stream().map(drop), Err(lost));
    // Everybody's context is lost.
    assert!(!other.allocate(256).unwrap_err().out_of_memory);
    rig.driver.close_stream(stream);
    drop((page, rig, other));
    device.reset().unwrap();
}

const ALONE: &str = "TRUNNION_TEST_ALONE";

#[test]
fn a_process_exits_while_work_is_under_way() {
    const LEFT: i32 = 7;
    if std::env::var(ALONE).is_err() {
        let begun = Instant::now();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_process_exits_while_work_is_under_way", "--nocapture"]).env(ALONE, "1");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(LEFT), "{text}");
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        return;
    }
    let device = claim();
    let opened = CudaBackend::new(options()).open(device.ordinal() as u32, &OpenSettings::default()).unwrap();
    let id = DeviceId { backend: NAME, index: 1 };
    let client = Client::try_init_with(id, opened, &Settings::default()).unwrap();
    let gate = Gate::new(&device);
    let buffer = client.zeros(1 << 16).unwrap();
    // SAFETY: recorded, and there as long as the process.
    client.wait(client.import_event(unsafe { CudaEvent::new(gate.raw_event(), ()) }).unwrap()).unwrap();
    for round in 0..50 {
        client.fill(&buffer, &[round]).unwrap();
    }
    client.flush().unwrap();
    std::mem::forget((client, buffer, gate));
    std::process::exit(LEFT);
}

/// What was logged, of all tests here.
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LOGGED.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// From here on what is logged is kept.
fn keep_log() {
    let _ = log::set_logger(&Logger);
    log::set_max_level(log::LevelFilter::Warn);
}

/// What was logged of a device.
fn logged(device: &Device) -> Vec<String> {
    let name = format!("cuda:{}:", device.ordinal());
    LOGGED.lock().unwrap().iter().filter(|line| line.starts_with(&name)).cloned().collect()
}

/// Runs a test with work under way that stands still until the test's gate is opened, as operation 1 of a stream.
fn while_work_is_under_way(test: impl FnOnce(&mut Rig, &mut CudaStream, &Gate)) {
    let device = claim();
    let mut rig = Rig::new(device, &options());
    let gate = Gate::new(&device);
    let page = rig.page_of_bytes(&[0; 256]);
    let mut stream = rig.driver.open_stream().unwrap();
    rig.driver.import_event(&mut stream, &gate.event()).unwrap();
    rig.fill(&mut stream, 1, all(&page), &[1]);
    rig.driver.submit(&mut stream, 1).unwrap();
    test(&mut rig, &mut stream, &gate);
    gate.open();
    device.reset().unwrap();
    rig.driver.close_stream(stream);
    drop((page, gate, rig));
    device.release().unwrap();
}

#[test]
fn a_driver_that_never_says_what_is_finished_loses_its_device_and_fills_no_log() {
    keep_log();
    while_work_is_under_way(|rig, stream, gate| {
        // Another test may have had the device.
        let before = logged(&rig.device).len();
        fall_silent(rig);
        // The thread may wait already, which it does until the gate opens. One that asks is not kept.
        let other = &mut rig.driver.open_stream().unwrap();
        rig.driver.wait(other, stream, 1);
        rig.driver.submit(other, 1).unwrap();
        let lost = lost_for(rig, other);
        assert!(lost.is_device_lost(), "{lost}");
        assert!(lost.to_string().contains("cuEventQuery") && lost.to_string().contains("in a row"), "{lost}");
        let logged = logged(&rig.device).split_off(before);
        assert!((1..=4).contains(&logged.len()), "{logged:?}");
        // It is idle once the driver says so, and not before.
        assert!(!rig.driver.drain(&Deadline::after(Duration::from_millis(20))));
        gate.open();
        answers(rig);
        assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
    });
}

const SILENT: [&str; 2] = ["cuEventQuery", "cuEventSynchronize"];

/// From here on the driver says nothing of what is finished, nor waits for it.
fn fall_silent(rig: &Rig) {
    SILENT.iter().for_each(|call| rig.device.fail(call, 0, 999).unwrap());
}

/// From here on it does again.
fn answers(rig: &Rig) {
    SILENT.iter().for_each(|call| rig.device.fail(call, 1, 0).unwrap());
}

/// Polls a stream that waits for what stands still until the device is lost.
fn lost_for(rig: &mut Rig, stream: &mut CudaStream) -> Error {
    let begun = Instant::now();
    loop {
        match rig.driver.poll(stream, &mut Outcome::default()) {
            Ok(seq) => assert_eq!(seq, 0),
            Err(error) => break error,
        }
        assert!(begun.elapsed() < PATIENCE, "nobody was told");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_driver_whose_device_only_says_nothing_ends_at_once_and_leaves_what_may_be_in_use() {
    let device = claim();
    let mut rig = Rig::new(device, &options());
    let gate = Gate::new(&device);
    let page = rig.page_of_bytes(&[0; 256]);
    let [mut stream, mut other] = [(); 2].map(|()| rig.driver.open_stream().unwrap());
    rig.driver.import_event(&mut stream, &gate.event()).unwrap();
    rig.fill(&mut stream, 1, all(&page), &[1]);
    rig.driver.submit(&mut stream, 1).unwrap();
    eventually("the stream's thread waits for the gate", || device.calls("cuEventSynchronize").unwrap() >= 1);
    fall_silent(&rig);
    rig.driver.wait(&mut other, &mut stream, 1);
    rig.driver.submit(&mut other, 1).unwrap();
    assert!(lost_for(&mut rig, &mut other).is_device_lost());
    let used = device.memory_used().unwrap();
    let (done, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            assert!(!rig.driver.drain(&Deadline::after(Duration::from_millis(20))));
            rig.driver.close_stream(stream);
            rig.driver.close_stream(other);
            drop((page, rig));
            done.send(()).unwrap();
        });
        let ended = ended.recv_timeout(PATIENCE / 2);
        // The fill still comes.
        std::thread::sleep(Duration::from_millis(20));
        let left = device.memory_used().unwrap();
        gate.open();
        assert_eq!((ended, left), (Ok(()), used));
    });
    device.reset().unwrap();
}

#[test]
fn a_driver_that_may_not_wait_for_an_event_is_asked() {
    while_work_is_under_way(|rig, stream, gate| {
        rig.device.fail("cuEventSynchronize", 0, 999).unwrap();
        let other = &mut rig.driver.open_stream().unwrap();
        rig.driver.wait(other, stream, 1);
        rig.driver.submit(other, 1).unwrap();
        // Longer than a driver may be without an answer.
        std::thread::sleep(Duration::from_millis(200));
        let told = rig.notified.load(Ordering::SeqCst);
        assert_eq!(rig.driver.poll(other, &mut Outcome::default()), Ok(0));
        gate.open();
        let begun = Instant::now();
        while rig.notified.load(Ordering::SeqCst) == told {
            assert!(begun.elapsed() < PATIENCE, "nobody was told");
            std::thread::yield_now();
        }
        assert_eq!(rig.finish(other, 1).failed, []);
    });
}

#[test]
fn somebody_elses_recording_that_forbids_to_ask_is_waited_for() {
    while_work_is_under_way(|rig, stream, gate| {
        let calls = ["cuEventQuery", "cuEventSynchronize", "cuStreamQuery"];
        calls.iter().for_each(|call| rig.device.fail(call, 0, 900).unwrap());
        let other = &mut rig.driver.open_stream().unwrap();
        rig.driver.wait(other, stream, 1);
        rig.driver.submit(other, 1).unwrap();
        gate.open();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(rig.driver.poll(other, &mut Outcome::default()), Ok(0));
        calls.iter().for_each(|call| rig.device.fail(call, 0, 0).unwrap());
        assert_eq!(rig.finish(other, 1).failed, []);
    });
}

#[test]
fn every_code_of_work_that_died_is_a_loss_at_once() {
    for code in [214, 220, 226, 700, 702, 710, 715, 719, 721] {
        let device = claim();
        let mut rig = Rig::new(device, &options());
        let page = rig.page_of_bytes(&[0; 256]);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.fill(&mut stream, 1, all(&page), &[1]);
        device.fail("cuMemsetD8Async", 1, code).unwrap();
        let lost = rig.driver.submit(&mut stream, 1).unwrap_err();
        assert!(lost.is_device_lost() && lost.to_string().contains(&format!("({code})")), "{code}: {lost}");
        rig.driver.close_stream(stream);
        drop((page, rig));
        device.reset().unwrap();
    }
}

#[test]
fn a_device_that_is_lost_while_batches_are_held_is_no_failure_of_each_of_them() {
    keep_log();
    let device = claim();
    let mut rig = Rig::new(device, &options());
    let gate = Gate::new(&device);
    let page = rig.page_of_bytes(&[0; 256]);
    let mut stream = rig.driver.open_stream().unwrap();
    // The host waits in place of the stream, and all of them are held behind that.
    device.fail("cuStreamWaitEvent", 1, 999).unwrap();
    rig.driver.import_event(&mut stream, &gate.event()).unwrap();
    for seq in 1..=20 {
        rig.fill(&mut stream, seq, all(&page), &[1]);
        rig.driver.submit(&mut stream, seq).unwrap();
    }
    let before = logged(&device);
    device.fail("cuMemsetD8Async", 1, LAUNCH_FAILED).unwrap();
    gate.open();
    assert!(lost_for(&mut rig, &mut stream).is_device_lost());
    device.reset().unwrap();
    rig.driver.close_stream(stream);
    drop((page, gate, rig));
    assert_eq!(logged(&device), before);
    device.release().unwrap();
}
