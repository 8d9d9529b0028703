//! The command line: the suite's own arguments, and those of `cargo test`, which are passed on.

use crate::factory::Factory;
use crate::replay::Replay;
use crate::test::Test;
use alloc::sync::Arc;
use clap::{CommandFactory, Parser};
use libtest_mimic::Arguments as Libtest;
use regex::Regex;

/// The suite's own arguments.
const HELP: &str = "\
The conformance suite: every row of the contract, run against any device.

  --backend NAME     run on this backend only, or on all devices of this backend; may be given several times
  --row REGEX        run only rows that match this as a whole, such as `M.*`
  --rows             print `ROW name` for each test and run none
  --child ROW::name  run one test in this process, as the suite does for tests that need a process of their own

  --replay FILE      run a recorded program on the one backend that is named, compare with what was recorded, and run no test
  --compare NAME     with --replay: compare with this backend instead
  --bisect           with --compare: find the first step after which they differ
  --recover          with --replay: run a file that was cut off as far as it goes

TRUNNION_REQUIRE=host,… names backends that must be there.
What follows is understood as by `cargo test`.
";

/// The command line, read.
#[derive(Debug)]
pub struct Arguments {
    /// The backends to run on; all that are built in if empty.
    pub backends: Vec<String>,
    /// The rows to run.
    pub row: Option<Regex>,
    /// Print the tests instead of running them.
    pub rows: bool,
    /// Print the help.
    pub help: bool,
    /// The one test to run, in this process.
    pub child: Option<String>,
    /// The program to run instead of tests.
    pub replay: Option<Replay>,
    /// What the harness is told.
    pub libtest: Libtest,
}

impl Arguments {
    /// Reads the arguments, the program's name first.
    ///
    /// # Errors
    /// What is wrong, and what is valid.
    pub fn read(
        arguments: impl IntoIterator<Item = String>,
        factories: &[Arc<dyn Factory>],
        tests: &[Test],
    ) -> Result<Self, String> {
        let mut arguments = arguments.into_iter();
        let mut rest = vec![arguments.next().unwrap_or_default()];
        let (mut backends, mut row, mut rows, mut help, mut child) = (Vec::new(), None, false, false, None);
        let (mut file, mut compare, mut bisect, mut recover) = (None, None, false, false);
        while let Some(argument) = arguments.next() {
            let (name, inline) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_string(), Some(value.to_string())),
                _ => (argument.clone(), None),
            };
            let mut value = |what: &str| {
                inline.clone().or_else(|| arguments.next()).ok_or_else(|| format!("`{name}` needs {what}"))
            };
            match name.as_str() {
                "--backend" => backends.extend(known_backends(&value("a backend's name")?, factories)?),
                "--row" => row = Some(known_rows(&value("a regular expression")?, tests)?),
                "--child" => child = Some(value("a test's `ROW::name`")?),
                "--replay" => file = Some(value("a program's file")?),
                "--compare" => compare = Some(known_backend(value("a backend's name")?, factories)?),
                "--bisect" => bisect = true,
                "--recover" => recover = true,
                "--rows" => rows = true,
                "--help" | "-h" => help = true,
                _ => rest.push(argument),
            }
        }
        let mut libtest = Libtest::try_parse_from(rest).map_err(|error| format!("{error}\n{HELP}"))?;
        libtest.test_threads = libtest.test_threads.or(Some(2));
        let Some(file) = file else {
            let needs = |argument: &str, what: &str| Err(format!("`{argument}` goes with `{what}`\n{HELP}"));
            return match (compare, bisect, recover) {
                (Some(_), ..) => needs("--compare", "--replay"),
                (None, true, _) => needs("--bisect", "--replay FILE --compare NAME"),
                (None, false, true) => needs("--recover", "--replay"),
                (None, false, false) => Ok(Self { backends, row, rows, help, child, replay: None, libtest }),
            };
        };
        if bisect && compare.is_none() {
            return Err(format!("`--bisect` goes with `--compare`\n{HELP}"));
        }
        let [backend] = backends.as_slice() else {
            let known: Vec<_> = factories.iter().map(|factory| factory.name()).collect();
            return Err(format!("`--replay` needs one `--backend`; there are: {}", known.join(", ")));
        };
        let replay = Replay { file: file.into(), backend: backend.clone(), compare, bisect, recover };
        Ok(Self { backends, row, rows, help, child, replay: Some(replay), libtest })
    }

    /// The help: the suite's own arguments, then those of `cargo test`.
    pub fn help() -> String {
        format!("{HELP}\n{}", Libtest::command().render_help())
    }

    /// Whether a row is asked for.
    pub fn takes(&self, row: &str) -> bool {
        self.row.as_ref().is_none_or(|regex| regex.is_match(row))
    }
}

/// The backend of this name, or all devices of it where none is called so.
fn known_backends(name: &str, factories: &[Arc<dyn Factory>]) -> Result<Vec<String>, String> {
    let all = factories.iter().filter(|factory| factory.backend() == name).map(|factory| factory.name().to_string());
    match known_backend(name.to_string(), factories) {
        Err(_) if factories.iter().any(|factory| factory.backend() == name) => Ok(all.collect()),
        known => known.map(|known| vec![known]),
    }
}

fn known_backend(name: String, factories: &[Arc<dyn Factory>]) -> Result<String, String> {
    if factories.iter().any(|factory| factory.name() == name) {
        return Ok(name);
    }
    let known: Vec<_> = factories.iter().map(|factory| factory.name()).collect();
    Err(format!("there is no backend `{name}` built in; there are: {}", known.join(", ")))
}

fn known_rows(text: &str, tests: &[Test]) -> Result<Regex, String> {
    let regex = Regex::new(&format!("^(?:{text})$")).map_err(|error| format!("`--row {text}`: {error}"))?;
    if tests.iter().any(|test| regex.is_match(test.row)) {
        return Ok(regex);
    }
    let mut rows: Vec<_> = tests.iter().map(|test| test.row).collect();
    rows.dedup();
    Err(format!("`--row {text}` matches no row; there are: {}", rows.join(", ")))
}
