//! L1, L2, L10: preparing and launching.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, needs_host_kernels, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, GROUP, PART, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use std::time::Instant;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, KernelFault, SourceForm};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Args, HostUse, Interface, Kernel, Source, SourceKernel};
use trunnion_runtime_core::service::BoundsPolicy;

tests! {
    L1 a_kernel_computes_what_it_says;
    L1 a_kernel_gets_its_parameters;
    L1 a_launch_does_not_wait_for_the_work;
    L1 a_kernel_without_a_source_for_the_device_is_refused;
    L1 a_kernel_that_contradicts_itself_is_refused;
    L1 kernels_of_one_id_are_prepared_once;
    L1 a_kernel_prepared_by_another_device_is_refused;
    L1 what_is_uneven_at_the_end_is_computed_too;
    L1 atomics_of_all_workgroups_add_up;
    L1 a_kernel_that_fails_names_itself_its_workgroup_and_why;
    L1 a_kernel_that_panics_marks_its_outputs_and_the_device_goes_on;
    L1 a_kernel_handle_may_be_dropped_right_after_the_launch;
    L2 an_unchecked_launch_computes_the_same;
    L2 the_policy_can_turn_it_into_a_checked_launch;
    L2 under_the_validating_policy_an_access_outside_is_named;
    L10 a_prepared_launch_is_launched_many_times;
    L10 its_parameters_can_be_replaced;
    L10 parameters_of_another_size_are_refused_and_the_old_ones_stay;
    L10 it_is_checked_when_it_is_prepared;
    L10 it_keeps_its_buffers_alive;
}

fn a_kernel_computes_what_it_says(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let add = client.prepare(kernels::add())?;
    let (a, b): (Vec<f32>, Vec<f32>) =
        ((0..1000).map(|i| i as f32).collect(), (0..1000).map(|i| 0.5 * i as f32).collect());
    let (x, y, out) = (client.create_from_slice(raw(&a))?, client.create_from_slice(raw(&b))?, client.empty(4000)?);
    let point = client.launch(&add, cover(1000)?, [&x, &y, &out])?;
    ensure_eq!(point.service, client.service_id());
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    ensure_eq!(client.read_one(&out)?.to_vec::<f32>()?, expected);
    ensure_eq!(client.read_one(&x)?.to_vec::<f32>()?, a);
    Ok(())
}

fn a_kernel_gets_its_parameters(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let saxpy = client.prepare(kernels::saxpy())?;
    let (x, y) = (client.create_from_slice(raw(&[2f32; 100]))?, client.create_from_slice(raw(&[1f32; 100]))?);
    for (a, expected) in [(0.5f32, 2.0f32), (-1.0, 0.0), (3.0, 6.0)] {
        client.launch(&saxpy, cover(100)?, Args::new().buffer(&x).buffer(&y).parameters(&a))?;
        ensure_eq!(client.read_one(&y)?.to_vec::<f32>()?, [expected; 100], "a = {a}");
    }
    let put = client.prepare(kernels::put())?;
    let out = client.empty(400)?;
    // The caller's parameters may change at once.
    let mut value = 77u32;
    client.launch(&put, cover(100)?, Args::new().buffer(&out).parameters(&value))?;
    value += 1;
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, [77; 100], "{value}");
    Ok(())
}

fn a_launch_does_not_wait_for_the_work(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (held, slow) = (on_new_stream(&client), client.prepare(kernels::slow(Duration::from_millis(300)))?);
    let (from, to) = (client.create_from_slice(raw(&[4u32; 64]))?, client.empty(256)?);
    client.sync()?.wait()?;
    // A launch that waits does so each time; a machine that is busy with other things is late now and then.
    let mut late = String::new();
    for _ in 0..5 {
        client.fill(&to, &[0])?;
        client.sync()?.wait()?;
        let start = Instant::now();
        let point = held.launch(&slow, cover(64)?, [&from, &to])?;
        let took = start.elapsed();
        let is_done = client.is_done(point)?;
        ensure_eq!(client.read_one(&to)?.to_vec::<u32>()?, [4; 64]);
        if took < Duration::from_millis(250) && !is_done {
            return Ok(());
        }
        late = format!("the launch of a kernel of 300 ms took {took:?}; done: {is_done}");
    }
    Err(Failure::new(late))
}

fn a_kernel_without_a_source_for_the_device_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let none = SourceKernel::new("sourceless", Interface::new());
    let error = ensure_err!(client.prepare(none), Error::NoSource { .. });
    let Error::NoSource { kernel, backend, has, takes } = &error else { return Err(Failure::new("unreachable")) };
    ensure_eq!((kernel.as_str(), *backend, has.len()), ("sourceless", cx.backend()?, 0));
    ensure_eq!(takes, &client.features().sources);
    ensure!(error.is_refusal(), "{error:?}");
    if !client.features().sources.contains(&SourceForm::Wgsl) {
        let other = SourceKernel::new("other", Interface::new())
            .source(Source::wgsl("@compute @workgroup_size(1) fn other() {}"));
        let error = ensure_err!(client.prepare(other), Error::NoSource { .. });
        ensure!(
            matches!(error, Error::NoSource { has, .. } if has == [SourceForm::Wgsl]),
            "the forms it has are not named"
        );
    }
    Ok(())
}

fn a_kernel_that_contradicts_itself_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    // The texts do as declared each time, so that the contradiction is the declaration's own.
    let kernel = |interface, bindings: &str, body: &str| {
        let text = format!("{bindings} @compute @workgroup_size(1) fn contradiction() {{ {body} }}");
        let cuda = kernels::idle_cuda_c("contradiction", &interface);
        let kernel = SourceKernel::new("contradiction", interface).source(Source::host(|_| Ok(()))).source(cuda);
        kernel.source(Source::wgsl(text))
    };
    let read = "@group(0) @binding(0) var<storage> x: array<u32>;";
    let write = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;";
    let two = format!("{read} @group(0) @binding(1) var<storage> y: array<u32>;");
    for bad in [
        kernel(Interface::new(), "", "").workgroup_size([0, 1, 1]),
        kernel(Interface::new(), "", "").workgroup_size([1, 1, 0]),
        kernel(Interface::new().buffer(Access::ReadWrite, HostUse::Slice), write, "x[0] += 1u;"),
        kernel(Interface::new().read().buffer(Access::Read, HostUse::Partition(4)), &two, "let sum = x[0] + y[0];"),
        kernel(Interface::new().buffer(Access::Read, HostUse::Claim), read, "let first = x[0];"),
    ] {
        let error = ensure_err!(client.prepare(bad.clone()), Error::InvalidKernel { .. });
        ensure!(error.to_string().contains("contradiction") && error.is_refusal(), "{error}");
    }
    Ok(())
}

fn kernels_of_one_id_are_prepared_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let kernel = kernels::step();
    let (first, second, other) =
        (client.prepare(kernel.clone())?, client.prepare(kernel.clone())?, client.prepare(kernels::step())?);
    ensure_eq!(first.slot(), second.slot());
    ensure!(first.slot() != other.slot(), "another kernel has the same slot");
    ensure_eq!((first.name(), first.workgroup_size(), first.service()), ("step", [GROUP, 1, 1], client.service_id()));
    ensure_eq!(Some(first.interface()), kernel.interface().as_ref());
    ensure_eq!(client.prepare_shared(first.kernel().clone())?.slot(), first.slot());
    Ok(())
}

fn a_kernel_prepared_by_another_device_is_refused(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    let step = other.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
    let error = ensure_err!(client.launch(&step, cover(64)?, [&bytes]), Error::ForeignKernel { .. });
    ensure_eq!(
        error,
        Error::ForeignKernel { kernel: "step".into(), owner: other.service_id(), service: client.service_id() }
    );
    ensure_err!(client.prepare_launch(&step, cover(64)?, [&bytes]), Error::ForeignKernel { .. });
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [1; 64]);
    Ok(())
}

fn what_is_uneven_at_the_end_is_computed_too(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    for count in [1usize, 63, 64, 65, 127, 1000, 10_007] {
        let bytes = client.create_from_slice(raw(&vec![5u32; count + 1]))?;
        client.launch(&step, cover(count)?, [&bytes.slice(..count as u64 * 4)?])?;
        let read = client.read_one(&bytes)?.to_vec::<u32>()?;
        ensure!(
            read[..count].iter().all(|x| *x == 6) && read[count] == 5,
            "{count} elements: {:?}",
            &read[count.saturating_sub(2)..]
        );
    }
    // More workgroups than the buffer has parts for find nothing to do.
    let bytes = client.create_from_slice(raw(&[5u32; 64]))?;
    client.launch(&step, Grid::x(10), [&bytes])?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [6; 64]);
    // Fewer leave the rest.
    let bytes = client.create_from_slice(raw(&[5u32; 128]))?;
    client.launch(&step, Grid::x(1), [&bytes])?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [[6; 64], [5; 64]].concat());
    Ok(())
}

fn atomics_of_all_workgroups_add_up(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let sum = client.prepare(kernels::sum())?;
    let data: Vec<u32> = (0..100_000).collect();
    let (x, total) = (client.create_from_slice(raw(&data))?, client.zeros(4)?);
    client.launch(&sum, cover(data.len())?, [&x, &total])?;
    let expected = data.iter().fold(0u32, |sum, x| sum.wrapping_add(*x));
    ensure_eq!(client.read_one(&total)?.to_vec::<u32>()?, [expected]);
    Ok(())
}

fn a_kernel_that_fails_names_itself_its_workgroup_and_why(cx: &Context) -> Outcome {
    let client = cx.client()?;
    needs_host_kernels(&client)?;
    let fails = client.prepare(kernels::fails())?;
    let (input, output) = (client.create_from_slice(&[1; 256])?, client.zeros(256)?);
    client.launch(&fails, cover(64)?, [&input, &output])?;
    let error = ensure_err!(client.read_one(&output), Error::KernelFailed { .. });
    let expected = Error::KernelFailed {
        kernel: "fails".into(),
        workgroup: [0; 3],
        fault: KernelFault::Message(kernels::FAULT.into()),
    };
    ensure_eq!(error, expected);
    ensure_eq!(client.read_one(&input)?.as_slice()?, [1; 256]);
    let claims = client.prepare(kernels::claims_overlap())?;
    client.fill(&output, &[0])?;
    client.launch(&claims, Grid::x(4), [&output])?;
    let error = ensure_err!(client.read_one(&output), Error::KernelFailed { .. });
    ensure!(
        matches!(error, Error::KernelFailed { fault: KernelFault::ClaimOverlap { binding: 0, .. }, .. }),
        "{error:?}"
    );
    // One claim alone is none.
    client.fill(&output, &[0])?;
    client.launch(&claims, Grid::x(1), [&output])?;
    ensure_eq!(client.read_one(&output.slice(..4)?)?.to_vec::<u32>()?, [1]);
    Ok(())
}

fn a_kernel_that_panics_marks_its_outputs_and_the_device_goes_on(cx: &Context) -> Outcome {
    let client = cx.client()?;
    needs_host_kernels(&client)?;
    let panics = client.prepare(kernels::panics())?;
    let (input, output) = (client.create_from_slice(&[1; 640])?, client.zeros(640)?);
    client.launch(&panics, cover(160)?, [&input, &output])?;
    let error = ensure_err!(client.read_one(&output), Error::KernelFailed { .. });
    ensure!(
        matches!(&error, Error::KernelFailed { fault: KernelFault::Panicked(text), .. } if text == kernels::PANIC),
        "{error:?}"
    );
    let step = client.prepare(kernels::step())?;
    client.write_slice(&output, raw(&[1u32; 160]))?;
    client.launch(&step, cover(160)?, [&output])?;
    ensure_eq!(client.read_one(&output)?.to_vec::<u32>()?, [2; 160]);
    Ok(())
}

fn a_kernel_handle_may_be_dropped_right_after_the_launch(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let bytes = held.create_from_slice(raw(&[1u32; 64]))?;
    for _ in 0..10 {
        let step = held.prepare(kernels::step())?;
        held.launch(&step, cover(64)?, [&bytes])?;
    }
    gate.open()?;
    ensure_eq!(held.read_one(&bytes)?.to_vec::<u32>()?, [11; 64]);
    Ok(())
}

// ---- L2

#[allow(unsafe_code, reason = "the call under test is unsafe")]
fn an_unchecked_launch_computes_the_same(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
    // SAFETY: the kernel stays inside the buffer, whatever its size.
    unsafe { client.launch_unchecked(&step, cover(64)?, [&bytes])? };
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [2; 64]);
    // Its arguments are checked all the same.
    // SAFETY: as above.
    let refused = unsafe { client.launch_unchecked(&step, cover(64)?, [&bytes, &bytes]) };
    ensure_err!(refused, Error::BufferCount { .. });
    Ok(())
}

#[allow(unsafe_code, reason = "the call under test is unsafe")]
fn the_policy_can_turn_it_into_a_checked_launch(cx: &Context) -> Outcome {
    for policy in [BoundsPolicy::Auto, BoundsPolicy::Enforce, BoundsPolicy::Validate] {
        let mut settings = cx.settings();
        settings.bounds = policy;
        let client = cx.open_with(&Variant::plain(), &settings)?;
        let (step, outside) = (client.prepare(kernels::step())?, client.prepare(kernels::out_of_bounds())?);
        let memory = client.create_from_slice(raw(&[1u32; 192]))?;
        let middle = memory.slice(PART..2 * PART)?;
        // SAFETY: the kernel stays inside the buffer.
        unsafe { client.launch_unchecked(&step, cover(64)?, [&middle])? };
        ensure_eq!(client.read_one(&middle)?.to_vec::<u32>()?, [2; 64], "{policy:?}");
        if policy != BoundsPolicy::Auto {
            // SAFETY: the policy makes the launch a checked one, so the access outside does no harm.
            unsafe { client.launch_unchecked(&outside, Grid::x(1), [&middle])? };
        }
        for part in [memory.slice(..PART)?, memory.slice(2 * PART..)?] {
            ensure_eq!(
                client.read_one(&part)?.to_vec::<u32>()?,
                [1; 64],
                "{policy:?}: bytes outside the buffer changed"
            );
        }
    }
    Ok(())
}

fn under_the_validating_policy_an_access_outside_is_named(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.bounds = BoundsPolicy::Validate;
    let client = cx.open_with(&Variant::plain(), &settings)?;
    if client.features().bounds != trunnion_runtime_core::properties::BoundsAbility::Reported {
        return Err(Failure::Skipped(format!("{:?}: the device does not report them", client.features().bounds)));
    }
    let outside = client.prepare(kernels::out_of_bounds())?;
    let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
    client.launch(&outside, Grid::x(1), [&bytes])?;
    let error = ensure_err!(client.read_one(&bytes), Error::KernelFailed { .. });
    ensure!(
        matches!(&error, Error::KernelFailed { kernel, fault: KernelFault::OutOfBounds { binding: 0, size: 256, range }, .. }
            if kernel == "out_of_bounds" && *range == (256..260)),
        "{error:?}"
    );
    Ok(())
}

// ---- L10

fn a_prepared_launch_is_launched_many_times(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    let prepared = client.prepare_launch(&step, cover(64)?, [&bytes])?;
    let mut last = client.record()?;
    for _ in 0..100 {
        let point = prepared.launch()?;
        ensure!(point.seq > last.seq, "{point} after {last}");
        last = point;
    }
    let clone = prepared.clone();
    std::thread::spawn(move || clone.launch()).join().map_err(|_| Failure::new("the thread panicked"))??;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [101; 64]);
    Ok(())
}

fn its_parameters_can_be_replaced(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let saxpy = client.prepare(kernels::saxpy())?;
    let (x, y) = (client.create_from_slice(raw(&[1f32; 64]))?, client.create_from_slice(raw(&[0f32; 64]))?);
    let mut prepared =
        client.prepare_launch(&saxpy, cover(64)?, Args::new().buffer(&x).buffer(&y).parameters(&1f32))?;
    prepared.launch()?;
    prepared.set_parameters(&10f32)?;
    prepared.launch()?;
    // A launch that was made keeps what it was made with.
    prepared.set_parameters(&1000f32)?;
    ensure_eq!(client.read_one(&y)?.to_vec::<f32>()?, [11.0; 64]);
    Ok(())
}

fn parameters_of_another_size_are_refused_and_the_old_ones_stay(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let put = client.prepare(kernels::put())?;
    let out = client.zeros(256)?;
    let mut prepared = client.prepare_launch(&put, cover(64)?, Args::new().buffer(&out).parameters(&5u32))?;
    let error = ensure_err!(prepared.set_parameters(&6u64), Error::ParameterSize { .. });
    ensure_eq!(error, Error::ParameterSize { kernel: "put".into(), got: 8, expected: 4 });
    ensure_err!(prepared.set_parameters(&6u16), Error::ParameterSize { .. });
    prepared.launch()?;
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, [5; 64]);
    Ok(())
}

fn it_is_checked_when_it_is_prepared(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    let add = client.prepare(kernels::add())?;
    let (a, foreign) = (client.zeros(256)?, other.zeros(256)?);
    ensure_err!(client.prepare_launch(&add, cover(64)?, [&a, &a]), Error::BufferCount { .. });
    ensure_err!(client.prepare_launch(&add, cover(64)?, [&a, &foreign, &a]), Error::ForeignHandle { .. });
    ensure_err!(client.prepare_launch(&add, cover(64)?, [&a, &a, &a]), Error::Overlap { .. });
    ensure_err!(
        client.prepare_launch(&add, cover(64)?, Args::from([&a, &a, &a]).parameters(&1u32)),
        Error::ParameterSize { .. }
    );
    let before = client.compile_statistics()?;
    let out = client.zeros(256)?;
    client.prepare_launch(&add, Grid::x(0), [&a, &a, &out])?.launch()?;
    client.sync()?.wait()?;
    ensure_eq!(client.compile_statistics()?, before, "an empty launch compiles nothing");
    Ok(())
}

fn it_keeps_its_buffers_alive(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let carry = client.prepare(kernels::carry())?;
    let (from, to) = (client.create_from_slice(raw(&[8u32; 64]))?, client.empty(256)?);
    let prepared = client.prepare_launch(&carry, cover(64)?, [&from, &to])?;
    drop(from);
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    let _other = client.create_from_slice(raw(&[9u32; 64]))?;
    prepared.launch()?;
    ensure_eq!(client.read_one(&to)?.to_vec::<u32>()?, [8; 64]);
    drop((prepared, to));
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, 256);
    Ok(())
}
