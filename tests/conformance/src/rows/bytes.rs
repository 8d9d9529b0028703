//! M21: host bytes.

use crate::check::{Outcome, pattern};
use crate::context::Context;
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use std::path::PathBuf;
use trunnion_runtime_core::bytes::{Bytes, BytesProperty, HostBuffer};
use trunnion_runtime_core::error::Error;

tests! {
    M21 bytes_say_what_kind_they_are;
    M21 views_and_splits_copy_nothing;
    M21 a_view_beyond_the_end_is_refused;
    M21 a_vector_comes_back_without_a_copy;
    M21 elements_come_back_as_the_vector_they_were;
    M21 bytes_of_a_file_are_copied_out_without_the_rest_of_it;
    M21 staging_memory_becomes_bytes_without_a_copy;
    M21 elements_keep_their_alignment_or_are_copied;
    M21 a_range_of_a_file_is_read_when_it_is_looked_at;
    M21 a_file_that_is_missing_or_short_is_named;
    M21 shared_memory_is_kept_until_the_last_view_is_gone;
    M21 bytes_read_from_a_device_are_aligned;
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Outcome<Self> {
        let path = std::env::temp_dir().join(format!(
            "trunnion-conformance-{}-{name}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, content)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn bytes_say_what_kind_they_are(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let shared: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new([1u8, 2, 3]);
    let file = Scratch::new("kind", &[1, 2, 3])?;
    let device = client.create_from_slice(&[1, 2, 3])?;
    let kinds = [
        (Bytes::from_vec(vec![1, 2, 3]), BytesProperty::Native),
        (Bytes::from_elems(vec![1u8, 2, 3]), BytesProperty::Native),
        (Bytes::copy_from_slice(&[1u8, 2, 3]), BytesProperty::Native),
        (Bytes::from_buffer(HostBuffer::copy_from_slice(&[1, 2, 3])), BytesProperty::Native),
        (Bytes::from_shared(shared.clone()), BytesProperty::Other),
        (Bytes::from_pinned(shared), BytesProperty::Pinned),
        (Bytes::from_file(&file.0, 0, 3)?, BytesProperty::File),
        (client.read_lazy(&device)?, BytesProperty::DeviceLazy),
    ];
    for (bytes, kind) in kinds {
        ensure_eq!((bytes.property(), bytes.len()), (kind, 3));
        ensure_eq!(bytes.slice(1..)?.property(), kind);
        ensure_eq!(bytes.as_slice()?, [1, 2, 3], "{kind:?}");
        ensure_eq!(bytes.property(), kind, "after a look");
    }
    Ok(())
}

fn views_and_splits_copy_nothing(_: &Context) -> Outcome {
    let bytes = Bytes::from_vec(pattern(1000, 0));
    let base = bytes.as_slice()?.as_ptr() as usize;
    let view = bytes.slice(100..900)?.slice(50..)?;
    ensure_eq!((view.as_slice()?.as_ptr() as usize - base, view.len()), (150, 750));
    let (front, back) = view.split_at(200)?;
    ensure_eq!((front.as_slice()?.as_ptr() as usize - base, front.len()), (150, 200));
    ensure_eq!((back.as_slice()?.as_ptr() as usize - base, back.len()), (350, 550));
    ensure_eq!(back.clone().as_slice()?.as_ptr() as usize - base, 350);
    drop((bytes, view, front));
    ensure_eq!(back.as_slice()?, &pattern(1000, 0)[350..900]);
    Ok(())
}

fn a_view_beyond_the_end_is_refused(_: &Context) -> Outcome {
    let bytes = Bytes::from_vec(vec![0; 10]).slice(2..8)?;
    ensure_err!(bytes.slice(..7), Error::OutOfRange { size: 6, .. });
    ensure_err!(bytes.slice(7..), Error::OutOfRange { .. });
    ensure_err!(bytes.slice(..=usize::MAX), Error::OutOfRange { .. });
    ensure_err!(bytes.split_at(7), Error::OutOfRange { .. });
    ensure_eq!(bytes.split_at(6)?.1.len(), 0);
    ensure_err!(bytes.copy_into(&mut [0; 5]), Error::WrongLength { .. });
    Ok(())
}

fn a_vector_comes_back_without_a_copy(_: &Context) -> Outcome {
    let vector = pattern(100, 1);
    let address = vector.as_ptr() as usize;
    let bytes = Bytes::from_vec(vector);
    let view = bytes.clone();
    let Err(bytes) = bytes.try_into_vec() else { return Err(crate::Failure::new("taken while another view is held")) };
    drop(view);
    let Ok(vector) = bytes.try_into_vec() else { return Err(crate::Failure::new("the only view was not taken")) };
    ensure_eq!((vector.as_ptr() as usize, vector.clone()), (address, pattern(100, 1)));
    let Err(kept) = Bytes::from_elems(vec![1.0f32]).try_into_vec() else {
        return Err(crate::Failure::new("elements came back as bytes"));
    };
    ensure_eq!(kept.to_vec::<f32>()?, [1.0]);
    Ok(())
}

fn elements_come_back_as_the_vector_they_were(_: &Context) -> Outcome {
    let elems: Vec<f64> = (0..100).map(f64::from).collect();
    let address = elems.as_ptr() as usize;
    let bytes = Bytes::from_elems(elems);
    let Err(bytes) = bytes.try_into_elems::<u64>() else { return Err(crate::Failure::new("taken as another type")) };
    let view = bytes.clone();
    let Err(bytes) = bytes.try_into_elems::<f64>() else { return Err(crate::Failure::new("taken from under a view")) };
    drop(view);
    let Err(part) = bytes.slice(8..)?.try_into_elems::<f64>() else {
        return Err(crate::Failure::new("a view that begins later was taken"));
    };
    drop(part);
    let Err(odd) = bytes.slice(..12)?.try_into_elems::<f64>() else {
        return Err(crate::Failure::new("half an element was taken"));
    };
    drop(bytes);
    let Ok(front) = odd.slice(..8)?.try_into_elems::<f64>().or_else(|view| {
        drop(odd);
        view.try_into_elems::<f64>()
    }) else {
        return Err(crate::Failure::new("the only view was not taken"));
    };
    ensure_eq!((front.as_ptr() as usize, front.len(), front[0]), (address, 1, 0.0));
    Ok(())
}

fn bytes_of_a_file_are_copied_out_without_the_rest_of_it(_: &Context) -> Outcome {
    let content = pattern(10_000, 3);
    let file = Scratch::new("copy", &content)?;
    let view = Bytes::from_file(&file.0, 1000, 8000)?.slice(100..200)?;
    let mut into = [0; 100];
    view.copy_into(&mut into)?;
    ensure_eq!(into, content[1100..1200]);
    // Nothing was kept of it, and the rest of the file is of no interest.
    std::fs::write(&file.0, &pattern(10_000, 4)[..1200])?;
    view.copy_into(&mut into)?;
    ensure_eq!(into, pattern(10_000, 4)[1100..1200]);
    ensure_err!(view.as_slice().map(<[u8]>::len), Error::File { .. });
    std::fs::write(&file.0, &content)?;
    ensure_eq!(view.as_slice()?, &content[1100..1200]);
    Ok(())
}

fn staging_memory_becomes_bytes_without_a_copy(cx: &Context) -> Outcome {
    let locking = crate::Variant { pinned_memory: Some(1 << 20), ..crate::Variant::plain() };
    for variant in [crate::Variant::plain(), locking] {
        let kind = if super::staging::locks(cx, &variant)? { BytesProperty::Pinned } else { BytesProperty::Native };
        let client = cx.open(&variant)?;
        let mut buffer = client.reserve_staging(&[1000])?.remove(0);
        buffer.as_mut_slice().copy_from_slice(&pattern(1000, 8));
        let address = buffer.as_slice().as_ptr();
        let bytes = buffer.into_bytes();
        ensure_eq!((bytes.property(), bytes.as_slice()?.as_ptr(), bytes.len()), (kind, address, 1000));
        let (front, back) = bytes.split_at(400)?;
        drop(bytes);
        ensure_eq!((front.property(), back.as_slice()?), (kind, &pattern(1000, 8)[400..]));
        ensure_eq!(client.staging_usage().in_use, 1000);
        drop((front, back));
        ensure_eq!(client.staging_usage().in_use, 0);
    }
    Ok(())
}

fn elements_keep_their_alignment_or_are_copied(_: &Context) -> Outcome {
    let bytes = Bytes::from_elems(vec![1.5f64, 2.5, 3.5]);
    ensure_eq!(bytes.cast::<f64>()?, [1.5, 2.5, 3.5]);
    let odd = Bytes::copy_from_slice(&[0u8, 1, 0, 0, 0, 2, 0, 0, 0]).slice(1..)?;
    ensure_err!(odd.cast::<u32>().map(<[u32]>::len), Error::Misaligned { .. });
    ensure_eq!(odd.to_vec::<u32>()?, [1u32.to_le(), 2u32.to_le()]);
    ensure_err!(odd.slice(..7)?.to_vec::<u32>(), Error::WrongLength { .. });
    Ok(())
}

fn a_range_of_a_file_is_read_when_it_is_looked_at(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let file = Scratch::new("range", &pattern(10_000, 0))?;
    let (early, late) = (Bytes::from_file(&file.0, 100, 500)?, Bytes::from_file(&file.0, 100, 500)?);
    ensure_eq!(early.as_slice()?, &pattern(10_000, 0)[100..600]);
    std::fs::write(&file.0, pattern(10_000, 99))?;
    ensure_eq!(early.as_slice()?, &pattern(10_000, 0)[100..600]);
    ensure_eq!(client.read_one(&client.create(late)?)?.as_slice()?, &pattern(10_000, 99)[100..600]);
    Ok(())
}

fn a_file_that_is_missing_or_short_is_named(_: &Context) -> Outcome {
    let file = Scratch::new("short", &[0; 100])?;
    let name = file.0.display().to_string();
    for (offset, len) in [(0, 101), (100, 1), (u64::MAX - 10, 5)] {
        let error = ensure_err!(Bytes::from_file(&file.0, offset, len), Error::File { .. });
        ensure!(error.to_string().contains(&name), "the file is not named: {error}");
    }
    ensure_err!(Bytes::from_file(&file.0, u64::MAX, 5), Error::SizeOverflow { .. });
    ensure_err!(Bytes::from_file(file.0.with_extension("none"), 0, 1), Error::File { .. });
    ensure_err!(Bytes::from_file(std::env::temp_dir(), 0, 0), Error::File { .. });
    ensure_eq!(Bytes::from_file(&file.0, 100, 0)?.len(), 0);
    // Gone after it was named: the first look says so, and a later one works when it is back.
    let bytes = Bytes::from_file(&file.0, 0, 100)?;
    std::fs::remove_file(&file.0)?;
    ensure_err!(bytes.as_slice().map(<[u8]>::len), Error::File { .. });
    std::fs::write(&file.0, [4; 100])?;
    ensure_eq!(bytes.as_slice()?, [4; 100]);
    Ok(())
}

fn shared_memory_is_kept_until_the_last_view_is_gone(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let shared: Arc<Vec<u8>> = Arc::new(pattern(5000, 2));
    let bytes = Bytes::from_shared(shared.clone());
    ensure_eq!(bytes.as_slice()?.as_ptr(), shared.as_ptr());
    let view = bytes.slice(1000..2000)?;
    drop(bytes);
    ensure_eq!(Arc::strong_count(&shared), 2);
    let handle = client.create(view)?;
    ensure_eq!(client.read_one(&handle)?.as_slice()?, &pattern(5000, 2)[1000..2000]);
    client.sync()?.wait()?;
    crate::context::eventually("the written bytes are let go", || Ok(Arc::strong_count(&shared) == 1))
}

fn bytes_read_from_a_device_are_aligned(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for size in [8u64, 24, 1 << 20] {
        let read = client.read_one(&client.zeros(size)?)?;
        ensure_eq!(read.cast::<u64>()?.len() as u64, size / 8);
        ensure_eq!(read.as_slice()?.as_ptr() as usize % 16, 0);
    }
    Ok(())
}
