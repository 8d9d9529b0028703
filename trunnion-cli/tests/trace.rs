//! `trunnion trace`, run as a program.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::{env, fs, process};

/// Two buffers at once, then one more in the place of the first.
const TRACE: &str = "trunnion-memory-trace 1
pools alignment:256 max_allocation:1048576
pool fit first:65536 largest:65536 growth:0 \"general\"
alloc 0 40000 s1 auto
alloc 1 20000 s1 auto
free 0
alloc 2 30000 s1 auto
free 1
free 2
end 6
";

/// A file that is gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let path = env::temp_dir().join(format!("trunnion-cli-{}-{name}", process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_trunnion")).arg("trace").args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn one_layout_is_reported_whole_on_the_pools_that_the_trace_names() {
    let trace = Scratch::new("whole", TRACE);
    let (code, said, complained) = run(&[trace.name()]);
    assert_eq!((code, complained.as_str()), (Some(0), ""));
    assert!(said.contains("6 events: 3 requests, 3 frees, 0 waits, 0 failed"), "{said}");
    assert!(said.contains("(60000 bytes)") && said.contains("(65536 bytes)"), "{said}");
}

#[test]
fn several_layouts_are_a_line_each() {
    let (trace, other) = (Scratch::new("several", TRACE), Scratch::new("other", &TRACE.replace("65536", "131072")));
    let layouts = ["recorded", "slabs", "exclusive", "fixed:100KiB", other.name()];
    let arguments: Vec<_> = layouts.iter().flat_map(|layout| ["--layout", layout]).collect();
    let (code, said, complained) = run(&[&[trace.name()], &arguments[..]].concat());
    assert_eq!((code, complained.as_str()), (Some(0), ""));
    let lines: Vec<Vec<_>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.iter().map(|words| words[0]).collect::<Vec<_>>(), [&["layout"], &layouts[..]].concat());
    let reserved = |line: usize| lines[line][3..5].join(" ");
    assert_eq!(
        (reserved(1), reserved(4), reserved(5)),
        ("64.0 KiB".into(), "100.0 KiB".into(), "128.0 KiB".into()),
        "{said}"
    );
}

#[test]
fn a_budget_takes_the_place_of_the_recorded_one_and_what_it_refuses_is_named() {
    let trace = Scratch::new("budget", TRACE);
    let (code, said, _) = run(&[trace.name(), "--layout", "exclusive", "--budget", "50KiB"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("1 failed") && said.contains("request 1, 20000 bytes"), "{said}");
}

#[test]
fn a_report_is_an_object_a_line_and_a_picture_is_drawn() {
    let (trace, out) = (Scratch::new("json", TRACE), Scratch::new("picture.svg", ""));
    let (code, said, _) = run(&[trace.name(), "--json", "--picture", out.name()]);
    assert_eq!(code, Some(0));
    let object: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((object["layout"].as_str(), object["report"]["peak_live"].as_u64()), (Some("recorded"), Some(60_000)));
    assert!(fs::read_to_string(&out.0).unwrap().starts_with("<svg"));
}

#[test]
fn a_trace_that_is_cut_off_is_replayed_up_to_there_and_a_damaged_one_is_refused() {
    let cut = Scratch::new("cut", &TRACE[..TRACE.find("free 1").unwrap() + 3]);
    let (code, said, complained) = run(&[cut.name()]);
    assert_eq!(code, Some(0), "{complained}");
    assert!(said.contains("4 events") && complained.contains("is cut off"), "{said}{complained}");
    let damaged = Scratch::new("damaged", &TRACE.replace("free 0", "fred 0"));
    let (code, said, complained) = run(&[damaged.name()]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(complained.contains("line 6"), "{complained}");
}

#[test]
fn what_is_no_layout_no_size_or_not_there_is_named() {
    let trace = Scratch::new("bad", TRACE);
    for (arguments, code, words) in [
        (vec![trace.name(), "--layout", "fixed:big"], 2, "`big` is no size"),
        (vec![trace.name(), "--layout", "fixed:0"], 2, "fixed:0"),
        (vec![trace.name(), "--budget", "much"], 2, "`much` is no size"),
        (vec![trace.name(), "--layout", "adaptiv"], 1, "cannot read adaptiv, which is no layout's name"),
        (vec!["/nowhere.trace"], 1, "cannot read /nowhere.trace"),
        (vec![trace.name(), "--layout", "slabs", "--layout", "adaptive", "--picture", "x.svg"], 1, "of one layout"),
        (vec![], 2, "Usage"),
    ] {
        let (got, said, complained) = run(&arguments);
        assert_eq!((got, said.as_str()), (Some(code), ""), "{arguments:?}: {complained}");
        assert!(complained.contains(words), "{arguments:?}: {complained}");
    }
}
