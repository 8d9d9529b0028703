//! Launch modes, the list of what is compiled later, and recorders, on a server whose turn the test decides.

use super::scripted::{Remote, client_with};
use super::{Settings, defaults};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::executor::Execution;
use crate::grid::Grid;
use crate::handle::Handle;
use crate::id::StreamId;
use crate::kernel::{Interface, KernelHandle, LaunchMode, Source, SourceKernel};
use crate::server::Bounds;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::Instant;

/// A scope of the process reaches the other tests of this file: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn inline() -> Settings {
    let mut settings = Settings::default();
    settings.executor.execution = Execution::Inline;
    settings
}

fn prepare(client: &Client, name: &str) -> KernelHandle {
    let kernel = SourceKernel::new(name, Interface::new().partition(16)).source(Source::host(|_| Ok(())));
    client.prepare(kernel).unwrap()
}

fn on_new_stream(client: &Client) -> Client {
    let mut client = client.clone();
    client.set_stream(StreamId::new());
    client
}

fn launch(client: &Client, kernel: &KernelHandle, buffer: &Handle) {
    client.launch(kernel, Grid::x(1), [buffer]).unwrap();
}

/// What ran and what was compiled, once everything queued had its turn.
fn seen(client: &Client, remote: &Remote) -> (Vec<String>, Vec<String>) {
    client.flush().unwrap();
    remote.with(|script| {
        (script.launched.clone(), script.compiled.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>())
    })
}

fn is_conflict<T>(result: Result<T>, asked: LaunchMode, open: LaunchMode) -> bool {
    matches!(result, Err(Error::LaunchModeConflict { asked: a, open: o, .. }) if a == asked && o == open)
}

#[test]
fn the_mode_counts_in_which_a_launch_was_issued_not_that_of_its_turn() {
    let _alone = alone();
    let (client, remote) = client_with(&defaults());
    let (kernel, late) = (prepare(&client, "kernel"), prepare(&client, "late"));
    let buffer = client.empty(16).unwrap();
    client.flush().unwrap();
    let (take, taken) = mpsc::channel();
    let (give_back, given_back) = mpsc::channel::<()>();
    let holder = client.clone();
    let held = thread::spawn(move || {
        holder.exclusive(move || {
            take.send(()).unwrap();
            given_back.recv_timeout(Duration::from_secs(20)).unwrap();
        })
    });
    taken.recv_timeout(Duration::from_secs(20)).unwrap();
    // The device is another thread's. A launch waits for its turn on a thread of its own, in the mode it was issued in.
    let stream = client.stream();
    let issue = |kernel: &KernelHandle, before: usize| {
        let (mut issuer, kernel, buffer) = (client.clone(), kernel.clone(), buffer.clone());
        issuer.set_stream(stream);
        let mode = issuer.current_launch_mode();
        let waiting = thread::spawn(move || issuer.launch(&kernel, Grid::x(1), [&buffer]));
        let start = Instant::now();
        while client.service.executor.waiting() == before {
            assert!(start.elapsed() < Duration::from_secs(20), "the launch does not wait for its turn");
            thread::sleep(Duration::from_micros(100));
        }
        (waiting, mode)
    };
    let scope = client.launch_mode(LaunchMode::CompileOnly).unwrap();
    let (discarded, mode) = issue(&kernel, 0);
    assert_eq!(mode, LaunchMode::CompileOnly);
    drop(scope);
    let (executed, mode) = issue(&late, 1);
    assert_eq!(mode, LaunchMode::Execute);
    let scope = client.launch_mode(LaunchMode::Queue).unwrap();
    give_back.send(()).unwrap();
    held.join().unwrap().unwrap();
    discarded.join().unwrap().unwrap();
    executed.join().unwrap().unwrap();
    let (launched, mut compiled) = seen(&client, &remote);
    compiled.sort();
    assert_eq!((launched, compiled), (vec!["late".to_string()], vec!["kernel".to_string(), "late".to_string()]));
    drop(scope);
}

#[test]
fn a_scope_of_another_mode_is_refused_wherever_the_two_meet() {
    use LaunchMode::{CompileOnly, Execute, Queue};
    let _alone = alone();
    let (client, _remote) = client_with(&inline());
    let (other_device, _other_remote) = client_with(&inline());
    let other_stream = on_new_stream(&client);
    {
        let _stream = client.launch_mode(CompileOnly).unwrap();
        assert!(is_conflict(client.launch_mode(Queue), Queue, CompileOnly));
        assert!(is_conflict(client.launch_mode(Execute), Execute, CompileOnly));
        assert!(is_conflict(Client::process_launch_mode(Execute), Execute, CompileOnly));
        // Other streams, and the same stream of another device, are others' affair.
        let _beside = other_stream.launch_mode(Queue).unwrap();
        let _there = other_device.launch_mode(Execute).unwrap();
        assert_eq!(client.current_launch_mode(), CompileOnly);
        assert_eq!(other_stream.current_launch_mode(), Queue);
        assert_eq!(other_device.current_launch_mode(), Execute);
    }
    {
        let _process = Client::process_launch_mode(CompileOnly).unwrap();
        for client in [&client, &other_stream, &other_device] {
            assert!(is_conflict(client.launch_mode(Execute), Execute, CompileOnly));
            assert_eq!(client.current_launch_mode(), CompileOnly);
            assert_eq!(client.launch_mode(CompileOnly).unwrap().mode(), CompileOnly);
        }
        assert!(is_conflict(Client::process_launch_mode(Queue), Queue, CompileOnly));
    }
    let error = {
        let _execute = client.launch_mode(Execute).unwrap();
        Client::process_launch_mode(Queue).unwrap_err()
    };
    let text = error.to_string();
    assert!(text.contains("`queue`") && text.contains("`execute`") && text.contains("process"), "{text}");
    assert!(error.is_refusal());
    assert!(!client.service.launches.are_watched() && !other_device.service.launches.are_watched());
}

#[test]
fn scopes_of_one_mode_end_in_any_order() {
    let _alone = alone();
    let (client, _remote) = client_with(&inline());
    let outer = client.launch_mode(LaunchMode::Queue).unwrap();
    let inner = client.launch_mode(LaunchMode::Queue).unwrap();
    drop(outer);
    assert_eq!(client.current_launch_mode(), LaunchMode::Queue);
    thread::spawn(move || drop(inner)).join().unwrap();
    assert_eq!(client.current_launch_mode(), LaunchMode::Execute);
    let _other = client.launch_mode(LaunchMode::CompileOnly).unwrap();
    assert_eq!(client.current_launch_mode(), LaunchMode::CompileOnly);
}

#[test]
#[allow(unsafe_code, reason = "the call under test is unsafe")]
fn what_was_queued_is_compiled_together_with_the_bounds_it_was_launched_with() {
    let _alone = alone();
    let (client, remote) = client_with(&inline());
    let (a, b, buffer) = (prepare(&client, "a"), prepare(&client, "b"), client.empty(16).unwrap());
    {
        let _scope = client.launch_mode(LaunchMode::Queue).unwrap();
        for _ in 0..3 {
            launch(&client, &a, &buffer);
            // SAFETY: nothing runs, and the kernel does nothing.
            unsafe { client.launch_unchecked(&b, Grid::x(1), [&buffer]) }.unwrap();
        }
        assert_eq!(seen(&client, &remote), (Vec::new(), Vec::new()));
    }
    remote.with(|script| script.together = Some(2));
    assert_eq!(client.compile_queued().unwrap(), 3);
    let checked = |name: &str| (String::from(name), Bounds::Checked);
    let compiled = remote.with(|script| script.compiled.clone());
    assert_eq!(compiled, [checked("a"), checked("b"), ("b".into(), Bounds::Unchecked)]);
    assert!(client.service.launches.queued().is_empty(), "the list is empty");
    assert_eq!(client.compile_queued().unwrap(), 0);
}

#[test]
fn a_server_that_answers_for_no_kernel_ends_the_call_and_the_list_stays() {
    let _alone = alone();
    let (client, remote) = client_with(&inline());
    let (a, buffer) = (prepare(&client, "a"), client.empty(16).unwrap());
    {
        let _scope = client.launch_mode(LaunchMode::Queue).unwrap();
        launch(&client, &a, &buffer);
    }
    remote.with(|script| script.together = Some(0));
    assert!(matches!(client.compile_queued(), Err(Error::Unsupported { .. })));
    assert_eq!(client.service.launches.queued().len(), 1);
}

#[test]
fn a_recorder_counts_what_was_issued_and_compiled_while_it_was_open() {
    use LaunchMode::{CompileOnly, Execute};
    let _alone = alone();
    let (client, _remote) = client_with(&defaults());
    let (a, b, broken) = (prepare(&client, "a"), prepare(&client, "b"), prepare(&client, "broken"));
    let buffer = client.empty(16).unwrap();
    launch(&client, &a, &buffer);
    let (outer, dropped) = (client.record_launches().unwrap(), client.record_launches().unwrap());
    launch(&client, &a, &buffer);
    launch(&client, &b, &buffer);
    let inner = client.record_launches().unwrap();
    let there = on_new_stream(&client);
    let (kernel, memory) = (broken.clone(), buffer.clone());
    thread::spawn(move || {
        let _scope = there.launch_mode(CompileOnly).unwrap();
        launch(&there, &kernel, &memory);
    })
    .join()
    .unwrap();
    launch(&client, &a, &buffer);
    // Neither is a launch: one is refused, the other has nothing to run.
    assert!(client.launch(&a, Grid::x(1), [&buffer, &buffer]).is_err());
    client.launch(&a, Grid::x(0), [&buffer]).unwrap();
    let names = |kernels: &[crate::kernel::LaunchedKernel]| -> Vec<(String, LaunchMode, u64)> {
        kernels.iter().map(|kernel| (kernel.name.clone(), kernel.mode, kernel.launches)).collect()
    };
    assert_eq!(dropped.kernels(), outer.kernels());
    drop(dropped);
    let (inner, outer) = (inner.finish().unwrap(), outer.finish().unwrap());
    assert_eq!(names(&inner.kernels), [("broken".into(), CompileOnly, 1), ("a".into(), Execute, 1)]);
    assert_eq!(
        names(&outer.kernels),
        [("a".into(), Execute, 2), ("b".into(), Execute, 1), ("broken".into(), CompileOnly, 1)]
    );
    assert_eq!((inner.compilation.compiled, inner.compilation.failed), (0, 1));
    assert_eq!((outer.compilation.compiled, outer.compilation.failed), (1, 1));
    assert_eq!((outer.launches(Execute), outer.launches(CompileOnly), outer.launches(LaunchMode::Queue)), (3, 1, 0));
    assert_eq!(outer.kernels[0].id, a.id());
    assert!(!client.service.launches.are_watched(), "launches cost nothing more again");
}

#[test]
fn a_device_that_ended_answers_recorders_and_keeps_no_scope() {
    let _alone = alone();
    let (client, remote) = client_with(&defaults());
    let (a, buffer) = (prepare(&client, "a"), client.empty(16).unwrap());
    let (scope, recorder) = (client.launch_mode(LaunchMode::Queue).unwrap(), client.record_launches().unwrap());
    let lost = Error::DeviceLost { cause: "unplugged".into() };
    remote.with(|script| script.fault = Some(lost.clone()));
    // Whichever of the two meets it first.
    client.sync().and_then(|done| done.wait()).unwrap_err();
    assert_eq!(client.launch(&a, Grid::x(1), [&buffer]).unwrap_err(), lost);
    assert!(recorder.kernels().is_empty(), "a launch that was not accepted is none");
    assert_eq!(recorder.finish().unwrap_err(), lost);
    assert_eq!(client.record_launches().unwrap_err(), lost);
    drop(scope);
    let service = Arc::downgrade(&client.service);
    drop(client);
    assert!(service.upgrade().is_none());
}

#[test]
fn a_device_that_has_ended_keeps_no_kernel_that_is_queued_late() {
    let _alone = alone();
    let (client, _remote) = client_with(&inline());
    let kernel = prepare(&client, "late");
    client.service.launches.queue(&kernel, Bounds::Checked);
    assert_eq!(client.service.launches.queued().len(), 1);
    client.shutdown(Duration::from_secs(1));
    // As of a launch that looked just before the end whether there is one.
    client.service.launches.queue(&kernel, Bounds::Checked);
    assert!(client.service.launches.queued().is_empty());
}
