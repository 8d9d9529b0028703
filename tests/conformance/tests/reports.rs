//! That a run on the double of the CUDA driver fails when the double reports something: a mistake made on purpose, in a process of its own.

#![forbid(unsafe_code)]
#![cfg(feature = "cuda")]

use std::process::Command;
use trunnion_cuda_double::compilers::Compilers;

#[test]
fn what_the_double_reports_fails_the_run_and_is_printed() {
    let Some(_) = Compilers::for_test("what the double reports fails the run") else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_trunnion-conformance"))
        .args(["--backend", "cuda:double", "--child", "M12::bytes_nobody_wrote_are_read_on_purpose"])
        .env_remove("TRUNNION_CUDA_DRIVER")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("complaint: cuda:") && said.contains("uninitialised"), "{said}");
}
