//! Transfers: byte-exact at any size and place, in rows, through staging blocks and without.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{all, each, each_with, eventually, part};
use trunnion_backend_core::driver::Driver;
use trunnion_backend_cuda::{CudaOptions, CudaResource};
use trunnion_driver_rig::transfers::{self, counting};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::layout::Rows;

#[test]
fn writes_copies_and_reads_are_byte_exact_at_odd_sizes_and_places() {
    each(|rig| transfers::writes_copies_and_reads_are_byte_exact_at_odd_sizes_and_places(rig));
}

#[test]
fn rows_are_written_copied_and_read_and_the_gaps_between_them_stay() {
    each(|rig| transfers::rows_are_written_copied_and_read_and_the_gaps_between_them_stay(rig));
}

#[test]
fn many_rows_are_copied_in_one_call() {
    each_with(&CudaOptions::default(), |rig| {
        transfers::many_rows_are_copied_in_as_many_calls_as_it_takes(rig);
        assert_eq!(rig.device.calls("cuMemcpy2DAsync_v2").unwrap(), 2);
    });
}

#[test]
fn transfers_longer_than_a_staging_block_arrive_whole() {
    each_with(&CudaOptions::default(), |rig| transfers::transfers_longer_than_a_staging_block_arrive_whole(rig));
}

#[test]
fn fills_repeat_every_pattern_at_any_place() {
    each(|rig| transfers::fills_repeat_every_pattern_at_any_place(rig));
}

#[test]
fn memory_in_place_is_an_address_that_the_host_does_not_reach() {
    each(|rig| {
        let page = rig.page_of_bytes(&counting(300));
        // SAFETY: nothing else uses the page.
        let (reads, writes, outside) = unsafe {
            (
                rig.driver.grant(part(&page, 10, 100), Access::Read),
                rig.driver.grant(part(&page, 16, 8), Access::ReadWrite),
                rig.driver.grant(part(&page, page.size(), 1), Access::Read),
            )
        };
        assert!(reads.host.is_none() && !rig.driver.properties().features.host_visible);
        let reads = reads.resource.downcast::<CudaResource>().unwrap();
        let writes = writes.resource.downcast::<CudaResource>().unwrap();
        assert_eq!((reads.address(), reads.size(), reads.is_writable()), (page.address() + 10, 100, false));
        assert_eq!((writes.address(), writes.size(), writes.is_writable()), (page.address() + 16, 8, true));
        assert_eq!(reads.device(), rig.device.ordinal());
        assert!(!reads.context().is_null());
        assert!(outside.resource.downcast::<CudaResource>().is_err());
        // SAFETY: nothing is under way.
        assert!(!unsafe { rig.driver.write_now(&[7; 10], part(&page, 3, 10), &Rows::single(10)) });
        // The resource keeps the memory.
        let used = rig.device.memory_used().unwrap();
        rig.driver.release(page);
        drop(writes);
        assert_eq!(rig.device.memory_used().unwrap(), used);
        drop(reads);
        eventually("it is given back", || rig.device.memory_used().unwrap() < used);
    });
}

#[test]
fn page_locked_bytes_are_copied_from_where_they_are() {
    each(|rig| transfers::page_locked_bytes_are_copied_from_where_they_are(rig));
}

#[test]
fn places_and_lengths_that_do_not_fit_are_refused_and_encode_nothing() {
    each_with(&CudaOptions::default(), |rig| {
        transfers::places_and_lengths_that_do_not_fit_are_refused_and_encode_nothing(rig)
    });
}

#[test]
fn rows_at_distances_that_the_driver_refuses_are_copied_one_by_one() {
    each_with(&CudaOptions::default(), |rig| {
        let rows = Rows { row: 5, outer: vec![(20, 16)] };
        let source = rig.page_of_bytes(&counting(320));
        let target = rig.page_of_bytes(&[0; 320]);
        const INVALID_VALUE: u32 = 1;
        rig.device.fail("cuMemcpy2DAsync_v2", 1, INVALID_VALUE).unwrap();
        let mut stream = rig.driver.open_stream().unwrap();
        // SAFETY: the test waits before the pages are freed.
        unsafe { rig.driver.copy(&mut stream, 1, all(&source), &rows, all(&target), &rows) }.unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        assert!(rig.finish(&mut stream, 1).failed.is_empty());
        assert_eq!(rig.device.calls("cuMemcpyDtoDAsync_v2").unwrap(), 20);
        let mut expected = vec![0; 320];
        rows.for_each(|at| expected[at as usize..at as usize + 5].copy_from_slice(&counting(320)[at as usize..][..5]));
        assert_eq!(rig.read(part(&target, 0, 320)), expected);
        rig.driver.close_stream(stream);
    });
}
