//! What the transfers of every driver do: move every byte they are given, at any size and place, and none beside.

use crate::rig::{Rig, part};
use alloc::sync::Arc;
use core::fmt;
use trunnion_backend_core::driver::Driver;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Pattern;
use trunnion_runtime_core::staging::PinnedMemory;

/// Bytes that tell where they belong.
pub fn counting(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// How a backend fills memory is right for every pattern, place and size: `filled` makes 64 bytes of 0xEE, and fills some from an offset on.
pub fn fills_are_byte_exact_for_every_pattern_offset_and_size(filled: impl Fn(u64, u64, &[u8]) -> Vec<u8>) {
    let patterns: [&[u8]; 8] = [
        &[7],
        &[1, 2],
        &[1, 2, 3, 4],
        &[9; 4],
        &[1, 2, 3, 4, 1, 2, 3, 4],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[0; 16],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
    ];
    for pattern in patterns {
        for offset in 0..9 {
            for size in 0..40 {
                let mut expected = vec![0xEE; 64];
                for (i, byte) in expected[offset..offset + size].iter_mut().enumerate() {
                    *byte = pattern[i % pattern.len()];
                }
                let found = filled(offset as u64, size as u64, pattern);
                assert_eq!(found, expected, "{pattern:?} at {offset}, {size} bytes");
            }
        }
    }
}

/// What is written is copied and read to the byte, and nothing beside it is touched.
pub fn writes_copies_and_reads_are_byte_exact_at_odd_sizes_and_places<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let sizes = [0, 1, 3, 25, 63, 64, 65, 4097, 65_535, 65_536, 65_537, 70_001];
    for (size, offset) in sizes.into_iter().flat_map(|size| [0, 1, 2, 77].map(|offset| (size, offset))) {
        let (source, target) = (rig.page_of_bytes(&[0xEE; 80_000]), rig.page_of_bytes(&[0xDD; 80_000]));
        let bytes = counting(size as usize);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.write(&mut stream, 1, &bytes, part(&source, offset, size));
        rig.driver.barrier(&mut stream);
        let (from, to) = (part(&source, offset, size), part(&target, 3 + offset, size));
        rig.copy(&mut stream, 2, from, to);
        rig.driver.barrier(&mut stream);
        rig.driver.submit(&mut stream, 2).unwrap();
        assert!(rig.finish(&mut stream, 2).failed.is_empty());
        let start = (3 + offset) as usize;
        let mut expected = vec![0xDD; 80_000];
        expected[start..start + size as usize].copy_from_slice(&bytes);
        assert!(rig.read(part(&target, 0, 80_000)) == expected, "{size} bytes at {offset}");
        assert!(rig.read(to) == bytes, "{size} bytes at {offset}");
        rig.driver.close_stream(stream);
    }
}

/// Rows arrive in their places, at other distances too, and what lies between them stays.
pub fn rows_are_written_copied_and_read_and_the_gaps_between_them_stay<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    // 3 × 4 rows of 25 bytes, 32 apart and 200 apart; the same rows at other distances.
    let padded = Rows { row: 25, outer: vec![(3, 200), (4, 32)] };
    let spread = Rows { row: 25, outer: vec![(12, 50)] };
    let bytes = counting(300);
    let (a, b) = (rig.page_of_bytes(&[1; 1024]), rig.page_of_bytes(&[2; 1024]));
    let mut stream = rig.driver.open_stream().unwrap();
    rig.write_rows(&mut stream, 1, Bytes::copy_from_slice(&bytes), part(&a, 5, 600), &padded);
    rig.driver.barrier(&mut stream);
    rig.copy_rows(&mut stream, 2, (part(&a, 5, 600), &padded), (part(&b, 9, 600), &spread));
    rig.driver.submit(&mut stream, 2).unwrap();
    assert!(rig.finish(&mut stream, 2).failed.is_empty());
    let placed = |rows: &Rows, gap: u8, at: usize| {
        let (mut page, mut row) = (vec![gap; 1024], 0);
        rows.for_each(|offset| {
            let start = at + offset as usize;
            page[start..start + 25].copy_from_slice(&bytes[row..row + 25]);
            row += 25;
        });
        page
    };
    assert!(rig.read(part(&a, 0, 1024)) == placed(&padded, 1, 5));
    assert!(rig.read(part(&b, 0, 1024)) == placed(&spread, 2, 9));
    assert_eq!(rig.read_rows(part(&b, 9, 600), &spread), bytes);
    rig.driver.close_stream(stream);
}

/// Thousands of rows of a few bytes.
pub fn many_rows_are_copied_in_as_many_calls_as_it_takes<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let rows = Rows { row: 3, outer: vec![(5000, 7)] };
    let bytes = counting(15_000);
    let page = rig.page_of_bytes(&[9; 35_000]);
    let mut stream = rig.driver.open_stream().unwrap();
    rig.write_rows(&mut stream, 1, Bytes::copy_from_slice(&bytes), part(&page, 0, 35_000), &rows);
    rig.driver.submit(&mut stream, 1).unwrap();
    assert!(rig.finish(&mut stream, 1).failed.is_empty());
    assert!(rig.read_rows(part(&page, 0, 35_000), &rows) == bytes);
    rig.driver.close_stream(stream);
}

/// What is longer than any block it could go through.
pub fn transfers_longer_than_a_staging_block_arrive_whole<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let size = (16 << 20) + 4099;
    let bytes = counting(size);
    let page = rig.driver.allocate((size as u64).next_multiple_of(4096)).unwrap();
    let mut stream = rig.driver.open_stream().unwrap();
    for round in 1..=3 {
        rig.write(&mut stream, round, &bytes, part(&page, 0, size as u64));
        rig.driver.submit(&mut stream, round).unwrap();
        assert!(rig.finish(&mut stream, round).failed.is_empty());
    }
    assert!(rig.read(part(&page, 0, size as u64)) == bytes);
    rig.driver.close_stream(stream);
}

/// A fill begins its pattern at its first byte, wherever that is and whatever rest the last one has.
pub fn fills_repeat_every_pattern_at_any_place<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let patterns: [&[u8]; 6] = [
        &[5],
        &[1, 2],
        &[1, 2, 3, 4],
        &[0; 16],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6],
    ];
    for pattern in patterns {
        for (offset, size) in [(0, 256), (3, 25), (1, 2), (5, 0), (6, 90_000), (4, 65_536 + 24)] {
            let page = rig.page_of_bytes(&[0xEE; 100_000]);
            let mut stream = rig.driver.open_stream().unwrap();
            rig.fill(&mut stream, 1, part(&page, offset as u64, size as u64), pattern);
            rig.driver.submit(&mut stream, 1).unwrap();
            assert!(rig.finish(&mut stream, 1).failed.is_empty());
            let mut expected = vec![0xEE; 100_000];
            let filled = expected[offset..offset + size].iter_mut().enumerate();
            filled.for_each(|(i, byte)| *byte = pattern[i % pattern.len()]);
            assert!(rig.read(part(&page, 0, 100_000)) == expected, "{pattern:?}, {size} bytes at {offset}");
            rig.driver.close_stream(stream);
        }
    }
}

/// Page-locked bytes arrive, the driver's own and somebody else's, when nobody holds them any more.
pub fn page_locked_bytes_are_copied_from_where_they_are<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let mut memory = rig.driver.pin(1000).unwrap();
    memory.as_mut_slice().copy_from_slice(&counting(1000));
    struct Shared(Box<dyn PinnedMemory>);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            self.0.as_slice()
        }
    }
    let bytes = Bytes::from_pinned(Arc::new(Shared(memory)));
    // Page-locked, but by nobody this device knows.
    let foreign = Bytes::from_pinned(Arc::new(counting(1000)));
    for bytes in [bytes, foreign] {
        let page = rig.page_of_bytes(&[0; 512]);
        let mut stream = rig.driver.open_stream().unwrap();
        let part_of = bytes.slice(101..126).unwrap();
        rig.write_rows(&mut stream, 1, part_of, part(&page, 7, 25), &Rows::single(25));
        rig.driver.submit(&mut stream, 1).unwrap();
        drop(bytes);
        assert!(rig.finish(&mut stream, 1).failed.is_empty());
        assert_eq!(rig.read(part(&page, 7, 25)), counting(1000)[101..126]);
        rig.driver.close_stream(stream);
    }
}

/// What does not fit is refused with the range or the lengths, and the stream goes on as if it had not been asked.
pub fn places_and_lengths_that_do_not_fit_are_refused_and_encode_nothing<D: Driver>(rig: &mut Rig<D>)
where
    D::Stream: fmt::Debug,
{
    let size = 256_u64.next_multiple_of(rig.driver.page_alignment()).max(rig.fewest);
    let page = rig.page_of_bytes(&[3; 256]);
    let mut stream = rig.driver.open_stream().unwrap();
    // The page has as many bytes as were asked for, or more.
    let outside = part(&page, size - 8, 16);
    let (rows, long) = (Rows::single(16), Rows::single(32));
    // As many bytes as are given, the last of which lie outside the place.
    let wide = Rows { row: 8, outer: vec![(2, 57)] };
    let bytes = Bytes::copy_from_slice(&[0_u8; 16]);
    let zeros = || HostBuffer::zeroed(16).unwrap();
    // SAFETY: none of these is encoded.
    let refused = unsafe {
        [
            rig.driver.write(&mut stream, 1, bytes.clone(), outside, &rows),
            rig.driver.write(&mut stream, 1, bytes.clone(), part(&page, 0, 16), &long),
            rig.driver.write(&mut stream, 1, bytes.clone(), part(&page, 0, 64), &long),
            rig.driver.write(&mut stream, 1, bytes, part(&page, 0, 64), &wide),
            rig.driver.read(&mut stream, 1, 0, part(&page, 0, 64), &wide, zeros()),
            rig.driver.copy(&mut stream, 1, part(&page, 0, 64), &wide, part(&page, 64, 16), &rows),
            rig.driver.copy(&mut stream, 1, part(&page, 64, 16), &rows, part(&page, 0, 64), &wide),
            rig.driver.read(&mut stream, 1, 0, outside, &rows, zeros()),
            rig.driver.read(&mut stream, 1, 0, part(&page, 0, 256), &long, zeros()),
            rig.driver.copy(&mut stream, 1, outside, &rows, part(&page, 0, 16), &rows),
            rig.driver.copy(&mut stream, 1, part(&page, 0, 32), &long, part(&page, 64, 16), &rows),
            rig.driver.fill(&mut stream, 1, outside, Pattern::new(&[1]).unwrap()),
            rig.driver.fill(&mut stream, 1, part(&page, u64::MAX, 2), Pattern::new(&[1]).unwrap()),
        ]
    };
    for (i, answer) in refused.into_iter().enumerate() {
        assert!(matches!(answer, Err(Error::OutOfRange { .. } | Error::WrongLength { .. })), "call {i}: {answer:?}");
    }
    rig.driver.submit(&mut stream, 1).unwrap();
    assert!(rig.finish(&mut stream, 1).failed.is_empty());
    assert_eq!(rig.read(part(&page, 0, 256)), [3; 256]);
    rig.driver.close_stream(stream);
}
