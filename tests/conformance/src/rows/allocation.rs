//! M1, M2: reserving memory, and filling it.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{AT_ONCE, Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use std::time::Instant;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::TensorView;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, OutOfMemory};
use trunnion_runtime_core::layout::TensorDescriptor;

tests! {
    M1 an_allocation_returns_at_once_however_busy_the_stream_is;
    M1 zeros_are_zero_also_in_memory_used_before;
    M1 a_tensor_is_as_large_as_its_elements;
    M1 several_tensors_are_one_reservation_with_aligned_parts;
    M1 a_reservation_that_fails_marks_its_buffer_and_no_other;
    M1 out_of_memory_at_any_request_leaves_the_rest_working;
    M1 a_driver_that_refuses_once_is_asked_again_or_one_buffer_is_marked;
    M1 an_out_of_memory_error_says_what_there_is;
    M1 more_than_the_device_can_ever_give_is_refused_at_once;
    M1 a_request_larger_than_any_page_is_served;
    M1 a_shape_that_overflows_is_refused;
    M1 over_the_budget_is_out_of_memory_before_the_driver_is_asked;
    M1 a_kernel_over_a_failed_reservation_is_skipped;
    M2 what_is_created_is_read_back_whatever_its_size;
    M2 the_hosts_memory_may_be_dropped_at_once;
    M2 a_large_slice_is_taken_over_before_the_call_returns;
    M2 tensors_are_created_from_bytes_and_slices;
    M2 elements_of_another_size_than_the_tensors_are_refused;
    M2 bytes_of_any_kind_can_be_created_from;
}

fn an_allocation_returns_at_once_however_busy_the_stream_is(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let start = Instant::now();
    let handles = (0..100).map(|i| held.empty(1000 * i)).collect::<Result<Vec<_>, _>>()?;
    ensure!(start.elapsed() < AT_ONCE, "100 allocations on a held stream took {:?}", start.elapsed());
    for (i, handle) in handles.iter().enumerate() {
        ensure_eq!(handle.size_in_used(), 1000 * i as u64);
        ensure_eq!(handle.allocation_size(), 1000 * i as u64);
    }
    // Memory is the device's, not the stream's: another stream uses what the held one reserved.
    gate.open()?;
    held.check(&handles.iter().collect::<Vec<_>>())?;
    Ok(())
}

fn zeros_are_zero_also_in_memory_used_before(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for size in [1usize, 25, 4096, 300_000] {
        let used = client.create_from_slice(&vec![0xEE; size])?;
        client.sync()?.wait()?;
        drop(used);
        let zeros = client.zeros(size as u64)?;
        ensure_eq!(client.read_one(&zeros)?.as_slice()?, vec![0u8; size]);
    }
    Ok(())
}

fn a_tensor_is_as_large_as_its_elements(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for elem in ElemType::ALL {
        let layout = client.empty_tensor(&TensorDescriptor::contiguous([3, 5, 2], elem))?;
        ensure_eq!(layout.memory.size_in_used(), 30 * elem.size(), "{elem:?}");
        ensure_eq!(layout.strides, [10, 2, 1], "{elem:?}");
    }
    let scalar = client.empty_tensor(&TensorDescriptor::contiguous([], ElemType::F64))?;
    ensure_eq!((scalar.memory.size_in_used(), scalar.strides.len()), (8, 0));
    Ok(())
}

fn several_tensors_are_one_reservation_with_aligned_parts(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.memory_usage()?;
    let shapes = [[1u64, 1], [3, 7], [0, 4], [5, 33], [1, 2]];
    let tensors: Vec<_> = shapes.iter().map(|shape| TensorDescriptor::contiguous(*shape, ElemType::I16)).collect();
    let layouts = client.empty_tensors(&tensors)?;
    ensure_eq!(layouts.len(), 5);
    for (i, (layout, tensor)) in layouts.iter().zip(&tensors).enumerate() {
        let start = layout.memory.range().start;
        ensure!(start.is_multiple_of(client.limits().binding_alignment), "tensor {i} begins at {start}");
        ensure!(layout.memory.size_in_used() >= tensor.dense_size()?, "tensor {i} has {:?}", layout.memory.range());
        ensure!(layout.memory.same_allocation(&layouts[0].memory), "tensor {i} has a reservation of its own");
        for other in &layouts[..i] {
            ensure!(!layout.memory.overlap(&other.memory), "tensor {i} overlaps another");
        }
        client.fill(&layout.memory, &[i as u8 + 1])?;
    }
    ensure_eq!(client.memory_usage()?.allocations, before.allocations + 1);
    for (i, layout) in layouts.iter().enumerate() {
        let read = client.read_one(&layout.memory)?;
        ensure!(read.as_slice()?.iter().all(|byte| *byte == i as u8 + 1), "tensor {i} was written by another");
    }
    Ok(())
}

fn a_reservation_that_fails_marks_its_buffer_and_no_other(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { memory: Some(32 << 20), ..Variant::plain() })?;
    let before = client.create_from_slice(&[1; 1000])?;
    let held = client.create_from_slice(&vec![2u8; 20 << 20])?;
    let failed = client.empty(20 << 20)?;
    let after = client.create_from_slice(&[3; 1000])?;
    ensure_err!(client.read_one(&failed), Error::OutOfMemory(_));
    ensure_err!(client.check(&[&failed.slice(5..6)?]), Error::OutOfMemory(_));
    ensure_eq!(client.read_one(&before)?.as_slice()?, [1; 1000]);
    ensure_eq!(client.read_one(&after)?.as_slice()?, [3; 1000]);
    ensure_eq!(client.read_one(&held.slice(..9)?)?.as_slice()?, [2; 9]);
    // What was freed serves the next.
    drop((held, failed));
    let again = client.create_from_slice(&vec![4u8; 20 << 20])?;
    ensure_eq!(client.read_one(&again.slice(..9)?)?.as_slice()?, [4; 9]);
    Ok(())
}

fn out_of_memory_at_any_request_leaves_the_rest_working(cx: &Context) -> Outcome {
    for k in 0..6usize {
        let mut settings = cx.settings();
        settings.open.memory_budget = Some(24 << 20);
        let client = cx.open_with(&Variant::plain(), &settings)?;
        let handles =
            (0..6).map(|i| client.empty(if i == k { 25 << 20 } else { 5000 })).collect::<Result<Vec<_>, _>>()?;
        for (i, handle) in handles.iter().enumerate() {
            if i == k {
                ensure_err!(client.read_one(handle), Error::OutOfMemory(_));
                continue;
            }
            client.fill(handle, &[i as u8 + 1])?;
            ensure_eq!(client.read_one(handle)?.as_slice()?, [i as u8 + 1; 5000], "the request {k} fails, buffer {i}");
        }
        let again = client.create_from_slice(&[9; 5000])?;
        ensure_eq!(client.read_one(&again)?.as_slice()?, [9; 5000]);
    }
    Ok(())
}

fn a_driver_that_refuses_once_is_asked_again_or_one_buffer_is_marked(cx: &Context) -> Outcome {
    for k in 1..=6 {
        let client = cx.open(&Variant { refuse_allocation: Some(k), ..Variant::plain() })?;
        // Each a driver allocation of its own, so that the k-th request meets the refusal.
        let handles = client.memory_dedicated_allocation(|| {
            (0..6u8).map(|i| client.create_from_slice(&[i + 1; 5000])).collect::<Result<Vec<_>, _>>()
        })?;
        let mut failed = Vec::new();
        for (i, handle) in handles.iter().enumerate() {
            match client.read_one(handle) {
                Ok(read) => ensure_eq!(read.as_slice()?, [i as u8 + 1; 5000], "refusing {k}"),
                Err(error) if error.is_out_of_memory() => failed.push(i),
                Err(other) => return Err(Failure::new(format_args!("refusing {k}, buffer {i}: {other:?}"))),
            }
        }
        ensure!(failed.len() <= 1, "refusing {k}: {failed:?} failed");
    }
    Ok(())
}

fn exhausted(cx: &Context) -> Outcome<(OutOfMemory, u64)> {
    let client = cx.open(&Variant { memory: Some(4 << 20), ..Variant::plain() })?;
    let (held, asked) = (client.zeros(3 << 20)?, 2 << 20);
    let error = ensure_err!(client.read_one(&client.empty(asked)?), Error::OutOfMemory(_));
    ensure!(error.is_out_of_memory() && !error.is_refusal() && !error.is_device_lost(), "{error:?}");
    let Error::OutOfMemory(details) = error else { return Err(Failure::new("unreachable")) };
    drop(held);
    Ok((*details, asked))
}

fn an_out_of_memory_error_says_what_there_is(cx: &Context) -> Outcome {
    let (details, asked) = exhausted(cx)?;
    ensure_eq!(details.requested, asked);
    ensure!(details.live >= 3 << 20, "live {}", details.live);
    ensure!(details.reserved >= details.live, "reserved {} of {} live", details.reserved, details.live);
    ensure!(details.largest_free < asked, "the largest free block, {}, would have done", details.largest_free);
    ensure!(!details.tried.is_empty(), "nothing was tried");
    let text = Error::OutOfMemory(Box::new(details.clone())).to_string();
    for number in [details.requested, details.live, details.reserved, details.largest_free] {
        ensure!(text.contains(&number.to_string()), "{number} is not in {text:?}");
    }
    ensure!(text.contains("driver"), "nothing about the driver in {text:?}");
    Ok(())
}

fn more_than_the_device_can_ever_give_is_refused_at_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let limit = client.limits().max_allocation;
    for requested in [limit + 1, 1 << 62, u64::MAX] {
        let error = ensure_err!(client.empty(requested), Error::TooLarge { .. });
        ensure_eq!(error, Error::TooLarge { requested, limit });
        ensure!(error.is_out_of_memory(), "{error:?}");
    }
    let small = cx.open(&Variant { max_allocation: Some(1000), ..Variant::plain() })?;
    ensure_eq!(small.zeros(1001).err(), Some(Error::TooLarge { requested: 1001, limit: 1000 }));
    ensure_eq!(small.read_one(&small.zeros(1000)?)?.len(), 1000);
    Ok(())
}

fn a_request_larger_than_any_page_is_served(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let size = (192 << 20).min(client.limits().max_allocation);
    let large = client.empty(size)?;
    let (first, last) = (large.slice(..16)?, large.slice(size - 16..)?);
    client.write_slice(&first, &[1; 16])?;
    client.write_slice(&last, &[2; 16])?;
    ensure_eq!(client.read_one(&first)?.as_slice()?, [1; 16]);
    ensure_eq!(client.read_one(&last)?.as_slice()?, [2; 16]);
    let held = client.memory_usage()?;
    ensure!(held.live >= size && held.reserved >= size, "{held:?}");
    drop((large, first, last));
    client.memory_cleanup()?;
    ensure!(client.memory_usage()?.reserved < size, "a freed allocation larger than any page was not given back");
    Ok(())
}

fn a_shape_that_overflows_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let huge = TensorDescriptor::contiguous([1 << 40, 1 << 40], ElemType::F32);
    ensure_err!(client.empty_tensor(&huge), Error::SizeOverflow { .. });
    ensure_err!(
        client.empty_tensor(&TensorDescriptor::optimized([2, u64::MAX / 2], ElemType::U8)),
        Error::SizeOverflow { .. }
    );
    let half = TensorDescriptor::contiguous([1 << 62], ElemType::U16);
    ensure_err!(client.empty_tensors(&[half.clone(), half]), Error::SizeOverflow { .. });
    ensure_err!(client.empty_tensor(&TensorDescriptor::contiguous([1 << 61], ElemType::U8)), Error::TooLarge { .. });
    Ok(())
}

fn over_the_budget_is_out_of_memory_before_the_driver_is_asked(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.open.memory_budget = Some(8 << 20);
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let held = client.zeros(6 << 20)?;
    let error = ensure_err!(client.read_one(&client.empty(6 << 20)?), Error::OutOfMemory(_));
    let Error::OutOfMemory(details) = error else { return Err(Failure::new("unreachable")) };
    ensure_eq!(details.budget, Some(8 << 20));
    ensure_eq!(details.driver, None);
    let report = client.memory_report(trunnion_runtime_core::report::ReportScope::Device)?;
    ensure_eq!(report.budget, Some(8 << 20));
    ensure!(report.total().peak_reserved <= 8 << 20, "{} bytes were reserved", report.total().peak_reserved);
    drop(held);
    ensure_eq!(client.read_one(&client.zeros(6 << 20)?.slice(..4)?)?.as_slice()?, [0; 4]);
    Ok(())
}

fn a_kernel_over_a_failed_reservation_is_skipped(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { memory: Some(4 << 20), ..Variant::plain() })?;
    let carry = client.prepare(kernels::carry())?;
    let _held = client.zeros(3 << 20)?;
    let (failed, output) = (client.empty(2 << 20)?, client.zeros(256)?);
    client.launch(&carry, cover(64)?, [&failed.slice(..256)?, &output])?;
    let error = ensure_err!(client.read_one(&output), Error::Inherited { .. });
    ensure!(error.is_out_of_memory(), "{error:?}");
    ensure!(error.to_string().contains("carry"), "the kernel is not named: {error}");
    Ok(())
}

// ---- M2

fn what_is_created_is_read_back_whatever_its_size(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for size in [1, 2, 3, 25, 64, 255, 256, 257, 4096, 65_535, 65_536, 65_537, 1_000_003, 5 << 20] {
        let data = pattern(size, 1);
        let handle = client.create_from_slice(&data)?;
        ensure!(client.read_one(&handle)?.as_slice()? == data, "{size} bytes from a slice are not what was written");
        let handle = client.create(Bytes::from_vec(data.clone()))?;
        ensure!(client.read_one(&handle)?.as_slice()? == data, "{size} bytes are not what was written");
    }
    Ok(())
}

fn the_hosts_memory_may_be_dropped_at_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let mut handles = Vec::new();
    for i in 0..20u8 {
        // Dropped, and its memory used for the next, before the device has looked at it.
        let mut data = pattern(100_000, i);
        handles.push(held.create_from_slice(&data)?);
        handles.push(held.create(Bytes::from_vec(data.clone()))?);
        data.fill(0xDD);
    }
    gate.open()?;
    for (i, handle) in handles.iter().enumerate() {
        ensure!(held.read_one(handle)?.as_slice()? == pattern(100_000, i as u8 / 2), "buffer {i} has other bytes");
    }
    Ok(())
}

fn a_large_slice_is_taken_over_before_the_call_returns(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let mut data = pattern(3 << 20, 5);
    let (fresh, copy) = (client.create_from_slice(&data)?, client.empty(3 << 20)?);
    client.copy(&fresh, &copy)?;
    let expected = data.clone();
    data.fill(0);
    // Also into memory that is in use.
    client.write_slice(&fresh, &data)?;
    ensure!(client.read_one(&copy)?.as_slice()? == expected, "a copy queued before saw what was written after");
    ensure!(client.read_one(&fresh)?.as_slice()? == data, "the second write is lost");
    Ok(())
}

fn tensors_are_created_from_bytes_and_slices(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let a = TensorDescriptor::contiguous([4, 5], ElemType::F32);
    let b = TensorDescriptor::optimized([3, 7], ElemType::U8);
    let (x, y): (Vec<f32>, Vec<u8>) = ((0..20).map(|i| i as f32).collect(), pattern(21, 3));
    let one = client.create_tensor(&a, Bytes::from_elems(x.clone()))?;
    ensure_eq!(client.read_tensor(&TensorView::new(&one, &a))?.to_vec::<f32>()?, x);
    let one = client.create_tensor_from_slice(&b, &y)?;
    ensure_eq!(client.read_tensor(&TensorView::new(&one, &b))?.as_slice()?, y);
    let several = client
        .create_tensors(vec![(a.clone(), Bytes::from_elems(x.clone())), (b.clone(), Bytes::from_vec(y.clone()))])?;
    ensure!(several[0].memory.same_allocation(&several[1].memory), "two reservations");
    ensure_eq!(client.read_tensor(&TensorView::new(&several[0], &a))?.to_vec::<f32>()?, x);
    ensure_eq!(client.read_tensor(&TensorView::new(&several[1], &b))?.as_slice()?, y);
    let several = client.create_tensors_from_slices(&[(b.clone(), &y), (a.clone(), raw(&x))])?;
    ensure_eq!(client.read_tensor(&TensorView::new(&several[0], &b))?.as_slice()?, y);
    ensure_eq!(client.read_tensor(&TensorView::new(&several[1], &a))?.to_vec::<f32>()?, x);
    ensure_eq!(client.create_tensors(Vec::new())?.len(), 0);
    Ok(())
}

fn elements_of_another_size_than_the_tensors_are_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.memory_usage()?;
    let tensor = TensorDescriptor::contiguous([4, 5], ElemType::F32);
    for got in [0usize, 79, 81] {
        let error = ensure_err!(client.create_tensor_from_slice(&tensor, &vec![0; got]), Error::WrongLength { .. });
        let Error::WrongLength { got: named, expected, .. } = error else { return Err(Failure::new("unreachable")) };
        ensure_eq!((named, expected), (got as u64, 80));
        ensure_err!(
            client.create_tensors_from_slices(&[(tensor.clone(), &[0; 80]), (tensor.clone(), &vec![0; got])]),
            Error::WrongLength { .. }
        );
    }
    ensure_eq!(client.memory_usage()?.allocations, before.allocations);
    Ok(())
}

fn bytes_of_any_kind_can_be_created_from(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let shared: alloc::sync::Arc<dyn AsRef<[u8]> + Send + Sync> = alloc::sync::Arc::new(vec![7u8; 33]);
    let source = client.create_from_slice(&[8; 33])?;
    let views = [
        Bytes::from_shared(shared.clone()),
        Bytes::from_pinned(shared),
        Bytes::from_vec(vec![7; 50]).slice(9..42)?,
        client.read_lazy(&source)?,
        Bytes::copy_from_slice(&[7u8; 33]),
    ];
    for (i, view) in views.into_iter().enumerate() {
        let expected = view.to_vec::<u8>()?;
        ensure_eq!(client.read_one(&client.create(view)?)?.as_slice()?, expected, "view {i}");
    }
    Ok(())
}
