//! Pictures: well-formed, bounded, and showing what there is.

use super::*;
use crate::policy::PoolsConfig;
use crate::trace::{Replay, Trace, replay};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use trunnion_runtime_core::pool_layout::PoolLayout;

fn trace(lines: impl IntoIterator<Item = String>) -> Trace {
    let lines: Vec<_> = lines.into_iter().collect();
    Trace::parse(&format!("trunnion-memory-trace 1\n{}\nend {}\n", lines.join("\n"), lines.len())).unwrap()
}

/// Every element is closed in its turn, every attribute quoted, every number finite.
fn is_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, after) = piece.split_once('>').unwrap_or_else(|| panic!("no end of <{piece}"));
        assert!(!after.contains('>'), "a stray bracket after <{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(!tag.contains("NaN") && !tag.contains("inf") && !tag.contains("=\"-"), "{tag}");
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name)),
            (_, true) => {}
            _ => open.push(name),
        }
        let quotes = tag.matches('"').count();
        assert!(quotes % 2 == 0 && tag.matches("=\"").count() * 2 == quotes, "{tag}");
    }
    assert!(open.is_empty() && svg.ends_with("</svg>\n"), "{open:?}");
}

#[test]
fn a_picture_names_its_numbers_its_labels_and_its_pools() {
    let lines = [
        "mark \"<start> & \\\"go\\\"\"",
        "alloc 0 1048576 s1 auto",
        "alloc 1 3145728 s2 auto",
        "alloc 2 1000 s3 persistent",
        "alloc 3 600000000 s1 dedicated",
        "fail 4 999999999999 s1 auto \"no\"",
        "snapshot allocations:4 live:1 padding:1 reserved:1 \"all of it\"",
        "free 0",
    ];
    let trace = trace(lines.map(String::from));
    let report = replay(&trace, &PoolsConfig { budget: Some(1 << 30), ..PoolsConfig::default() });
    let svg = Picture::of("A <title>", &report).to_string();
    is_well_formed(&svg);
    for part in [
        "A &lt;title&gt;",
        "peak live",
        "Memory over time",
        "&lt;start&gt; &amp; &quot;go&quot;",
        "all of it",
        "a request failed",
        "over the budget",
        "Pages after event 4",
        ">general</text>",
        ">general pool: 2 pages, ",
        ">persistent pool: 1 page, ",
        ">dedicated pool: 1 page, ",
        "stream 3",
        "request 1: 3,145,728 bytes",
    ] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn pools_of_a_layout_stand_under_their_names_in_its_order() {
    let lines = ["alloc 0 3000 s1 persistent", "alloc 1 900000 s1 auto", "alloc 2 900 s1 auto", "alloc 3 200 s1 auto"];
    let config = PoolsConfig { layout: PoolLayout::slabs(), ..PoolsConfig::default() };
    let report = replay(&trace(lines.map(String::from)), &config);
    let svg = Picture::of("layout", &report).to_string();
    is_well_formed(&svg);
    let order =
        [">256 B</text>", ">slabs pool: 1 page, 64 KiB reserved: 200 B live (0 %), 56 B padding", ">1 KiB</text>"];
    let order = order.into_iter().chain([">general</text>", ">general pool: 1 page", ">persistent</text>"]);
    let places: Vec<_> = order.map(|part| svg.find(part).unwrap_or_else(|| panic!("{part}: {svg}"))).collect();
    assert!(places.is_sorted(), "{places:?}");
    let text = report.to_string();
    let row = text.lines().find(|line| line.starts_with("256 B")).unwrap();
    assert!(row.contains(" slabs "), "{text}");
}

#[test]
fn a_picture_of_nothing_is_one_too() {
    let empty = Trace::default();
    let svg = Picture::of("", &replay(&empty, &PoolsConfig::default())).to_string();
    is_well_formed(&svg);
    assert!(svg.contains("no page is taken"));
}

#[test]
fn a_picture_does_not_grow_with_the_trace() {
    let lines = |count: u64| (0..count).map(|i| format!("alloc {i} {} s{} auto", 256 + i % 5000, i % 20));
    let sizes = [60_000u64, 240_000].map(|count| {
        let report = replay(&trace(lines(count)), &PoolsConfig::default());
        let svg = Picture::of("many", &report).to_string();
        is_well_formed(&svg);
        svg.len()
    });
    assert!(sizes[1] < 2 * sizes[0] && sizes[1] < 4 << 20, "{sizes:?}");
    // Pages that find no place are counted.
    let many = trace((0..3000).map(|i| format!("alloc {i} {} s1 dedicated", 1 << 20)));
    let svg = Picture::of("pages", &replay(&many, &PoolsConfig::default())).to_string();
    assert!(svg.contains("and 2,940 more pages: 2,940 pages, 2.8 GiB reserved"), "{}", svg.len());
}

#[test]
fn a_picture_can_show_any_moment() {
    let trace = trace(["alloc 0 4096 s1 auto", "free 0", "alloc 1 8192 s2 auto"].map(String::from));
    let (config, event) = (PoolsConfig::default(), 0);
    let (report, map) = (replay(&trace, &config), Replay::until(&trace, &config, event).map());
    let svg = Picture::of("moments", &report).at(event, &map).to_string();
    assert!(svg.contains("Pages after event 0") && svg.contains("4 KiB live"), "{svg}");
}

#[test]
fn numbers_are_shown_so_that_they_can_be_read() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"].map(String::from));
    assert_eq!([512, 2 << 20, 3 << 29].map(size_label), ["512 B", "2 MiB", "1.5 GiB"].map(String::from));
    assert_eq!((svg::percent(1, 3), svg::percent(2, 3), svg::percent(1, 0)), (33, 67, 0));
    assert_eq!(svg::shortened("abcdef", 3), "abc…");
}
