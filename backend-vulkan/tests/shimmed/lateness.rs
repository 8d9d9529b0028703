//! A device that is slow to say what it has done, or never does.

use crate::bench::{PATIENCE, STEP, adapters, each, launch, open_with, shim, step};
use crate::scenario::run;
use core::time::Duration;
use std::time::Instant;
use trunnion_backend_vulkan::VulkanOptions;
use trunnion_backend_vulkan::ash::vk;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::SourceKernel;
use trunnion_runtime_core::service::Settings;
use trunnion_vulkan_shim::{Command, Plan};

#[test]
fn progress_that_is_seen_late_and_in_another_order_changes_nothing() {
    let late =
        |semaphore: u32, value: u64| Duration::from_micros((u64::from(semaphore) * 7919 + value * 104_729) % 9_000);
    each(
        move || Plan::new().queues(3).delay(late),
        &VulkanOptions::default(),
        |bench| {
            for _ in 0..5 {
                run(&bench.client).assert_whole("late");
            }
        },
    );
}

#[test]
fn what_is_never_seen_to_finish_is_waited_for_to_the_deadline() {
    each(Plan::new, &VulkanOptions::default(), |bench| {
        let (step, [a, b]) = (step(bench), bench.buffers());
        let held = bench.shim.hold();
        launch(&bench.client, &step, &a, &b);
        let begun = Instant::now();
        let timeout = Duration::from_millis(500);
        let error = bench.client.sync_timeout(timeout).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert!(begun.elapsed() >= timeout && begun.elapsed() < PATIENCE / 3, "{:?}", begun.elapsed());
        drop(held);
        assert_eq!(bench.read(&b)[0], 1, "later it is there all the same");
    });
}

#[test]
fn a_shutdown_while_nothing_is_seen_to_finish_ends_in_time() {
    for adapter in adapters() {
        let shim = shim(Plan::new(), &adapter);
        let mut settings = Settings::default();
        settings.drop_timeout = Duration::from_millis(200);
        let client = open_with(&shim, &VulkanOptions::default(), &settings).unwrap();
        let (a, b) = (client.create_from_slice(&[1; 256]).unwrap(), client.empty(256).unwrap());
        client.sync().unwrap().wait().unwrap();
        let held = shim.hold();
        client.copy(&a, &b).unwrap();
        client.flush().unwrap();
        let begun = Instant::now();
        let report = client.shutdown(Duration::from_millis(300));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert!(report.abandoned > 0);
        drop((a, b, client));
        assert!(begun.elapsed() < PATIENCE);
        drop(held);
        // What the device may still have used is left to it, and is not destroyed under it.
        assert_eq!(shim.complaints(), [""; 0]);
    }
}

#[test]
fn memory_that_stands_for_an_empty_buffer_is_left_to_a_device_that_does_not_end() {
    for adapter in adapters() {
        let shim = shim(Plan::new(), &adapter);
        let mut settings = Settings::default();
        settings.drop_timeout = Duration::from_millis(200);
        let client = open_with(&shim, &VulkanOptions::default(), &settings).unwrap();
        let kernel = client.prepare(SourceKernel::wgsl("step", STEP)).unwrap();
        let (none, to) = (client.empty(0).unwrap(), client.create_from_slice(&[1; 256]).unwrap());
        launch(&client, &kernel, &none, &to);
        client.sync().unwrap().wait().unwrap();
        shim.take_submissions();
        let held = shim.hold();
        launch(&client, &kernel, &none, &to);
        client.flush().unwrap();
        let submissions = shim.take_submissions();
        let bound = submissions[0].commands.iter().find_map(|command| match command {
            Command::Dispatch { buffers, .. } => buffers.iter().find(|bound| bound.binding == 0),
            _ => None,
        });
        let nothing = bound.unwrap().buffer;
        assert!(client.shutdown(Duration::from_millis(300)).abandoned > 0);
        drop((none, to, kernel, client));
        assert!(shim.alive().iter().any(|alive| alive.object == nothing), "{nothing} is destroyed: {:?}", shim.alive());
        drop(held);
        assert_eq!(shim.complaints(), [""; 0]);
    }
}

#[test]
fn a_device_that_is_lost_under_whoever_waits_ends_the_wait() {
    for adapter in adapters() {
        let shim = shim(Plan::new(), &adapter);
        let mut client = open_with(&shim, &VulkanOptions::default(), &Settings::default()).unwrap();
        client.set_stream(StreamId::new());
        let (a, b) = (client.create_from_slice(&[1; 256]).unwrap(), client.empty(256).unwrap());
        client.sync().unwrap().wait().unwrap();
        let held = shim.hold();
        client.copy(&a, &b).unwrap();
        client.flush().unwrap();
        let waiting = std::thread::spawn({
            let client = client.clone();
            move || client.sync().and_then(|done| done.wait())
        });
        std::thread::sleep(Duration::from_millis(50));
        shim.fail("vkQueueSubmit", 1, vk::Result::ERROR_DEVICE_LOST);
        let mut other = client.clone();
        other.set_stream(StreamId::new());
        let begun = Instant::now();
        let _ = other.fill(&a, &[2]);
        let _ = other.flush();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(error.is_device_lost(), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop(held);
        drop((a, b, other));
        crate::bench::close(client);
        crate::bench::assert_clean(&shim, &adapter);
    }
}
