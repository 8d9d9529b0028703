//! Each option does what its documentation says.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Functions, PATIENCE, all, host, part};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_backend_host::{HostBackend, HostDriver, HostOptions, NAME};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::kernel::Interface;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::{BoundsAbility, DeviceKind, TimingMethod};
use trunnion_runtime_core::server::{Bounds, Pattern};

#[test]
fn a_backend_has_as_many_devices_as_it_is_told() {
    let backend = HostBackend::new(HostOptions::default().devices(3));
    assert_eq!((backend.name(), backend.options().to_string().as_str()), (NAME, "devices = 3"));
    let infos = backend.enumerate().unwrap();
    assert_eq!(infos.iter().map(|info| info.device.to_string()).collect::<Vec<_>>(), ["host:0", "host:1", "host:2"]);
    assert!(infos.iter().all(|info| info.kind == DeviceKind::Cpu
        && !info.adapter.is_empty()
        && info.driver.starts_with("trunnion-host ")));
    assert!(backend.open(2, &OpenSettings::default()).is_ok());
    assert!(matches!(backend.open(3, &OpenSettings::default()), Err(Error::NoDevice { count: 3, .. })));
    assert_eq!(HostBackend::default().enumerate().unwrap().len(), 1);
}

#[test]
fn options_of_the_settings_come_on_top_and_are_checked() {
    let backend = HostBackend::new(HostOptions::default().limits(LimitOptions {
        row_pitch: Some(128),
        max_buffers: Some(3),
        ..LimitOptions::default()
    }));
    let settings = |name: &str, value: &str| OpenSettings {
        options: BTreeMap::from([(name.into(), value.into())]),
        ..OpenSettings::default()
    };
    let opened = backend.open(0, &settings("row_pitch", "512")).unwrap();
    assert_eq!((opened.properties.limits.row_pitch, opened.properties.limits.max_buffers), (512, 3));
    assert_eq!(opened.reader.takes(), [SourceForm::Host]);
    assert!(backend.open(1, &settings("devices", "2")).is_ok());
    let refused = backend.open(0, &settings("row_pich", "512")).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, Error::UnknownOption { option, .. } if option == "row_pich"), "{refused}");
}

#[test]
fn limits_and_features_are_as_told() {
    let options = HostOptions::default()
        .limits(LimitOptions {
            memory: Some(1 << 20),
            row_pitch: Some(11),
            max_allocation: Some(1 << 19),
            max_binding: Some(1 << 18),
            max_buffers: Some(4),
            max_parameters: Some(8),
            max_grid: Some([3, 4, 5]),
            max_workgroup: Some([6, 7, 8]),
            max_invocations: Some(9),
            max_shared: Some(10),
            ..LimitOptions::default()
        })
        .separate_memory(true);
    let driver = HostDriver::new(0, &options).unwrap();
    let limits = &driver.properties().limits;
    assert_eq!((limits.memory, limits.max_allocation, limits.max_binding), (1 << 20, 1 << 19, 1 << 18));
    assert_eq!((limits.max_buffers, limits.max_parameters, limits.max_grid), (4, 8, [3, 4, 5]));
    assert_eq!(
        (limits.max_workgroup, limits.max_invocations, limits.max_shared, limits.row_pitch),
        ([6, 7, 8], 9, 10, 16)
    );
    assert!(!driver.properties().features.host_visible);
    let plain = HostDriver::new(0, &HostOptions::default()).unwrap();
    let (features, limits) = (&plain.properties().features, &plain.properties().limits);
    assert!(features.host_visible && features.indirect_dispatch && features.elems.len() == 10);
    assert_eq!(
        (features.timing, features.bounds, features.sources.as_slice()),
        (TimingMethod::Host, BoundsAbility::Reported, &[SourceForm::Host][..])
    );
    assert_eq!(
        (limits.max_buffers, limits.max_parameters, limits.row_pitch, limits.max_invocations),
        (32, 256, 64, 1024)
    );
    assert_eq!((limits.max_allocation, limits.max_binding), (limits.memory, limits.memory));
}

#[test]
fn memory_runs_out_where_the_options_say_and_comes_back() {
    let mut rig = host(HostOptions::default().limits(LimitOptions {
        memory: Some(1024),
        max_allocation: Some(512),
        ..LimitOptions::default()
    }));
    let refusal = rig.driver.allocate(576).unwrap_err();
    assert!(
        !refusal.out_of_memory && refusal.message.contains("576") && refusal.message.contains("512"),
        "{refusal:?}"
    );
    let pages = [rig.driver.allocate(512).unwrap(), rig.driver.allocate(448).unwrap()];
    assert_eq!(rig.driver.free_memory(), Some(64));
    let refusal = rig.driver.allocate(128).unwrap_err();
    assert!(
        refusal.out_of_memory && refusal.message.contains("128") && refusal.message.contains("64 of 1024"),
        "{refusal:?}"
    );
    pages.into_iter().for_each(|page| rig.driver.release(page));
    assert_eq!(rig.driver.free_memory(), Some(1024));
    assert_eq!(rig.driver.allocate(512).unwrap().size() % rig.driver.page_alignment(), 0);
}

#[test]
fn one_allocation_is_refused_and_no_other() {
    let mut rig = host(HostOptions::default().refuse_allocation(3));
    let got: Vec<bool> = (0..6).map(|_| rig.driver.allocate(64).is_ok()).collect();
    assert_eq!(got, [true, true, false, true, true, true]);
}

#[test]
fn pages_are_of_one_kind_after_the_other() {
    let mut rig = host(HostOptions::default().memory_types(2));
    for round in 0..4 {
        let page = rig.driver.allocate(128).unwrap();
        let expected = if round % 2 == 0 { 0 } else { 0xA5 };
        assert_eq!(rig.read(all(&page)), [expected; 128]);
        // SAFETY: the page outlives the grant.
        let grant = unsafe { rig.driver.grant(all(&page), Access::Read) };
        let resource = grant.resource.downcast::<trunnion_backend_host::HostResource>().unwrap();
        assert_eq!(resource.pointer() as u64 % 4096, 64 * (round % 2));
    }
}

#[test]
fn separate_memory_has_no_host_view() {
    let mut rig = host(HostOptions::default().separate_memory(true));
    let page = rig.page_of(&[1; 16]);
    // SAFETY: the page outlives the grant.
    assert!(unsafe { rig.driver.grant(all(&page), Access::Read) }.host.is_none());
}

#[test]
fn one_thread_runs_the_workgroups_in_order() {
    let mut rig = host(HostOptions::default().threads(1));
    let page = rig.driver.allocate(4096).unwrap();
    let kernel = rig.kernel("order", Interface::new().atomic(), |group| {
        let cells = group.atomic(0)?;
        let place = cells[0].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        cells[1 + place as usize].store(group.id()[0], std::sync::atomic::Ordering::SeqCst);
        Ok(())
    });
    for _ in 0..5 {
        let mut stream = rig.driver.open_stream().unwrap();
        // SAFETY: the test waits for the stream before it goes on.
        unsafe { rig.driver.fill(&mut stream, 1, all(&page), Pattern::new(&[0]).unwrap()) }.unwrap();
        rig.launch(&mut stream, 2, &kernel, [1000, 1, 1], &[part(&page, 0, 4004)]).unwrap();
        rig.driver.submit(&mut stream, 2).unwrap();
        assert!(rig.finish(&mut stream, 2).failed.is_empty());
        let order = rig.read_u32(part(&page, 4, 4000));
        assert_eq!(order, (0..1000).collect::<Vec<u32>>());
    }
}

#[test]
fn a_kernel_that_shall_not_compile_does_not() {
    let mut rig = host(HostOptions::default().fail_compile("broken"));
    rig.kernel("fine", Interface::new(), |_| Ok(()));
    let broken = rig.prepare_function("broken", Interface::new(), |_| Ok(()));
    let error = rig.driver.compile(&broken, Bounds::Checked, None).unwrap_err();
    assert!(matches!(&error, Error::Compile { kernel, line: Some(1), .. } if kernel == "broken"), "{error}");
}

#[test]
fn a_completion_is_reported_only_after_the_delay_and_with_what_was_read() {
    let delay = Duration::from_millis(30);
    let mut rig = host(HostOptions::default().delay(delay));
    let page = rig.driver.allocate(64).unwrap();
    let mut stream = rig.driver.open_stream().unwrap();
    let start = Instant::now();
    rig.write(&mut stream, 1, &[4; 64], all(&page));
    // SAFETY: the test waits for the stream before it goes on.
    unsafe { rig.driver.read(&mut stream, 2, 0, all(&page), &Rows::single(64), HostBuffer::zeroed(64).unwrap()) }
        .unwrap();
    rig.driver.submit(&mut stream, 2).unwrap();
    let mut outcome = Outcome::default();
    let first = rig.driver.poll(&mut stream, &mut outcome).unwrap();
    let notified = || rig.notified.load(std::sync::atomic::Ordering::SeqCst);
    let told = notified();
    // A machine that had other things to do until the delay was over has it reported at the first look.
    let is_due = cfg!(feature = "std") && start.elapsed() >= delay;
    assert!(is_due || (first, outcome.read.len(), told) == (0, 0, 0), "reported before the delay was over");
    if cfg!(feature = "std") {
        while notified() == 0 {
            assert!(start.elapsed() < PATIENCE, "nobody was notified");
            std::thread::yield_now();
        }
    }
    outcome.read.append(&mut rig.finish(&mut stream, 2).read);
    assert!(start.elapsed() >= delay || cfg!(not(feature = "std")));
    assert_eq!(outcome.read[0].2.as_slice(), [4; 64]);
    rig.write(&mut stream, 3, &[5; 64], all(&page));
    rig.driver.submit(&mut stream, 3).unwrap();
    assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
    assert_eq!(rig.driver.poll(&mut stream, &mut Outcome::default()).unwrap(), 3);
}

#[test]
#[cfg(feature = "std")]
fn completions_of_different_streams_are_reported_in_another_order_and_within_one_in_order() {
    // Who asks has to see some of it come, and a machine that keeps it from that for a while is outlasted.
    let changed = [2, 20, 200].map(Duration::from_millis).into_iter().any(is_reported_in_another_order);
    assert!(changed, "reported in the order in which they were submitted");
}

#[cfg(feature = "std")]
fn is_reported_in_another_order(delay: Duration) -> bool {
    let mut rig = host(HostOptions::default().reorder(5).delay(delay));
    let page = rig.driver.allocate(64).unwrap();
    let mut streams: Vec<_> = (0..8).map(|_| rig.driver.open_stream().unwrap()).collect();
    for seq in 1..=4 {
        for stream in &mut streams {
            rig.write(stream, seq, &[1; 8], all(&page));
            rig.driver.submit(stream, seq).unwrap();
        }
    }
    // The round of looks in which each was reported, in the order in which they were submitted.
    let (mut reported, mut rounds, mut round) = ([0; 8], [0; 32], 0);
    let start = Instant::now();
    while reported != [4; 8] {
        assert!(start.elapsed() < PATIENCE);
        round += 1;
        for (index, stream) in streams.iter_mut().enumerate() {
            let seq = rig.driver.poll(stream, &mut Outcome::default()).unwrap();
            assert!(seq >= reported[index]);
            for seq in reported[index]..seq {
                rounds[8 * seq as usize + index] = round;
            }
            reported[index] = seq;
        }
    }
    // Due before another one, it is reported with that or a round later: it may have been asked for just before.
    (1..32).any(|later| rounds[..later].iter().any(|earlier| *earlier > rounds[later] + 1))
}

#[test]
#[cfg(all(feature = "std", target_os = "linux"))]
fn nothing_runs_on_for_reports_that_are_due_when_the_device_is_gone() {
    // The kernel keeps fifteen bytes of a thread's name.
    let is_late = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm"))
            .is_ok_and(|name| name.trim_end() == "trunnion-host-l")
    };
    let any_left = || std::fs::read_dir("/proc/self/task").unwrap().any(is_late);
    let mut rig = host(HostOptions::default().delay(Duration::from_secs(3600)));
    let page = rig.driver.allocate(64).unwrap();
    let mut stream = rig.driver.open_stream().unwrap();
    rig.write(&mut stream, 1, &[1; 8], all(&page));
    rig.driver.submit(&mut stream, 1).unwrap();
    // A thread has its name once it runs.
    let start = Instant::now();
    while !any_left() {
        assert!(start.elapsed() < PATIENCE, "nothing waits to report");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!rig.driver.drain(&Deadline::after(Duration::from_millis(50))), "reported an hour early");
    rig.driver.close_stream(stream);
    rig.driver.release(page);
    drop(rig);
    // Other tests have such threads too, for less than an hour.
    let start = Instant::now();
    while any_left() {
        assert!(start.elapsed() < PATIENCE, "a thread waits for a report that nobody hears");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_lost_device_answers_every_call_with_the_same_cause_and_can_be_dropped() {
    let mut rig = host(HostOptions::default().lose_after(2));
    let page = rig.driver.allocate(64).unwrap();
    let kernel = rig.kernel("never", Interface::new(), |_| Ok(()));
    let prepared = rig.prepare_function("later", Interface::new(), |_| Ok(()));
    let mut stream = rig.driver.open_stream().unwrap();
    for seq in 1..=2 {
        rig.write(&mut stream, seq, &[1; 8], all(&page));
        rig.driver.submit(&mut stream, seq).unwrap();
    }
    rig.finish(&mut stream, 2);
    rig.write(&mut stream, 3, &[2; 8], all(&page));
    let lost = rig.driver.submit(&mut stream, 3).unwrap_err();
    assert!(lost.is_device_lost() && lost.to_string().contains("2 batches"), "{lost}");
    let again = [
        rig.driver.submit(&mut stream, 4),
        rig.driver.poll(&mut stream, &mut Outcome::default()).map(|_| ()),
        rig.driver.open_stream().map(|_| ()),
        rig.driver.compile(&prepared, Bounds::Checked, None).map(|_| ()),
        rig.launch(&mut stream, 5, &kernel, [1, 1, 1], &[]),
        // SAFETY: nothing is encoded.
        unsafe { rig.driver.write(&mut stream, 5, Bytes::from_vec(vec![0; 8]), all(&page), &Rows::single(8)) },
    ];
    assert!(again.iter().all(|answer| answer.as_ref() == Err(&lost)), "{again:?}");
    assert!(rig.driver.allocate(64).is_err_and(|refusal| !refusal.out_of_memory));
    assert!(rig.driver.drain(&Deadline::after(PATIENCE)));
    rig.driver.release(page);
    rig.driver.close_stream(stream);
}
