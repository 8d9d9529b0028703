//! M3, M8: how tensors lie in memory, and moving those that do not lie densely.

use crate::check::{Outcome, pattern, raw};
use crate::context::{Context, ready};
use crate::factory::Variant;
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::{Client, TensorView};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::{MemoryLayout, TensorDescriptor};

tests! {
    M3 contiguous_rows_lie_one_after_another;
    M3 optimized_rows_begin_at_multiples_of_the_devices_pitch;
    M3 what_has_one_row_is_not_padded;
    M3 rows_of_elements_wider_than_the_pitch_are_not_padded;
    M8 a_padded_tensor_is_read_without_its_padding;
    M8 a_tensor_with_strides_is_read_element_by_element;
    M8 a_window_of_a_tensor_is_read;
    M8 several_tensors_are_read_at_once_and_as_a_future;
    M8 a_tensor_is_written_without_touching_its_gaps;
    M8 strides_that_overlap_or_do_not_belong_are_refused;
    M8 a_tensor_that_leaves_its_buffer_is_refused;
    M8 an_unchecked_read_panics_on_an_error;
    M8 a_large_padded_tensor_survives_the_round_trip;
}

fn pitched(cx: &Context, pitch: u64) -> Outcome<Client> {
    cx.open(&Variant { row_pitch: Some(pitch), ..Variant::plain() })
}

fn contiguous_rows_lie_one_after_another(cx: &Context) -> Outcome {
    let client = pitched(cx, 256)?;
    let layout = client.empty_tensor(&TensorDescriptor::contiguous([3, 5, 7], ElemType::F32))?;
    ensure_eq!(layout.strides, [35, 7, 1]);
    ensure_eq!(layout.memory.size_in_used(), 420);
    Ok(())
}

fn optimized_rows_begin_at_multiples_of_the_devices_pitch(cx: &Context) -> Outcome {
    for pitch in [64, 256, 512] {
        let client = pitched(cx, pitch)?;
        let layout = client.empty_tensor(&TensorDescriptor::optimized([3, 5, 7], ElemType::F32))?;
        ensure_eq!(layout.strides, [pitch / 4 * 5, pitch / 4, 1]);
        ensure_eq!(layout.memory.size_in_used(), 15 * pitch);
        let exact = client.empty_tensor(&TensorDescriptor::optimized([4, pitch], ElemType::U8))?;
        ensure_eq!(exact.memory.size_in_used(), 4 * pitch, "rows that fit exactly are not padded");
    }
    Ok(())
}

fn what_has_one_row_is_not_padded(cx: &Context) -> Outcome {
    let client = pitched(cx, 256)?;
    let row = client.empty_tensor(&TensorDescriptor::optimized([7], ElemType::F32))?;
    ensure_eq!((row.memory.size_in_used(), row.strides), (28, vec![1]));
    let scalar = client.empty_tensor(&TensorDescriptor::optimized([], ElemType::F32))?;
    ensure_eq!(scalar.memory.size_in_used(), 4);
    Ok(())
}

fn rows_of_elements_wider_than_the_pitch_are_not_padded(cx: &Context) -> Outcome {
    let client = pitched(cx, 2)?;
    let tensor = TensorDescriptor::optimized([2, 2], ElemType::F64);
    let data: Vec<f64> = vec![1.0, 2.0, 3.0, 4.0];
    let layout = client.create_tensor(&tensor, Bytes::from_elems(data.clone()))?;
    ensure_eq!((layout.strides.clone(), layout.memory.size_in_used()), (vec![2, 1], 32));
    ensure_eq!(client.read_tensor(&TensorView::new(&layout, &tensor))?.to_vec::<f64>()?, data);
    Ok(())
}

fn a_padded_tensor_is_read_without_its_padding(cx: &Context) -> Outcome {
    let client = pitched(cx, 256)?;
    for (shape, elem) in [
        (vec![5, 3], ElemType::F32),
        (vec![2, 3, 11], ElemType::U8),
        (vec![1, 1, 1], ElemType::F64),
        (vec![2, 2, 2, 2], ElemType::I16),
    ] {
        let tensor = TensorDescriptor::optimized(shape, elem);
        let data = pattern(tensor.dense_size()? as usize, 2);
        let layout = client.create_tensor_from_slice(&tensor, &data)?;
        let view = TensorView::new(&layout, &tensor);
        ensure_eq!(client.read_tensor(&view)?.as_slice()?, data, "{tensor:?}");
        ensure_eq!(client.read_tensor_unchecked(&view).as_slice()?, data, "{tensor:?}");
    }
    Ok(())
}

fn a_tensor_with_strides_is_read_element_by_element(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let data: Vec<u32> = (0..60).collect();
    let handle = client.create_from_slice(raw(&data))?;
    // Every third element of every second row of 10.
    let view = TensorView { handle: &handle, shape: &[3, 3], strides: &[20, 3], elem: ElemType::U32 };
    ensure_eq!(client.read_tensor(&view)?.to_vec::<u32>()?, [0, 3, 6, 20, 23, 26, 40, 43, 46]);
    // Dimensions of one element may have any stride.
    let view = TensorView { handle: &handle, shape: &[1, 4, 1], strides: &[999, 1, 7], elem: ElemType::U32 };
    ensure_eq!(client.read_tensor(&view)?.to_vec::<u32>()?, [0, 1, 2, 3]);
    let scalar = TensorView { handle: &handle.slice(8..)?, shape: &[], strides: &[], elem: ElemType::U32 };
    ensure_eq!(client.read_tensor(&scalar)?.to_vec::<u32>()?, [2]);
    let bytes = TensorView { handle: &handle, shape: &[4], strides: &[4], elem: ElemType::U8 };
    ensure_eq!(client.read_tensor(&bytes)?.as_slice()?, [0, 1, 2, 3]);
    Ok(())
}

fn a_window_of_a_tensor_is_read(cx: &Context) -> Outcome {
    let client = pitched(cx, 64)?;
    let tensor = TensorDescriptor::optimized([6, 10], ElemType::U32);
    let data: Vec<u32> = (0..60).collect();
    let layout = client.create_tensor(&tensor, Bytes::from_elems(data))?;
    let start = (2 * layout.strides[0] + 3) * 4;
    let window = TensorView {
        handle: &layout.memory.offset_start(start)?,
        shape: &[2, 4],
        strides: &layout.strides,
        elem: ElemType::U32,
    };
    ensure_eq!(client.read_tensor(&window)?.to_vec::<u32>()?, [23, 24, 25, 26, 33, 34, 35, 36]);
    Ok(())
}

fn several_tensors_are_read_at_once_and_as_a_future(cx: &Context) -> Outcome {
    let client = pitched(cx, 128)?;
    let (a, b) =
        (TensorDescriptor::optimized([4, 3], ElemType::U32), TensorDescriptor::contiguous([0, 3], ElemType::U32));
    let data: Vec<u32> = (0..12).collect();
    let (x, y) = (client.create_tensor(&a, Bytes::from_elems(data.clone()))?, client.empty_tensor(&b)?);
    let views = [TensorView::new(&x, &a), TensorView::new(&y, &b), TensorView::new(&x, &a)];
    for read in [client.read_tensors(&views)?, ready(client.read_tensors_async(&views)?)??] {
        ensure_eq!(read.len(), 3);
        ensure_eq!(
            (read[0].to_vec::<u32>()?, read[1].len(), read[2].to_vec::<u32>()?),
            (data.clone(), 0, data.clone())
        );
    }
    ensure_eq!(client.read_tensors(&[])?.len(), 0);
    Ok(())
}

fn a_tensor_is_written_without_touching_its_gaps(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let handle = client.create_from_slice(&[0xAA; 32])?;
    let view = TensorView { handle: &handle, shape: &[3, 2], strides: &[5, 2], elem: ElemType::U16 };
    client.write_tensor(&view, Bytes::from_elems((1..=6u16).collect()))?;
    let mut expected = [0xAAAAu16; 16];
    for (at, value) in [(0, 1), (2, 2), (5, 3), (7, 4), (10, 5), (12, 6)] {
        expected[at] = value;
    }
    ensure_eq!(client.read_one(&handle)?.to_vec::<u16>()?, expected);
    ensure_err!(client.write_tensor(&view, Bytes::from_vec(vec![0; 11])), Error::WrongLength { .. });
    Ok(())
}

fn strides_that_overlap_or_do_not_belong_are_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let handle = client.zeros(4096)?;
    let views: [(&[u64], &[u64]); 5] =
        [(&[2, 3], &[2, 1]), (&[4], &[0]), (&[2, 2], &[1, 2]), (&[2, 2], &[2]), (&[2], &[1, 1])];
    for (shape, strides) in views {
        let view = TensorView { handle: &handle, shape, strides, elem: ElemType::U32 };
        let error = ensure_err!(client.read_tensor(&view), Error::UnsupportedStrides { .. });
        ensure!(error.to_string().contains(&format!("{shape:?}")) && error.is_refusal(), "{error}");
        ensure_err!(client.write_tensor(&view, Bytes::default()), Error::UnsupportedStrides { .. });
    }
    let view = TensorView { handle: &handle, shape: &[2, 2], strides: &[u64::MAX, 1], elem: ElemType::U32 };
    ensure_err!(client.read_tensor(&view), Error::SizeOverflow { .. });
    Ok(())
}

fn a_tensor_that_leaves_its_buffer_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let handle = client.zeros(100)?;
    let fits = TensorView { handle: &handle, shape: &[5, 5], strides: &[5, 1], elem: ElemType::U32 };
    ensure_eq!(client.read_tensor(&fits)?.len(), 100);
    for (shape, strides) in [([5, 6], [6, 1]), ([6, 5], [5, 1]), ([5, 5], [6, 1])] {
        let view = TensorView { handle: &handle, shape: &shape, strides: &strides, elem: ElemType::U32 };
        let error = ensure_err!(client.read_tensor(&view), Error::OutOfRange { .. });
        ensure!(error.to_string().contains("100"), "the size is not named: {error}");
    }
    // The bytes of the handle count, not those of the allocation.
    let part = handle.slice(..99)?;
    ensure_err!(client.read_tensor(&TensorView { handle: &part, ..fits }), Error::OutOfRange { .. });
    Ok(())
}

fn an_unchecked_read_panics_on_an_error(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let view = TensorView { handle: &marked, shape: &[64], strides: &[1], elem: ElemType::U32 };
    let quiet = std::thread::spawn({
        let (client, marked) = (client.clone(), marked.clone());
        move || {
            let view = TensorView { handle: &marked, shape: &[64], strides: &[1], elem: ElemType::U32 };
            catch_unwind(AssertUnwindSafe(|| client.read_tensor_unchecked(&view).len())).is_err()
        }
    });
    ensure!(quiet.join().unwrap_or(false), "an unchecked read of marked bytes did not panic");
    ensure_err!(client.read_tensor(&view), Error::Compile { .. });
    Ok(())
}

fn a_large_padded_tensor_survives_the_round_trip(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { row_pitch: Some(256), separate_memory: true, ..Variant::plain() })?;
    let tensor = TensorDescriptor::optimized([37, 211, 101], ElemType::U16);
    let data = pattern(tensor.dense_size()? as usize, 9);
    let layout: MemoryLayout = client.create_tensor_from_slice(&tensor, &data)?;
    ensure!(layout.memory.size_in_used() == 37 * 211 * 256, "{} bytes", layout.memory.size_in_used());
    let read = client.read_tensor(&TensorView::new(&layout, &tensor))?;
    ensure!(read.as_slice()? == data, "the elements are not those that were written");
    Ok(())
}
