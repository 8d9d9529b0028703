//! Moving bytes, through one memory and through two, and reaching them in place.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Rig, all, host, part};
use trunnion_backend_core::driver::{Driver, Place};
use trunnion_backend_host::{HostOptions, HostPage, HostResource, HostStream};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Pattern;

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// Both ways a device can have its memory.
fn rigs() -> [Rig; 2] {
    [false, true].map(|separate| host(HostOptions::default().separate_memory(separate)))
}

fn copy(
    rig: &mut Rig,
    stream: &mut HostStream,
    source: (Place<'_, HostPage>, &Rows),
    target: (Place<'_, HostPage>, &Rows),
) -> Result<(), Error> {
    // SAFETY: each test waits for the stream before it goes on.
    unsafe { rig.driver.copy(stream, 1, source.0, source.1, target.0, target.1) }
}

#[test]
fn what_is_written_is_read_at_every_size_and_offset() {
    for mut rig in rigs() {
        let page = rig.driver.allocate(3 << 20).unwrap();
        for size in [0, 1, 25, 4096, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 200_003, (2 << 20) + 777] {
            for offset in [0, 1, 64] {
                let bytes = numbers(size);
                let mut stream = rig.driver.open_stream().unwrap();
                rig.write(&mut stream, 1, &bytes, part(&page, offset, size as u64));
                rig.driver.submit(&mut stream, 1).unwrap();
                assert!(rig.finish(&mut stream, 1).failed.is_empty());
                assert!(rig.read(part(&page, offset, size as u64)) == bytes, "{size} bytes at {offset}");
            }
        }
    }
}

#[test]
fn rows_are_written_copied_and_read_with_their_gaps_left_alone() {
    for mut rig in rigs() {
        let (a, b) = (rig.driver.allocate(1 << 20).unwrap(), rig.driver.allocate(1 << 20).unwrap());
        let padded = Rows { row: 100, outer: vec![(7, 20_000), (9, 128)] };
        let other = Rows { row: 900, outer: vec![(7, 1024)] };
        let bytes = numbers(6300);
        let mut stream = rig.driver.open_stream().unwrap();
        // SAFETY: the test waits for the stream before it goes on.
        unsafe {
            rig.driver.fill(&mut stream, 1, all(&a), Pattern::new(&[9]).unwrap()).unwrap();
            rig.driver.fill(&mut stream, 1, all(&b), Pattern::new(&[8, 7]).unwrap()).unwrap();
            rig.driver.write(&mut stream, 1, Bytes::from_vec(bytes.clone()), all(&a), &padded).unwrap();
        }
        copy(&mut rig, &mut stream, (all(&a), &padded), (all(&b), &other)).unwrap();
        let into = HostBuffer::zeroed(6300).unwrap();
        // SAFETY: as above.
        unsafe { rig.driver.read(&mut stream, 1, 5, all(&b), &other, into) }.unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        let outcome = rig.finish(&mut stream, 1);
        assert_eq!(outcome.read[0].1, 5);
        assert!(outcome.read[0].2.as_slice() == bytes);
        let mut expected = vec![9; 1 << 20];
        let mut at = 0;
        padded.for_each(|row| {
            expected[row as usize..row as usize + 100].copy_from_slice(&bytes[at..at + 100]);
            at += 100;
        });
        assert!(rig.read(all(&a)) == expected);
        let b = rig.read(all(&b));
        assert_eq!((&b[..900], &b[900..904], &b[1020..1024]), (&bytes[..900], &[8, 7, 8, 7][..], &[8, 7, 8, 7][..]));
    }
}

#[test]
fn large_copies_and_fills_are_whole_on_however_many_threads() {
    for threads in [0, 1, 2] {
        let mut rig = host(HostOptions::default().threads(threads));
        let size = (5 << 20) + 64;
        let (a, b) = (rig.driver.allocate(size).unwrap(), rig.driver.allocate(size).unwrap());
        let bytes = numbers(size as usize - 3);
        let rows = Rows::single(size - 3);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.write(&mut stream, 1, &bytes, part(&a, 0, size - 3));
        copy(&mut rig, &mut stream, (all(&a), &rows), (all(&b), &rows)).unwrap();
        // SAFETY: the test waits for the stream before it goes on.
        unsafe { rig.driver.fill(&mut stream, 1, all(&a), Pattern::new(&[1, 2, 3, 4]).unwrap()) }.unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        assert!(rig.finish(&mut stream, 1).failed.is_empty());
        assert!(rig.read(part(&b, 0, size - 3)) == bytes);
        assert!(rig.read(all(&a)).chunks(4).all(|four| four == [1, 2, 3, 4]));
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_encoded() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[3; 16]);
    let mut stream = rig.driver.open_stream().unwrap();
    let rows = Rows::single(8);
    let wide = Rows { row: 4, outer: vec![(2, 61)] };
    // SAFETY: nothing is encoded.
    unsafe {
        let refused = rig.driver.write(&mut stream, 1, Bytes::from_vec(vec![0; 7]), all(&page), &rows);
        assert!(matches!(refused, Err(Error::WrongLength { got: 7, expected: 8, .. })), "{refused:?}");
        let refused = rig.driver.write(&mut stream, 1, Bytes::from_vec(vec![0; 8]), all(&page), &wide);
        assert!(matches!(refused, Err(Error::OutOfRange { size: 64, .. })), "{refused:?}");
        let refused = rig.driver.read(&mut stream, 1, 0, part(&page, 60, 8), &rows, HostBuffer::zeroed(8).unwrap());
        assert!(matches!(refused, Err(Error::OutOfRange { size: 64, .. })), "{refused:?}");
        let refused = rig.driver.fill(&mut stream, 1, part(&page, u64::MAX, 8), Pattern::new(&[0]).unwrap());
        assert!(matches!(refused, Err(Error::OutOfRange { size: 64, .. })), "{refused:?}");
    }
    let refused = copy(&mut rig, &mut stream, (all(&page), &rows), (all(&page), &Rows::single(9)));
    assert!(matches!(refused, Err(Error::WrongLength { got: 8, expected: 9, .. })), "{refused:?}");
    rig.driver.submit(&mut stream, 1).unwrap();
    rig.finish(&mut stream, 1);
    assert_eq!(rig.read_u32(all(&page)), [3; 16]);
}

#[test]
fn a_grant_reaches_the_bytes_in_place() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[5; 16]);
    // SAFETY: the page outlives the grant, and nothing runs.
    let grant = unsafe { rig.driver.grant(part(&page, 16, 16), Access::ReadWrite) };
    let host = grant.host.unwrap();
    host.write(4, &7_u32.to_ne_bytes());
    let resource = grant.resource.downcast::<HostResource>().unwrap();
    assert_eq!((resource.size(), resource.is_writable()), (16, true));
    // SAFETY: inside the range, aligned, granted for reading and writing, and nothing else runs.
    unsafe { resource.pointer().cast::<u32>().write(9) };
    assert_eq!(rig.read_u32(part(&page, 12, 16)), [5, 9, 7, 5]);
}
