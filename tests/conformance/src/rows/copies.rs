//! M10: copies and fills on the device.

use crate::check::{Failure, Outcome, pattern};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::TensorView;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::TensorDescriptor;

tests! {
    M10 a_copy_of_twenty_five_bytes_is_exact;
    M10 copies_of_any_size_and_offset_are_exact;
    M10 a_copy_inside_one_allocation_works_where_nothing_overlaps;
    M10 a_copy_onto_itself_is_refused;
    M10 a_copy_between_different_sizes_is_refused;
    M10 a_chain_of_copies_over_streams_keeps_its_order;
    M10 a_tensor_is_copied_to_other_strides;
    M10 a_copy_between_different_shapes_is_refused;
    M10 a_copy_hands_a_failure_on_and_clears_what_it_replaces;
    M10 a_fill_repeats_patterns_of_one_to_sixteen_bytes;
    M10 a_fill_with_another_pattern_is_refused;
    M10 a_fill_of_a_size_its_pattern_does_not_divide_is_refused;
    M10 a_fill_clears_the_failure_on_exactly_its_bytes;
}

fn a_copy_of_twenty_five_bytes_is_exact(cx: &Context) -> Outcome {
    let client = cx.client()?;
    if client.limits().copy_alignment > 1 {
        return Err(Failure::Skipped(format!(
            "the device moves multiples of {} bytes",
            client.limits().copy_alignment
        )));
    }
    for variant in [Variant::plain(), Variant { separate_memory: true, ..Variant::plain() }] {
        let client = cx.open(&variant)?;
        let source = client.create_from_slice(&pattern(25, 1))?;
        let target = client.create_from_slice(&[0xEE; 75])?;
        client.copy(&source, &target.slice(25..50)?)?;
        let read = client.read_one(&target)?.to_vec::<u8>()?;
        ensure_eq!((&read[..25], &read[25..50], &read[50..]), (&[0xEE; 25][..], &pattern(25, 1)[..], &[0xEE; 25][..]));
    }
    Ok(())
}

fn copies_of_any_size_and_offset_are_exact(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let unit = client.limits().copy_alignment as usize;
    let data = pattern(70_000, 3);
    let source = client.create_from_slice(&data)?;
    for (from, to, size) in
        [(0usize, 0usize, 1usize), (1, 0, 64), (7, 13, 100), (255, 256, 257), (3, 5, 65_537), (69_999, 1, 1)]
    {
        let (from, to, size) = (from / unit * unit, to / unit * unit, size.div_ceil(unit) * unit);
        let target = client.zeros(70_000)?;
        client
            .copy(&source.slice(from as u64..(from + size) as u64)?, &target.slice(to as u64..(to + size) as u64)?)?;
        let mut expected = vec![0; 70_000];
        expected[to..to + size].copy_from_slice(&data[from..from + size]);
        ensure!(client.read_one(&target)?.as_slice()? == expected, "{size} bytes from {from} to {to}");
    }
    Ok(())
}

fn a_copy_inside_one_allocation_works_where_nothing_overlaps(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = client.create_from_slice(&pattern(1024, 0))?;
    client.copy(&memory.slice(..512)?, &memory.slice(512..)?)?;
    ensure_eq!(client.read_one(&memory)?.as_slice()?, [pattern(512, 0), pattern(512, 0)].concat());
    Ok(())
}

fn a_copy_onto_itself_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = client.create_from_slice(&pattern(1024, 0))?;
    for (from, to) in [(0..512, 0..512), (0..512, 508..1020), (508..1020, 0..512), (0..1024, 0..1024)] {
        let error = ensure_err!(client.copy(&memory.slice(from)?, &memory.slice(to)?), Error::Overlap { .. });
        ensure!(error.is_refusal(), "{error:?}");
    }
    ensure_eq!(client.read_one(&memory)?.as_slice()?, pattern(1024, 0));
    Ok(())
}

fn a_copy_between_different_sizes_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (a, b) = (client.zeros(64)?, client.zeros(68)?);
    let error = ensure_err!(client.copy(&a, &b), Error::WrongLength { .. });
    ensure!(matches!(error, Error::WrongLength { got: 64, expected: 68, .. }), "{error:?}");
    ensure_err!(client.copy(&b, &a), Error::WrongLength { .. });
    ensure_err!(client.copy(&a.slice(..0)?, &b), Error::WrongLength { .. });
    Ok(())
}

fn a_chain_of_copies_over_streams_keeps_its_order(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 40))?;
    let streams: Vec<_> = (0..6).map(|_| on_new_stream(&client)).collect();
    let buffers = (0..7).map(|_| client.zeros(4096)).collect::<Result<Vec<_>, _>>()?;
    for round in 0..15u8 {
        client.fill(&buffers[0], &[round])?;
        for (i, stream) in streams.iter().enumerate() {
            stream.copy(&buffers[i], &buffers[i + 1])?;
        }
    }
    ensure_eq!(client.read_one(&buffers[6])?.as_slice()?, vec![14; 4096]);
    Ok(())
}

fn a_tensor_is_copied_to_other_strides(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { row_pitch: Some(128), ..Variant::plain() })?;
    let (dense, padded) =
        (TensorDescriptor::contiguous([4, 6, 5], ElemType::U32), TensorDescriptor::optimized([4, 6, 5], ElemType::U32));
    let data: Vec<u32> = (0..120).collect();
    let from = client.create_tensor(&dense, Bytes::from_elems(data.clone()))?;
    let (middle, to) = (client.empty_tensor(&padded)?, client.empty_tensor(&dense)?);
    client.fill(&middle.memory, &[0xAB])?;
    client.copy_tensor(&TensorView::new(&from, &dense), &TensorView::new(&middle, &padded))?;
    client.copy_tensor(&TensorView::new(&middle, &padded), &TensorView::new(&to, &dense))?;
    ensure_eq!(client.read_one(&to.memory)?.to_vec::<u32>()?, data);
    // The padding was not touched.
    let gap = client.read_one(&middle.memory.slice(20..128)?)?;
    ensure!(gap.as_slice()?.iter().all(|byte| *byte == 0xAB), "the copy wrote between rows");
    // Columns of a matrix.
    let matrix = client.create_from_slice(&pattern(36, 0))?;
    let column = TensorView { handle: &matrix.slice(2..)?, shape: &[6], strides: &[6], elem: ElemType::U8 };
    let out = client.zeros(6)?;
    if client.limits().copy_alignment == 1 {
        client.copy_tensor(&column, &TensorView { handle: &out, shape: &[6], strides: &[1], elem: ElemType::U8 })?;
        let expected: Vec<u8> = (0..6).map(|i| pattern(36, 0)[2 + 6 * i]).collect();
        ensure_eq!(client.read_one(&out)?.as_slice()?, expected);
    }
    Ok(())
}

fn a_copy_between_different_shapes_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (a, b) = (client.zeros(96)?, client.zeros(96)?);
    let view = |handle, shape, strides| TensorView { handle, shape, strides, elem: ElemType::F32 };
    ensure_err!(
        client.copy_tensor(&view(&a, &[4, 6], &[6, 1]), &view(&b, &[6, 4], &[4, 1])),
        Error::UnsupportedStrides { .. }
    );
    ensure_err!(
        client.copy_tensor(&view(&a, &[4, 6], &[6, 1]), &view(&b, &[4, 6], &[5, 1])),
        Error::UnsupportedStrides { .. }
    );
    let narrow = TensorView { handle: &b, shape: &[4, 6], strides: &[6, 1], elem: ElemType::U8 };
    ensure_err!(client.copy_tensor(&view(&a, &[4, 6], &[6, 1]), &narrow), Error::WrongLength { .. });
    ensure_err!(client.copy_tensor(&view(&a, &[4, 5], &[6, 1]), &view(&a, &[4, 5], &[6, 1])), Error::Overlap { .. });
    Ok(())
}

fn a_copy_hands_a_failure_on_and_clears_what_it_replaces(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let target = client.create_from_slice(&[1; 512])?;
    client.copy(&marked, &target.slice(..256)?)?;
    let error = ensure_err!(client.read_one(&target.slice(..4)?), Error::Inherited { .. });
    ensure!(matches!(error.root(), Error::Compile { .. }) && error.to_string().contains("copy"), "{error}");
    ensure_eq!(client.read_one(&target.slice(256..)?)?.as_slice()?, [1; 256]);
    client.copy(&target.slice(256..384)?, &target.slice(64..192)?)?;
    ensure_eq!(client.read_one(&target.slice(64..192)?)?.as_slice()?, [1; 128]);
    ensure_err!(client.check(&[&target.slice(..64)?]), Error::Inherited { .. });
    ensure_err!(client.check(&[&target.slice(192..256)?]), Error::Inherited { .. });
    Ok(())
}

fn a_fill_repeats_patterns_of_one_to_sixteen_bytes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for length in [1usize, 2, 4, 8, 16] {
        for count in [1usize, 3, 64, 5_000] {
            let size = (length * count) as u64;
            let target = client.create_from_slice(&vec![0xEE; length * count + 32])?;
            let bytes = pattern(length, 9);
            client.fill(&target.slice(16..16 + size)?, &bytes)?;
            let expected = [vec![0xEE; 16], bytes.repeat(count), vec![0xEE; 16]].concat();
            ensure!(client.read_one(&target)?.as_slice()? == expected, "{count} times {length} bytes");
        }
    }
    Ok(())
}

fn a_fill_with_another_pattern_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let target = client.create_from_slice(&[1; 96])?;
    for length in [0usize, 3, 5, 12, 24, 32] {
        let error = ensure_err!(client.fill(&target, &vec![0; length]), Error::WrongLength { .. });
        ensure!(error.to_string().contains("1, 2, 4, 8 or 16"), "what is valid is not named: {error}");
    }
    ensure_eq!(client.read_one(&target)?.as_slice()?, [1; 96]);
    Ok(())
}

fn a_fill_of_a_size_its_pattern_does_not_divide_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let target = client.create_from_slice(&[1; 100])?;
    let error = ensure_err!(client.fill(&target, &[0; 8]), Error::Misaligned { .. });
    ensure!(matches!(error, Error::Misaligned { value: 100, alignment: 8, .. }), "{error:?}");
    client.fill(&target.slice(..96)?, &[0; 8])?;
    ensure_eq!(client.read_one(&target)?.as_slice()?, [vec![0; 96], vec![1; 4]].concat());
    Ok(())
}

fn a_fill_clears_the_failure_on_exactly_its_bytes(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    client.fill(&marked.slice(32..64)?, &[5; 16])?;
    ensure_eq!(client.read_one(&marked.slice(32..64)?)?.as_slice()?, [5; 32]);
    ensure_err!(client.read_one(&marked.slice(..32)?), Error::Compile { .. });
    ensure_err!(client.read_one(&marked.slice(64..)?), Error::Compile { .. });
    Ok(())
}
