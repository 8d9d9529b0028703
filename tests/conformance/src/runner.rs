//! Runs the tests: each with a time limit, on each backend, and says at the end how many passed.

use crate::arguments::Arguments;
use crate::check::{Failure, Outcome};
use crate::child;
use crate::context::Context;
use crate::factory::Factory;
use crate::kernels::BROKEN;
use crate::replay;
use crate::rows;
use crate::test::Test;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::panic::AssertUnwindSafe;
use libtest_mimic::{Completion, Failed, Trial};
use std::io::Write;
use std::panic;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

/// Names the backends that must be there.
pub const REQUIRE: &str = "TRUNNION_REQUIRE";

/// What a panic's message begins with when a test makes it on purpose: nothing is printed about it.
pub const ON_PURPOSE: &str = "on purpose";

/// Runs what the arguments (the program's name first) ask for on these backends: the suite's tests and `more`. The exit code is 0 when
/// all passed or were skipped with a reason, 1 when one failed, 2 for bad arguments. A program that is replayed has codes of its own:
/// [`replay`](replay::replay).
pub fn run(arguments: impl IntoIterator<Item = String>, factories: &[Arc<dyn Factory>], more: Vec<Test>) -> ExitCode {
    quieten_panics_on_purpose();
    let mut tests = rows::tests();
    tests.extend(more);
    tests.sort_by_key(|test| rows::order(test.row));
    let arguments = match Arguments::read(arguments, factories, &tests) {
        Ok(arguments) => arguments,
        Err(why) => return usage(&why),
    };
    if arguments.help {
        print!("{}", Arguments::help());
        return ExitCode::SUCCESS;
    }
    if let Some(replay) = &arguments.replay {
        return replay::replay(replay, factories);
    }
    if let Some(path) = &arguments.child {
        return match (chosen(&arguments, factories).first(), tests.iter().find(|test| test.path() == *path)) {
            (Some(factory), Some(test)) => run_here(factory, test),
            (None, _) => usage("no backend is built in"),
            (_, None) => usage(&format!("there is no test `{path}`; `--rows` lists them")),
        };
    }
    tests.retain(|test| !test.hidden && arguments.takes(test.row));
    if arguments.rows {
        let mut out = std::io::stdout().lock();
        // A reader that has seen enough is no failure.
        tests.iter().for_each(|test| drop(writeln!(out, "{} {}", test.row, test.name)));
        return ExitCode::SUCCESS;
    }
    // Who asks for certain backends is not concerned with others.
    let mut trials = if arguments.backends.is_empty() { missing_required(factories) } else { Vec::new() };
    for factory in chosen(&arguments, factories) {
        match factory.available() {
            Ok(()) => trials.extend(tests.iter().map(|test| trial(factory.clone(), test.clone()))),
            Err(why) => trials.push(absent(factory.name(), why)),
        }
    }
    let conclusion = libtest_mimic::run(&arguments.libtest, trials);
    if arguments.libtest.list {
        return ExitCode::SUCCESS;
    }
    let complained = complain(&chosen(&arguments, factories));
    println!("{} passed, {} failed, {} skipped", conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored);
    ExitCode::from(u8::from(conclusion.has_failed() || complained))
}

fn usage(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}

/// Prints what was complained of below the backends; whether anything was.
fn complain(factories: &[&Arc<dyn Factory>]) -> bool {
    // Several backends may stand on what the process has one of.
    let complaints: BTreeSet<String> = factories.iter().flat_map(|factory| factory.complaints()).collect();
    complaints.iter().for_each(|complaint| eprintln!("complaint: {complaint}"));
    !complaints.is_empty()
}

fn chosen<'a>(arguments: &Arguments, factories: &'a [Arc<dyn Factory>]) -> Vec<&'a Arc<dyn Factory>> {
    let asked = |factory: &&Arc<dyn Factory>| {
        arguments.backends.is_empty() || arguments.backends.iter().any(|n| n == factory.name())
    };
    factories.iter().filter(asked).collect()
}

// ---- backends that are not there

/// The backends that must be there.
pub fn required() -> Vec<String> {
    let text = std::env::var(REQUIRE).unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
}

fn absent(name: &str, why: String) -> Trial {
    let path = format!("{name}::the_backend_is_there");
    if required().iter().any(|required| required == name) {
        return Trial::test(path, move || Err(format!("{REQUIRE} asks for it, and {why}").into()));
    }
    Trial::ignorable_test(path, move || Ok(Completion::ignored_with(why)))
}

fn missing_required(factories: &[Arc<dyn Factory>]) -> Vec<Trial> {
    let mut missing = required();
    missing.retain(|name| !factories.iter().any(|factory| factory.name() == name));
    let why = |name: &String| {
        let mut reasons = Vec::new();
        for factory in factories.iter().filter(|factory| factory.backend() == name) {
            // A backend is there with any of its devices.
            reasons.push(format!("{}: {}", factory.name(), factory.available().err()?));
        }
        Some(if reasons.is_empty() { "it is not built in".to_string() } else { reasons.join("; ") })
    };
    missing.iter().filter_map(|name| Some(absent(name, why(name)?))).collect()
}

// ---- one test

fn trial(factory: Arc<dyn Factory>, test: Test) -> Trial {
    let path = format!("{}::{}", factory.name(), test.path());
    Trial::ignorable_test(path, move || {
        if let Some((_, why)) = factory.unsupported().iter().find(|(row, _)| *row == test.row) {
            return Ok(Completion::ignored_with(format!("{} does not have {}: {why}", factory.name(), test.row)));
        }
        let expected = factory.expected_failures().iter().find(|(path, _)| *path == test.path()).map(|(_, why)| *why);
        let before = factory.complaints().len();
        let outcome = run_limited(&factory, &test);
        // Of tests that run at the same time each is told: one of them made it.
        let outcome = match factory.complaints().get(before..) {
            None | Some([]) => outcome,
            Some(new) => Err(Failure::Failed(format!("complaints while it ran: {}", new.join("\n")))),
        };
        match (outcome, expected) {
            (Ok(()), None) => Ok(Completion::Completed),
            (Err(Failure::Skipped(why)), _) => Ok(Completion::ignored_with(why)),
            (Err(Failure::Failed(message)), None) => Err(Failed::from(message)),
            (Err(Failure::Failed(_)), Some(why)) => Ok(Completion::ignored_with(format!("fails as expected: {why}"))),
            (Ok(()), Some(why)) => Err(Failed::from(format!("passed, but is expected to fail: {why}"))),
        }
    })
}

fn run_limited(factory: &Arc<dyn Factory>, test: &Test) -> Outcome {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = (test.alone || factory.one_at_a_time()).then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    if test.child {
        return run_in_child(factory, test);
    }
    let (context, run) = (Context::new(factory.clone()), test.run);
    let (tell, told) = mpsc::channel();
    thread::Builder::new().name(test.name.to_string()).spawn(move || tell.send(caught(&context, run)).ok())?;
    // A test that overran is left behind; the others go on.
    told.recv_timeout(test.limit)
        .unwrap_or_else(|_| Err(Failure::Failed(format!("time limit: not done after {:?}", test.limit))))
}

fn run_in_child(factory: &Arc<dyn Factory>, test: &Test) -> Outcome {
    let output = child::spawn(factory.name(), &test.path(), test.env, test.limit)?;
    match output.code {
        Some(0) => Ok(()),
        Some(SKIPPED) => Err(Failure::Skipped(output.stderr.trim().to_string())),
        _ if output.overran => Err(Failure::Failed(format!(
            "time limit: the process had not ended after {:?}\n{}{}",
            test.limit, output.stdout, output.stderr
        ))),
        code => Err(Failure::Failed(format!("the process ended with {code:?}\n{}{}", output.stdout, output.stderr))),
    }
}

/// The exit code of a child process whose test could not be made here.
const SKIPPED: i32 = 77;

/// Runs a test in this process, on the main thread, and returns from it.
fn run_here(factory: &Arc<dyn Factory>, test: &Test) -> ExitCode {
    let outcome = caught(&Context::new(factory.clone()), test.run);
    let complained = complain(&[factory]);
    match outcome {
        Ok(()) => ExitCode::from(u8::from(complained)),
        Err(Failure::Skipped(why)) => {
            eprintln!("{why}");
            ExitCode::from(SKIPPED as u8)
        }
        Err(Failure::Failed(message)) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn caught(context: &Context, run: fn(&Context) -> Outcome) -> Outcome {
    panic::catch_unwind(AssertUnwindSafe(|| run(context)))
        .unwrap_or_else(|payload| Err(Failure::Failed(format!("panicked: {}", message_of(&*payload)))))
}

fn message_of(payload: &(dyn core::any::Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a payload that is no text")
}

fn quieten_panics_on_purpose() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let message = message_of(info.payload());
        // Unchecked reads panic with the error of the kernel that is not to compile.
        if !message.starts_with(ON_PURPOSE) && !message.contains(BROKEN) {
            before(info);
        }
    }));
}
