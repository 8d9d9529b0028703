//! Kernels as SPIR-V: what Vulkan's own validator says of them, and what is in them.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod rig;

use rig::{everything, module, module_of, read};
use std::io::Write;
use std::process::{Command, Stdio};
use trunnion_kernel_wgsl::{Capabilities, Parameters, SpirV, SpirVOptions};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::kernel::SourceKernel;
use trunnion_runtime_core::server::Bounds;

/// Kernels that use what kernels use, each named `k`.
const KERNELS: [(&str, &str); 12] = [
    ("nothing", "@compute @workgroup_size(1) fn k() {}"),
    (
        "axpy",
        "@group(0) @binding(0) var<storage> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        struct P { a: f32, n: u32 }
        @group(0) @binding(2) var<uniform> p: P;
        @compute @workgroup_size(64) fn k(@builtin(global_invocation_id) id: vec3u) {
            if id.x < min(p.n, arrayLength(&y)) { y[id.x] += p.a * x[id.x]; }
        }",
    ),
    (
        "product in tiles",
        "override TILE: u32 = 8;
        struct P { m: u32, n: u32, k: u32 }
        @group(0) @binding(0) var<storage> a: array<f32>;
        @group(0) @binding(1) var<storage> b: array<f32>;
        @group(0) @binding(2) var<storage, read_write> c: array<f32>;
        @group(0) @binding(3) var<uniform> p: P;
        var<workgroup> left: array<array<f32, 8>, 8>;
        var<workgroup> right: array<array<f32, 8>, 8>;
        @compute @workgroup_size(TILE, TILE)
        fn k(@builtin(local_invocation_id) at: vec3u, @builtin(workgroup_id) group: vec3u) {
            let row = group.y * TILE + at.y;
            let column = group.x * TILE + at.x;
            var sum = 0.0;
            for (var tile = 0u; tile < (p.k + TILE - 1) / TILE; tile++) {
                left[at.y][at.x] = a[row * p.k + tile * TILE + at.x];
                right[at.y][at.x] = b[(tile * TILE + at.y) * p.n + column];
                workgroupBarrier();
                for (var i = 0u; i < TILE; i++) { sum = fma(left[at.y][i], right[i][at.x], sum); }
                workgroupBarrier();
            }
            if row < p.m && column < p.n { c[row * p.n + column] = sum; }
        }",
    ),
    (
        "atomics",
        "struct Bins { total: atomic<u32>, low: atomic<i32>, bins: array<atomic<u32>> }
        @group(0) @binding(0) var<storage, read_write> b: Bins;
        @group(0) @binding(1) var<storage> x: array<u32>;
        var<workgroup> local: array<atomic<u32>, 16>;
        @compute @workgroup_size(16) fn k(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) i: u32) {
            atomicAdd(&local[x[id.x] % 16], 1u);
            workgroupBarrier();
            atomicAdd(&b.bins[i], atomicLoad(&local[i]));
            atomicMin(&b.low, i32(x[id.x]));
            let taken = atomicCompareExchangeWeak(&b.total, 0u, 7u);
            if !taken.exchanged { atomicStore(&b.total, taken.old_value); }
            storageBarrier();
        }",
    ),
    (
        "structs, matrices, functions and pointers",
        "struct Inner { v: vec3f, s: f32 }
        struct Outer { m: mat2x2f, inner: array<Inner, 2>, q: mat3x3f }
        @group(0) @binding(0) var<storage, read_write> o: array<Outer>;
        @group(0) @binding(1) var<uniform> p: Outer;
        fn scale(v: ptr<function, vec3f>, by: f32) { *v *= by; (*v)[u32(by) % 5] = 1.0; }
        fn pick(i: u32) -> f32 { switch i { case 0, 1 { return 1.0; } case 2 { return 2.0; } default { return 3.0; } } }
        @compute @workgroup_size(4) fn k(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) n: vec3u) {
            var v = o[id.x].inner[id.y].v;
            scale(&v, p.inner[id.y % 2].s);
            o[id.x].inner[1].v = v * pick(id.z) + p.q * v;
            o[id.x].m = p.m * o[id.x + n.x].m;
            o[id.x].m[id.y][id.z] = f32(n.y);
        }",
    ),
    (
        "loops and private memory",
        "@group(0) @binding(0) var<storage, read_write> x: array<i32>;
        var<private> table: array<i32, 9> = array(1, 2, 3, 4, 5, 6, 7, 8, 9);
        const SHIFT = 3u;
        @compute @workgroup_size(1) fn k(@builtin(global_invocation_id) id: vec3u) {
            var i = x[id.x];
            loop {
                if i <= 0 { break; }
                if (i & 1) == 1 { i -= 1; continue; }
                table[i % 20] = i / x[0] + i % x[1];
                continuing { i = (i >> SHIFT) ^ ~i; break if i == 7; }
            }
            while i < 5 { i++; }
            x[id.x] = table[i];
        }",
    ),
    (
        "built-in functions",
        "@group(0) @binding(0) var<storage, read_write> x: array<vec4f>;
        @group(0) @binding(1) var<storage, read_write> u: array<u32>;
        @compute @workgroup_size(2, 2, 2) fn k(@builtin(local_invocation_index) i: u32) {
            let v = x[i];
            u[i] = pack4x8unorm(v) + pack2x16float(v.xy) + countOneBits(u[i + 1]) + firstLeadingBit(u[2]) + dot4U8Packed(1u, u[0]);
            let parts = modf(v.x);
            let exponent = frexp(v.y);
            x[i] = clamp(exp(sin(v)), vec4f(parts.whole), vec4f(exponent.fract)) + bitcast<vec4f>(vec4u(u[i]))
                + select(vec4f(inverseSqrt(length(v))), unpack4x8snorm(u[i]), v < vec4f(1));
            if any(v != v) || all(v == vec4f()) { x[i] = mix(v, smoothstep(v, v.wzyx, vec4f(0.5)), tanh(v.z)); }
        }",
    ),
    (
        "half",
        "enable f16;
        struct P { a: f16, b: vec2<f16> }
        @group(0) @binding(0) var<storage, read_write> x: array<f16>;
        @group(0) @binding(1) var<uniform> p: P;
        @compute @workgroup_size(1) fn k(@builtin(global_invocation_id) id: vec3u) { x[id.x] = x[id.x] * p.a + p.b.y; }",
    ),
    (
        "wide",
        "@group(0) @binding(0) var<storage, read_write> x: array<f64>;
        @group(0) @binding(1) var<storage, read_write> u: array<u64>;
        @group(0) @binding(2) var<storage, read_write> a: array<atomic<u64>>;
        @compute @workgroup_size(1) fn k(@builtin(global_invocation_id) id: vec3u) {
            x[id.x] = x[0] + f64(u[id.x]);
            u[1] = u[0] << 40u;
            atomicMax(&a[id.x], u[2]);
        }",
    ),
    (
        "subgroups",
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(32) fn k(@builtin(global_invocation_id) id: vec3u, @builtin(subgroup_invocation_id) lane: u32) {
            let sum = subgroupAdd(x[id.x]) + subgroupExclusiveAdd(lane) + subgroupBroadcastFirst(lane);
            x[id.x] = sum + subgroupShuffleXor(sum, 1u) + subgroupBallot(lane > 2).x + subgroupMax(lane);
        }",
    ),
    (
        "a value read by one and used by all",
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
        var<workgroup> n: u32;
        @compute @workgroup_size(8) fn k(@builtin(local_invocation_index) i: u32) {
            if i == 0 { n = x[0]; }
            let count = workgroupUniformLoad(&n);
            for (var j = i; j < count; j += 8) { x[j] += count; }
        }",
    ),
    (
        "parameters that no code uses",
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @group(0) @binding(2) var<uniform> p: vec4u;
        @compute @workgroup_size(1) fn k() { y[0] = 1; }",
    ),
];

fn options(bounds: Bounds, push_constants: u32) -> SpirVOptions {
    SpirVOptions { bounds, push_constants, ..SpirVOptions::default() }
}

/// The instructions of a kind, each with the words behind its first.
fn instructions(words: &[u32], kind: u32) -> Vec<&[u32]> {
    let (mut rest, mut found) = (&words[5..], Vec::new());
    while let [first, ..] = rest {
        let (instruction, behind) = rest.split_at((first >> 16) as usize);
        if first & 0xFFFF == kind {
            found.push(&instruction[1..]);
        }
        rest = behind;
    }
    found
}

const ENTRY_POINT: u32 = 15;
const VARIABLE: u32 = 59;
const ARRAY_LENGTH: u32 = 68;
const DECORATE: u32 = 71;
const BINDING: u32 = 33;

/// The bindings of the variables in set 0, in order.
fn bindings(spirv: &SpirV) -> Vec<u32> {
    let decorations = instructions(&spirv.words, DECORATE);
    let mut all: Vec<_> = decorations.iter().filter(|words| words[1] == BINDING).map(|words| words[2]).collect();
    all.sort_unstable();
    all
}

#[test]
fn the_validator_of_the_specification_takes_every_kernel() {
    if Command::new("spirv-val").arg("--version").output().is_err() {
        assert!(std::env::var_os("TRUNNION_REQUIRE").is_none(), "spirv-val is missing (Debian: spirv-tools)");
        return eprintln!("NOT RUN: spirv-val is missing (Debian: spirv-tools)");
    }
    let mut validated = 0;
    for (name, text) in KERNELS {
        let module = module("k", text);
        for (bounds, push_constants, zeroes_shared) in [
            (Bounds::Checked, 0, false),
            (Bounds::Checked, 256, true),
            (Bounds::Unchecked, 0, true),
            (Bounds::Unchecked, 256, false),
        ] {
            for (version, environment) in [((1, 3), "vulkan1.1"), ((1, 5), "vulkan1.2"), ((1, 6), "vulkan1.3")] {
                let options = SpirVOptions { bounds, push_constants, zeroes_shared, version };
                let spirv = module.spirv(&options).unwrap();
                let said = validate(environment, &spirv.words);
                assert_eq!(said, "", "{name}, {options:?}");
                validated += 1;
            }
        }
    }
    assert_eq!(validated, KERNELS.len() * 12);
    assert!(
        validate("vulkan1.2", &[0x0723_0203, 0x0001_0500, 0, 9, 0]).contains("error"),
        "it says nothing of what is wrong"
    );
}

/// What the validator says of a module that is to run there; nothing where it is as it should be.
fn validate(environment: &str, words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut child = Command::new("spirv-val")
        .args(["--target-env", environment, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn a_module_begins_as_spirv_does_and_has_one_entry_point_of_the_kernels_name() {
    for (name, text) in KERNELS {
        let module = module("k", text);
        let spirv = module.spirv(&SpirVOptions::default()).unwrap();
        assert_eq!(spirv.words[..2], [0x0723_0203, 0x0001_0500], "{name}");
        let entries = instructions(&spirv.words, ENTRY_POINT);
        // GLCompute, and the name behind the function's number.
        assert_eq!((entries.len(), entries[0][0], entries[0][2]), (1, 5, u32::from(b'k')), "{name}");
        assert_eq!(module.spirv(&SpirVOptions::default()).unwrap(), spirv, "{name}: twice the same");
    }
}

#[test]
fn buffers_keep_their_places_and_parameters_are_behind_them_or_pushed() {
    let axpy = module("k", KERNELS[1].1);
    let block = axpy.spirv(&options(Bounds::Checked, 7)).unwrap();
    assert_eq!((block.parameters, bindings(&block)), (Parameters::Uniform { binding: 2, bytes: 8 }, vec![0, 1, 2]));
    let pushed = axpy.spirv(&options(Bounds::Checked, 8)).unwrap();
    assert_eq!((pushed.parameters, bindings(&pushed)), (Parameters::PushConstants(8), vec![0, 1]));
    // Uniform is storage class 2, PushConstant 9.
    let classes = |spirv: &SpirV| instructions(&spirv.words, VARIABLE).iter().map(|words| words[2]).collect::<Vec<_>>();
    assert!(classes(&block).contains(&2) && !classes(&block).contains(&9));
    assert!(classes(&pushed).contains(&9) && !classes(&pushed).contains(&2));

    let none = module("k", KERNELS[3].1).spirv(&options(Bounds::Checked, 128)).unwrap();
    assert_eq!((none.parameters, bindings(&none)), (Parameters::None, vec![0, 1]));
    let unused = module("k", KERNELS[11].1).spirv(&options(Bounds::Checked, 128)).unwrap();
    assert_eq!((unused.parameters, bindings(&unused)), (Parameters::PushConstants(16), vec![1]));
}

#[test]
fn parameters_with_numbers_of_16_bits_stay_a_block() {
    let half = module("k", KERNELS[7].1).spirv(&options(Bounds::Checked, 256)).unwrap();
    assert_eq!(half.parameters, Parameters::Uniform { binding: 1, bytes: 8 });
}

#[test]
fn code_asks_for_the_length_of_a_buffer_only_where_it_is_checked() {
    let text = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(1) fn k(@builtin(global_invocation_id) id: vec3u) { x[id.x] = x[id.y]; }";
    let module = module("k", text);
    let lengths = |bounds| instructions(&module.spirv(&options(bounds, 0)).unwrap().words, ARRAY_LENGTH).len();
    assert_eq!((lengths(Bounds::Checked), lengths(Bounds::Validated), lengths(Bounds::Unchecked)), (2, 2, 0));
}

#[test]
fn workgroup_memory_is_begun_as_zeros_by_the_driver_or_by_the_code() {
    // The variable of a module has its initial value behind its storage class, Workgroup, which is 4.
    let begun = |zeroes_shared| {
        let options = SpirVOptions { zeroes_shared, ..SpirVOptions::default() };
        let words = module("k", KERNELS[3].1).spirv(&options).unwrap().words;
        let shared: Vec<_> = instructions(&words, VARIABLE).into_iter().filter(|words| words[2] == 4).collect();
        (shared.len(), shared[0].len())
    };
    assert_eq!((begun(true), begun(false)), ((1, 4), (1, 3)));
}

#[test]
fn a_constant_is_in_the_code() {
    let text = "override N: u32 = 7;
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(N) fn k() { x[0] = N * 1000; }";
    let words = |value: f64| {
        let module = module_of(&SourceKernel::wgsl("k", text).constant("N", value), Capabilities::default());
        module.spirv(&SpirVOptions::default()).unwrap().words
    };
    assert!(words(9.0).contains(&9000) && !words(9.0).contains(&7000));
    assert!(module("k", text).spirv(&SpirVOptions::default()).unwrap().words.contains(&7000));
}

#[test]
fn a_version_there_is_not_is_an_error_of_the_kernel() {
    let module = module("k", KERNELS[0].1);
    let error = module.spirv(&SpirVOptions { version: (9, 9), ..SpirVOptions::default() }).unwrap_err();
    assert!(matches!(&error, Error::Compile { kernel, line: None, .. } if kernel == "k"), "{error:?}");
    assert!(error.to_string().contains("9.9"), "{error}");
}

#[test]
fn every_kernel_is_read_without_a_declaration() {
    for (name, text) in KERNELS {
        let kernel = SourceKernel::wgsl("k", text);
        assert!(rig::read_with(&kernel, everything()).is_ok(), "{name}");
        let more = ["half", "wide", "subgroups"].contains(&name);
        assert_eq!(read(&kernel).is_err(), more, "{name}");
    }
}
