//! Kernels that are compiled together: how many at a time, what each is answered, what is counted and kept.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{Fate, Rig, out, rig, rig_with};
use trunnion_backend_core::ServerSettings;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::{KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::server::{Bounds, Server};

fn kernels(rig: &mut Rig, names: &[&str]) -> Vec<(KernelHandle, Bounds)> {
    names.iter().map(|name| (rig.kernel(name, out()), Bounds::Checked)).collect()
}

/// Asks until everything is answered, as a client does.
fn all(rig: &mut Rig, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
    let mut answers = Vec::new();
    while answers.len() < kernels.len() {
        let some = rig.server.compile_together(&kernels[answers.len()..]);
        assert!(!some.is_empty() && some.len() <= kernels.len() - answers.len());
        answers.extend(some);
    }
    answers
}

#[test]
fn as_many_are_compiled_together_as_the_driver_does_at_once() {
    let mut rig = rig();
    let list = kernels(&mut rig, &["a", "b", "c", "d", "e"]);
    rig.script.get().compiles_at_once = 2;
    assert_eq!(rig.server.compile_together(&list), [Ok(()), Ok(())]);
    assert_eq!(rig.log(), ["together 2", "compile a", "compile b"]);
    assert_eq!(all(&mut rig, &list), vec![Ok(()); 5]);
    assert_eq!(rig.log(), ["together 2", "compile c", "compile d", "together 1", "compile e"]);
    assert_eq!(all(&mut rig, &list), vec![Ok(()); 5]);
    assert!(rig.log().is_empty(), "nothing is compiled twice");
    assert_eq!(rig.server.compile_statistics().compiled, 5);
}

#[test]
fn a_driver_that_compiles_one_by_one_is_asked_one_by_one() {
    let mut rig = rig();
    let list = kernels(&mut rig, &["a", "b"]);
    assert_eq!(rig.server.compile_together(&list), [Ok(())]);
    assert_eq!(rig.server.compile_together(&list), [Ok(()), Ok(())], "what is known is answered with what is new");
    assert_eq!(rig.log(), ["together 1", "compile a", "together 1", "compile b"]);
    assert_eq!(rig.server.compile_together(&[]), []);
}

#[test]
fn a_kernel_listed_twice_is_compiled_once_and_its_other_bounds_apart() {
    let mut rig = rig();
    rig.script.get().compiles_at_once = 8;
    let a = rig.kernel("a", out());
    let list = [(a.clone(), Bounds::Checked), (a.clone(), Bounds::Unchecked), (a.clone(), Bounds::Checked)];
    assert_eq!(rig.server.compile_together(&list), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(rig.log(), ["together 2", "compile a", "compile a"]);
}

#[test]
fn one_that_does_not_compile_is_answered_in_its_place_and_kept() {
    let mut rig = rig();
    rig.script.get().compiles_at_once = 3;
    let bad = (rig.kernel_of("bad", "error", out()), Bounds::Checked);
    let (mut list, s) = (kernels(&mut rig, &["a", "b"]), StreamId::new());
    list.insert(1, bad.clone());
    let answers = rig.server.compile_together(&list);
    assert!(matches!(&answers[1], Err(Error::Compile { kernel, .. }) if kernel == "bad"), "{answers:?}");
    assert_eq!((&answers[0], &answers[2]), (&Ok(()), &Ok(())));
    rig.log();
    assert_eq!(rig.server.compile_together(&list), answers);
    let target = rig.buffer(s, 16);
    rig.launch(s, &bad.0, &[&target]);
    assert_eq!(rig.server.check(std::slice::from_ref(&target)), answers[1]);
    assert!(!rig.log().iter().any(|line| line.starts_with("compile")), "the compiler is not asked again");
    let statistics = rig.server.compile_statistics();
    assert_eq!((statistics.compiled, statistics.failed), (2, 1));
}

#[test]
fn code_kept_on_disk_is_offered_to_each_of_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let cached = || ServerSettings { kernel_cache: Some(folder.path().display().to_string()), ..Default::default() };
    for (run, expected) in [(1, (3, 0)), (2, (0, 3))] {
        let mut rig = rig_with(cached());
        rig.script.get().compiles_at_once = 2;
        let list = kernels(&mut rig, &["a", "b", "c"]);
        assert_eq!(all(&mut rig, &list), vec![Ok(()); 3]);
        let statistics = rig.server.compile_statistics();
        assert_eq!((statistics.compiled, statistics.from_disk), expected, "run {run}");
    }
}

#[test]
fn kernels_that_differ_in_a_constant_have_code_of_their_own_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = |value| SourceKernel::new("a", out()).source(Source::wgsl("a")).constant("scale", value);
    for (value, expected) in [(1.0, (1, 0)), (2.0, (1, 0)), (1.0, (0, 1))] {
        let settings = ServerSettings { kernel_cache: Some(folder.path().display().to_string()), ..Default::default() };
        let mut rig = rig_with(settings);
        let list = [(rig.prepared(kernel(value)), Bounds::Checked)];
        assert_eq!(all(&mut rig, &list), [Ok(())]);
        let statistics = rig.server.compile_statistics();
        assert_eq!((statistics.compiled, statistics.from_disk), expected, "scale {value}");
    }
}

#[test]
fn a_device_lost_while_compiling_is_answered_to_each() {
    let mut rig = rig();
    rig.script.get().compiles_at_once = 4;
    let list = kernels(&mut rig, &["a", "b", "c"]);
    let lost = Error::DeviceLost { cause: "unplugged".into() };
    rig.script.next("compile", 1, Fate::Fails(lost.clone()));
    assert_eq!(rig.server.compile_together(&list), vec![Err(lost.clone()); 3]);
    assert_eq!(rig.server.compile_together(&list), vec![Err(lost.clone()); 3]);
    assert_eq!(rig.server.fault(), Some(&lost));
}
