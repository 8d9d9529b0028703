//! C3 to C7, C10: what a client is, and what it says about its device.

use crate::check::Outcome;
use crate::context::Context;
use crate::factory::Variant;
use crate::{ensure, ensure_eq, tests};
use alloc::sync::Arc;
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::properties::{DeviceInfo, TargetProperties};

tests! {
    C3 a_client_is_clone_send_and_sync;
    C3 a_clone_keeps_the_pinned_stream;
    C3 clones_are_used_from_many_threads_at_once;
    C4 the_name_tells_the_adapter_and_the_device;
    C4 every_server_has_an_id_of_its_own_and_stamps_handles_with_it;
    C5 properties_are_resolved_once_and_shared;
    C5 limits_are_those_a_device_can_have;
    C5 tiny_limits_are_reported_as_they_are;
    C6 equal_hardware_has_an_equal_identity;
    C6 the_identity_is_the_same_in_another_run;
    C6 prints_the_identity .hidden();
    C7 vector_sizes_are_powers_of_two_that_fit_widest_first;
    C7 no_vector_size_for_no_bytes_or_too_many;
    C10 the_description_prints_what_it_holds;
    C10 the_description_can_be_serialised;
}

fn a_client_is_clone_send_and_sync(cx: &Context) -> Outcome {
    fn is<T: Clone + Send + Sync + 'static>(_: &T) {}
    let client = cx.client()?;
    is(&client);
    let clone = client.clone();
    ensure_eq!(clone.service_id(), client.service_id());
    let bytes = client.create_from_slice(&[5; 16])?;
    drop(client);
    ensure_eq!(clone.read_one(&bytes)?.as_slice()?, [5; 16]);
    Ok(())
}

fn a_clone_keeps_the_pinned_stream(cx: &Context) -> Outcome {
    let mut client = cx.client()?;
    let unpinned = client.clone();
    let stream = StreamId::new();
    client.set_stream(stream);
    let pinned = client.clone();
    ensure_eq!(pinned.stream(), stream);
    ensure_eq!(pinned.record()?.stream, stream);
    ensure_eq!(unpinned.stream(), StreamId::current());
    let elsewhere = std::thread::spawn(move || pinned.stream()).join().ok();
    ensure_eq!(elsewhere, Some(stream));
    Ok(())
}

fn clones_are_used_from_many_threads_at_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = |seed: u8| {
            let client = client.clone();
            move || -> Outcome {
                for round in 0..20 {
                    let data = [seed ^ round; 100];
                    let bytes = client.create_from_slice(&data)?;
                    ensure_eq!(client.read_one(&bytes)?.as_slice()?, data);
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..6).map(|i| scope.spawn(work(i * 40))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(outcomes.len(), 6);
    outcomes.into_iter().collect()
}

fn the_name_tells_the_adapter_and_the_device(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (name, device) = (client.name(), client.device_id());
    ensure!(
        name.contains(&client.info().adapter) && name.contains(&device.to_string()),
        "{name:?} lacks adapter or {device}"
    );
    Ok(())
}

fn every_server_has_an_id_of_its_own_and_stamps_handles_with_it(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    ensure!(a.service_id() != b.service_id(), "two servers have the id {}", a.service_id());
    ensure!(a.device_id() != b.device_id(), "two devices have the id {}", a.device_id());
    ensure_eq!(a.empty(8)?.service(), a.service_id());
    ensure_eq!(b.empty(8)?.service(), b.service_id());
    let (device, service) = (a.device_id(), a.service_id());
    a.shutdown(Duration::from_secs(5));
    let again = Client::try_init(device, cx.opened(&Variant::plain(), &Default::default())?)?;
    ensure!(again.service_id() != service, "an id was given out again");
    Ok(())
}

fn properties_are_resolved_once_and_shared(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let all = client.properties();
    ensure_eq!(client.features(), &all.features);
    ensure_eq!(client.limits(), &all.limits);
    ensure_eq!(client.target_properties(), &all.target);
    ensure_eq!(client.info(), &all.info);
    ensure!(
        Arc::ptr_eq(&client.properties_shared(), &client.clone().properties_shared()),
        "properties were made again"
    );
    ensure!(Arc::ptr_eq(&client.features_shared(), &client.features_shared()), "features were made again");
    ensure!(Arc::ptr_eq(&client.limits_shared(), &client.limits_shared()), "limits were made again");
    ensure!(
        Arc::ptr_eq(&client.target_properties_shared(), &client.target_properties_shared()),
        "target properties were made again"
    );
    // They outlive the device.
    let kept = client.properties_shared();
    drop(client);
    ensure!(!kept.info.adapter.is_empty(), "no adapter");
    Ok(())
}

fn limits_are_those_a_device_can_have(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (limits, target, features) = (client.limits(), client.target_properties(), client.features());
    ensure!(
        limits.max_allocation > 0 && limits.max_allocation <= limits.memory,
        "max_allocation {} of {}",
        limits.max_allocation,
        limits.memory
    );
    ensure!(
        limits.max_binding > 0 && limits.max_binding <= limits.max_allocation,
        "max_binding {}",
        limits.max_binding
    );
    ensure!(limits.max_grid.iter().all(|n| *n >= 1), "max_grid {:?}", limits.max_grid);
    ensure!(limits.max_workgroup.iter().all(|n| *n >= 1), "max_workgroup {:?}", limits.max_workgroup);
    ensure!(
        limits.max_invocations >= limits.max_workgroup.iter().copied().max().unwrap_or(0),
        "max_invocations {}",
        limits.max_invocations
    );
    ensure!(
        limits.binding_alignment.is_power_of_two() && limits.copy_alignment.is_power_of_two(),
        "alignments {limits:?}"
    );
    ensure!(limits.row_pitch >= 1 && limits.max_buffers >= 1, "{limits:?}");
    ensure!(target.subgroup_min >= 1 && target.subgroup_min <= target.subgroup_max, "{target:?}");
    ensure!(target.load_width >= 4 && target.compute_units >= 1, "{target:?}");
    ensure!(!features.sources.is_empty() && !features.elems.is_empty(), "{features:?}");
    ensure!(features.sources.iter().all(|form| format!("{form:?}") != ""), "{:?}", SourceForm::Host);
    Ok(())
}

fn tiny_limits_are_reported_as_they_are(cx: &Context) -> Outcome {
    let variant = Variant {
        row_pitch: Some(128),
        memory: Some(8 << 20),
        max_allocation: Some(1 << 20),
        max_binding: Some(1 << 19),
        max_buffers: Some(3),
        max_parameters: Some(16),
        max_grid: Some([7, 6, 5]),
        max_workgroup: Some([64, 2, 1]),
        max_invocations: Some(64),
        max_shared: Some(512),
        ..Variant::plain()
    };
    let client = cx.open(&variant)?;
    let limits = client.limits();
    ensure_eq!((limits.memory, limits.max_allocation, limits.max_binding), (8 << 20, 1 << 20, 1 << 19));
    ensure_eq!((limits.max_buffers, limits.max_parameters, limits.max_shared), (3, 16, 512));
    ensure_eq!((limits.max_grid, limits.max_workgroup, limits.max_invocations), ([7, 6, 5], [64, 2, 1], 64));
    ensure_eq!(limits.row_pitch, 128);
    Ok(())
}

fn equal_hardware_has_an_equal_identity(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    ensure_eq!(a.hardware_identity(), b.hardware_identity());
    let identity = a.hardware_identity();
    ensure!(
        identity.contains(&a.info().adapter) && identity.contains(&a.info().driver),
        "{identity:?} names neither adapter nor driver"
    );
    Ok(())
}

fn the_identity_is_the_same_in_another_run(cx: &Context) -> Outcome {
    let output = cx.child("C6::prints_the_identity", &[], Duration::from_secs(10))?;
    ensure_eq!(output.code, Some(0), "{}", output.stderr);
    let here = cx.client()?.hardware_identity();
    ensure_eq!(output.stdout.trim_end_matches('\n'), here);
    Ok(())
}

fn prints_the_identity(cx: &Context) -> Outcome {
    println!("{}", cx.client()?.hardware_identity());
    Ok(())
}

fn vector_sizes_are_powers_of_two_that_fit_widest_first(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let width = u64::from(client.target_properties().load_width);
    for elem in [1, 2, 3, 4, 8, 16] {
        let sizes: Vec<u32> = client.io_optimized_vector_sizes(elem).collect();
        ensure!(sizes.iter().all(|n| n.is_power_of_two()), "{elem} bytes: {sizes:?}");
        ensure!(sizes.windows(2).all(|pair| pair[0] > pair[1]), "{elem} bytes: {sizes:?} is not widest first");
        ensure!(sizes.iter().all(|n| u64::from(*n) * elem <= width), "{elem} bytes: {sizes:?} does not fit {width}");
        let widest = u64::from(sizes.first().copied().unwrap_or(0));
        ensure!(widest * 2 * elem > width, "{elem} bytes: a wider one than {widest} fits {width}");
        ensure_eq!(sizes.last().copied(), (elem <= width).then_some(1), "{elem} bytes");
    }
    // Whatever the width is.
    let sizes: Vec<u32> = TargetProperties::new("any", 16, 1).io_optimized_vector_sizes(4).collect();
    ensure_eq!(sizes, [4, 2, 1]);
    Ok(())
}

fn no_vector_size_for_no_bytes_or_too_many(cx: &Context) -> Outcome {
    let client = cx.client()?;
    ensure_eq!(client.io_optimized_vector_sizes(0).count(), 0);
    ensure_eq!(client.io_optimized_vector_sizes(u64::from(client.target_properties().load_width) + 1).count(), 0);
    ensure_eq!(client.io_optimized_vector_sizes(u64::MAX).count(), 0);
    Ok(())
}

fn the_description_prints_what_it_holds(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let info = client.info();
    let text = info.to_string();
    let mut parts = vec![info.adapter.clone(), info.driver.clone(), info.api.clone(), format!("{:?}", info.kind)];
    parts.extend(info.details.iter().flat_map(|(name, value)| [name.clone(), value.clone()]));
    for part in parts {
        ensure!(!part.is_empty() && text.contains(&part), "{part:?} is not in\n{text}");
    }
    Ok(())
}

fn the_description_can_be_serialised(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let text = serde_json::to_string(client.info())?;
    ensure_eq!(&serde_json::from_str::<DeviceInfo>(&text)?, client.info());
    let all = serde_json::to_string(client.properties())?;
    ensure!(all.contains("max_grid") && all.contains("load_width"), "{all}");
    Ok(())
}
