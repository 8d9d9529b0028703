//! Transfers: byte-exact at any size and place, in rows, through staging blocks and without.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{each, each_with, part};
use trunnion_backend_core::driver::Driver;
use trunnion_backend_vulkan::{VulkanOptions, VulkanResource};
use trunnion_driver_rig::transfers::{self, counting};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::layout::Rows;

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
    each_with(&VulkanOptions::default().staging(true), transfers::many_rows_are_copied_in_as_many_calls_as_it_takes);
}

#[test]
fn transfers_longer_than_a_staging_block_arrive_whole() {
    each_with(&VulkanOptions::default().staging(true), transfers::transfers_longer_than_a_staging_block_arrive_whole);
}

#[test]
fn fills_repeat_every_pattern_at_any_place() {
    each(transfers::fills_repeat_every_pattern_at_any_place);
}

#[test]
fn short_writes_happen_at_once_exactly_where_the_host_reaches_the_memory() {
    each(|rig| {
        let page = rig.page_of_bytes(&[1; 256]);
        let rows = Rows { row: 5, outer: vec![(2, 10)] };
        let visible = rig.driver.properties().features.host_visible;
        // SAFETY: nothing is under way.
        let written = unsafe { rig.driver.write_now(&[7; 10], part(&page, 3, 20), &rows) };
        assert_eq!(written, visible);
        let mut expected = [1; 256];
        if written {
            expected[3..8].fill(7);
            expected[13..18].fill(7);
        }
        assert_eq!(rig.read(part(&page, 0, 256)), expected);
        // SAFETY: as above.
        assert!(!unsafe { rig.driver.write_now(&[7; 10], part(&page, 250, 10), &Rows::single(10)) });
    });
}

#[test]
fn memory_in_place_is_read_and_written_where_the_host_reaches_it() {
    each(|rig| {
        let page = rig.page_of_bytes(&counting(300));
        // SAFETY: nothing else uses the page.
        let (reads, writes) = unsafe {
            (
                rig.driver.grant(part(&page, 10, 100), Access::Read),
                rig.driver.grant(part(&page, 10, 100), Access::ReadWrite),
            )
        };
        let resource = reads.resource.downcast::<VulkanResource>().unwrap();
        assert_eq!((resource.offset(), resource.size(), resource.is_writable()), (10, 100, false));
        assert_eq!((resource.buffer(), resource.memory()), (page.buffer(), page.memory()));
        assert_eq!(reads.host.is_some(), rig.driver.properties().features.host_visible);
        let (Some(reads), Some(writes)) = (reads.host, writes.host) else { return };
        let mut bytes = [0; 20];
        reads.read(5, &mut bytes);
        assert_eq!(bytes, counting(300)[15..35]);
        reads.write(5, &[0xAA; 20]);
        writes.write(90, &[0xAA; 20]);
        writes.write(0, &[0xBB; 2]);
        reads.read(90, &mut [0; 20]);
        let mut expected = counting(300);
        expected[10..12].fill(0xBB);
        assert_eq!(rig.read(part(&page, 0, 300)), expected);
    });
}

#[test]
fn page_locked_bytes_are_copied_from_where_they_are() {
    each(transfers::page_locked_bytes_are_copied_from_where_they_are);
}

#[test]
fn places_and_lengths_that_do_not_fit_are_refused_and_encode_nothing() {
    each_with(&VulkanOptions::default(), transfers::places_and_lengths_that_do_not_fit_are_refused_and_encode_nothing);
}
