//! What replays say.

use super::*;
use crate::trace::{MappedBlock, MappedPage, Writer};
use alloc::format;
use alloc::string::String;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::PoolKind;

const KIB: u64 = 1 << 10;

fn config() -> PoolsConfig {
    laid_out(alloc::vec![PoolDescription::new("general", Placement::Fit, PageSizes::growing(64 * KIB, 256 * KIB, 12))])
}

fn laid_out(pools: Vec<PoolDescription>) -> PoolsConfig {
    PoolsConfig { layout: PoolLayout::new(pools).unwrap(), ..PoolsConfig::default() }
}

/// A pool of every kind; what is larger has memory of its own.
fn every_kind() -> PoolsConfig {
    laid_out(alloc::vec![
        PoolDescription::slabs("tiny things", 700, PageSizes::fixed(4 * KIB)),
        PoolDescription::new("steps", Placement::Linear, PageSizes::fixed(64 * KIB)).up_to(4 * KIB),
        PoolDescription::new("middle", Placement::Fit, PageSizes::growing(64 * KIB, 256 * KIB, 12)).up_to(32 * KIB),
        PoolDescription::new("large", Placement::Exclusive, PageSizes::growing(64 * KIB, 1 << 20, 0)),
    ])
}

fn trace(events: &str) -> Trace {
    let count = events.lines().count();
    Trace::parse(&format!("trunnion-memory-trace 1\n{events}\nend {count}\n")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn peaks_are_those_of_the_trace_and_the_curve_has_every_event() {
    let trace = trace("alloc 0 1000 s1 auto\nalloc 1 2000 s1 auto\nfree 0\nalloc 2 500 s1 auto\nfree 1\nfree 2");
    let report = replay(&trace, &config());
    assert_eq!((report.requests, report.frees, report.failed), (3, 3, 0));
    assert_eq!((report.peak_live, report.peak_reserved), (3000, 64 * KIB));
    let live: Vec<_> = report.curve.iter().map(|sample| sample.live).collect();
    assert_eq!(live, [1000, 3000, 2000, 2500, 500, 0]);
    assert_eq!((report.peak.event, report.peak.report.total().live), (1, 3000));
    assert_eq!(report.end.total().peak_live, 3000);
    assert!((report.waste() - (1.0 - 3000.0 / 65536.0)).abs() < 1e-12);
    assert_eq!(report.curve[1].lost(), 64 * KIB - 3000);
}

#[test]
fn freed_memory_is_used_again_only_where_the_run_could() {
    // The first free waits for stream 1: stream 1 may have it, stream 2 may not, until it is done or waited for.
    let busy = "alloc 0 65536 s1 auto\nfree 0 s1@7\n";
    for (then, pages) in [
        ("alloc 1 65536 s1 auto", 1),
        ("alloc 1 65536 s2 auto", 2),
        ("done s1@7\nalloc 1 65536 s2 auto", 1),
        ("done s1@6\nalloc 1 65536 s2 auto", 2),
        ("done all@7\nalloc 1 65536 s2 auto", 1),
        ("order s2 s1@7\nalloc 1 65536 s2 auto", 1),
        ("order s3 s1@7\nalloc 1 65536 s2 auto", 2),
        ("order s2 s1@6\nalloc 1 65536 s2 auto", 2),
    ] {
        assert_eq!(replay(&trace(&format!("{busy}{then}")), &config()).pages_taken, pages, "{then}");
    }
}

#[test]
fn a_request_that_has_to_wait_is_counted_and_served() {
    let config = PoolsConfig { budget: Some(64 * KIB), ..config() };
    let trace = trace("alloc 0 65536 s1 auto\nfree 0 s1@7\nalloc 1 65536 s2 auto\nalloc 2 1 s2 auto");
    let report = replay(&trace, &config);
    assert_eq!((report.waits, report.failed, report.peak_reserved), (1, 1, 64 * KIB));
    let [failure] = &report.failures[..] else { panic!("{report:?}") };
    assert_eq!((failure.event, failure.number, failure.size), (3, 2, 1));
    assert!(failure.cause.contains("over the budget") && failure.cause.contains("budget 65536"), "{}", failure.cause);
}

#[test]
fn a_request_that_was_refused_is_made_again_and_freed() {
    let trace = trace("fail 0 1000 s1 auto \"no\"\nalloc 1 1 s1 auto\nfree 0\nfree 1");
    let report = replay(&trace, &config());
    assert_eq!((report.refused_before, report.failed, report.peak_live), (1, 0, 1001));
    assert_eq!(report.end.total().live, 0);
    let small = replay(&trace, &PoolsConfig { max_allocation: 999, ..config() });
    assert_eq!((small.failed, small.peak_live), (1, 1));
    assert!(small.failures[0].cause.contains("999"), "{}", small.failures[0].cause);
}

#[test]
fn modes_go_to_their_pools_and_a_clean_up_gives_back_what_is_free() {
    let trace =
        trace("alloc 0 5000 s1 persistent\nalloc 1 5000 s1 dedicated\nalloc 2 5000 s1 auto\nfree 0\nfree 2\ncleanup");
    let report = replay(&trace, &config());
    let kinds: Vec<_> = report.end.pools.iter().map(|pool| (pool.kind, pool.peak_live, pool.reserved)).collect();
    let expected = [(PoolKind::General, 5000, 0), (PoolKind::Dedicated, 5000, 5120), (PoolKind::Persistent, 5000, 0)];
    assert_eq!(kinds, expected);
    assert_eq!((report.pages_taken, report.pages_returned), (3, 2));
}

#[test]
fn dedicated_memory_goes_back_once_its_work_is_done() {
    let trace = trace("alloc 0 5000 s1 dedicated\nfree 0 s1@3\nmark \"busy\"\ndone s1@3");
    let report = replay(&trace, &config());
    let reserved: Vec<_> = report.curve.iter().map(|sample| sample.reserved).collect();
    assert_eq!(reserved, [5120, 5120, 5120, 0]);
}

#[test]
fn the_map_has_every_live_block_where_the_pools_have_it() {
    let trace = trace(
        "alloc 0 1000 s1 auto\nalloc 1 2000 s2 auto\nalloc 2 300000 s1 auto\nalloc 3 0 s1 auto\nfree 0\nalloc 4 100 s1 persistent",
    );
    let map = Replay::until(&trace, &config(), u64::MAX - 1).map();
    let sizes: Vec<_> = map.pages.iter().map(|page| (page.number, page.kind, page.size)).collect();
    let expected =
        [(0, PoolKind::General, 64 * KIB), (1, PoolKind::Dedicated, 300_032), (2, PoolKind::Persistent, 256)];
    assert_eq!(sizes, expected);
    let block = map.pages[0].blocks[0];
    assert_eq!((map.pages[0].blocks.len(), block.request, block.size, block.padding), (1, 1, 2000, 48));
    assert_eq!((map.pages[0].live(), map.pages[0].free()), (2000, 64 * KIB - 2048));
    let live: u64 = map.pages.iter().map(|page| page.live()).sum();
    assert_eq!(live, replay(&trace, &config()).end.total().live);
}

/// The pages and the blocks of the map add up to what the pools report, pool by pool.
fn sums_agree(map: &MemoryMap, report: &MemoryReport) {
    for pool in &report.pools {
        let of = |page: &&MappedPage| page.pool == pool.name;
        let sum = |what: fn(&MappedPage) -> u64| map.pages.iter().filter(of).map(what).sum::<u64>();
        assert!(map.pages.iter().filter(of).all(|page| page.kind == pool.kind), "{}", pool.name);
        let padding = |page: &MappedPage| page.blocks.iter().map(|block| block.padding).sum();
        let mapped = [sum(|_| 1), sum(|page| page.size), sum(MappedPage::live), sum(padding), sum(MappedPage::free)];
        assert_eq!(mapped, [pool.pages, pool.reserved, pool.live, pool.padding, pool.free], "{}", pool.name);
    }
    let pages: u64 = report.pools.iter().map(|pool| pool.pages).sum();
    assert_eq!(map.pages.len() as u64, pages, "a page of a pool that is not reported");
    for page in &map.pages {
        let ends = page.blocks.iter().map(|block| block.offset + block.size + block.padding);
        let begins = page.blocks.iter().map(|block| block.offset).skip(1).chain([page.size]);
        assert!(ends.zip(begins).all(|(end, begin)| end <= begin), "blocks overlap: {page:?}");
    }
}

#[test]
fn pages_of_every_kind_of_pool_are_mapped_with_the_padding_the_pool_has() {
    let trace = trace(
        "alloc 0 100 s1 auto\nalloc 1 300 s1 auto\nalloc 2 1000 s1 auto\nalloc 3 2000 s1 auto\nalloc 4 20000 s1 auto\n\
         alloc 5 140000 s1 auto\nalloc 6 2000000 s1 auto\nalloc 7 300 s1 persistent\nfree 2",
    );
    let map = Replay::until(&trace, &every_kind(), u64::MAX - 1).map();
    let pages: Vec<_> = map
        .pages
        .iter()
        .map(|page| {
            // Where in a page of any sizes a block fits best is not known here.
            let offset = |block: &MappedBlock| if page.kind == PoolKind::General { 0 } else { block.offset };
            let blocks: Vec<_> = page.blocks.iter().map(|block| (offset(block), block.padding)).collect();
            (page.pool.as_str(), page.kind, page.size, blocks)
        })
        .collect();
    let expected = [
        // Slots of 700 bytes, of which the pages and the offsets make 768.
        ("tiny things", PoolKind::Slabs, 3840, alloc::vec![(0, 668), (768, 468)]),
        // What was freed is not used again before the page is.
        ("steps", PoolKind::Linear, 64 * KIB, alloc::vec![(1024, 48)]),
        ("middle", PoolKind::General, 64 * KIB, alloc::vec![(0, 224)]),
        // Rounded up to an eighth of a power of two.
        ("large", PoolKind::Exclusive, 144 * KIB, alloc::vec![(0, 144 * KIB - 140_000)]),
        ("dedicated", PoolKind::Dedicated, 2_000_128, alloc::vec![(0, 128)]),
        ("persistent", PoolKind::Persistent, 512, alloc::vec![(0, 212)]),
    ];
    assert_eq!(pages, expected);
    sums_agree(&map, &Replay::until(&trace, &every_kind(), u64::MAX - 1).report());
}

#[test]
fn the_map_agrees_with_the_report_at_every_event_whatever_the_layout() {
    let trace = Trace::parse(&seeded_with(7, 300, 40, 14)).unwrap();
    let presets = [PoolLayout::adaptive(), PoolLayout::slabs(), PoolLayout::exclusive()];
    let presets = presets.map(|layout| PoolsConfig { layout, ..PoolsConfig::default() });
    for config in presets.into_iter().chain([every_kind(), PoolsConfig { budget: Some(512 * KIB), ..every_kind() }]) {
        let mut replay = Replay::new(&trace, &config);
        while replay.advance() {
            sums_agree(&replay.map(), &replay.report());
        }
        let report = super::replay(&trace, &config);
        sums_agree(&report.peak.map, &report.peak.report);
    }
}

#[test]
fn labels_stand_where_they_stand_in_the_trace() {
    let trace =
        trace("mark \"one\"\nalloc 0 1 s1 auto\nsnapshot allocations:1 live:1 padding:255 reserved:65536 \"two\"");
    let report = replay(&trace, &config());
    let labels: Vec<_> = report.labels.iter().map(|label| (label.event, label.text.as_str())).collect();
    assert_eq!(labels, [(0, "one"), (2, "two")]);
    let recorded = report.labels[1].recorded.unwrap();
    assert_eq!((recorded.live, recorded.reserved), (report.curve[2].live, report.curve[2].reserved));
}

#[test]
fn a_trace_of_impossible_sizes_fails_request_by_request() {
    let lines: Vec<_> = (0..9000).map(|i| format!("alloc {i} 281474976710656 s1 dedicated")).collect();
    let report = replay(&trace(&lines.join("\n")), &PoolsConfig::default());
    assert_eq!((report.peak_live, report.failed), (1 << 60, 9000 - 4096));
    assert_eq!(report.failures.len(), ReplayReport::FAILURES);
    assert!(report.to_string().ends_with("and 4804 more"), "{report}");
}

#[test]
fn an_empty_trace_has_an_empty_report() {
    let report = replay(&Trace::default(), &PoolsConfig::default());
    assert_eq!((report.peak_live, report.peak_reserved, report.curve.len()), (0, 0, 0));
    assert!(report.waste() == 0.0 && report.to_string().contains("0 requests"), "{report}");
}

#[test]
fn the_report_prints_the_numbers_and_both_tables() {
    let trace = trace("alloc 0 1000 s1 auto\nfail 1 999999 s1 auto \"no\"\nfree 0");
    let text = replay(&trace, &PoolsConfig { budget: Some(64 * KIB), ..config() }).to_string();
    for part in [
        "3 events: 2 requests, 1 frees, 0 waits, 1 failed",
        "peak live           1000 B  (1000 bytes)",
        "peak reserved      8.0 KiB  (8192 bytes)",
        "where most was live, after event 0",
        "at the end:",
        "1 requests were refused when the trace was recorded",
        "event 1: request 1, 999999 bytes, auto, stream 1: over the budget",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("persistent ")).count(), 2, "{text}");
}

#[cfg(feature = "serde")]
#[test]
fn a_report_can_be_serialised() {
    let report = replay(&trace("alloc 0 1000 s1 auto\nmark \"x\"\nalloc 1 999999999999 s1 auto"), &config());
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<ReplayReport>(&text).unwrap(), report);
}

#[test]
fn a_replay_can_be_stopped_at_any_event() {
    let trace = trace("alloc 0 1000 s1 auto\nalloc 1 2000 s1 auto\nfree 0");
    let mut replay = Replay::new(&trace, &config());
    let mut live = Vec::new();
    while replay.advance() {
        live.push(replay.usage().live);
    }
    assert_eq!(live, [1000, 3000, 2000]);
    assert_eq!(Replay::until(&trace, &config(), 1).usage().live, 3000);
    assert!(!replay.advance() && format!("{replay:?}").contains("left: 0"));
}

/// The seeded trace that allocators are compared with: at most 1,000 blocks are live, of 256 B to 64 MiB.
fn seeded(seed: u64) -> String {
    seeded_with(seed, 10_000, 1000, 18)
}

/// So many steps, with so many blocks live at most, in so many powers of two.
fn seeded_with(seed: u64, steps: usize, most: usize, powers: u64) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    };
    let mut writer = Writer::new(String::new());
    let mut live = Vec::new();
    for _ in 0..steps {
        if live.len() >= most {
            let index = (next() % live.len() as u64) as usize;
            writer.free(live.swap_remove(index), &Frontier::new());
        } else {
            let base = 1 << (8 + next() % powers);
            let size = base + next() % base;
            live.push(writer.request(size, StreamId::from_raw(1), AllocationMode::Auto, None));
        }
    }
    writer.end();
    writer.into_sink()
}

#[test]
fn the_seeded_trace_has_the_peaks_it_is_known_for() {
    for (seed, tenths) in [(1, 58930), (42, 60754), (0x5EED, 65619)] {
        let trace = Trace::parse(&seeded(seed)).unwrap();
        let report = replay(&trace, &PoolsConfig::default());
        assert_eq!((report.failed, (report.peak_live * 10 + (1 << 19)) / (1 << 20)), (0, tenths));
        assert!(report.waste() < 0.25, "{}", report.waste());
    }
}
