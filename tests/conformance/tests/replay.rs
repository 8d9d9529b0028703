//! Programs that were kept: made small, replayed, compared; through the library where a server is broken, through the binary otherwise.

// But where a Vulkan loader or the address of memory is vouched for.
#![deny(unsafe_code)]
#![cfg(feature = "host")]

extern crate alloc;

mod broken;
#[path = "../src/builtin/host.rs"]
#[allow(dead_code, reason = "the suite uses all of it")]
mod host;

use alloc::sync::Arc;
use broken::{BrokenFactory, Wrong};
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use trunnion_conformance::program::{Budget, Recipe, mismatch, model, prove, shrink, with_expectations};
use trunnion_conformance::{Context, Factory, Failure, Variant};
use trunnion_server_layers::program::{Call, Place, Program};

fn recipe(seed: u64, threads: usize) -> Recipe {
    let fails = seed.is_multiple_of(2);
    Recipe { seed, steps: 300, streams: 6, threads, fails, fails_late: fails, modes: true }
}

fn factory(wrong: Wrong) -> Arc<dyn Factory> {
    Arc::new(BrokenFactory { name: "broken", wrong, inside: Arc::new(host::Host::plain()) })
}

fn variant() -> Variant {
    Variant { delay: Some(Duration::from_micros(100)), ..Variant::broken() }
}

#[test]
fn a_server_that_is_whole_gives_what_the_model_gives() {
    let cx = Context::new(factory(Wrong::Nothing));
    for seed in 0..4 {
        assert_eq!(mismatch(&cx, &variant(), &recipe(seed, 3).make()).unwrap(), None);
    }
}

#[test]
fn a_program_that_fails_is_made_small_and_replays_to_the_same_difference() {
    for (wrong, verb) in [(Wrong::HalfAFill, "fill"), (Wrong::CopyIgnoresOffset, "copy")] {
        let cx = Context::new(factory(wrong));
        for (seed, threads) in [(1, 1), (2, 3), (3, 3)] {
            let program = recipe(seed, threads).make();
            assert!(mismatch(&cx, &variant(), &program).unwrap().is_some(), "{wrong:?}, seed {seed}");
            let small =
                shrink(&program, Budget::default(), |program| mismatch(&cx, &variant(), program).unwrap().is_some());
            assert!(small.steps.len() <= 8, "{wrong:?}, seed {seed}: {small}");
            // A reservation is a fill too, so a broken fill may need no other.
            let has = small.steps.iter().any(|step| step.call.verb() == verb || step.call.verb() == "reserve");
            assert!(has, "{small}");
            let how = mismatch(&cx, &variant(), &small).unwrap();
            let again = Program::parse(&small.to_string()).unwrap();
            assert_eq!(mismatch(&cx, &variant(), &again).unwrap(), how);
            let whole = Context::new(factory(Wrong::Nothing));
            assert_eq!(mismatch(&whole, &variant(), &again).unwrap(), None);
        }
    }
}

#[test]
fn a_random_program_that_fails_names_the_file_it_is_kept_in_and_that_file_fails_again() {
    let cx = Context::new(factory(Wrong::CopyIgnoresOffset));
    let Err(Failure::Failed(message)) = prove(&cx, "test", &variant(), recipe(4, 1)) else { panic!("it passed") };
    let path = message.split("kept in ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    assert!(message.contains("seed 4: buffer b") && message.contains("steps are enough"), "{message}");
    assert!(path.contains("/reproducers/broken-test-4.trunnion"), "{path}");
    // Against what it should give, against a whole device, and with a whole device alone.
    let factories = [factory(Wrong::CopyIgnoresOffset), Arc::new(host::Host::plain()) as Arc<dyn Factory>];
    let run = |arguments: &[&str]| {
        let arguments = ["suite"].iter().chain(arguments).map(ToString::to_string);
        trunnion_conformance::run(arguments, &factories, Vec::new())
    };
    assert_eq!(run(&["--backend", "broken", "--replay", path]), ExitCode::from(1));
    assert_eq!(run(&["--backend", "broken", "--replay", path, "--compare", "host", "--bisect"]), ExitCode::from(1));
    assert_eq!(run(&["--backend", "host", "--replay", path]), ExitCode::SUCCESS);
    std::fs::remove_file(path).unwrap();
}

// ---- the binary

fn suite(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunnion-conformance")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A random program with what it should give, and one byte of that changed where that is asked for.
fn complete(seed: u64, damaged: bool) -> Program {
    let program = recipe(seed, 2).make();
    let mut expected = model(&program).unwrap();
    if damaged {
        let (_, observed) = expected.buffers.last_mut().unwrap();
        observed.bytes[3] ^= 1;
    }
    with_expectations(&program, &expected)
}

#[test]
fn a_program_replays_as_recorded_and_equal_on_two_backends() {
    let path = file("equal.trunnion", &complete(7, false).to_string());
    let path = path.to_str().unwrap();
    let output = suite(&["--backend", "host", "--replay", path]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("reads as recorded"), "{}", said(&output));
    let output = suite(&["--replay", path, "--backend", "host-hard", "--compare", "host", "--bisect"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("host-hard and host: ") && said(&output).contains("all equal"), "{}", said(&output));
}

#[test]
fn what_differs_from_the_recording_is_named_with_its_bytes() {
    let path = file("different.trunnion", &complete(7, true).to_string());
    let output = suite(&["--backend", "host", "--replay", path.to_str().unwrap()]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("host gives something else than was recorded") && said.contains("1 of "), "{said}");
    assert!(said.contains("      offset  recorded      host\n           3        "), "{said}");
}

#[test]
fn a_bisection_names_the_first_step_after_which_two_devices_differ() {
    let text = "trunnion-program 1\n\
        kernel k0 \"step\" 64x1x1 parameters:0 shared:0 host readwrite/partition:256/0\n\
        1 s0 reserve b0 256 auto\n\
        2 s0 fill b0[0..256] 00\n\
        3 s1 launch k0 1x1x1 checked parameters: b0[0..256]\n\
        4 s1 copy b0[0..16] b0[128..144]\n\
        5 s0 reserve b1 16 auto\n\
        6 s0 copy b0[128..144] b1[0..16]\n\
        7 s0 fill b0[0..4] 07\n\
        8 s0 free b1\n\
        end 8\n";
    let program = Program::parse(text).unwrap();
    let factories = [factory(Wrong::CopyIgnoresOffset), Arc::new(host::Host::plain()) as Arc<dyn Factory>];
    let found = trunnion_conformance::replay::first_step(&factories, "broken", "host", &program).unwrap();
    // This server leaves a copy inside one buffer alone, and the other one goes to the start anyway.
    assert!(found.is_none(), "{found:?}");
    let moved = text.replace("5 s0 reserve b1 16 auto", "5 s0 reserve b1 32 auto").replace("b1[0..16]", "b1[16..32]");
    let program = Program::parse(&moved).unwrap();
    let found = trunnion_conformance::replay::first_step(&factories, "broken", "host", &program.prefix(7)).unwrap();
    assert_eq!(found.map(|(step, found)| (step, found.place)), Some((5, Place::Buffer { buffer: 1 })));
    assert!(matches!(program.steps[5].call, Call::Copy { .. }));
}

#[test]
fn what_cannot_be_run_says_why_and_what_is_valid() {
    let whole = complete(8, false).to_string();
    let absent = whole.replace("\"scramble\"", "\"of my own\"");
    let cut = whole.split_inclusive('\n').take(60).collect::<String>();
    let lost = "trunnion-program 1\n1 s0 lost \"a secret\"\nend 1\n";
    let variant = "trunnion-program 1\nconfig variant.colour \"red\"\nend 0\n";
    let [absent, cut, lost, variant, whole, text] = [
        ("absent", absent.as_str()),
        ("cut", &cut),
        ("lost", lost),
        ("variant", variant),
        ("whole", &whole),
        ("text", "hello\n"),
    ]
    .map(|(name, text)| file(&format!("cannot-{name}.trunnion"), text).to_str().unwrap().to_string());
    let cases: &[(&[&str], &str)] = &[
        (&["--backend", "host", "--replay", "/nowhere/at/all"], "/nowhere/at/all: No such file"),
        (&["--backend", "host", "--replay", &text], "line 1: `hello` is not the first line of a program"),
        (&["--backend", "host", "--replay", &cut], "line 61: the text ends before its `end` line"),
        (&["--backend", "host", "--replay", &absent], "kernel `of my own` is not in the table; there are: add, saxpy"),
        (&["--backend", "host", "--replay", &lost], "step 0 (lost 1) cannot be replayed: a secret"),
        (&["--backend", "host", "--replay", &variant], "there is no setting `variant.colour`"),
        (&["--replay", &whole], "`--replay` needs one `--backend`; there are: host, host-hard"),
        (&["--backend", "host", "--backend", "host-hard", "--replay", &whole], "needs one `--backend`"),
        (&["--backend", "host", "--replay"], "`--replay` needs a program's file"),
        (
            &["--backend", "host", "--replay", &whole, "--compare", "vulcan"],
            "no backend `vulcan` built in; there are: host",
        ),
        (&["--backend", "host", "--replay", &whole, "--bisect"], "`--bisect` goes with `--compare`"),
        (&["--backend", "host", "--compare", "host"], "`--compare` goes with `--replay`"),
        (&["--backend", "host", "--bisect"], "`--bisect` goes with `--replay FILE --compare NAME`"),
        (&["--backend", "host", "--recover"], "`--recover` goes with `--replay`"),
    ];
    for (arguments, says) in cases {
        let output = suite(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
    }
    let output = suite(&["--backend", "host", "--recover", "--replay", &cut]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("steps before that are run"), "{}", said(&output));
}
