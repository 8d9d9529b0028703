//! A device and NumPy in one process: each uses the other's memory where it is.
//!
//! Python is `TRUNNION_PYTHON`, or `python3`. Where it has no NumPy 2.1 or later the test says so and passes, unless the variable is set.

use std::path::PathBuf;
use std::process::Command;

/// The example, as a library.
fn library() -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    // From the folder of tests to that of examples beside it.
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let name = format!("{}capsule{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    folder.join("examples").join(name)
}

#[test]
fn numpy_and_a_device_use_each_others_memory_without_a_copy() {
    let required = std::env::var("TRUNNION_PYTHON").ok();
    let python = required.clone().unwrap_or_else(|| "python3".into());
    let probe = "import numpy, sys; sys.exit(tuple(map(int, numpy.__version__.split('.')[:2])) < (2, 1))";
    let has_numpy = Command::new(&python).args(["-c", probe]).output().is_ok_and(|output| output.status.success());
    if !has_numpy && required.is_none() {
        eprintln!("skipped: {python} has no NumPy of at least 2.1");
        return;
    }
    assert!(library().exists(), "{} is not built; cargo does so with all tests of the crate", library().display());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exchange.py");
    let output = Command::new(&python).arg(script).arg(library()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("numpy"), "{text}");
}
