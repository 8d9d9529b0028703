//! The script for a GPU and the program of its first section, with drivers and programs that play their part: what is not run, what failed,
//! and what each says.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A directory with the script, and what it runs.
struct Package(PathBuf);

impl Package {
    /// Programs that do what these lines of shell say.
    fn new(test: &str, programs: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        let place = std::env::temp_dir().join(format!("trunnion-gpu-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/run.sh"), place.join("run.sh")).unwrap();
        for (name, lines) in programs {
            let file = place.join(name);
            std::fs::write(&file, format!("#!/bin/sh\n{lines}\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        for library in ["libcuda.so.1", "libnvrtc.so.12", "libnvrtc.so.13"] {
            std::fs::write(place.join(library), "plays its part").unwrap();
        }
        Self(place)
    }

    fn run(&self) -> (Option<i32>, String) {
        let nvrtc = self.0.join("libnvrtc.so.13");
        self.run_as(|command| _ = command.arg("--nvrtc").arg(nvrtc))
    }

    /// Runs the script with what is added to the command.
    fn run_as(&self, add: impl FnOnce(&mut Command)) -> (Option<i32>, String) {
        let mut command = Command::new(self.0.join("run.sh"));
        command.arg("--driver").arg(self.0.join("libcuda.so.1")).arg("--out").arg(self.0.join("log"));
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("TRUNNION_CUDA_COMPILERS");
        add(&mut command);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(std::fs::read_to_string(self.0.join("log")).unwrap(), said);
        (output.status.code(), said)
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

const ASSUMPTIONS: (&str, &str) = ("trunnion-assumptions", "echo on $CUDA_VISIBLE_DEVICES");
const SUITE: (&str, &str) = ("trunnion-conformance", "echo with $TRUNNION_REQUIRE");
const WORKLOADS: (&str, &str) = ("benches", "echo \"$@\"");
const DIGITS: (&str, &str) = ("digits", "echo \"$@\"; echo test accuracy 0.9721");

#[test]
fn all_sections_are_run_on_one_device() {
    let (code, said) = Package::new("all", [ASSUMPTIONS, SUITE, WORKLOADS, DIGITS]).run();
    assert_eq!(code, Some(0), "{said}");
    for line in
        ["on 0,1\n", "with cuda:gpu\n", "gpu-launch gpu-pool-hit", "--backend cuda:0 --out", "gpu: everything held"]
    {
        assert!(said.contains(line), "`{line}` is not in {said}");
    }
}

#[test]
fn what_fails_is_named_and_the_others_are_run() {
    let broken = [("trunnion-assumptions", "exit 1"), ("trunnion-conformance", "exit 3"), WORKLOADS, DIGITS];
    let (code, said) = Package::new("broken", broken).run();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("gpu: FAILED: assumptions suite, after") && said.contains("accuracy"), "{said}");
}

#[test]
fn a_workload_that_says_it_was_not_run_has_failed() {
    let (code, said) = Package::new("left", [ASSUMPTIONS, SUITE, ("benches", "echo NOT RUN: no driver"), DIGITS]).run();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("workloads: FAILED (not all was run)") && said.contains("gpu: FAILED: workloads"), "{said}");
}

#[test]
fn a_driver_without_a_device_is_not_run_on() {
    let none = [("trunnion-assumptions", "exit 3"), SUITE, WORKLOADS, DIGITS];
    let (code, said) = Package::new("none", none).run();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("gpu: NOT RUN") && said.contains("has no device") && !said.contains("== suite"), "{said}");
}

#[test]
fn digits_that_reads_too_few_right_has_failed() {
    for lines in ["echo test accuracy 0.9400", "echo nothing"] {
        let (code, said) = Package::new("few", [ASSUMPTIONS, SUITE, WORKLOADS, ("digits", lines)]).run();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("0.95 is promised") && said.contains("gpu: FAILED: digits"), "{said}");
    }
}

#[test]
fn of_two_compilers_the_newest_is_taken_that_is_not_newer_than_the_driver() {
    let all = [ASSUMPTIONS, SUITE, WORKLOADS, DIGITS];
    let ldconfig =
        ("ldconfig", "for v in 13 12; do echo \"\tlibnvrtc.so.$v (libc6) => $(dirname \"$0\")/libnvrtc.so.$v\"; done");
    for (says, taken) in [
        ("echo '| Driver Version: 570.12.4  CUDA Version: 12.8 |'", "libnvrtc.so.12"),
        ("echo '| Driver Version: 580.12.4  CUDA Version: 13.0 |'", "libnvrtc.so.13"),
    ] {
        let package = Package::new("compilers", all.into_iter().chain([ldconfig, ("nvidia-smi", says)]));
        let path = format!("{}:{}", package.0.display(), std::env::var("PATH").unwrap());
        let (code, said) = package.run_as(|command| _ = command.env("PATH", path));
        assert!(code == Some(0) && said.contains(&format!("{taken}\n")), "{said}");
    }
}

#[test]
fn only_a_driver_that_says_so_has_no_device() {
    let place = std::env::temp_dir().join(format!("trunnion-gpu-drivers-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let devices = |count: u32| format!("int cuDeviceGetCount(int *count) {{ *count = {count}; return 0; }}");
    for (name, begun, count, code, words) in [
        ("none", 100, devices(0), 3, "no device"),
        ("empty", 0, devices(0), 3, "no device"),
        ("unknown", 999, devices(1), 1, "wrong: cuInit gave 999"),
        ("lacking", 0, String::new(), 1, "wrong: cuDeviceGetCount gave 36"),
        // It begins, and nothing works.
        ("useless", 0, devices(1), 1, "0 seen"),
    ] {
        let (source, library) = (place.join("driver.c"), place.join(name));
        std::fs::write(&source, format!("int cuInit(unsigned flags) {{ return {begun}; }}\n{count}\n")).unwrap();
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
        assert!(made.success());
        let output = Command::new(env!("CARGO_BIN_EXE_trunnion-assumptions")).arg(&library).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(words), "{name}: {:?}: {said}", output.status);
    }
    std::fs::remove_dir_all(&place).unwrap();
}
