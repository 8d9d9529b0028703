//! Kernels of safe code that ask for what no processor answers alike: each in a process of its own, which must answer in time and end well.
//!
//! What takes more memory or calls than a driver bears never gets here: the reader of WGSL refuses it.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trunnion_backend_vulkan::{VulkanBackend, VulkanOptions};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::kernel::SourceKernel;
use trunnion_runtime_core::service::Settings;
use trunnion_vulkan_shim::require;

/// Which kernel and which device a child process is for.
const CASE: &str = "HOSTILE_KERNEL";

/// How long a child is given: longer than it waits for a kernel, and for its device when it exits.
const LIMIT: Duration = Duration::from_secs(60);

/// What comes of a kernel, in a buffer of ones.
enum Answer {
    /// These words first, as WGSL has it.
    Words(&'static [u32]),
    /// Any words.
    Any,
    /// None in time.
    Timeout,
}

use Answer::{Any, Timeout, Words};

/// By name, with the text behind the declaration of the buffer `x`.
const KERNELS: [(&str, &str, Answer); 12] = [
    (
        "division by zero and over the edge",
        "@compute @workgroup_size(1) fn k() {
            let z = x[0] - 1u;
            let least = i32(x[0] + 0x7fffffffu);
            x[1] = 5u / z;
            x[2] = 5u % z;
            x[3] = u32(least / (i32(z) - 1));
            x[4] = u32(least % (i32(z) - 1));
        }",
        Words(&[1, 5, 0, 1 << 31, 0]),
    ),
    (
        "shifts beyond the width",
        "@compute @workgroup_size(1) fn k() {
            let s = x[0] + 40u;
            x[1] = 5u << s;
            x[2] = 5u >> s;
            x[3] = u32(-5 >> s);
        }",
        Words(&[1, 5 << 9, 0, u32::MAX]),
    ),
    (
        "numbers that an integer does not hold",
        "@compute @workgroup_size(1) fn k() {
            let f = f32(x[0]) * 1e30;
            x[1] = u32(f);
            x[2] = u32(i32(-f));
            x[3] = u32(f / (f32(x[0]) - 1.0));
            x[4] = u32(log(-f));
        }",
        Any,
    ),
    (
        "bits beyond the word",
        "@compute @workgroup_size(1) fn k() {
            x[1] = extractBits(x[0], 31u + x[0], 45u);
            x[2] = insertBits(x[0], 7u, 40u, 40u);
            x[3] = firstTrailingBit(x[0] - 1u);
        }",
        Words(&[1, 0, 1, u32::MAX]),
    ),
    (
        "places beyond a vector and a matrix",
        "@compute @workgroup_size(1) fn k() {
            var v = vec4<u32>(x[0]);
            var m = mat4x4<f32>();
            v[x[0] * 77u] = 3u;
            m[x[0] * 99u][x[0] * 1000000u] = 2.0;
            x[1] = v[x[0] * 9999u] + u32(m[x[0] + 7u][x[0] + 9u]);
        }",
        Any,
    ),
    (
        "places beyond an array behind a pointer",
        "fn put(p: ptr<function, array<u32, 4>>, i: u32) { (*p)[i] = 9u; }
        @compute @workgroup_size(1) fn k() {
            var a: array<u32, 4>;
            put(&a, x[0] * 0x3fffffffu);
            x[1] = a[x[0] * 0x3ffffff0u];
        }",
        Any,
    ),
    (
        "places beyond the workgroup's memory",
        "var<workgroup> s: array<u32, 16>;
        @compute @workgroup_size(64) fn k(@builtin(local_invocation_index) l: u32) {
            s[l * 0x1000000u * x[0]] = l;
            workgroupBarrier();
            x[l] = s[l * 0x11111111u];
        }",
        Any,
    ),
    (
        "atomics beyond the workgroup's memory",
        "var<workgroup> s: array<atomic<u32>, 16>;
        @compute @workgroup_size(64) fn k(@builtin(local_invocation_index) l: u32) {
            atomicAdd(&s[l * 0x1000000u * x[0]], 1u);
            workgroupBarrier();
            x[l] = atomicLoad(&s[l * 0x11111111u]);
        }",
        Any,
    ),
    (
        "a barrier that some do not reach",
        "@compute @workgroup_size(64) fn k(@builtin(local_invocation_index) l: u32) {
            if l < 3u + x[0] { workgroupBarrier(); x[l] = 7u; }
        }",
        Any,
    ),
    (
        "a barrier in a loop that some leave",
        "@compute @workgroup_size(64) fn k(@builtin(local_invocation_index) l: u32) {
            for (var i = 0u; i < l + x[0]; i++) { workgroupBarrier(); x[l] = 7u; }
        }",
        Any,
    ),
    (
        "a loop without an end",
        "@compute @workgroup_size(1) fn k() { loop { x[1] += x[0]; if x[0] == 77u { break; } } }",
        Timeout,
    ),
    ("nothing", "@compute @workgroup_size(1) fn k() { _ = arrayLength(&x); }", Words(&[1, 1])),
];

fn run(text: &str, index: u32) -> Result<Vec<u32>> {
    let backend = VulkanBackend::new(VulkanOptions::default());
    let mut settings = Settings::default();
    settings.wait_timeout = Duration::from_secs(5);
    settings.drop_timeout = Duration::from_millis(500);
    let opened = backend.open(index, &OpenSettings::default())?;
    let client = Client::try_init_with(DeviceId { backend: backend.name(), index }, opened, &settings)?;
    let ones: Vec<u8> = [1_u32; 256].iter().flat_map(|one| one.to_ne_bytes()).collect();
    let x = client.create_from_slice(&ones)?;
    let text = format!("@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n{text}");
    let kernel = client.prepare(SourceKernel::wgsl("k", text))?;
    client.launch(&kernel, Grid::x(2), [&x])?;
    client.read_one(&x)?.to_vec()
}

#[test]
#[ignore = "run by the other test, in a process of its own"]
fn child() {
    let case = std::env::var(CASE).unwrap();
    let (name, index) = case.split_once('@').unwrap();
    let (_, text, answer) = KERNELS.iter().find(|(known, ..)| *known == name).unwrap();
    match (answer, run(text, index.parse().unwrap())) {
        (Words(expected), Ok(words)) => assert_eq!(&words[..expected.len()], *expected),
        (Any, Ok(words)) => assert_eq!(words.len(), 256),
        // A driver may find that such a loop need not be run.
        (Timeout, Ok(_) | Err(Error::Timeout { .. })) => {}
        (_, other) => panic!("{other:?}"),
    }
}

/// Why a child did not end well.
fn failure(case: &str) -> Option<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CASE, case)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some(format!("{case}: no end after {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let said = || String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| format!("{case}: {}: {}", output.status, said()))
}

#[test]
fn no_kernel_of_safe_code_ends_the_process_or_keeps_it() {
    let found = VulkanBackend::new(VulkanOptions::default()).enumerate().unwrap_or_default();
    require(&found.iter().map(|info| &info.adapter).collect::<Vec<_>>());
    let count = found.len();
    let cases = KERNELS.iter().flat_map(|(name, ..)| (0..count).map(move |index| format!("{name}@{index}")));
    let failures: Vec<_> = cases.filter_map(|case| failure(&case)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
