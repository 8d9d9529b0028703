//! M6: writing in place.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;

tests! {
    M6 a_write_takes_effect_in_the_order_of_its_stream;
    M6 a_write_clears_the_failure_on_exactly_the_bytes_written;
    M6 a_strided_write_clears_the_failure_on_its_elements_alone;
    M6 another_length_is_refused;
    M6 a_write_into_a_part_leaves_the_rest;
    M6 writes_of_odd_sizes_and_offsets_are_exact;
    M6 a_write_does_not_disturb_who_read_before;
    M6 a_write_comes_after_a_long_launch_that_reads_its_bytes;
    M6 a_write_of_a_file_that_is_gone_is_refused_at_once;
    M6 a_misaligned_write_is_refused_where_the_device_needs_alignment;
    M6 the_last_handle_may_be_dropped_right_after_the_write;
}

fn a_write_takes_effect_in_the_order_of_its_stream(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 12))?;
    let (target, step) = (client.zeros(256)?, client.prepare(kernels::step())?);
    let mut copies = Vec::new();
    for i in 0..30u32 {
        client.write_slice(&target, raw(&[i * 100; 64]))?;
        client.launch(&step, cover(64)?, [&target])?;
        let copy = client.empty(256)?;
        client.copy(&target, &copy)?;
        copies.push(copy);
    }
    for (i, copy) in copies.iter().enumerate() {
        ensure_eq!(client.read_one(copy)?.to_vec::<u32>()?, [i as u32 * 100 + 1; 64]);
    }
    Ok(())
}

fn a_write_clears_the_failure_on_exactly_the_bytes_written(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let part = marked.slice(64..128)?;
    client.write_slice(&part, &[1; 64])?;
    ensure_eq!(client.read_one(&part)?.as_slice()?, [1; 64]);
    client.check(&[&part])?;
    for range in [0..64, 128..256, 63..65, 124..132, 0..256] {
        ensure_err!(client.read_one(&marked.slice(range)?), Error::Compile { .. });
    }
    client.write(&marked.slice(..64)?, Bytes::from_vec(vec![2; 64]))?;
    client.write(&marked.slice(128..)?, Bytes::from_vec(vec![3; 128]))?;
    let expected = [[2u8; 64], [1; 64], [3; 64], [3; 64]].concat();
    ensure_eq!(client.read_one(&marked)?.as_slice()?, expected);
    Ok(())
}

fn a_strided_write_clears_the_failure_on_its_elements_alone(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let view = trunnion_runtime_core::client::TensorView {
        handle: &marked,
        shape: &[4, 2],
        strides: &[16, 1],
        elem: ElemType::U32,
    };
    client.write_tensor(&view, Bytes::from_elems((0..8u32).collect()))?;
    ensure_eq!(client.read_tensor(&view)?.to_vec::<u32>()?, [0, 1, 2, 3, 4, 5, 6, 7]);
    for row in 0..4 {
        client.check(&[&marked.slice(row * 64..row * 64 + 8)?])?;
        ensure_err!(client.check(&[&marked.slice(row * 64 + 8..row * 64 + 64)?]), Error::Compile { .. });
    }
    Ok(())
}

fn another_length_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let target = client.create_from_slice(&[1; 64])?;
    for got in [0usize, 63, 65, 300_000] {
        for error in [
            client.write_slice(&target, &vec![9; got]).err(),
            client.write(&target, Bytes::from_vec(vec![9; got])).err(),
        ] {
            let Some(Error::WrongLength { got: named, expected: 64, .. }) = error else {
                return Err(Failure::new(format_args!("{got} bytes for 64: {error:?}")));
            };
            ensure_eq!(named, got as u64);
        }
    }
    ensure_eq!(client.read_one(&target)?.as_slice()?, [1; 64]);
    Ok(())
}

fn a_write_into_a_part_leaves_the_rest(cx: &Context) -> Outcome {
    for variant in [Variant::plain(), Variant { separate_memory: true, ..Variant::plain() }] {
        let client = cx.open(&variant)?;
        let (size, at) = (1_000_000usize, 300_000usize);
        let mut expected = pattern(size, 1);
        let target = client.create_from_slice(&expected)?;
        let part = target.slice(at as u64..(at + 500_000) as u64)?;
        let data = pattern(500_000, 77);
        client.write_slice(&part, &data)?;
        expected[at..at + 500_000].copy_from_slice(&data);
        ensure!(
            client.read_one(&target)?.as_slice()? == expected,
            "bytes outside the part changed, or inside did not ({variant:?})"
        );
    }
    Ok(())
}

fn writes_of_odd_sizes_and_offsets_are_exact(cx: &Context) -> Outcome {
    let client = cx.client()?;
    if client.limits().copy_alignment > 1 {
        return Err(Failure::Skipped(format!(
            "the device moves multiples of {} bytes",
            client.limits().copy_alignment
        )));
    }
    let mut expected = pattern(200, 0);
    let target = client.create_from_slice(&expected)?;
    for (at, size) in [(0, 1), (1, 2), (3, 25), (31, 33), (64, 63), (127, 1), (199, 1), (101, 7)] {
        let data = pattern(size, (at as u8).wrapping_add(100));
        client.write_slice(&target.slice(at as u64..(at + size) as u64)?, &data)?;
        expected[at..at + size].copy_from_slice(&data);
        ensure_eq!(client.read_one(&target)?.as_slice()?, expected, "{size} bytes at {at}");
    }
    Ok(())
}

fn a_write_does_not_disturb_who_read_before(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    for size in [64usize, 1 << 20] {
        let source = client.create_from_slice(&vec![1; size])?;
        let gate = cx.gate(&client)?;
        gate.block(&held)?;
        let reading = held.read_async(&[&source])?;
        let lazy = client.read_lazy(&source)?;
        // A large slice into memory that somebody still reads must not go there directly.
        client.write_slice(&source, &vec![2; size])?;
        gate.open()?;
        ensure!(reading.wait()?[0].as_slice()? == vec![1; size], "{size} bytes: the read saw a later write");
        ensure!(lazy.as_slice()? == vec![2; size], "{size} bytes: the write is lost");
    }
    Ok(())
}

fn a_write_comes_after_a_long_launch_that_reads_its_bytes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let slow = client.prepare(kernels::slow(Duration::from_millis(40)))?;
    let to = client.zeros(256)?;
    for elements in [64usize, 1 << 18] {
        let from = client.create_from_slice(raw(&vec![3u32; elements]))?;
        client.sync()?.wait()?;
        client.launch(&slow, cover(64)?, [&from, &to])?;
        client.write_slice(&from, raw(&vec![4u32; elements]))?;
        ensure_eq!(client.read_one(&to)?.to_vec::<u32>()?, [3; 64], "{elements} elements");
        ensure_eq!(client.read_one(&from.slice(..16)?)?.to_vec::<u32>()?, [4; 4], "{elements} elements");
    }
    Ok(())
}

fn a_write_of_a_file_that_is_gone_is_refused_at_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let path = std::env::temp_dir().join(format!(
        "trunnion-conformance-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, [5; 64])?;
    let (good, gone) = (Bytes::from_file(&path, 0, 64)?, Bytes::from_file(&path, 0, 32)?);
    let target = client.create_from_slice(&[1; 32])?;
    ensure_eq!(client.read_one(&client.create(good)?)?.as_slice()?, [5; 64]);
    std::fs::remove_file(&path)?;
    let error = ensure_err!(client.write(&target, gone), Error::File { .. });
    ensure!(error.to_string().contains("trunnion-conformance-"), "the file is not named: {error}");
    ensure_eq!(client.read_one(&target)?.as_slice()?, [1; 32]);
    Ok(())
}

fn a_misaligned_write_is_refused_where_the_device_needs_alignment(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let alignment = client.limits().copy_alignment;
    let target = client.zeros(alignment * 8)?;
    if alignment == 1 {
        // Then nothing is misaligned.
        client.write_slice(&target.slice(1..2)?, &[1])?;
        ensure_eq!(client.read_one(&target)?.as_slice()?, [0, 1, 0, 0, 0, 0, 0, 0]);
        return Ok(());
    }
    let error = ensure_err!(
        client.write_slice(&target.slice(1..1 + alignment)?, &vec![1; alignment as usize]),
        Error::Misaligned { .. }
    );
    ensure!(error.to_string().contains(&alignment.to_string()), "the alignment is not named: {error}");
    ensure_err!(
        client.write_slice(&target.slice(..alignment - 1)?, &vec![1; alignment as usize - 1]),
        Error::Misaligned { .. }
    );
    Ok(())
}

fn the_last_handle_may_be_dropped_right_after_the_write(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    for i in 0..50u8 {
        let doomed = held.create_from_slice(&vec![i; 10_000])?;
        drop(doomed);
        // Memory of the same size, at once: may not be what the queued write goes to.
        let kept = client.create_from_slice(&vec![0xF0; 10_000])?;
        ensure!(client.read_one(&kept)?.as_slice()?.iter().all(|byte| *byte == 0xF0), "round {i}");
    }
    gate.open()?;
    held.sync()?.wait()?;
    Ok(())
}
