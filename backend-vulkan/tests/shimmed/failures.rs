//! Every call to the driver fails in every way: what is read is right or an error that names the call, nothing hangs, nothing is left,
//! and a new device works.
//!
//! Calls of discovery and opening are left to the tests of these.

use crate::bench::{PATIENCE, adapters, assert_clean, close, open, shim};
use crate::scenario::run;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Instant;
use trunnion_backend_vulkan::VulkanOptions;
use trunnion_backend_vulkan::ash::vk;
use trunnion_driver_rig::program::{Came, assert_copies};
use trunnion_vulkan_shim::{Plan, Shim};

/// What a function may answer, where it has an answer.
fn codes(function: &str) -> Vec<vk::Result> {
    use vk::Result as R;
    let short = [R::ERROR_OUT_OF_HOST_MEMORY, R::ERROR_OUT_OF_DEVICE_MEMORY];
    let own: &[R] = match function {
        "vkAllocateMemory" => &[R::ERROR_TOO_MANY_OBJECTS, R::ERROR_INVALID_EXTERNAL_HANDLE],
        "vkMapMemory" => &[R::ERROR_MEMORY_MAP_FAILED],
        "vkCreateComputePipelines" => &[R::ERROR_INVALID_SHADER_NV, R::ERROR_UNKNOWN],
        "vkCreateShaderModule" => &[R::ERROR_INVALID_SHADER_NV],
        "vkAllocateDescriptorSets" => &[R::ERROR_OUT_OF_POOL_MEMORY, R::ERROR_FRAGMENTED_POOL],
        "vkCreateDescriptorPool" => &[R::ERROR_FRAGMENTATION],
        "vkQueueSubmit" | "vkWaitSemaphores" | "vkGetSemaphoreCounterValue" => {
            &[R::ERROR_DEVICE_LOST, R::ERROR_UNKNOWN]
        }
        _ => &[],
    };
    let begins = ["vkCreate", "vkAllocate", "vkBind", "vkMap", "vkBegin", "vkEnd", "vkFlush", "vkInvalidate"];
    let others = ["vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue", "vkGetPipelineCacheData"];
    match begins.iter().any(|start| function.starts_with(start)) || others.contains(&function) {
        true => short.iter().chain(own).copied().collect(),
        false => Vec::new(),
    }
}

/// Runs the program on a device of its own, and ends it. Fails where that takes too long.
fn attempt(
    shim: &Shim,
    options: &VulkanOptions,
    fail: Option<(&str, u32, vk::Result)>,
) -> (Came, BTreeMap<&'static str, u32>) {
    let what = format!("{fail:?}");
    let client = open(shim, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let before: BTreeMap<_, _> = shim.all_calls().into_iter().collect();
    if let Some((function, nth, code)) = fail {
        shim.fail(function, nth, code);
    }
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let came = run(&client);
        close(client);
        let _ = done.send(came);
    });
    let came = result.recv_timeout(PATIENCE).unwrap_or_else(|why| panic!("{what}: {why}: {:?}", shim.all_calls()));
    let calls = shim.all_calls().into_iter();
    let new = calls.map(|(name, count)| (name, count - before.get(name).copied().unwrap_or(0)));
    (came, new.filter(|(_, count)| *count > 0).collect())
}

fn variants() -> Vec<(VulkanOptions, fn() -> Plan)> {
    use vk::MemoryPropertyFlags as Flags;
    let plain = VulkanOptions::default;
    vec![
        (plain(), Plan::new),
        (plain().staging(true).push_descriptors(false).push_constants(false), || {
            let host = Flags::HOST_VISIBLE | Flags::HOST_CACHED;
            Plan::new().queues(2).memory_types([
                (Flags::DEVICE_LOCAL, 0),
                (Flags::HOST_VISIBLE | Flags::HOST_COHERENT, 0),
                (host, 0),
            ])
        }),
    ]
}

#[test]
fn every_call_fails_in_every_way_and_harms_nothing_else() {
    let begun = Instant::now();
    let mut fired = BTreeMap::new();
    for (adapter, (options, plan)) in
        adapters().into_iter().flat_map(|name| variants().into_iter().map(move |v| (name.clone(), v)))
    {
        let plain = shim(plan(), &adapter);
        let (came, calls) = attempt(&plain, &options, None);
        came.assert_whole(&adapter);
        assert_clean(&plain, &adapter);
        for (function, count) in calls {
            for (nth, code) in places(count, &codes(function)) {
                if sweep_one(&adapter, &options, plan(), (function, nth, code)) {
                    *fired.entry((function, code.as_raw())).or_insert(0) += 1;
                }
            }
        }
    }
    let total: u32 = fired.values().sum();
    println!("{total} failures: {} calls × codes, in {:.1?}", fired.len(), begun.elapsed());
    fired.iter().for_each(|((function, code), count)| println!("  {function} {code}: {count}"));
    assert!(adapters().is_empty() || fired.len() >= 40, "{} calls × codes", fired.len());
}

/// Which calls fail, and how: the first in every way; one in the middle and the last in two, one of them its own where it has one.
fn places(count: u32, codes: &[vk::Result]) -> Vec<(u32, vk::Result)> {
    let all = |nth| move |code: &vk::Result| (nth, *code);
    let two = codes.iter().take(1).chain(codes.iter().skip(2).take(1));
    let mut places: Vec<_> = codes.iter().map(all(1)).collect();
    for nth in [count.div_ceil(2), count] {
        places.extend(two.clone().map(all(nth)));
    }
    let mut seen = Vec::new();
    places.retain(|place| {
        !seen.contains(place) && {
            seen.push(*place);
            true
        }
    });
    places
}

/// Whether the failure happened.
fn sweep_one(adapter: &str, options: &VulkanOptions, plan: Plan, fail: (&'static str, u32, vk::Result)) -> bool {
    let what = format!("{adapter}, {options}: {fail:?}");
    let shim = shim(plan, adapter);
    let (came, _) = attempt(&shim, options, Some(fail));
    came.assert_right(&what);
    assert_clean(&shim, &what);
    if shim.fired().is_empty() {
        return false;
    }
    let (function, _, code) = fail;
    let said = came.said();
    // What can be done without, or tried again, need not be told. That a device is lost another thread may see first, by another call.
    match code {
        // What is finished is asked again.
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            if function == "vkGetSemaphoreCounterValue" =>
        {
            came.assert_whole(&what);
        }
        vk::Result::ERROR_DEVICE_LOST => {
            assert!(said.is_empty() || came.is_lost(), "{what}: {said}");
            came.assert_one_cause(&what);
        }
        _ => assert!(said.is_empty() || said.contains(function), "{what}: {said}"),
    }
    a_new_device_works(&shim, options, &what);
    true
}

fn a_new_device_works(shim: &Shim, options: &VulkanOptions, what: &str) {
    let client = open(shim, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_copies(&client, what);
    close(client);
    assert_clean(shim, what);
}
