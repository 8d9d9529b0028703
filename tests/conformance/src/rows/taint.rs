//! F3 to F6: how a failure is handed on, what clears it, whom it spares, and panics in a backend.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::TensorDescriptor;
use trunnion_server_layers::{FaultInjector, FaultKind, FaultPlan, Operation};

tests! {
    F3 a_launch_over_a_failure_is_skipped_and_hands_it_on_with_the_way_it_came;
    F3 a_long_way_keeps_eight_links_and_counts_the_others;
    F3 bytes_that_are_merely_written_are_an_input_too;
    F3 many_threads_over_one_failure_inherit_it_and_those_beside_it_do_not;
    F4 a_kernel_that_replaces_its_output_clears_exactly_that;
    F4 a_kernel_that_merely_stores_clears_nothing;
    F4 threads_that_overwrite_parts_of_a_failure_clear_each_its_own;
    F5 of_several_tensors_in_one_reservation_one_fails_and_the_others_stay_readable;
    F5 threads_with_tensors_of_one_reservation_do_not_spoil_each_others;
    F6 a_panic_of_the_server_marks_the_outputs_and_the_device_goes_on;
    F6 panics_under_several_threads_reach_only_the_operation_they_came_in;
}

fn is_compile(error: Option<&Error>) -> bool {
    matches!(error.map(Error::root), Some(Error::Compile { .. }))
}

// ---- F3

fn a_launch_over_a_failure_is_skipped_and_hands_it_on_with_the_way_it_came(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let (count, carry, step) =
        (client.prepare(kernels::count())?, client.prepare(kernels::carry())?, client.prepare(kernels::step())?);
    let (b, c, runs) = (client.zeros(256)?, client.zeros(256)?, client.zeros(8)?);
    client.launch(&carry, cover(64)?, [&marked, &b])?;
    client.launch(&step, cover(64)?, [&b])?;
    let copied = client.copy(&b, &c)?;
    let error = ensure_err!(client.read_one(&c), Error::Inherited { .. });
    let Error::Inherited { cause, chain, dropped: 0 } = &error else { return Err(Failure::new(error)) };
    ensure_eq!(**cause, ensure_err!(client.read_one(&marked), Error::Compile { .. }));
    let names: Vec<_> = chain.iter().map(|link| link.operation.as_str()).collect();
    ensure_eq!(names, ["carry", "step", "copy"]);
    ensure_eq!((chain[2].at.stream, chain[2].at.seq), (copied.stream, copied.seq));
    // Beside it, things run.
    client.launch(&count, cover(64)?, [&runs])?;
    ensure_eq!(client.read_one(&runs)?.to_vec::<u32>()?, [1, 1]);
    Ok(())
}

fn a_long_way_keeps_eight_links_and_counts_the_others(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let step = client.prepare(kernels::step())?;
    for _ in 0..11 {
        client.launch(&step, cover(64)?, [&marked])?;
    }
    let error = ensure_err!(client.read_one(&marked), Error::Inherited { .. });
    ensure!(matches!(&error, Error::Inherited { chain, dropped: 3, .. } if chain.len() == 8), "{error:?}");
    ensure!(is_compile(Some(&error)), "{error:?}");
    Ok(())
}

fn bytes_that_are_merely_written_are_an_input_too(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    // If it ran over them, it would leave a failure of its own.
    let stores = client.prepare(kernels::out_of_bounds())?;
    client.launch(&stores, cover(1)?, [&marked])?;
    let error = ensure_err!(client.read_one(&marked), Error::Inherited { .. });
    ensure!(is_compile(Some(&error)), "{error:?}");
    Ok(())
}

fn many_threads_over_one_failure_inherit_it_and_those_beside_it_do_not(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let well = client.create_from_slice(raw(&[4u32; 64]))?;
    let carry = client.prepare(kernels::carry())?;
    each_of(6, |i| {
        let client = on_new_stream(&client);
        for round in 0..20 {
            let out = client.zeros(256)?;
            let fails = (i + round) % 2 == 0;
            client.launch(&carry, cover(64)?, [if fails { &marked } else { &well }, &out])?;
            match client.read_one(&out) {
                Ok(bytes) => ensure_eq!((fails, bytes.to_vec::<u32>()?[0]), (false, 4)),
                Err(error) => ensure!(fails && is_compile(Some(&error)), "{error:?}"),
            }
        }
        Ok(())
    })
}

// ---- F4

fn a_kernel_that_replaces_its_output_clears_exactly_that(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let (broken, put) = (client.prepare(kernels::broken())?, client.prepare(kernels::put())?);
    let part = client.limits().binding_alignment.max(64);
    let (input, marked) = (client.zeros(3 * part)?, client.zeros(3 * part)?);
    client.launch(&broken, cover(3 * part as usize / 4)?, [&input, &marked])?;
    let middle = marked.slice(part..2 * part)?;
    client.launch(&put, cover(64)?, (&[&middle][..], &9u32))?;
    ensure_eq!(client.read_one(&middle)?.to_vec::<u32>()?[0], 9);
    for beside in [marked.slice(..part)?, marked.slice(2 * part..)?, marked.clone()] {
        ensure!(is_compile(client.read_one(&beside).err().as_ref()), "{beside:?} was cleared");
    }
    Ok(())
}

fn a_kernel_that_merely_stores_clears_nothing(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let (step, sum) = (client.prepare(kernels::step())?, client.prepare(kernels::sum())?);
    let ones = client.create_from_slice(raw(&[1u32; 64]))?;
    client.launch(&step, cover(64)?, [&marked])?;
    client.launch(&sum, cover(64)?, [&ones, &marked])?;
    ensure!(is_compile(client.read_one(&marked).err().as_ref()), "a store cleared a failure");
    client.write_slice(&marked, raw(&[0u32; 64]))?;
    client.launch(&sum, cover(64)?, [&ones, &marked])?;
    ensure_eq!(client.read_one(&marked)?.to_vec::<u32>()?[0], 64);
    Ok(())
}

fn threads_that_overwrite_parts_of_a_failure_clear_each_its_own(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let align = client.limits().copy_alignment.max(1);
    let part = 16u64.next_multiple_of(align);
    each_of(8, |i| {
        let client = on_new_stream(&client);
        let own = marked.slice(2 * i as u64 * part..(2 * i as u64 + 1) * part)?;
        client.fill(&own, &[i as u8])?;
        ensure_eq!(client.read_one(&own)?.as_slice()?[0], i as u8);
        Ok(())
    })?;
    for i in 0..8u64 {
        let (own, next) = (marked.slice(2 * i * part..(2 * i + 1) * part)?, marked.slice((2 * i + 1) * part..)?);
        ensure_eq!(client.read_one(&own)?.as_slice()?[0], i as u8);
        ensure!(is_compile(client.check(&[&next]).err().as_ref()), "part {i} cleared more than its own");
    }
    Ok(())
}

// ---- F5

fn tensors(client: &Client) -> Outcome<Vec<trunnion_runtime_core::layout::MemoryLayout>> {
    let tensor = TensorDescriptor::contiguous([64], ElemType::U32);
    let bytes = |value: u32| trunnion_runtime_core::bytes::Bytes::from_vec(raw(&[value; 64]).to_vec());
    Ok(client.create_tensors((0..4).map(|value| (tensor.clone(), bytes(value))).collect())?)
}

fn of_several_tensors_in_one_reservation_one_fails_and_the_others_stay_readable(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let broken = client.prepare(kernels::broken())?;
    let all = tensors(&client)?;
    ensure!(all[0].memory.same_allocation(&all[3].memory), "they have a reservation each");
    client.launch(&broken, cover(64)?, [&all[1].memory, &all[2].memory])?;
    for (i, layout) in all.iter().enumerate() {
        match client.read_one(&layout.memory) {
            Ok(bytes) => ensure_eq!((bytes.to_vec::<u32>()?, i == 2), (vec![i as u32; 64], false)),
            Err(error) => ensure!(i == 2 && is_compile(Some(&error)), "tensor {i}: {error:?}"),
        }
    }
    let handles: Vec<_> = all.iter().map(|layout| &layout.memory).collect();
    ensure!(is_compile(client.read(&handles).err().as_ref()), "all together");
    Ok(())
}

fn threads_with_tensors_of_one_reservation_do_not_spoil_each_others(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let (broken, step) = (client.prepare(kernels::broken())?, client.prepare(kernels::step())?);
    let (all, input) = (tensors(&client)?, client.zeros(256)?);
    each_of(4, |i| {
        let (client, own) = (on_new_stream(&client), &all[i].memory);
        for round in 1..=20 {
            if i % 2 == 1 {
                client.launch(&broken, cover(64)?, [&input, own])?;
                ensure!(is_compile(client.read_one(own).err().as_ref()), "tensor {i} is well");
                client.write_slice(own, raw(&[i as u32 + round; 64]))?;
            } else {
                client.launch(&step, cover(64)?, [own])?;
            }
            ensure_eq!(client.read_one(own)?.to_vec::<u32>()?, [i as u32 + round; 64]);
        }
        Ok(())
    })
}

// ---- F6

fn panicking(cx: &Context, plan: FaultPlan) -> Outcome<Client> {
    let settings = cx.settings();
    let (opened, _) = FaultInjector::around(cx.opened(&Variant::plain(), &settings.open)?, plan);
    Ok(Client::try_init_with(cx.device()?, opened, &settings)?)
}

fn a_panic_of_the_server_marks_the_outputs_and_the_device_goes_on(cx: &Context) -> Outcome {
    let client = panicking(cx, FaultPlan::new().fail_operation(Operation::Launch, 2, FaultKind::Panic))?;
    let step = client.prepare(kernels::step())?;
    let (a, b) = (client.create_from_slice(raw(&[1u32; 64]))?, client.create_from_slice(raw(&[1u32; 64]))?);
    let points = [client.launch(&step, cover(64)?, [&a])?, client.launch(&step, cover(64)?, [&b])?];
    let error = ensure_err!(client.read_one(&b), Error::Panicked { .. });
    ensure!(error.to_string().contains("on purpose, in launch 2"), "{error}");
    for point in points {
        client.done(point)?.wait()?;
    }
    client.launch(&step, cover(64)?, [&a])?;
    client.write_slice(&b, raw(&[5u32; 64]))?;
    client.launch(&step, cover(64)?, [&b])?;
    ensure_eq!(client.read_one(&a)?.to_vec::<u32>()?, [3; 64]);
    ensure_eq!(client.read_one(&b)?.to_vec::<u32>()?, [6; 64]);
    ensure_eq!(client.shutdown(crate::context::SOON).abandoned, 0);
    Ok(())
}

fn panics_under_several_threads_reach_only_the_operation_they_came_in(cx: &Context) -> Outcome {
    let plan = (1..=15).fold(FaultPlan::new(), |plan, k| plan.fail_operation(Operation::Copy, 7 * k, FaultKind::Panic));
    let client = panicking(cx, plan)?;
    let from = client.create_from_slice(raw(&[3u32; 64]))?;
    let failed = core::sync::atomic::AtomicUsize::new(0);
    each_of(4, |_| {
        let client = on_new_stream(&client);
        for _ in 0..30 {
            let to = client.empty(256)?;
            client.copy(&from, &to)?;
            match client.read_one(&to) {
                Ok(bytes) => ensure_eq!(bytes.to_vec::<u32>()?, [3; 64]),
                Err(error) => {
                    ensure!(matches!(error, Error::Panicked { .. }), "{error:?}");
                    failed.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
                }
            }
        }
        Ok(())
    })?;
    ensure_eq!(failed.into_inner(), 15);
    ensure_eq!(client.read_one(&from)?.to_vec::<u32>()?, [3; 64]);
    Ok(())
}

/// Runs a task on several threads at once; the first failure counts.
fn each_of(count: usize, task: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    std::thread::scope(|scope| {
        let task = &task;
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || task(i))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked"))))
    })
}
