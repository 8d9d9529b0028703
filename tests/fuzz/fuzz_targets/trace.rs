//! A trace of a device's memory: its text form, lifetimes, or a log of RMM. What is read is written as text that is read as the same, is
//! replayed on its own pools and on small ones whose pages grow, with sums that agree, and is drawn; what is damaged is refused with its line.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use trunnion::memory_pools::PoolsConfig;
use trunnion::memory_pools::trace::{MemoryMap, Picture, Trace, replay};
use trunnion::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion::report::MemoryReport;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let (recovered, damage) = Trace::recover(text);
    there_and_back(&recovered);
    let readers = [Trace::parse, Trace::from_lifetimes, Trace::from_rmm_log, Trace::from_text];
    let read = readers.map(|read| read(text));
    if let Ok(trace) = &read[0] {
        assert_eq!((trace, &damage), (&recovered, &None));
    }
    for answer in &read {
        match answer {
            Ok(trace) => {
                there_and_back(trace);
                run(trace);
            }
            Err(error) => {
                assert!(error.line <= text.split('\n').count() + 1, "line {}", error.line);
                assert!(error.to_string().len() < 1024, "{error}");
            }
        }
    }
    Corpus::Keep
});

fn there_and_back(trace: &Trace) {
    let written = trace.to_string();
    match Trace::parse(&written) {
        Ok(again) => assert_eq!(&again, trace, "through {written}"),
        Err(error) => panic!("a trace is written as text that is not one: {error}\n{written}"),
    }
}

fn run(trace: &Trace) {
    let (budget, growth_step) = (Some(1 << 20), Some(4096));
    let small = PoolsConfig { budget, layout: every_kind(), growth_step, ..PoolsConfig::default() };
    for config in [trace.pools.clone().unwrap_or_default(), small] {
        let report = replay(trace, &config);
        assert_eq!(report.curve.len(), trace.events.len());
        assert!(report.peak_reserved >= report.peak_live);
        assert!(config.budget.is_none_or(|budget| report.peak_reserved <= budget));
        for pools in [&report.peak.report, &report.end] {
            pools.pools.iter().for_each(|pool| assert_eq!(pool.reserved, pool.live + pool.padding + pool.free));
        }
        sums_agree(&report.peak.map, &report.peak.report);
        assert_eq!(report.peak.report.total().live, report.peak_live);
        assert!(!report.to_string().is_empty());
        assert!(Picture::of("fuzz", &report).to_string().ends_with("</svg>\n"));
    }
}

/// The pages and the blocks of the map add up to what the pools report, pool by pool.
fn sums_agree(map: &MemoryMap, report: &MemoryReport) {
    for pool in &report.pools {
        let mut sums = [0; 5];
        for page in map.pages.iter().filter(|page| page.pool == pool.name) {
            let padding = page.blocks.iter().map(|block| block.padding).sum();
            let of_page = [1, page.size, page.live(), padding, page.free()];
            sums.iter_mut().zip(of_page).for_each(|(sum, of_page)| *sum += of_page);
        }
        assert_eq!(sums, [pool.pages, pool.reserved, pool.live, pool.padding, pool.free], "{}", pool.name);
    }
}

/// A pool of every kind, with small pages.
fn every_kind() -> PoolLayout {
    let pages = PageSizes::growing(4096, 65536, 12);
    let pools = vec![
        PoolDescription::slabs("slots", 300, pages),
        PoolDescription::new("linear", Placement::Linear, pages).up_to(2000),
        PoolDescription::new("fit", Placement::Fit, pages).up_to(20_000),
        PoolDescription::new("exclusive", Placement::Exclusive, pages),
    ];
    PoolLayout::new(pools).unwrap()
}
