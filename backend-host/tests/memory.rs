//! Moving bytes, through one memory and through two, and reaching them in place.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Rig, all, host, part};
use trunnion_backend_core::driver::Driver;
use trunnion_backend_host::{HostOptions, HostResource, LimitOptions};
use trunnion_driver_rig::transfers::{self, counting};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::layout::Rows;

/// Both ways a device can have its memory.
fn each(test: fn(&mut Rig)) {
    for separate in [false, true] {
        test(&mut host(HostOptions::default().separate_memory(separate)));
    }
}

#[test]
fn writes_copies_and_reads_are_byte_exact_at_odd_sizes_and_places() {
    each(transfers::writes_copies_and_reads_are_byte_exact_at_odd_sizes_and_places);
}

#[test]
fn rows_are_written_copied_and_read_and_the_gaps_between_them_stay() {
    each(transfers::rows_are_written_copied_and_read_and_the_gaps_between_them_stay);
}

#[test]
fn many_rows_are_copied_in_as_many_calls_as_it_takes() {
    each(transfers::many_rows_are_copied_in_as_many_calls_as_it_takes);
}

#[test]
fn transfers_longer_than_a_staging_block_arrive_whole() {
    each(transfers::transfers_longer_than_a_staging_block_arrive_whole);
}

#[test]
fn fills_repeat_every_pattern_at_any_place() {
    each(transfers::fills_repeat_every_pattern_at_any_place);
}

#[test]
fn page_locked_bytes_are_copied_from_where_they_are() {
    let pinned = LimitOptions { pinned_memory: Some(1 << 20), ..LimitOptions::default() };
    transfers::page_locked_bytes_are_copied_from_where_they_are(&mut host(HostOptions::default().limits(pinned)));
}

#[test]
fn places_and_lengths_that_do_not_fit_are_refused_and_encode_nothing() {
    each(transfers::places_and_lengths_that_do_not_fit_are_refused_and_encode_nothing);
}

#[test]
fn large_copies_and_fills_are_whole_on_however_many_threads() {
    for threads in [0, 1, 2] {
        let mut rig = host(HostOptions::default().threads(threads));
        let size = (5 << 20) + 64;
        let (a, b) = (rig.driver.allocate(size).unwrap(), rig.driver.allocate(size).unwrap());
        let bytes = counting(size as usize - 3);
        let rows = Rows::single(size - 3);
        let mut stream = rig.driver.open_stream().unwrap();
        rig.write(&mut stream, 1, &bytes, part(&a, 0, size - 3));
        rig.copy_rows(&mut stream, 1, (all(&a), &rows), (all(&b), &rows));
        rig.fill(&mut stream, 1, all(&a), &[1, 2, 3, 4]);
        rig.driver.submit(&mut stream, 1).unwrap();
        assert!(rig.finish(&mut stream, 1).failed.is_empty());
        assert!(rig.read(part(&b, 0, size - 3)) == bytes);
        assert!(rig.read(all(&a)).chunks(4).all(|four| four == [1, 2, 3, 4]));
    }
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
