//! The text form: there and back, and everything that can be wrong with it.

use super::*;
use alloc::format;
use alloc::string::String;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::pool_layout::Placement;
use trunnion_runtime_core::timeline::Moment;

const WHOLE: &str = "\
trunnion-memory-trace 1
config device \"host:0\"
pools alignment:256 max_allocation:17179869184 budget:1073741824
pool slabs first:65536 largest:4194304 growth:12 takes:256 \"256 B\"
pool linear first:1048576 largest:1048576 growth:0 takes:65536 \"a \\\"step\\\"\"
pool fit first:524288 largest:18446744073709551615 growth:4 \"general\"
alloc 0 1000 s1 auto
alloc 1 4096 s18446744073709551615 persistent
fail 2 281474976710656 s1 dedicated \"no \\\"memory\\\"\"
snapshot allocations:2 live:5096 padding:24 reserved:2101248 \"weights and more\"
free 0 all@5 s1@7 s2@9
done s1@8
order s3 s1@7
done all@9
free 2
cleanup
mark \"\\u{7}end\"
end 11
";

#[test]
fn every_kind_of_line_is_read_and_written_the_same() {
    let trace = Trace::parse(WHOLE).unwrap();
    assert_eq!(trace.to_string(), WHOLE);
    assert_eq!((trace.events.len(), trace.requests()), (11, 3));
    let pools = trace.pools.as_ref().unwrap();
    assert_eq!((pools.budget, pools.max_allocation, pools.alignment), (Some(1 << 30), 16 << 30, 256));
    let layout = PoolLayout::new(alloc::vec![
        PoolDescription::slabs("256 B", 256, PageSizes::growing(64 << 10, 4 << 20, 12)),
        PoolDescription::new("a \"step\"", Placement::Linear, PageSizes::fixed(1 << 20)).up_to(65536),
        PoolDescription::new("general", Placement::Fit, PageSizes::growing(512 << 10, u64::MAX, 4)),
    ]);
    assert_eq!(pools.layout, layout.unwrap());
    let refused = Requested {
        size: 1 << 48,
        stream: StreamId::from_raw(1),
        mode: AllocationMode::Dedicated,
        refused: Some("no \"memory\"".into()),
    };
    assert_eq!(trace.events[2], Event::Request(refused));
    assert_eq!(trace.events[5], Event::Done(Moment { stream: StreamId::from_raw(1), seq: 8 }));
    assert_eq!(Trace::from_text(WHOLE), Ok(trace));
}

#[test]
fn comments_and_empty_lines_mean_nothing_wherever_they_stand() {
    let text = "trunnion-memory-trace 1\n# a\n\nalloc 0 1 s1 auto\n#b\nend 1\n# c\n\n";
    assert_eq!(Trace::parse(text).unwrap().events.len(), 1);
}

/// What stands between the first line and a last one, the line that is wrong, and what the error says.
const DAMAGE: &[(&str, usize, &str)] = &[
    ("frobnicate", 2, "`frobnicate` is no line; valid: config, pools, pool, alloc"),
    (" alloc 0 1 s1 auto", 2, "`` is no line"),
    ("alloc", 2, "the line ends where the request's number is needed"),
    ("alloc x", 2, "`x` is no request; valid: a number in decimal digits"),
    ("alloc 1 1 s1 auto", 2, "number of the next request: 1, where 0 belongs"),
    ("alloc 0 1 s1 auto\nalloc 0 1 s1 auto", 3, "number of the next request: 0, where 1 belongs"),
    ("alloc 0", 2, "the line ends where the size is needed"),
    ("alloc 0 -1 s1 auto", 2, "`-1` is no size"),
    ("alloc 0 18446744073709551616 s1 auto", 2, "`18446744073709551616` is no size"),
    ("alloc 0 281474976710657 s1 auto", 2, "the size is 281474976710657, at most 281474976710656 is allowed"),
    ("alloc 0 1", 2, "the line ends where a stream is needed"),
    ("alloc 0 1 1 auto", 2, "`1` is no stream; valid: s and a number, as in `s7`"),
    ("alloc 0 1 s1", 2, "the line ends where an allocation mode is needed"),
    ("alloc 0 1 s1 fast", 2, "`fast` is no allocation mode; valid: auto, persistent, dedicated"),
    ("alloc 0 1 s1 auto more", 2, "`more` is too much"),
    ("alloc 0 1 s1 auto ", 2, "`` is too much"),
    ("alloc 0  1 s1 auto", 2, "`` is no size"),
    ("fail 0 1 s1 auto", 2, "the line ends where the cause is needed"),
    ("fail 0 1 s1 auto cause", 2, "`cause` is no text; valid: text in quotation marks"),
    ("fail 0 1 s1 auto \"a\" b", 2, "is no text"),
    ("free", 2, "the line ends where the request's number is needed"),
    ("free 0", 2, "request 0 is not live here"),
    ("alloc 0 1 s1 auto\nfree 0\nfree 0", 4, "request 0 is not live here"),
    ("alloc 0 1 s1 auto\nfree 4294967296", 3, "`4294967296` is no request"),
    ("alloc 0 1 s1 auto\nfree 0 s1", 3, "`s1` is no moment; valid: a stream and a number, as in `s7@12`"),
    ("alloc 0 1 s1 auto\nfree 0 all@", 3, "`` is no moment"),
    ("done", 2, "the line ends where a moment is needed"),
    ("done s1", 2, "`s1` is no moment"),
    ("done all@x", 2, "`x` is no moment"),
    ("done s1@1 s2@2", 2, "`s2@2` is too much"),
    ("order s1", 2, "the line ends where a moment is needed"),
    ("order all@1 s1@1", 2, "`all@1` is no stream"),
    ("cleanup now", 2, "`now` is too much"),
    ("mark", 2, "the line ends where the text of the mark is needed"),
    ("mark \"a", 2, "`\"a` is no text"),
    ("snapshot", 2, "the line ends where how many allocations there are is needed"),
    ("snapshot live:1", 2, "`live:1` is no value here; valid: allocations:"),
    ("snapshot allocations:x", 2, "`x` is no how many allocations there are"),
    ("snapshot allocations:1 live:1 padding:1 reserved:1", 2, "the line ends where the label is needed"),
    ("config", 2, "the line ends where the name of a setting is needed"),
    ("config a/b \"c\"", 2, "`a/b` is no name of a setting"),
    ("config a", 2, "the line ends where the setting's value is needed"),
    ("cleanup\nconfig a \"b\"", 3, "`config` stands behind the first event"),
    ("pool fit first:1 largest:1 growth:0 \"a\"", 2, "`pool` stands before `pools`"),
    ("cleanup\npools", 3, "`pools` stands behind the first event"),
    ("pools alignment:1", 2, "the line ends where the largest allocation is needed"),
    ("pools alignment:1 page_size_min:1", 2, "`page_size_min:1` is no value here; valid: max_allocation:"),
    ("pools alignment:1 max_allocation:1 limit:1", 2, "valid: budget:, growth_step:"),
    ("pools alignment:1 max_allocation:1 budget:1 more", 2, "`more` is too much"),
    ("pools alignment:1 max_allocation:1\npools alignment:1 max_allocation:1", 3, "line pools is there already"),
    ("end", 2, "the line ends where the count of events is needed"),
    ("end 1", 2, "events counted by the `end` line: 1, where 0 belongs"),
    ("end 0 0", 2, "`0` is too much"),
    ("end 0\ncleanup", 3, "something stands behind the `end` line"),
];

/// Lines behind one that sets up pools, which of them is wrong, and what the error says.
const POOLS: &[(&str, usize, &str)] = &[
    ("pool", 1, "the line ends where a placement is needed"),
    ("pool best", 1, "`best` is no placement; valid: fit, slabs, linear, exclusive"),
    ("pool fit", 1, "the line ends where the first page is needed"),
    ("pool fit largest:1", 1, "`largest:1` is no value here; valid: first:"),
    ("pool fit first:1", 1, "the line ends where the largest page is needed"),
    ("pool fit first:1 largest:1", 1, "the line ends where the growth is needed"),
    ("pool fit first:1 largest:1 growth:4294967296", 1, "`4294967296` is no the growth"),
    ("pool fit first:1 largest:1 growth:0", 1, "the line ends where the pool's name is needed"),
    ("pool fit first:1 largest:1 growth:0 takes:1", 1, "the line ends where the pool's name is needed"),
    ("pool fit first:1 largest:1 growth:0 takes:x \"a\"", 1, "`x` is no the largest request"),
    ("pool fit first:1 largest:1 growth:0 a", 1, "`a` is no text"),
    ("pool fit first:1 largest:1 growth:0 \"a\" b", 1, "is no text"),
    ("pool fit first:0 largest:1 growth:0 \"a b\"", 1, "pool `a b`: pages of 0 bytes, at least 1 is needed"),
    ("pool fit first:2 largest:1 growth:0 \"a\"", 1, "a largest page of 1 bytes is below the first, of 2"),
    ("pool fit first:1 largest:1 growth:1001 \"a\"", 1, "growth by 1001 %, at most 1000 % is possible"),
    ("pool slabs first:1 largest:1 growth:0 \"a\"", 1, "pool `a`: slabs without the size of a slot"),
    ("pool fit first:1 largest:1 growth:0 \"total\"", 1, "pool `total`: a report calls something else so"),
    ("pool fit first:1 largest:1 growth:0 \"1234567890123456789012345\"", 1, "a name of 25 bytes, it has 1 to 24"),
    (
        "pool fit first:1 largest:9 growth:0 \"a\"\npool linear first:1 largest:9 growth:0 \"b\"",
        2,
        "pool `b`: it takes requests of up to 9 bytes and never sees one, since `a` before it takes up to 9",
    ),
    ("cleanup\npool fit first:1 largest:1 growth:0 \"a\"", 2, "`pool` stands behind the first event"),
];

#[test]
fn a_pool_that_does_not_fit_the_layout_is_a_defect_of_its_line() {
    let head = "trunnion-memory-trace 1\npools alignment:1 max_allocation:1";
    for (lines, line, says) in POOLS {
        let error = Trace::parse(&format!("{head}\n{lines}\nend 0\n")).unwrap_err();
        assert_eq!(error.line, line + 2, "{lines}: {error}");
        assert!(error.to_string().contains(says), "{lines}: {error}");
    }
    let many: Vec<_> = (1..34).map(|i| format!("pool fit first:99 largest:99 growth:0 takes:{i} \"{i}\"\n")).collect();
    let error = Trace::parse(&format!("{head}\n{}end 0\n", many.concat())).unwrap_err();
    assert_eq!((error.line, error.defect.to_string().as_str()), (35, "33 pools, a layout has 1 to 32"));
    let long = format!("{head}\npool fit first:1 largest:1 growth:0 \"{}\"\nend 0\n", "é".repeat(2000));
    let error = Trace::parse(&long).unwrap_err().to_string();
    assert!(error.contains("a name of 4000 bytes") && error.len() < 200, "{error}");
}

#[test]
fn pools_without_a_layout_have_the_adaptive_one() {
    let trace = Trace::parse("trunnion-memory-trace 1\npools alignment:64 max_allocation:9\nend 0\n").unwrap();
    assert_eq!(trace.pools.as_ref().map(|pools| &pools.layout), Some(&PoolLayout::adaptive()));
    // It is written out, so that a trace means the same where the default is another one.
    let written = "pool fit first:524288 largest:536870912 growth:4 \"general\"\n";
    assert!(trace.to_string().contains(written), "{trace}");
    for layout in [PoolLayout::slabs(), PoolLayout::exclusive(), PoolLayout::fixed(4096).unwrap()] {
        let trace = Trace { pools: Some(PoolsConfig { layout, ..PoolsConfig::default() }), ..Trace::default() };
        assert_eq!(Trace::parse(&trace.to_string()), Ok(trace));
    }
}

#[test]
fn every_damage_is_named_with_its_line_and_what_is_valid() {
    for (lines, line, says) in DAMAGE {
        let text = format!("trunnion-memory-trace 1\n{lines}\nend 0\n");
        let error = Trace::parse(&text).unwrap_err();
        assert_eq!(error.line, *line, "{lines}: {error}");
        assert!(error.defect.to_string().contains(says), "{lines}: {error}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")));
        let (before, told) = Trace::recover(&text);
        assert_eq!(told, Some(error));
        assert!(before.events.len() < *line, "{lines}");
    }
}

#[test]
fn a_first_line_that_is_none_is_refused() {
    for (text, says) in [
        ("", "`` is not the first line of a trace"),
        ("trunnion-program 1\n", "`trunnion-program 1` is not the first line"),
        ("trunnion-memory-trace\n", "the line ends where a version is needed"),
        ("trunnion-memory-trace 2\n", "version 2 is not known; this library reads 1"),
        ("trunnion-memory-trace 01\n", "version 01 is not known"),
        ("trunnion-memory-trace 1 x\n", "`x` is too much"),
        ("\u{feff}trunnion-memory-trace 1\n", "is not the first line"),
    ] {
        let error = Trace::parse(text).unwrap_err();
        assert!(error.line == 1 && error.to_string().contains(says), "{text}: {error}");
    }
    let error = Trace::from_text("something else\n").unwrap_err().to_string();
    assert!(error.contains("id,lower,upper,size") && error.contains("Thread,Time"), "{error}");
}

#[test]
fn a_text_that_was_cut_off_is_refused_and_what_there_is_can_be_had() {
    let end = WHOLE.rfind("end").unwrap();
    for cut in 0..WHOLE.len() - 1 {
        let Some(text) = WHOLE.get(..cut) else { continue };
        let error = Trace::parse(text).expect_err(text);
        let lines = text.split('\n').count();
        assert!((lines..=lines + 1).contains(&error.line), "{cut}: {error}");
        let (trace, _) = Trace::recover(text);
        if cut >= end {
            assert_eq!(trace.events, Trace::parse(WHOLE).unwrap().events, "{cut}");
        }
    }
    let error = Trace::parse(&WHOLE[..end]).unwrap_err();
    assert_eq!(error, ParseError { line: 18, defect: Defect::Truncated });
}

#[test]
fn a_line_that_is_too_long_and_a_text_that_is_too_long_are_refused() {
    let text = format!("trunnion-memory-trace 1\n#{}\nend 0\n", "x".repeat(MAX_LINE));
    assert_eq!(Trace::parse(&text).unwrap_err().defect, Defect::LineTooLong { length: MAX_LINE + 1 });
    let text = format!("trunnion-memory-trace 1\nmark \"{}\"\nend 1\n", "x".repeat(4097));
    assert_eq!(Trace::parse(&text).unwrap_err().defect, Defect::TextTooLong);
    // The longest text there is, written the longest way, has room in a line.
    let mark = Event::Mark("\u{7f}".repeat(4096));
    let trace = Trace { events: alloc::vec![mark], ..Trace::default() };
    assert_eq!(Trace::parse(&trace.to_string()).as_ref(), Ok(&trace));
    let long = "é".repeat(100);
    let error = Trace::parse(&format!("trunnion-memory-trace 1\n{long}\n")).unwrap_err().to_string();
    assert!(error.len() < 300 && error.contains('…'), "{error}");
}

#[test]
fn what_a_writer_is_told_is_read_back() {
    let mut writer = crate::trace::Writer::new(String::new());
    writer.config("a b/c", "text");
    assert_eq!(writer.request(7, StreamId::from_raw(3), AllocationMode::Auto, None), 0);
    assert_eq!(writer.request(7, StreamId::from_raw(3), AllocationMode::Auto, Some("full")), 1);
    writer.free(1, &Frontier::new());
    assert_eq!(writer.events(), 3);
    writer.end();
    let trace = Trace::parse(&writer.into_sink()).unwrap();
    assert_eq!(trace.config, [(String::from("a_b_c"), String::from("text"))]);
    assert_eq!(trace.requests(), 2);
}

/// Takes some lines and then none.
struct Full(usize);

impl crate::trace::Sink for Full {
    fn line(&mut self, _: &str) -> core::result::Result<(), String> {
        self.0 = self.0.checked_sub(1).ok_or("the disk is full")?;
        Ok(())
    }
}

#[test]
fn a_writer_whose_sink_fails_says_why_and_counts_what_was_taken() {
    let mut writer = crate::trace::Writer::new(Full(2));
    writer.cleanup();
    assert_eq!((writer.events(), writer.fault()), (1, None));
    writer.cleanup();
    writer.cleanup();
    assert_eq!((writer.events(), writer.fault()), (1, Some("the disk is full")));
}

#[test]
fn the_step_in_which_pages_grow_stands_behind_the_budget_or_in_its_place() {
    for (words, budget, step) in [("", None, None), (" budget:7", Some(7), None), (" growth_step:512", None, Some(512))]
    {
        let text = format!("trunnion-memory-trace 1\npools alignment:256 max_allocation:4096{words}\nend 0\n");
        let trace = Trace::parse(&text).unwrap();
        let pools = trace.pools.as_ref().unwrap();
        assert_eq!((pools.budget, pools.growth_step), (budget, step), "{words}");
    }
    let both = "trunnion-memory-trace 1\npools alignment:256 max_allocation:4096 budget:7 growth_step:512\n";
    let trace = Trace::recover(both).0;
    let pools = trace.pools.as_ref().unwrap();
    assert_eq!((pools.budget, pools.growth_step), (Some(7), Some(512)));
    assert!(trace.to_string().starts_with(both), "{trace}");
    for wrong in ["growth_step:512 budget:7", "budget:7 growth_step:x", "budget:7 step:512"] {
        let text = format!("trunnion-memory-trace 1\npools alignment:256 max_allocation:4096 {wrong}\nend 0\n");
        assert!(Trace::parse(&text).is_err(), "{wrong}");
    }
}
