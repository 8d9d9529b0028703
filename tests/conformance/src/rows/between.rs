//! K1: bytes from one device to another, through the host.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{AT_ONCE, Context, SOON, fail_late, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use std::time::Instant;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::TensorView;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::TensorDescriptor;

tests! {
    K1 bytes_arrive_whatever_their_number;
    K1 a_part_of_a_buffer_is_moved_alone;
    K1 a_transfer_comes_after_the_work_on_its_source;
    K1 work_on_the_copy_comes_after_the_transfer;
    K1 a_later_write_to_the_source_is_not_seen;
    K1 a_transfer_blocks_neither_its_caller_nor_another_stream;
    K1 a_transfer_to_the_same_device_is_a_copy;
    K1 a_foreign_source_is_refused_and_nothing_is_reserved;
    K1 a_failed_source_marks_the_copy_and_nothing_else;
    K1 a_source_that_fails_later_marks_the_copy;
    K1 a_source_device_that_ends_does_not_leave_the_target_waiting;
    K1 a_target_without_memory_marks_the_copy;
    K1 a_strided_tensor_arrives_without_gaps;
    K1 strides_that_cannot_be_moved_are_refused;
    K1 two_devices_that_send_to_each_other_at_once_get_on;
    K1 a_ring_of_devices_passes_bytes_round;
    K1 a_timeout_of_the_target_leaves_the_transfer_alive;
    K1 the_source_may_be_dropped_at_once;
}

fn bytes_arrive_whatever_their_number(cx: &Context) -> Outcome {
    for variant in [Variant::plain(), Variant { separate_memory: true, ..Variant::plain() }] {
        let (a, b) = (cx.client()?, cx.open(&variant)?);
        for size in [0usize, 1, 25, 4096, 65_537, 3 << 20] {
            let data = pattern(size, 3);
            let there = a.to_client(&a.create_from_slice(&data)?, &b)?;
            ensure_eq!((there.service(), there.size_in_used()), (b.service_id(), size as u64));
            ensure!(b.read_one(&there)?.as_slice()? == data, "{size} bytes are not those sent");
            let back = b.to_client(&there, &a)?;
            ensure!(a.read_one(&back)?.as_slice()? == data, "{size} bytes did not come back");
        }
    }
    Ok(())
}

fn a_part_of_a_buffer_is_moved_alone(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let source = a.create_from_slice(&pattern(1000, 0))?;
    let there = a.to_client(&source.slice(100..356)?, &b)?;
    ensure_eq!((there.allocation_size(), b.memory_usage()?.live), (256, 256));
    ensure_eq!(b.read_one(&there)?.as_slice()?, &pattern(1000, 0)[100..356]);
    Ok(())
}

fn a_transfer_comes_after_the_work_on_its_source(cx: &Context) -> Outcome {
    let (a, b) = (cx.open(&Variant::late(Duration::from_millis(1), 90))?, cx.client()?);
    let step = a.prepare(kernels::step())?;
    let source = a.create_from_slice(raw(&[0u32; 256]))?;
    let mut copies = Vec::new();
    for _ in 0..20 {
        on_new_stream(&a).launch(&step, cover(256)?, [&source])?;
        copies.push(a.to_client(&source, &b)?);
    }
    for (i, copy) in (1..).zip(&copies) {
        ensure_eq!(b.read_one(copy)?.to_vec::<u32>()?, [i; 256]);
    }
    Ok(())
}

fn work_on_the_copy_comes_after_the_transfer(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let (step, other) = (b.prepare(kernels::step())?, on_new_stream(&b));
    let held = on_new_stream(&a);
    let gate = cx.gate(&a)?;
    gate.block(&held)?;
    let copy = held.to_client(&held.create_from_slice(raw(&[5u32; 64]))?, &b)?;
    // On the stream of the transfer and on another.
    b.launch(&step, cover(64)?, [&copy])?;
    let last = other.launch(&step, cover(64)?, [&copy])?;
    other.flush()?;
    ensure!(!b.is_done(last)?, "work on the copy overtook the transfer");
    gate.open()?;
    ensure_eq!(b.read_one(&copy)?.to_vec::<u32>()?, [7; 64]);
    Ok(())
}

fn a_later_write_to_the_source_is_not_seen(cx: &Context) -> Outcome {
    let (a, b) = (cx.open(&Variant::late(Duration::from_millis(1), 91))?, cx.client()?);
    let source = a.zeros(100_000)?;
    let mut copies = Vec::new();
    for round in 0..10u8 {
        a.fill(&source, &[round])?;
        copies.push(a.to_client(&source, &b)?);
        on_new_stream(&a).fill(&source, &[0xFF])?;
    }
    for (round, copy) in (0u8..).zip(&copies) {
        ensure!(b.read_one(copy)?.as_slice()?.iter().all(|byte| *byte == round), "copy {round} saw another round");
    }
    Ok(())
}

fn a_transfer_blocks_neither_its_caller_nor_another_stream(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let (held, receiving, free) = (on_new_stream(&a), on_new_stream(&b), on_new_stream(&b));
    let gate = cx.gate(&a)?;
    gate.block(&held)?;
    let source = held.create_from_slice(&[4; 64])?;
    let start = Instant::now();
    let copy = held.to_client(&source, &receiving)?;
    ensure!(start.elapsed() < AT_ONCE, "the caller was blocked for {:?}", start.elapsed());
    for round in 0..20u8 {
        let bytes = free.create_from_slice(&[round; 32])?;
        ensure_eq!(free.read_one(&bytes)?.as_slice()?, [round; 32]);
    }
    free.sync()?.wait()?;
    let here = on_new_stream(&a);
    ensure_eq!(here.read_one(&here.create_from_slice(&[1])?)?.as_slice()?, [1]);
    gate.open()?;
    ensure_eq!(receiving.read_one(&copy)?.as_slice()?, [4; 64]);
    Ok(())
}

fn a_transfer_to_the_same_device_is_a_copy(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let source = client.create_from_slice(&[4; 500])?;
    let copy = client.to_client(&source, &on_new_stream(&client))?;
    ensure!(!copy.same_allocation(&source), "the copy is the source");
    client.fill(&source, &[5])?;
    ensure_eq!(client.read_one(&copy)?.as_slice()?, [4; 500]);
    Ok(())
}

fn a_foreign_source_is_refused_and_nothing_is_reserved(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let foreign = b.create_from_slice(&[1; 100])?;
    let before = b.memory_usage()?;
    let error = ensure_err!(a.to_client(&foreign, &b), Error::ForeignHandle { .. });
    ensure_eq!(error, Error::ForeignHandle { owner: b.service_id(), service: a.service_id() });
    ensure_err!(a.to_client(&foreign, &a), Error::ForeignHandle { .. });
    ensure_eq!((b.memory_usage()?.allocations, a.memory_usage()?.allocations), (before.allocations, 0));
    Ok(())
}

fn a_failed_source_marks_the_copy_and_nothing_else(cx: &Context) -> Outcome {
    let (a, marked) = super::syncing::marked(cx)?;
    let b = cx.client()?;
    let healthy = b.create_from_slice(&[1; 256])?;
    let copy = a.to_client(&marked, &b)?;
    let error = b.read_one(&copy).err();
    ensure!(matches!(error.as_ref().map(Error::root), Some(Error::Compile { .. })), "{error:?}");
    ensure_err!(b.check(&[&copy]), Error::Compile { .. } | Error::Inherited { .. });
    ensure_eq!(b.read_one(&healthy)?.as_slice()?, [1; 256]);
    b.sync()?.wait()?;
    // Written anew it is well.
    b.fill(&copy, &[6])?;
    ensure_eq!(b.read_one(&copy)?.as_slice()?, [6; 256]);
    Ok(())
}

fn a_source_that_fails_later_marks_the_copy(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let (held, source) = (on_new_stream(&a), a.zeros(256)?);
    let gate = cx.gate(&a)?;
    gate.block(&held)?;
    fail_late(&held, &source)?;
    let copy = held.to_client(&source, &b)?;
    // Nobody knows yet that the launch is going to fail.
    let carry = b.prepare(kernels::carry())?;
    let output = b.zeros(256)?;
    b.launch(&carry, cover(64)?, [&copy, &output])?;
    gate.open()?;
    for handle in [&copy, &output] {
        let error = b.read_one(handle).err();
        ensure!(matches!(error.as_ref().map(Error::root), Some(Error::GridTooLarge { .. })), "{error:?}");
    }
    Ok(())
}

fn a_source_device_that_ends_does_not_leave_the_target_waiting(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let (held, receiving) = (on_new_stream(&a), on_new_stream(&b));
    let gate = cx.gate(&a)?;
    gate.block(&held)?;
    let copy = held.to_client(&held.create_from_slice(&[4; 64])?, &receiving)?;
    a.shutdown(Duration::from_millis(50));
    let error = ensure_err!(receiving.read_timeout(&[&copy], SOON), Error::ShutDown { .. } | Error::Inherited { .. });
    ensure!(matches!(error.root(), Error::ShutDown { service } if *service == a.service_id()), "{error:?}");
    receiving.fill(&copy, &[1])?;
    ensure_eq!(receiving.read_one(&copy)?.as_slice()?, [1; 64]);
    Ok(())
}

fn a_target_without_memory_marks_the_copy(cx: &Context) -> Outcome {
    let (a, b) =
        (cx.client()?, cx.open(&Variant { memory: Some(2 << 20), max_allocation: Some(2 << 20), ..Variant::plain() })?);
    let _held = b.zeros(1 << 20)?;
    let source = a.zeros(3 << 19)?;
    let copy = a.to_client(&source, &b)?;
    let error = b.read_one(&copy).err();
    // The write replaces the bytes, but there is no memory to replace them in.
    ensure!(error.as_ref().is_some_and(Error::is_out_of_memory), "{error:?}");
    ensure_err!(a.to_client(&a.zeros(3 << 20)?, &b), Error::TooLarge { .. });
    ensure_eq!(a.read_one(&source.slice(..4)?)?.as_slice()?, [0; 4]);
    Ok(())
}

fn a_strided_tensor_arrives_without_gaps(cx: &Context) -> Outcome {
    let (a, b) = (
        cx.open(&Variant { row_pitch: Some(256), ..Variant::plain() })?,
        cx.open(&Variant { row_pitch: Some(64), ..Variant::plain() })?,
    );
    let tensor = TensorDescriptor::optimized([5, 3, 7], ElemType::F32);
    let data: Vec<f32> = (0..105).map(|i| i as f32).collect();
    let source = a.create_tensor(&tensor, Bytes::from_elems(data.clone()))?;
    let there = a.to_client_tensor(&TensorView::new(&source, &tensor), &b)?;
    ensure_eq!((there.strides.clone(), there.memory.size_in_used()), (vec![21, 7, 1], 420));
    ensure_eq!(b.read_one(&there.memory)?.to_vec::<f32>()?, data);
    // Rows of a matrix, every second.
    let rows = TensorView { handle: &source.memory, shape: &[2, 7], strides: &[128, 1], elem: ElemType::F32 };
    let there = a.to_client_tensor(&rows, &b)?;
    ensure_eq!(b.read_one(&there.memory)?.to_vec::<f32>()?, [&data[..7], &data[14..21]].concat());
    let home = a.to_client_tensor(&rows, &a)?;
    ensure_eq!(a.read_one(&home.memory)?.to_vec::<f32>()?, [&data[..7], &data[14..21]].concat());
    Ok(())
}

fn strides_that_cannot_be_moved_are_refused(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let source = a.zeros(400)?;
    let view = |shape, strides| TensorView { handle: &source, shape, strides, elem: ElemType::F32 };
    ensure_err!(a.to_client_tensor(&view(&[4, 4], &[2, 1]), &b), Error::UnsupportedStrides { .. });
    ensure_err!(a.to_client_tensor(&view(&[4, 4], &[4]), &b), Error::UnsupportedStrides { .. });
    ensure_err!(a.to_client_tensor(&view(&[11, 10], &[10, 1]), &b), Error::OutOfRange { .. });
    ensure_eq!(b.memory_usage()?.allocations, 0);
    Ok(())
}

fn two_devices_that_send_to_each_other_at_once_get_on(cx: &Context) -> Outcome {
    let (a, b) = (
        cx.open(&Variant::late(Duration::from_micros(300), 92))?,
        cx.open(&Variant::late(Duration::from_micros(300), 93))?,
    );
    let results: Vec<Outcome> = std::thread::scope(|scope| {
        let send =
            |from: &trunnion_runtime_core::client::Client, to: &trunnion_runtime_core::client::Client, seed: u8| {
                let (from, to) = (from.clone(), to.clone());
                move || -> Outcome {
                    for round in 0..30u8 {
                        let data = pattern(5000, seed ^ round);
                        let there = from.to_client(&from.create_from_slice(&data)?, &to)?;
                        let back = to.to_client(&there, &from)?;
                        ensure!(from.read_one(&back)?.as_slice()? == data, "round {round} came back as something else");
                    }
                    Ok(())
                }
            };
        let threads = [scope.spawn(send(&a, &b, 0)), scope.spawn(send(&b, &a, 128)), scope.spawn(send(&a, &b, 64))];
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(results.len(), 3);
    results.into_iter().collect()
}

fn a_ring_of_devices_passes_bytes_round(cx: &Context) -> Outcome {
    let clients = (0..4).map(|_| cx.client()).collect::<Outcome<Vec<_>>>()?;
    let steps = clients.iter().map(|client| client.prepare(kernels::step())).collect::<Result<Vec<_>, _>>()?;
    let mut bytes = clients[0].create_from_slice(raw(&[0u32; 64]))?;
    for i in 0..20 {
        let (here, there) = (i % 4, (i + 1) % 4);
        clients[here].launch(&steps[here], cover(64)?, [&bytes])?;
        bytes = clients[here].to_client(&bytes, &clients[there])?;
    }
    ensure_eq!(clients[0].read_one(&bytes)?.to_vec::<u32>()?, [20; 64]);
    Ok(())
}

fn a_timeout_of_the_target_leaves_the_transfer_alive(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let held = on_new_stream(&a);
    let gate = cx.gate(&a)?;
    gate.block(&held)?;
    let copy = held.to_client(&held.create_from_slice(&[4; 64])?, &b)?;
    ensure_err!(b.read_timeout(&[&copy], Duration::from_millis(50)), Error::Timeout { .. });
    gate.open()?;
    ensure_eq!(b.read_one(&copy)?.as_slice()?, [4; 64]);
    Ok(())
}

fn the_source_may_be_dropped_at_once(cx: &Context) -> Outcome {
    let (a, b) = (cx.client()?, cx.client()?);
    let held = on_new_stream(&a);
    let gate = cx.gate(&a)?;
    gate.block(&held)?;
    let source = held.create_from_slice(&[4; 5000])?;
    let copy = held.to_client(&source, &b)?;
    drop(source);
    let other = a.create_from_slice(&[5; 5000])?;
    ensure_eq!(a.read_one(&other)?.as_slice()?, [5; 5000]);
    gate.open()?;
    let read = b.read_timeout(&[&copy], SOON)?;
    if read.len() != 1 {
        return Err(Failure::new("one handle, several answers"));
    }
    ensure_eq!(read[0].as_slice()?, [4; 5000]);
    Ok(())
}
