//! M4, M5: handles as ranges of bytes, and no bytes at all.

use crate::check::{Outcome, raw};
use crate::context::{Context, on_new_stream, ready};
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::TensorView;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::layout::TensorDescriptor;
use trunnion_runtime_core::report::ReportScope;

tests! {
    M4 a_slice_is_a_range_of_the_same_bytes;
    M4 offsets_beyond_the_end_are_refused_whatever_they_add_up_to;
    M4 overlap_is_a_question_of_bytes;
    M4 a_handle_can_be_written_in_place_when_nobody_else_holds_it;
    M4 a_queued_operation_holds_its_memory;
    M5 nothing_can_be_created_written_and_read;
    M5 nothing_can_be_copied_filled_and_launched_over;
    M5 an_empty_slice_of_a_buffer_is_nothing_too;
    M5 empty_tensors_work;
    M5 an_empty_buffer_among_others_is_harmless;
    M5 nothing_touches_no_pool;
}

fn a_slice_is_a_range_of_the_same_bytes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let data: Vec<u8> = (0..100).collect();
    let whole = client.create_from_slice(&data)?;
    let middle = whole.slice(10..60)?;
    ensure_eq!((middle.size_in_used(), middle.range(), middle.allocation_size()), (50, 10..60, 100));
    ensure_eq!(client.read_one(&middle)?.as_slice()?, &data[10..60]);
    let inner = middle.offset_start(5)?.offset_end(15)?;
    ensure_eq!(inner.range(), 15..45);
    ensure_eq!(client.read_one(&inner)?.as_slice()?, &data[15..45]);
    ensure_eq!(client.read_one(&middle.slice(..=1)?)?.as_slice()?, &data[10..12]);
    ensure!(whole.same_allocation(&inner) && whole.memory() == inner.memory(), "a slice is of another allocation");
    client.fill(&inner, &[0xFF])?;
    let read = client.read_one(&whole)?;
    ensure_eq!(read.as_slice()?[14..46], [&[14u8][..], &[0xFF; 30], &[45]].concat()[..]);
    Ok(())
}

fn offsets_beyond_the_end_are_refused_whatever_they_add_up_to(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let handle = client.empty(100)?.slice(10..26)?;
    for bad in [
        handle.offset_start(17),
        handle.offset_end(17),
        handle.offset_start(u64::MAX),
        handle.offset_end(u64::MAX),
        handle.slice(..17),
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        handle.slice(8..4),
        handle.slice(..=u64::MAX),
        handle.slice(u64::MAX - 5..u64::MAX),
    ] {
        let error = ensure_err!(bad, Error::OutOfRange { size: 16, .. });
        ensure!(error.is_refusal(), "{error:?}");
    }
    ensure_eq!(handle.offset_start(16)?.size_in_used(), 0);
    ensure_eq!(handle.offset_end(16)?.size_in_used(), 0);
    Ok(())
}

fn overlap_is_a_question_of_bytes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (a, b) = (client.empty(16)?, client.empty(16)?);
    ensure!(!a.overlap(&b), "two allocations overlap");
    ensure!(a.overlap(&a.slice(15..)?), "the last byte");
    ensure!(a.slice(..8)?.overlap(&a.slice(7..)?) && !a.slice(..8)?.overlap(&a.slice(8..)?), "neighbours");
    ensure!(!a.slice(4..4)?.overlap(&a), "no bytes");
    Ok(())
}

fn a_handle_can_be_written_in_place_when_nobody_else_holds_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let handle = client.create_from_slice(&[1; 16])?;
    client.sync()?.wait()?;
    client.flush()?;
    ensure!(handle.can_mut(), "nobody else holds it");
    let clone = handle.slice(..1)?;
    ensure!(!handle.can_mut() && !clone.can_mut(), "two hold it");
    drop(handle);
    ensure!(clone.can_mut(), "one is left");
    Ok(())
}

fn a_queued_operation_holds_its_memory(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let (handle, target) = (client.create_from_slice(&[5; 64])?, client.empty(64)?);
    client.sync()?.wait()?;
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    held.copy(&handle, &target)?;
    ensure!(!handle.can_mut(), "a queued copy does not hold its source");
    drop(handle);
    gate.open()?;
    ensure_eq!(client.read_one(&target)?.as_slice()?, [5; 64]);
    Ok(())
}

// ---- M5

fn nothing_can_be_created_written_and_read(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for handle in [client.empty(0)?, client.zeros(0)?, client.create_from_slice(&[])?, client.create(Bytes::default())?]
    {
        ensure!(handle.is_empty() && handle.size_in_used() == 0, "{handle:?}");
        client.write(&handle, Bytes::default())?;
        client.write_slice(&handle, &[])?;
        ensure_eq!(client.read_one(&handle)?.len(), 0);
        ensure_eq!(client.read(&[&handle, &handle])?.len(), 2);
        ensure_eq!(ready(client.read_async(&[&handle])?)??[0].len(), 0);
        client.read_into(&handle, &mut [])?;
        ensure_eq!(client.read_lazy(&handle)?.as_slice()?, [0u8; 0]);
        ensure_eq!(ready(client.read_lazy_async(&handle))??.as_slice()?, [0u8; 0]);
        client.check(&[&handle])?;
        client.sync_buffers(&[&handle])?;
        ensure_err!(client.write_slice(&handle, &[1]), Error::WrongLength { .. });
    }
    ensure_eq!(client.read(&[])?.len(), 0);
    Ok(())
}

fn nothing_can_be_copied_filled_and_launched_over(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let other = cx.client()?;
    let (a, b) = (client.empty(0)?, client.empty(0)?);
    client.copy(&a, &b)?;
    client.copy(&a, &a)?;
    client.fill(&a, &[1, 2, 3, 4])?;
    let step = client.prepare(kernels::step())?;
    client.launch(&step, cover(64)?, [&a])?;
    client.launch(&step, Grid::Static(0, 0, 0), [&a])?;
    let add = client.prepare(kernels::add())?;
    client.launch(&add, cover(0)?, [&a, &b, &client.empty(0)?])?;
    ensure_eq!(other.read_one(&client.to_client(&a, &other)?)?.len(), 0);
    client.sync_buffers(&[&a, &b])?;
    Ok(())
}

fn an_empty_slice_of_a_buffer_is_nothing_too(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let whole = client.create_from_slice(&[3; 64])?;
    for nothing in [whole.slice(0..0)?, whole.slice(32..32)?, whole.slice(64..64)?] {
        client.write_slice(&nothing, &[])?;
        client.fill(&nothing, &[9])?;
        client.copy(&nothing, &whole.slice(5..5)?)?;
        ensure_eq!(client.read_one(&nothing)?.len(), 0);
        client.check(&[&nothing])?;
    }
    ensure_eq!(client.read_one(&whole)?.as_slice()?, [3; 64]);
    Ok(())
}

fn empty_tensors_work(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for shape in [vec![0], vec![3, 0], vec![0, 5], vec![2, 0, 4]] {
        for tensor in [
            TensorDescriptor::contiguous(shape.clone(), ElemType::F32),
            TensorDescriptor::optimized(shape.clone(), ElemType::F32),
        ] {
            let layout = client.create_tensor_from_slice(&tensor, &[])?;
            let view = TensorView::new(&layout, &tensor);
            ensure_eq!(client.read_tensor(&view)?.len(), 0, "{shape:?}");
            client.write_tensor(&view, Bytes::default())?;
            let copy = client.empty_tensor(&tensor)?;
            client.copy_tensor(&view, &TensorView::new(&copy, &tensor))?;
        }
    }
    client.sync()?.wait()?;
    Ok(())
}

fn an_empty_buffer_among_others_is_harmless(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let sum = client.prepare(kernels::sum())?;
    let (nothing, total) = (client.empty(0)?, client.create_from_slice(raw(&[7u32]))?);
    client.launch(&sum, Grid::x(2), [&nothing, &total])?;
    let read = client.read(&[&nothing, &total, &nothing])?;
    ensure_eq!((read[0].len(), read[1].to_vec::<u32>()?, read[2].len()), (0, vec![7], 0));
    Ok(())
}

fn nothing_touches_no_pool(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let kept = (0..100).map(|_| client.zeros(0)).collect::<Result<Vec<_>, _>>()?;
    client.create_from_slice(&[])?;
    client.create_tensor_from_slice(&TensorDescriptor::contiguous([0], ElemType::F32), &[])?;
    let usage = client.memory_usage()?;
    ensure_eq!((usage.allocations, usage.live, usage.reserved), (0, 0, 0));
    let total = client.memory_report(ReportScope::Device)?.total();
    ensure_eq!((total.grown, total.reused, total.pages), (0, 0, 0));
    drop(kept);
    Ok(())
}
