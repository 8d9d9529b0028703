//! Texts that go as deep as they are long: none ends the process, whatever the compiler calls itself for.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod rig;

use rig::{everything, read_with};
use trunnion_kernel_wgsl::{Module, SpirVOptions};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::kernel::SourceKernel;

/// A text of that size, for a kernel `k`.
type Made = fn(usize) -> String;

fn body(body: &str) -> String {
    format!("@compute @workgroup_size(1) fn k() {{ {body} }}")
}

fn around(open: &str, inside: &str, close: &str, n: usize) -> String {
    body(&format!("{}{inside}{}", open.repeat(n), close.repeat(n)))
}

/// A declaration for each number, each of which needs the one before, which comes later in the text.
fn declared(first: &str, each: fn(usize) -> String, n: usize) -> String {
    (1..=n).rev().map(each).collect::<String>() + first
}

const DEEP: [(&str, Made); 22] = [
    ("parentheses", |n| body(&format!("let x = {}1{};", "(".repeat(n), ")".repeat(n)))),
    ("blocks", |n| around("{", "", "}", n)),
    ("conditions", |n| around("if true {", "", "}", n)),
    ("loops", |n| around("loop {", "break;", "}", n)),
    ("for loops", |n| around("for (var i = 0; i < 2; i++) {", "", "}", n)),
    ("switches", |n| around("switch 1 { default: {", "", "} }", n)),
    ("else", |n| body(&format!("if true {{ }} {}", "else if true { }".repeat(n)))),
    ("else inside else", |n| around("if true { } else if false { } else {", "", "}", n)),
    ("signs", |n| body(&format!("var y = 1; let x = {}y;", "- ".repeat(n)))),
    ("not", |n| body(&format!("var y = true; let x = {}y;", "!".repeat(n)))),
    ("sums", |n| body(&format!("var y = 1; let x = y{};", "+y".repeat(n)))),
    ("constant sums", |n| body(&format!("let x = 1{};", "+1".repeat(n)))),
    ("truths", |n| body(&format!("var y = true; let x = y{};", " && y".repeat(n)))),
    ("calls", |n| {
        "fn f(x: i32) -> i32 { return x; }".to_owned()
            + &body(&format!("let x = {}1{};", "f(".repeat(n), ")".repeat(n)))
    }),
    ("vectors", |n| body(&format!("let x = vec2({}1{});", "vec2(".repeat(n), ").xx".repeat(n)))),
    ("members", |n| body(&format!("let x = vec4(1){};", ".xyzw".repeat(n)))),
    ("indices", |n| body(&format!("var a = array(1, 2); let x = {}1{};", "a[".repeat(n), "]".repeat(n)))),
    ("types", |n| format!("alias x = {}i32{};", "array<".repeat(n), ",1>".repeat(n)) + &body("var y: x;")),
    ("functions", |n| {
        declared("fn f0() {}", |i| format!("fn f{i}() {{ f{}(); }}", i - 1), n) + &body(&format!("f{n}();"))
    }),
    ("constants", |n| {
        declared("const c0 = 1;", |i| format!("const c{i} = c{};", i - 1), n) + &body(&format!("let x = c{n};"))
    }),
    ("structs", |n| {
        declared("struct s0 { a: u32 }", |i| format!("struct s{i} {{ a: s{} }}", i - 1), n)
            + &body(&format!("var x: s{n};"))
    }),
    ("comments", |n| format!("{}{}", "/*".repeat(n), "*/".repeat(n)) + &body("")),
];

#[test]
fn a_text_of_any_depth_is_read_or_refused() {
    for (what, made) in DEEP {
        let mut taken = 0;
        for n in [1, 30, 60, 125, 500, 2000, 100_000] {
            let text = made(n);
            match read_with(&SourceKernel::wgsl("k", text), everything()) {
                Ok(reading) => {
                    taken = n;
                    assert!(n < 100_000 || what == "comments", "{what} of {n} are read");
                    let module: std::sync::Arc<Module> = reading.parsed.unwrap().downcast().unwrap();
                    module.spirv(&SpirVOptions { push_constants: 128, ..SpirVOptions::default() }).unwrap();
                }
                Err(Error::InvalidKernel { why, .. }) => {
                    assert!(why.contains("goes too deep at line 1"), "{what}: {why}")
                }
                Err(Error::Compile { message, .. }) => {
                    let known = ["recursion limit", "nesting limit", "too large"];
                    assert!(known.iter().any(|limit| message.contains(limit)), "{what}, {n}: {message}");
                }
                Err(other) => panic!("{what}, {n}: {other}"),
            }
        }
        // What people write, and what programs write for them.
        assert!(taken >= 30, "{what}: only {taken}");
    }
}

#[test]
fn a_long_text_that_is_not_deep_is_no_deep_text() {
    let lines = "x[i] = (x[i] * 3 + 1) / 2 - x[i + 1]; if x[i] > 2 { x[i] = 1; } else { x[i] = -1; }\n".repeat(400);
    let table = "vec2<f32>(-1.0, 2.5e-3), ".repeat(3000);
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> x: array<i32>;
        const TABLE = array({table});
        @compute @workgroup_size(1) fn k(@builtin(global_invocation_id) id: vec3u) {{ let i = id.x;\n{lines} }}"
    );
    read_with(&SourceKernel::wgsl("k", text), everything()).unwrap();
}
