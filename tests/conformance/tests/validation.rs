//! That a run on Vulkan fails when the validation layer complains: an error made on purpose, in a process of its own.

#![forbid(unsafe_code)]
#![cfg(feature = "vulkan")]

use std::process::{Command, Output};

fn wrong_call(backend: &str, validation: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunnion-conformance"))
        .args(["--backend", backend, "--child", "M12::a_wrong_call_is_made_on_purpose"])
        .env("CONFORMANCE_VALIDATION", validation)
        .output()
        .unwrap()
}

/// The exit code of a child process whose test could not be made here.
const SKIPPED: i32 = 77;

#[test]
fn what_the_validation_layer_complains_of_fails_the_run_and_is_printed() {
    let required = trunnion_conformance::runner::required();
    for backend in ["vulkan:llvmpipe", "vulkan:swiftshader"] {
        let (checked, unchecked) = (wrong_call(backend, "1"), wrong_call(backend, "0"));
        let said = String::from_utf8_lossy(&checked.stderr);
        if unchecked.status.code() == Some(SKIPPED) {
            assert!(!required.iter().any(|name| name == backend), "{backend} is required: {said}");
            eprintln!("skipped: {backend}: {}", said.trim());
            continue;
        }
        assert_eq!((checked.status.code(), unchecked.status.code()), (Some(1), Some(0)), "{backend}: {said}");
        assert!(said.contains("complaint: ") && said.contains("VUID-VkBufferCreateInfo-size"), "{backend}: {said}");
    }
}
