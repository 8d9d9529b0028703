//! Runs the suite on the mutants, each test in a process of its own, and says which row noticed which.

use crate::factory::MutantFactory;
use crate::list::{MUTANTS, Mutant, TWINS, row_of};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::time::Duration;
use libtest_mimic::{Arguments, Failed, Trial};

use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use trunnion_conformance::child::{self, ChildOutput};
use trunnion_conformance::{Test, rows};

/// Set to `full`, every mutant is given the whole suite.
pub const FORM: &str = "TRUNNION_MUTANTS";

/// The exit code of a test that could not be made.
const SKIPPED: i32 = 77;

/// The longest that a test may take on a mutant: one that hangs has noticed it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A test that noticed a mutant, and how it says so.
struct Notice {
    test: String,
    why: String,
}

impl Notice {
    fn row(&self) -> &str {
        row_of(&self.test)
    }
}

/// What a mutant's tests came to.
type Findings = Vec<(&'static Mutant, Vec<Notice>)>;

/// Runs what the arguments (the program's name first) ask for: the suite on one mutant where they name it with `--backend`, else every
/// mutant and twin. The exit code is 0 when each mutant was noticed by the rows it breaks and each twin by none.
pub fn run(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    if let Some(name) = backend(&arguments) {
        return run_suite(&name, arguments);
    }
    let libtest = Arguments::from_iter(arguments);
    let findings: Arc<Mutex<Findings>> = Arc::default();
    let trials = TWINS.iter().map(twin).chain(MUTANTS.iter().map(|mutant| trial(mutant, findings.clone()))).collect();
    let conclusion = libtest_mimic::run(&libtest, trials);
    if !libtest.list {
        report(&findings.lock().unwrap_or_else(PoisonError::into_inner), conclusion.num_filtered_out);
    }
    conclusion.exit_code()
}

fn backend(arguments: &[String]) -> Option<String> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix("--backend") {
            Some("") => return arguments.next().cloned(),
            Some(rest) => return rest.strip_prefix('=').map(String::from),
            None => {}
        }
    }
    None
}

/// The suite on one mutant, in this process.
fn run_suite(name: &str, arguments: Vec<String>) -> ExitCode {
    let Some(mutant) = Mutant::find(name) else {
        let known: Vec<_> = TWINS.iter().chain(&MUTANTS).map(|mutant| mutant.name).collect();
        eprintln!("there is no mutant `{name}`; there are: {}", known.join(", "));
        return ExitCode::from(2);
    };
    let factory = MutantFactory::new(mutant);
    if let Err(error) = factory.register() {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    trunnion_conformance::run(arguments, &[Arc::new(factory)], Vec::new())
}

fn is_full() -> bool {
    std::env::var(FORM).is_ok_and(|form| form == "full")
}

/// Every test of the suite that is run by itself.
fn suite() -> Vec<Test> {
    let mut tests = rows::tests();
    tests.retain(|test| !test.hidden);
    tests
}

/// The whole suite on a twin: all of it must pass.
fn twin(twin: &'static Mutant) -> Trial {
    Trial::test(format!("{}_passes", twin.name), move || {
        let mut suite = Command::new(std::env::current_exe()?);
        let output = suite.args(["--backend", twin.name]).stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "the suite fails on the unbroken twin\n{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )
            .into()),
        }
    })
}

fn trial(mutant: &'static Mutant, findings: Arc<Mutex<Findings>>) -> Trial {
    Trial::test(mutant.name, move || {
        let notices = if is_full() { noticed_by_suite(mutant)? } else { noticed_by_listed(mutant)? };
        let missed = missed(mutant, &notices);
        findings.lock().unwrap_or_else(PoisonError::into_inner).push((mutant, notices));
        match missed.as_slice() {
            [] => Ok(()),
            rows => Err(format!("it survives {}: no test of these rows failed", rows.join(", ")).into()),
        }
    })
}

/// The rows that should have noticed a mutant and did not.
fn missed(mutant: &Mutant, notices: &[Notice]) -> Vec<&'static str> {
    let mut rows = mutant.rows();
    rows.retain(|row| !notices.iter().any(|notice| notice.row() == *row));
    rows
}

/// The first test of each row that fails, of those that are listed.
fn noticed_by_listed(mutant: &Mutant) -> Result<Vec<Notice>, Failed> {
    let suite = suite();
    let mut notices: Vec<Notice> = Vec::new();
    for path in mutant.noticed_by {
        let test = suite.iter().find(|test| test.path() == *path);
        let Some(test) = test else { return Err(format!("the suite has no test `{path}`").into()) };
        if notices.iter().any(|notice| notice.row() == row_of(path)) {
            continue;
        }
        if let Some(why) = failure(mutant, test, test.limit.min(PATIENCE))? {
            notices.push(Notice { test: test.path(), why });
        }
    }
    Ok(notices)
}

/// Every test that fails.
fn noticed_by_suite(mutant: &Mutant) -> Result<Vec<Notice>, Failed> {
    let mut notices = Vec::new();
    for test in suite() {
        if let Some(why) = failure(mutant, &test, test.limit.min(PATIENCE))? {
            notices.push(Notice { test: test.path(), why });
        }
    }
    Ok(notices)
}

/// Why a test failed, or `None` when it passed, from a process of its own.
fn failure(mutant: &Mutant, test: &Test, limit: Duration) -> Result<Option<String>, Failed> {
    let ChildOutput { code, overran, stdout, stderr } = child::spawn(mutant.name, &test.path(), test.env, limit)?;
    let said = || stdout.lines().chain(stderr.lines()).last().unwrap_or_default().to_string();
    match code {
        Some(0) | Some(SKIPPED) => Ok(None),
        Some(1) => Ok(Some(said())),
        Some(code) => Err(format!("{}: the process ended with {code}: {}", test.path(), said()).into()),
        None if overran => Ok(Some(format!("not done after {limit:?}"))),
        None => Ok(Some(format!("the process crashed: {}", said()))),
    }
}

/// A line a mutant, and the sums.
fn report(findings: &Findings, left_out: u64) {
    let mut seen = BTreeSet::new();
    let mut caught = 0;
    for mutant in &MUTANTS {
        let Some((_, notices)) = findings.iter().find(|(found, _)| found.name == mutant.name) else { continue };
        let missed = missed(mutant, notices);
        caught += usize::from(missed.is_empty());
        let by: Vec<_> = notices.iter().map(|notice| notice.test.as_str()).collect();
        let survives = if missed.is_empty() { String::new() } else { format!(" SURVIVES {}", missed.join(", ")) };
        println!("{:<21} {}{survives}", mutant.name, by.join(", "));
        if let Some(first) = notices.first() {
            println!("{:<21}   {}", "", shortened(&first.why));
        }
        seen.extend(notices.iter().map(|notice| rows::order(notice.row())));
    }
    let names: Vec<_> = seen.iter().filter_map(|row| rows::ROWS.get(*row)).copied().collect();
    let left_out = if left_out > 0 { format!(" ({left_out} tests left out)") } else { String::new() };
    println!("{} mutants, {caught} caught{left_out}, {} rows: {}", findings.len(), names.len(), names.join(" "));
}

/// As much of a message as a line holds.
fn shortened(text: &str) -> String {
    const MOST: usize = 150;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
