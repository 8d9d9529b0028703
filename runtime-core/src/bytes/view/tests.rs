//! What `Bytes` promise, for every kind of source.

use super::*;
use alloc::string::ToString;
use alloc::vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn address(bytes: &Bytes) -> usize {
    bytes.as_slice().unwrap().as_ptr() as usize
}

/// Fails as many times as it is told to, then gives its bytes.
struct Flaky {
    failures: usize,
    calls: AtomicUsize,
    content: Vec<u8>,
}

impl LazySource for Flaky {
    fn load(&self) -> Result<HostBuffer> {
        if self.calls.fetch_add(1, Ordering::SeqCst) < self.failures {
            return Err(Error::DeviceLost { cause: "unplugged".into() });
        }
        Ok(HostBuffer::copy_from_slice(&self.content))
    }
}

fn flaky(failures: usize, content: &[u8]) -> Arc<Flaky> {
    Arc::new(Flaky { failures, calls: AtomicUsize::new(0), content: content.to_vec() })
}

#[test]
fn bytes_can_be_sent_to_and_shared_by_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Bytes>();
    check::<HostBuffer>();
}

#[test]
fn a_vector_becomes_bytes_and_bytes_a_vector_without_a_copy() {
    let vec = vec![1_u8, 2, 3];
    let at = vec.as_ptr() as usize;
    let bytes = Bytes::from(vec);
    assert_eq!(bytes.property(), BytesProperty::Native);
    assert_eq!((bytes.len(), bytes.is_empty(), address(&bytes)), (3, false, at));
    let vec = bytes.try_into_vec().unwrap();
    assert_eq!((vec.as_slice(), vec.as_ptr() as usize), (&[1, 2, 3][..], at));
}

#[test]
fn elements_are_kept_where_they_are_and_viewed_as_what_they_were() {
    let vec = vec![1.5_f64, -2.0];
    let at = vec.as_ptr() as usize;
    let bytes = Bytes::from_elems(vec);
    assert_eq!((bytes.property(), bytes.len(), address(&bytes)), (BytesProperty::Native, 16, at));
    assert_eq!(bytes.cast::<f64>().unwrap(), [1.5, -2.0]);
}

#[test]
fn a_copied_slice_is_aligned_to_sixteen_bytes() {
    for len in [1, 7, 64, 1001] {
        let elems: Vec<u16> = (0..len).collect();
        let bytes = Bytes::copy_from_slice(&elems);
        assert_eq!(bytes.property(), BytesProperty::Native);
        assert_eq!(address(&bytes) % 16, 0);
        assert_eq!(bytes.cast::<u16>().unwrap(), elems);
    }
}

#[test]
fn shared_and_pinned_memory_is_viewed_in_place_and_kept() {
    let shared: Arc<Vec<u8>> = Arc::new(vec![5; 32]);
    let bytes = Bytes::from_shared(shared.clone());
    assert_eq!((bytes.property(), address(&bytes)), (BytesProperty::Other, shared.as_ptr() as usize));
    let pinned = Bytes::from_pinned(shared.clone());
    assert_eq!((pinned.property(), address(&pinned)), (BytesProperty::Pinned, shared.as_ptr() as usize));
    assert_eq!(Arc::strong_count(&shared), 3);
    let view = bytes.slice(4..8).unwrap();
    drop((bytes, pinned));
    assert_eq!(Arc::strong_count(&shared), 2);
    drop(view);
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn shared_memory_that_shrinks_is_an_error_and_not_a_panic() {
    struct Shrinking(AtomicBool);
    impl AsRef<[u8]> for Shrinking {
        fn as_ref(&self) -> &[u8] {
            if self.0.load(Ordering::SeqCst) { &[1, 2] } else { &[1, 2, 3, 4] }
        }
    }
    let source = Arc::new(Shrinking(AtomicBool::new(false)));
    let bytes = Bytes::from_shared(source.clone());
    assert_eq!(bytes.as_slice().unwrap(), [1, 2, 3, 4]);
    source.0.store(true, Ordering::SeqCst);
    assert!(matches!(bytes.as_slice(), Err(Error::WrongLength { got: 2, expected: 4, .. })));
    assert_eq!(bytes.slice(..2).unwrap().as_slice().unwrap(), [1, 2]);
}

#[test]
fn a_buffer_becomes_bytes_without_a_copy() {
    let buffer = HostBuffer::copy_from_slice(&[9; 20]);
    let at = buffer.as_slice().as_ptr() as usize;
    let bytes = Bytes::from_buffer(buffer);
    assert_eq!((bytes.property(), bytes.len(), address(&bytes)), (BytesProperty::Native, 20, at));
}

#[test]
fn clones_and_views_share_the_memory() {
    let bytes = Bytes::copy_from_slice(&(0..64).collect::<Vec<u32>>());
    let at = address(&bytes);
    assert_eq!(address(&bytes.clone()), at);
    let view = bytes.slice(16..=47).unwrap();
    assert_eq!((view.len(), address(&view)), (32, at + 16));
    assert_eq!(view.cast::<u32>().unwrap(), (4..12).collect::<Vec<u32>>());
    let nested = view.slice(4..).unwrap();
    assert_eq!((nested.len(), address(&nested)), (28, at + 20));
    let (left, right) = nested.split_at(8).unwrap();
    assert_eq!((left.len(), address(&left)), (8, at + 20));
    assert_eq!((right.len(), address(&right)), (20, at + 28));
}

#[test]
fn every_kind_of_range_selects_what_it_does_for_slices() {
    let bytes = Bytes::from_vec(vec![0, 1, 2, 3]);
    let of = |range: (Bound<usize>, Bound<usize>)| bytes.slice(range).unwrap().to_vec::<u8>().unwrap();
    assert_eq!(of((Bound::Unbounded, Bound::Unbounded)), [0, 1, 2, 3]);
    assert_eq!(of((Bound::Excluded(0), Bound::Included(2))), [1, 2]);
    assert_eq!(of((Bound::Included(1), Bound::Excluded(3))), [1, 2]);
    assert_eq!(of((Bound::Included(4), Bound::Unbounded)), [0_u8; 0]);
}

#[test]
fn a_range_outside_the_bytes_is_refused_with_its_numbers() {
    let bytes = Bytes::from_vec(vec![0; 10]).slice(2..8).unwrap();
    let refused = |result: Result<Bytes>, start: usize, end: usize| {
        let range = start as u64..end as u64;
        assert_eq!(result.err(), Some(Error::OutOfRange { what: "slice of bytes".into(), range, size: 6 }));
    };
    refused(bytes.slice(0..7), 0, 7);
    refused(bytes.slice(7..), 7, 6);
    refused(bytes.slice((Bound::Included(4), Bound::Excluded(3))), 4, 3);
    refused(bytes.slice(..=usize::MAX), 0, usize::MAX);
    refused(bytes.slice((Bound::Excluded(usize::MAX), Bound::Unbounded)), usize::MAX, 6);
    refused(bytes.split_at(7).map(|(left, _)| left), 0, 7);
    assert!(bytes.split_at(6).unwrap().1.is_empty());
}

#[test]
fn the_last_bound_of_the_largest_size_is_no_valid_range() {
    let bytes = Bytes::lazy(usize::MAX, flaky(0, &[]));
    assert!(bytes.slice(..=usize::MAX).is_err());
    assert_eq!(bytes.slice(..).unwrap().len(), usize::MAX);
}

#[test]
fn a_misaligned_view_is_refused_with_its_address_and_copied_all_the_same() {
    let bytes = Bytes::copy_from_slice(&[0x0403_0201_u32, 0x0807_0605, 0]).slice(1..9).unwrap();
    match bytes.cast::<u32>() {
        Err(error @ Error::Misaligned { value, alignment: 4, .. }) => {
            assert_eq!(value, address(&bytes) as u64);
            assert!(error.to_string().contains("u32"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let expected: Vec<u32> =
        bytes.as_slice().unwrap().chunks(4).map(|chunk| u32::from_ne_bytes(chunk.try_into().unwrap())).collect();
    assert_eq!(bytes.to_vec::<u32>().unwrap(), expected);
}

#[test]
fn a_length_that_is_no_whole_number_of_elements_is_refused() {
    let bytes = Bytes::copy_from_slice(&[0_u8; 7]);
    let seven = |error: Error| {
        assert!(matches!(error, Error::WrongLength { got: 7, expected: 4, .. }), "{error:?}");
        assert!(error.to_string().contains("u32, 4 bytes each"), "{error}");
    };
    seven(bytes.cast::<u32>().unwrap_err());
    seven(bytes.to_vec::<u32>().unwrap_err());
    let shorter = bytes.slice(..3).unwrap();
    assert!(matches!(shorter.cast::<u32>(), Err(Error::WrongLength { got: 3, expected: 0, .. })));
}

#[test]
fn a_wrong_length_is_refused_before_anything_is_loaded() {
    let source = flaky(0, &[0; 7]);
    let bytes = Bytes::lazy(7, source.clone());
    assert!(bytes.cast::<u32>().is_err());
    assert!(bytes.copy_into(&mut [0; 6]).is_err());
    assert_eq!(source.calls.load(Ordering::SeqCst), 0);
}

#[test]
fn types_of_no_size_are_made_of_no_bytes() {
    assert!(matches!(Bytes::from_vec(vec![1]).cast::<()>(), Err(Error::WrongLength { got: 1, expected: 0, .. })));
    assert!(Bytes::from_vec(vec![1]).to_vec::<()>().is_err());
    assert_eq!(Bytes::default().to_vec::<[u64; 0]>().unwrap().len(), 0);
    assert!(Bytes::from_elems(vec![(); 3]).is_empty());
}

#[test]
fn empty_bytes_are_an_empty_slice_of_any_type() {
    let empty = Bytes::default();
    assert!(empty.is_empty());
    assert_eq!(empty.as_slice().unwrap(), [0_u8; 0]);
    assert_eq!(empty.cast::<u128>().unwrap(), [0_u128; 0]);
    assert_eq!(empty.to_vec::<u64>().unwrap(), [0_u64; 0]);
    let inside = Bytes::copy_from_slice(&[1_u8; 4]).slice(1..1).unwrap();
    assert_eq!(inside.cast::<u32>().unwrap(), [0_u32; 0]);
    empty.copy_into(&mut []).unwrap();
}

#[test]
fn a_vector_is_only_given_back_to_its_only_user() {
    let bytes = Bytes::from_vec(vec![1, 2, 3]);
    let other = bytes.clone();
    let bytes = bytes.try_into_vec().unwrap_err();
    assert_eq!(bytes.as_slice().unwrap(), [1, 2, 3]);
    drop(other);
    assert_eq!(bytes.try_into_vec().unwrap(), [1, 2, 3]);
}

#[test]
fn a_view_of_the_beginning_gives_the_vector_truncated_and_one_of_the_rest_does_not() {
    let vec = vec![1_u8, 2, 3];
    let at = vec.as_ptr();
    let prefix = Bytes::from_vec(vec).slice(..2).unwrap();
    let vec = prefix.try_into_vec().unwrap();
    assert_eq!((vec.as_slice(), vec.as_ptr()), (&[1, 2][..], at));
    let rest = Bytes::from_vec(vec).slice(1..).unwrap();
    assert_eq!(rest.try_into_vec().unwrap_err().as_slice().unwrap(), [2]);
}

#[test]
fn memory_that_never_was_a_vector_of_bytes_is_not_given_back_as_one() {
    let source = flaky(0, &[0; 4]);
    for bytes in [
        Bytes::from_elems(vec![0_u32]),
        Bytes::copy_from_slice(&[0_u8; 4]),
        Bytes::from_shared(Arc::new(vec![0_u8; 4])),
        Bytes::lazy(4, source.clone()),
    ] {
        assert_eq!(bytes.try_into_vec().unwrap_err().as_slice().unwrap(), [0; 4]);
    }
}

#[test]
fn copying_needs_a_destination_of_the_same_length_and_leaves_another_alone() {
    let bytes = Bytes::from_vec(vec![1, 2, 3]);
    let mut same = [0; 3];
    bytes.copy_into(&mut same).unwrap();
    assert_eq!(same, [1, 2, 3]);
    for len in [2_usize, 4] {
        let mut other = vec![7; len];
        let error = bytes.copy_into(&mut other).unwrap_err();
        assert!(matches!(error, Error::WrongLength { got, expected: 3, .. } if got == len as u64), "{error:?}");
        assert!(other.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn lazy_bytes_load_once_for_all_their_views_and_only_when_accessed() {
    let source = flaky(0, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let bytes = Bytes::lazy(8, source.clone());
    let (left, right) = bytes.split_at(4).unwrap();
    assert_eq!(
        (bytes.len(), bytes.property(), right.property()),
        (8, BytesProperty::DeviceLazy, BytesProperty::DeviceLazy)
    );
    assert_eq!(bytes.slice(3..3).unwrap().as_slice().unwrap(), [0_u8; 0]);
    assert_eq!(source.calls.load(Ordering::SeqCst), 0);
    assert_eq!(right.as_slice().unwrap(), [4, 5, 6, 7]);
    assert_eq!(left.as_slice().unwrap(), [0, 1, 2, 3]);
    assert_eq!(address(&left) + 4, address(&right));
    assert_eq!(source.calls.load(Ordering::SeqCst), 1);
    assert_eq!(address(&bytes) % 16, 0);
}

#[test]
fn lazy_bytes_that_failed_are_loaded_by_the_next_access() {
    let bytes = Bytes::lazy(2, flaky(2, &[1, 2]));
    let mut dst = [7; 2];
    assert!(bytes.as_slice().unwrap_err().is_device_lost());
    assert!(bytes.copy_into(&mut dst).unwrap_err().is_device_lost());
    assert_eq!(dst, [7; 2]);
    bytes.copy_into(&mut dst).unwrap();
    assert_eq!(dst, [1, 2]);
}

#[cfg(feature = "std")]
#[test]
fn bytes_of_a_file_are_read_through_their_views() {
    let path = std::env::temp_dir().join(format!("trunnion-bytes-view-{}", std::process::id()));
    std::fs::write(&path, [1, 2, 3, 4, 5, 6]).unwrap();
    let bytes = Bytes::from_file(&path, 1, 5).unwrap();
    assert_eq!((bytes.len(), bytes.property()), (5, BytesProperty::File));
    let view = bytes.slice(1..3).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = view.as_slice().unwrap_err();
    assert!(matches!(&error, Error::File { path: named, .. } if *named == path.display().to_string()), "{error:?}");
    std::fs::write(&path, [0, 7, 8, 9, 5, 6]).unwrap();
    let read = view.to_vec::<u8>();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read.unwrap(), [8, 9]);
    assert_eq!(bytes.as_slice().unwrap(), [7, 8, 9, 5, 6]);
}

#[test]
fn debug_output_shows_the_kind_and_length_and_not_the_content() {
    let source = flaky(0, &[0; 4]);
    let bytes = Bytes::lazy(4, source.clone());
    assert_eq!(format!("{bytes:?}"), "Bytes { property: DeviceLazy, len: 4, .. }");
    assert_eq!(source.calls.load(Ordering::SeqCst), 0);
}
