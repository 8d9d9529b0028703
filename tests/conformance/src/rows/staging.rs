//! M11: uploads through staging memory.

use crate::check::{Outcome, pattern, raw};
use crate::context::{AT_ONCE, Context, SOON, on_new_stream};
use crate::factory::Variant;
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use core::time::Duration;
use std::path::PathBuf;
use std::time::Instant;
use trunnion_runtime_core::bytes::{Bytes, BytesProperty};
use trunnion_runtime_core::client::{Client, TensorView};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::TensorDescriptor;

tests! {
    M11 staged_bytes_are_what_they_were_and_locked_where_the_driver_locks;
    M11 bytes_that_are_no_file_stay_as_they_are_where_only_files_are_staged;
    M11 a_view_of_a_file_is_staged_alone;
    M11 a_file_that_is_gone_replaces_nothing;
    M11 reserved_staging_is_filled_and_written;
    M11 staging_is_bounded_and_waits_for_earlier_staging_to_end;
    M11 staging_that_never_ends_is_an_error_at_the_deadline;
    M11 more_than_the_limit_at_once_is_refused_at_once;
    M11 a_refused_lock_is_plain_memory_and_counted_and_later_ones_are_tried;
    M11 locked_memory_that_is_used_up_is_plain_memory;
    M11 locked_memory_is_used_again;
    M11 a_slice_larger_than_the_limit_goes_in_pieces;
    M11 tensors_are_created_through_staging_in_every_layout;
    M11 staged_bytes_outlive_their_device;
    M11 whoever_waits_for_room_is_told_when_the_device_ends;
    M11 threads_that_stage_at_once_all_get_on .seconds(120);
    M11 no_bytes_need_no_staging;
    M11 no_bytes_stand_in_no_line_and_keep_nobody_waiting;
    M11 kept_memory_makes_room_for_another_size;
    M11 a_limit_of_no_bytes_refuses_all_of_them;
    M11 staging_is_given_back_in_any_order_on_any_thread;
}

fn locking(bytes: u64) -> Variant {
    Variant { pinned_memory: Some(bytes), ..Variant::plain() }
}

/// Whether a device that is opened so has page-locked memory.
pub(super) fn locks(cx: &Context, variant: &Variant) -> Outcome<bool> {
    Ok(cx.open(variant)?.reserve_staging(&[1])?[0].is_pinned())
}

/// A device whose staging is limited.
fn limited(cx: &Context, variant: &Variant, limit: u64) -> Outcome<Client> {
    let mut settings = cx.settings();
    settings.staging_limit = Some(limit);
    cx.open_with(variant, &settings)
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Outcome<Self> {
        let thread = std::thread::current().id();
        let path = std::env::temp_dir().join(format!("trunnion-staging-{}-{name}-{thread:?}", std::process::id()));
        std::fs::write(&path, content)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn staged_bytes_are_what_they_were_and_locked_where_the_driver_locks(cx: &Context) -> Outcome {
    let file = Scratch::new("kinds", &pattern(5000, 1))?;
    ensure!(locks(cx, &locking(16 << 20))?, "nothing is locked where the driver locks 16 MiB");
    for variant in [Variant::plain(), locking(16 << 20)] {
        let property = if locks(cx, &variant)? { BytesProperty::Pinned } else { BytesProperty::Native };
        let client = cx.open(&variant)?;
        let device = client.create_from_slice(&pattern(5000, 1))?;
        let shared: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(pattern(5000, 1));
        let mut all = [
            Bytes::from_vec(pattern(5000, 1)),
            Bytes::from_shared(shared),
            Bytes::from_file(&file.0, 0, 5000)?,
            client.read_lazy(&device)?,
        ];
        client.staging(&mut all, false)?;
        let usage = client.staging_usage();
        ensure_eq!(usage.in_use, 4 * 5000);
        let locked = if property == BytesProperty::Pinned { 4 } else { 0 };
        ensure_eq!((usage.pinned, usage.plain, usage.refused), (locked, 4 - locked, 0));
        for bytes in all {
            ensure_eq!(bytes.property(), property);
            ensure!(bytes.as_slice()? == pattern(5000, 1), "staged bytes differ");
            ensure_eq!(bytes.as_slice()?.as_ptr() as usize % 16, 0);
            let mut again = [bytes.clone()];
            if property == BytesProperty::Pinned {
                let before = client.staging_usage().pinned;
                client.staging(&mut again, false)?;
                ensure_eq!(client.staging_usage().pinned, before, "locked bytes were staged again");
            }
            ensure!(client.read_one(&client.create(bytes)?)?.as_slice()? == pattern(5000, 1), "written bytes differ");
        }
        client.sync()?.wait()?;
        crate::context::eventually("staging has ended", || Ok(client.staging_usage().in_use == 0))?;
    }
    Ok(())
}

fn bytes_that_are_no_file_stay_as_they_are_where_only_files_are_staged(cx: &Context) -> Outcome {
    let client = cx.open(&locking(16 << 20))?;
    let file = Scratch::new("only", &pattern(100, 2))?;
    let device = client.create_from_slice(&pattern(100, 2))?;
    let vector = Bytes::from_vec(pattern(100, 2));
    let address = vector.as_slice()?.as_ptr();
    let mut all = [vector, Bytes::from_file(&file.0, 0, 100)?, client.read_lazy(&device)?];
    client.staging(&mut all, true)?;
    let kinds = all.each_ref().map(Bytes::property);
    ensure_eq!(kinds, [BytesProperty::Native, BytesProperty::Pinned, BytesProperty::DeviceLazy]);
    ensure_eq!((all[0].as_slice()?.as_ptr(), client.staging_usage().in_use), (address, 100));
    for bytes in &all {
        ensure_eq!(bytes.as_slice()?, pattern(100, 2));
    }
    Ok(())
}

fn a_view_of_a_file_is_staged_alone(cx: &Context) -> Outcome {
    let client = cx.open(&locking(16 << 20))?;
    let content = pattern(1 << 20, 3);
    let file = Scratch::new("view", &content)?;
    let whole = Bytes::from_file(&file.0, 0, 1 << 20)?;
    let (front, back) = whole.split_at(1000)?;
    let mut views = [front, back.slice(500..700)?];
    client.staging(&mut views, true)?;
    ensure_eq!(client.staging_usage().in_use, 1200, "more of the file was staged than its views");
    ensure_eq!(views[0].as_slice()?, &content[..1000]);
    ensure_eq!(views[1].as_slice()?, &content[1500..1700]);
    Ok(())
}

fn a_file_that_is_gone_replaces_nothing(cx: &Context) -> Outcome {
    let client = cx.open(&locking(16 << 20))?;
    let file = Scratch::new("gone", &pattern(100, 4))?;
    let mut all = [Bytes::from_vec(vec![1; 50]), Bytes::from_file(&file.0, 0, 100)?];
    std::fs::write(&file.0, [0; 10])?;
    let error = ensure_err!(client.staging(&mut all, false), Error::File { .. });
    ensure!(error.to_string().contains("trunnion-staging-"), "the file is not named: {error}");
    ensure_eq!(all.each_ref().map(Bytes::property), [BytesProperty::Native, BytesProperty::File]);
    ensure_eq!(client.staging_usage().in_use, 0);
    std::fs::write(&file.0, pattern(100, 4))?;
    client.staging(&mut all, false)?;
    ensure_eq!(all[1].as_slice()?, pattern(100, 4));
    Ok(())
}

fn reserved_staging_is_filled_and_written(cx: &Context) -> Outcome {
    for variant in [Variant::plain(), locking(16 << 20)] {
        let (client, locks) = (cx.open(&variant)?, locks(cx, &variant)?);
        let sizes = [1, 4096, 0, 100_003];
        let buffers = client.reserve_staging(&sizes)?;
        ensure_eq!(client.staging_usage().in_use, sizes.iter().sum::<usize>() as u64);
        for (i, (mut buffer, size)) in buffers.into_iter().zip(sizes).enumerate() {
            ensure_eq!((buffer.len(), buffer.is_empty()), (size, size == 0));
            ensure_eq!(buffer.is_pinned(), locks && size > 0);
            buffer.as_mut_slice().copy_from_slice(&pattern(size, i as u8));
            let handle = client.create(buffer.into_bytes())?;
            ensure!(client.read_one(&handle)?.as_slice()? == pattern(size, i as u8), "buffer {i} differs");
        }
    }
    Ok(())
}

fn staging_is_bounded_and_waits_for_earlier_staging_to_end(cx: &Context) -> Outcome {
    const LIMIT: u64 = 1 << 20;
    for pinned_memory in [None, Some(LIMIT)] {
        let late = Variant { pinned_memory, ..Variant::late(Duration::from_millis(2), 11) };
        let client = limited(cx, &late, LIMIT)?;
        let streams: Vec<_> = (0..4).map(|_| on_new_stream(&client)).collect();
        let mut handles = Vec::new();
        for i in 0..40u8 {
            handles.push(streams[usize::from(i) % 4].create_from_slice_pinned(&pattern(300_000, i))?);
        }
        for (i, handle) in handles.iter().enumerate() {
            ensure!(client.read_one(handle)?.as_slice()? == pattern(300_000, i as u8), "buffer {i} differs");
        }
        let usage = client.staging_usage();
        ensure!(usage.peak <= LIMIT && usage.in_use + usage.kept <= LIMIT, "{usage}");
        ensure_eq!(usage.pinned + usage.plain, 40);
    }
    // Held back by a gate, the next must wait for it.
    let client = limited(cx, &Variant::plain(), LIMIT)?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let mut first = [Bytes::from_vec(pattern(700_000, 1))];
    client.staging(&mut first, false)?;
    let [first] = first;
    let written = held.create(first)?;
    let (other, start) = (client.clone(), Instant::now());
    let waiting = std::thread::spawn(move || other.create_from_slice_pinned(&pattern(500_000, 2)));
    crate::context::eventually("the second waits", || Ok(client.staging_usage().waits == 1))?;
    std::thread::sleep(Duration::from_millis(50));
    ensure!(!waiting.is_finished(), "the second did not wait for the first");
    gate.open()?;
    let second = waiting.join().map_err(|_| crate::Failure::new("the waiting thread panicked"))??;
    ensure!(start.elapsed() < SOON, "it was waited {:?}", start.elapsed());
    ensure!(client.read_one(&second)?.as_slice()? == pattern(500_000, 2), "the second differs");
    ensure!(client.read_one(&written)?.as_slice()? == pattern(700_000, 1), "the first differs");
    Ok(())
}

fn staging_that_never_ends_is_an_error_at_the_deadline(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.staging_limit = Some(1000);
    settings.wait_timeout = Duration::from_millis(300);
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let held = client.reserve_staging(&[600, 100])?;
    let start = Instant::now();
    let error = ensure_err!(client.reserve_staging(&[301]), Error::StagingFull { .. });
    let took = start.elapsed();
    ensure!(took >= Duration::from_millis(300) && took < AT_ONCE, "{took:?}");
    ensure!(error.is_timeout() && !error.is_refusal(), "{error:?}");
    let Error::StagingFull { requested, in_use, limit, waited } = error.clone() else { return Ok(()) };
    ensure_eq!((requested, in_use, limit), (301, 700, 1000));
    ensure!(waited >= Duration::from_millis(300), "{waited:?}");
    for number in ["301", "700", "1000"] {
        ensure!(error.to_string().contains(number), "{number} is not in {error}");
    }
    // What fits is served, and so is all when there is room again.
    ensure_eq!(client.reserve_staging(&[300])?.len(), 1);
    drop(held);
    ensure_eq!(client.reserve_staging(&[1000])?[0].len(), 1000);
    Ok(())
}

fn more_than_the_limit_at_once_is_refused_at_once(cx: &Context) -> Outcome {
    let client = limited(cx, &Variant::plain(), 1000)?;
    let start = Instant::now();
    for sizes in [&[1001][..], &[600, 401], &[usize::MAX, usize::MAX]] {
        let error = ensure_err!(client.reserve_staging(sizes), Error::StagingFull { .. } | Error::SizeOverflow { .. });
        ensure!(error.is_refusal() && !error.is_timeout(), "{error:?}");
    }
    let mut bytes = [Bytes::from_vec(vec![0; 1001])];
    ensure_err!(client.staging(&mut bytes, false), Error::StagingFull { requested: 1001, limit: 1000, .. });
    ensure_eq!(bytes[0].property(), BytesProperty::Native);
    ensure!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
    ensure_eq!(client.staging_usage().waits, 0);
    Ok(())
}

fn a_refused_lock_is_plain_memory_and_counted_and_later_ones_are_tried(cx: &Context) -> Outcome {
    for refused in 1..=4u64 {
        let client = cx.open(&Variant { refuse_pin: Some(refused), ..locking(16 << 20) })?;
        // In use for as long as the test, so that nothing is kept that could make room.
        let (mut kept, mut in_use) = (Vec::new(), Vec::new());
        for i in 1..=4u64 {
            let mut buffer = client.reserve_staging(&[1000 + i as usize])?.remove(0);
            ensure_eq!(buffer.is_pinned(), i != refused, "the {i}th, where the {refused}th is refused");
            buffer.as_mut_slice().fill(i as u8);
            let bytes = buffer.into_bytes();
            in_use.push(bytes.clone());
            kept.push(client.create(bytes)?);
        }
        let usage = client.staging_usage();
        ensure_eq!((usage.pinned, usage.refused, usage.plain), (3, 1, 0));
        ensure!(usage.to_string().contains("1 refused"), "{usage}");
        for (i, handle) in kept.iter().enumerate() {
            ensure!(client.read_one(handle)?.as_slice()?.iter().all(|byte| *byte == i as u8 + 1), "buffer {i} differs");
        }
    }
    Ok(())
}

fn locked_memory_that_is_used_up_is_plain_memory(cx: &Context) -> Outcome {
    let client = cx.open(&locking(10_000))?;
    let first = client.reserve_staging(&[6000, 6000])?;
    ensure_eq!(first.iter().map(|buffer| buffer.is_pinned()).collect::<Vec<_>>(), [true, false]);
    drop(first);
    let other = client.create_from_slice_pinned(&pattern(5000, 7))?;
    ensure_eq!(client.read_one(&other)?.as_slice()?, pattern(5000, 7));
    client.sync()?.wait()?;
    crate::context::eventually("the staging has ended", || Ok(client.staging_usage().in_use == 0))?;
    ensure!(client.reserve_staging(&[6000])?[0].is_pinned(), "memory that was locked before is not");
    ensure_eq!((client.staging_usage().pinned, client.staging_usage().refused), (3, 1));
    Ok(())
}

fn locked_memory_is_used_again(cx: &Context) -> Outcome {
    let client = cx.open(&locking(1 << 20))?;
    for round in 0..50u8 {
        let handle = client.create_from_slice_pinned(&[round; 4096])?;
        ensure_eq!(client.read_one(&handle)?.as_slice()?, [round; 4096]);
        client.sync()?.wait()?;
        crate::context::eventually("the staging has ended", || Ok(client.staging_usage().in_use == 0))?;
    }
    let usage = client.staging_usage();
    ensure_eq!((usage.pinned, usage.reused, usage.kept, usage.refused), (50, 49, 4096, 0));
    Ok(())
}

fn a_slice_larger_than_the_limit_goes_in_pieces(cx: &Context) -> Outcome {
    for pinned_memory in [None, Some(64 << 10)] {
        let late = Variant { pinned_memory, ..Variant::late(Duration::from_micros(200), 12) };
        let client = limited(cx, &late, 64 << 10)?;
        for size in [64 << 10, (64 << 10) + 1, 1_000_003] {
            let handle = client.create_from_slice_pinned(&pattern(size, 5))?;
            ensure!(client.read_one(&handle)?.as_slice()? == pattern(size, 5), "{size} bytes differ");
        }
        ensure!(client.staging_usage().peak <= 64 << 10, "{}", client.staging_usage());
    }
    Ok(())
}

fn tensors_are_created_through_staging_in_every_layout(cx: &Context) -> Outcome {
    for limit in [Some(1 << 20), Some(300), Some(64), None] {
        let mut settings = cx.settings();
        settings.staging_limit = limit;
        let client = cx.open_with(&locking(1 << 20), &settings)?;
        let alignment = client.limits().copy_alignment;
        let descriptors = [
            TensorDescriptor::contiguous([7, 11], ElemType::F32),
            TensorDescriptor::optimized([5, 3, 9], ElemType::U32),
            TensorDescriptor::contiguous([0, 4], ElemType::F32),
            TensorDescriptor::optimized([200], ElemType::F64),
            TensorDescriptor::optimized([2, 100], ElemType::F64),
        ];
        let sizes = descriptors.iter().map(TensorDescriptor::dense_size).collect::<Result<Vec<_>, _>>()?;
        let data: Vec<_> = sizes.iter().enumerate().map(|(i, size)| pattern(*size as usize, i as u8)).collect();
        let tensors: Vec<_> = descriptors.iter().cloned().zip(data.iter().map(|data| &data[..])).collect();
        let made = client.create_tensors_from_slices_pinned(&tensors);
        if alignment > 4 && limit.is_some_and(|limit| limit < 2000) && made.is_err() {
            // What cannot be cut where a transfer may begin is too large for so little.
            ensure_err!(made, Error::StagingFull { .. });
            continue;
        }
        let layouts = made?;
        for ((layout, tensor), data) in layouts.iter().zip(&descriptors).zip(&data) {
            ensure!(layout.memory.same_allocation(&layouts[0].memory), "{tensor:?} has a reservation of its own");
            let read = client.read_tensor(&TensorView::new(layout, tensor))?;
            ensure!(read.as_slice()? == data, "{tensor:?} differs with a limit of {limit:?}");
        }
        ensure!(limit.is_none_or(|limit| client.staging_usage().peak <= limit), "{}", client.staging_usage());
        let wrong = [(descriptors[0].clone(), raw(&[0f32; 76]))];
        ensure_err!(client.create_tensors_from_slices_pinned(&wrong), Error::WrongLength { .. });
    }
    Ok(())
}

fn staged_bytes_outlive_their_device(cx: &Context) -> Outcome {
    let client = cx.open(&locking(1 << 20))?;
    let mut bytes = [Bytes::from_vec(pattern(1000, 9))];
    client.staging(&mut bytes, false)?;
    let mut reserved = client.reserve_staging(&[100])?.remove(0);
    client.shutdown(SOON);
    ensure_eq!(bytes[0].as_slice()?, pattern(1000, 9));
    reserved.as_mut_slice().fill(3);
    ensure_eq!(reserved.into_bytes().as_slice()?, [3; 100]);
    ensure_err!(client.reserve_staging(&[1]), Error::ShutDown { .. });
    ensure_eq!((client.staging_usage().in_use, client.staging_usage().kept), (1000, 0));
    drop(client);
    ensure_eq!(bytes[0].slice(..10)?.as_slice()?, &pattern(1000, 9)[..10]);
    Ok(())
}

fn whoever_waits_for_room_is_told_when_the_device_ends(cx: &Context) -> Outcome {
    for lost in [false, true] {
        let variant = if lost { Variant::lost_after(0) } else { Variant::plain() };
        let client = limited(cx, &variant, 1000)?;
        let _held = client.reserve_staging(&[1000])?;
        let waiting = client.clone();
        let waiting = std::thread::spawn(move || waiting.reserve_staging(&[1]).map(drop));
        crate::context::eventually("it waits", || Ok(client.staging_usage().waits == 1))?;
        let start = Instant::now();
        if lost {
            let handle = client.zeros(64)?;
            ensure!(client.read_one(&handle).is_err_and(|error| error.is_device_lost()), "the device is not lost");
        } else {
            client.shutdown(SOON);
        }
        let answer = waiting.join().map_err(|_| crate::Failure::new("the waiting thread panicked"))?;
        match answer {
            Err(Error::DeviceLost { .. }) if lost => {}
            Err(Error::ShutDown { .. }) if !lost => {}
            other => return Err(crate::Failure::new(format_args!("{other:?}"))),
        }
        ensure!(start.elapsed() < AT_ONCE, "it was told after {:?}", start.elapsed());
    }
    Ok(())
}

fn threads_that_stage_at_once_all_get_on(cx: &Context) -> Outcome {
    let client = limited(cx, &Variant { pinned_memory: Some(100_000), ..Variant::plain() }, 100_000)?;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = |seed: u8| {
            let client = on_new_stream(&client);
            move || -> Outcome {
                for round in 0..60usize {
                    let size = 1 + (usize::from(seed) * 7919 + round * 104_729) % 60_000;
                    let handle = client.create_from_slice_pinned(&pattern(size, seed))?;
                    ensure!(
                        client.read_one(&handle)?.as_slice()? == pattern(size, seed),
                        "thread {seed}, {size} bytes"
                    );
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..6).map(|seed| scope.spawn(work(seed))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(outcomes.len(), 6);
    outcomes.into_iter().collect::<Outcome>()?;
    ensure!(client.staging_usage().peak <= 100_000, "{}", client.staging_usage());
    Ok(())
}

fn no_bytes_need_no_staging(cx: &Context) -> Outcome {
    let client = limited(cx, &locking(1000), 1000)?;
    let _held = client.reserve_staging(&[1000])?;
    ensure_eq!(client.reserve_staging(&[])?.len(), 0);
    client.staging(&mut [], false)?;
    client.staging(&mut [Bytes::default()], false)?;
    ensure_eq!(client.create_from_slice_pinned(&[])?.size_in_used(), 0);
    ensure_eq!(client.create_tensors_from_slices_pinned(&[])?.len(), 0);
    ensure_eq!(client.staging_usage().waits, 0);
    Ok(())
}

fn no_bytes_stand_in_no_line_and_keep_nobody_waiting(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.staging_limit = Some(1000);
    settings.wait_timeout = Duration::from_secs(3);
    let client = cx.open_with(&locking(1000), &settings)?;
    let _held = client.reserve_staging(&[600])?;
    let waits = client.clone();
    let start = Instant::now();
    let waiting = std::thread::spawn(move || (waits.reserve_staging(&[500]).map(drop), start.elapsed()));
    crate::context::eventually("one waits", || Ok(client.staging_usage().waits == 1))?;
    while !waiting.is_finished() && start.elapsed() < SOON {
        let asked = Instant::now();
        ensure_eq!(client.reserve_staging(&[0, 0])?.len(), 2);
        ensure_eq!(client.reserve_staging(&[])?.len(), 0);
        client.staging(&mut [Bytes::default()], false)?;
        // In line it would wait for as long as the other one does, but for the end of that.
        ensure!(asked.elapsed() < Duration::from_secs(2), "no bytes waited {:?}", asked.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (answer, took) = waiting.join().map_err(|_| crate::Failure::new("the waiting thread panicked"))?;
    ensure_err!(answer, Error::StagingFull { requested: 500, in_use: 600, .. });
    ensure!(took < Duration::from_secs(8), "it waited {took:?} because others took no bytes");
    Ok(())
}

fn kept_memory_makes_room_for_another_size(cx: &Context) -> Outcome {
    // Sizes that never come again: each finds what the one before left.
    let client = cx.open(&locking(10_000))?;
    for size in (3000..6000).step_by(97) {
        let mut buffers = client.reserve_staging(&[size, 100])?;
        ensure!(buffers.iter().all(|buffer| buffer.is_pinned()), "{size} bytes: {}", client.staging_usage());
        buffers[0].as_mut_slice().fill(1);
    }
    let usage = client.staging_usage();
    ensure_eq!((usage.refused, usage.plain), (0, 0));
    // What is in use is not taken from who uses it.
    let held = client.reserve_staging(&[6000])?;
    ensure!(!client.reserve_staging(&[5000])?[0].is_pinned(), "more is locked than there is");
    ensure!(held[0].is_pinned() && client.staging_usage().refused == 1, "{}", client.staging_usage());
    Ok(())
}

fn a_limit_of_no_bytes_refuses_all_of_them(cx: &Context) -> Outcome {
    for limit in [0, 1] {
        let client = limited(cx, &locking(1000), limit)?;
        let large = vec![3; 8 << 20];
        let start = Instant::now();
        ensure_err!(client.reserve_staging(&[2]), Error::StagingFull { requested: 2, .. });
        if limit == 0 {
            ensure_err!(client.create_from_slice_pinned(&large), Error::StagingFull { limit: 0, .. });
        }
        ensure_eq!(client.create_from_slice_pinned(&[])?.size_in_used(), 0);
        ensure_eq!(client.reserve_staging(&[0])?[0].len(), 0);
        ensure!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
        ensure_eq!((client.staging_usage().in_use, client.staging_usage().waits), (0, 0));
    }
    // Without a limit there are sizes that no memory has.
    let mut settings = cx.settings();
    settings.staging_limit = None;
    let client = cx.open_with(&locking(1000), &settings)?;
    let held = client.reserve_staging(&[10])?;
    let start = Instant::now();
    for sizes in [&[usize::MAX][..], &[usize::MAX, usize::MAX], &[1, usize::MAX - 5], &[isize::MAX as usize, 1]] {
        let error = client.reserve_staging(sizes).map(drop).err();
        ensure!(error.as_ref().is_some_and(|error| !error.is_timeout()), "{sizes:?}: {error:?}");
    }
    ensure!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
    ensure_eq!((client.staging_usage().in_use, client.staging_usage().waits), (10, 0));
    drop(held);
    Ok(())
}

fn staging_is_given_back_in_any_order_on_any_thread(cx: &Context) -> Outcome {
    std::thread_local! {
        static LAST: core::cell::RefCell<Vec<trunnion_runtime_core::staging::StagingBuffer>> = const { core::cell::RefCell::new(Vec::new()) };
    }
    for variant in [Variant::plain(), locking(4096)] {
        let client = limited(cx, &variant, 4096)?;
        let mut buffers = client.reserve_staging(&[1, 1000, 0, 2000, 95])?;
        for place in [3, 0, 2, 0, 0] {
            let bytes = buffers.remove(place).into_bytes();
            let view = bytes.slice(bytes.len() / 2..)?;
            drop(bytes);
            ensure!(client.staging_usage().in_use > 0 || view.is_empty(), "a view is not counted");
        }
        ensure_eq!(client.staging_usage().in_use, 0);
        let at_work = client.clone();
        // Dropped as the thread's own values are, when it has ended.
        let dying = std::thread::spawn(move || {
            LAST.with(|last| at_work.reserve_staging(&[4000, 0]).map(|all| last.borrow_mut().extend(all)))
        });
        dying.join().map_err(|_| crate::Failure::new("the thread panicked"))??;
        ensure_eq!(client.staging_usage().in_use, 0);
        // One on another thread, with a waiter, while the device ends.
        let held = client.reserve_staging(&[4096])?;
        let waits = client.clone();
        let waiting = std::thread::spawn(move || waits.reserve_staging(&[10]).map(drop));
        crate::context::eventually("it waits", || Ok(client.staging_usage().waits >= 1))?;
        let ending = client.clone();
        let ends = std::thread::spawn(move || ending.shutdown(SOON).abandoned);
        drop(held);
        let answer = waiting.join().map_err(|_| crate::Failure::new("the waiting thread panicked"))?;
        ensure!(matches!(answer, Ok(()) | Err(Error::ShutDown { .. })), "{answer:?}");
        ensure_eq!(ends.join().ok(), Some(0));
        ensure_eq!((client.staging_usage().in_use, client.staging_usage().kept), (0, 0));
    }
    Ok(())
}
