//! That the double does what is assumed of a driver: so what a GPU is asked is what the tests on the double stand on.

use std::process::Command;
use trunnion_cuda_double::Double;

fn asked(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trunnion-assumptions")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said)
}

#[test]
fn all_that_is_assumed_is_seen_on_the_double() {
    let path = Double::open().unwrap().path().display().to_string();
    let (code, said) = asked(&[&path]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("48 seen, 0 wrong"), "{said}");
}

#[test]
fn a_driver_that_is_not_there_and_a_question_nobody_asks_are_named() {
    let (code, said) = asked(&["/nowhere/libcuda.so.1", "no_bytes_are_1"]);
    assert!(code == Some(1) && said.contains("/nowhere/libcuda.so.1"), "{code:?}: {said}");
    let (code, said) = asked(&["/nowhere/libcuda.so.1"]);
    assert!(code == Some(1) && said.contains("wrong: /nowhere/libcuda.so.1"), "{code:?}: {said}");
    let (code, said) = asked(&["/nowhere/libcuda.so.1", "what"]);
    assert!(code == Some(2) && said.contains("`what`"), "{code:?}: {said}");
    assert_eq!(asked(&[]).0, Some(2));
}

#[test]
fn the_script_for_a_gpu_refuses_the_double_and_what_is_not_there() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/run.sh");
    let log = std::env::temp_dir().join(format!("trunnion-gpu-{}.log", std::process::id()));
    let double = Double::open().unwrap().path().display().to_string();
    for (driver, why) in [(double.as_str(), "is the double"), ("/nowhere/libcuda.so.1", "there is no such driver")] {
        let output = Command::new(script).args(["--driver", driver, "--out"]).arg(&log).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("NOT RUN") && said.contains(why), "{said}");
        // The same is in the file.
        assert_eq!(std::fs::read_to_string(&log).unwrap(), said);
    }
    std::fs::remove_file(&log).unwrap();
}
