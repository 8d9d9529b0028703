//! What is said of texts that are wrong: every message whole, with its line and the caret under the place.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod rig;

use rig::{error, refused};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::kernel::SourceKernel;

/// A text with one buffer, and behind it, on the second line, an entry point `k`.
fn body(body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n@compute @workgroup_size(1) fn k() {{ {body} }}\n"
    )
}

/// The same text with more declarations, which stand on the second line.
fn more(more: &str) -> String {
    body("x[0] = 1;").replacen('\n', &format!("\n{more}\n"), 1)
}

#[test]
fn a_text_that_is_no_wgsl_is_shown_at_its_place() {
    let cases = [
        (
            body("y[0] = 1;"),
            "kernel `k` does not compile (line 2): no definition in scope for identifier: `y`
2 | @compute @workgroup_size(1) fn k() { y[0] = 1; }
  |                                      ^ unknown identifier",
        ),
        (
            body("x[0] = 1"),
            "kernel `k` does not compile (line 2): expected `;`, found \"}\"
2 | @compute @workgroup_size(1) fn k() { x[0] = 1 }
  |                                               ^ expected `;`",
        ),
        (
            body("\n\tx[0] =\t1.5;\n"),
            "kernel `k` does not compile (line 3): automatic conversions cannot convert elements of `{AbstractFloat}` to `u32`
3 | \tx[0] =\t1.5;
  | \t^^^^ a value with elements of type u32 is required here
3 | \tx[0] =\t1.5;
  | \t      \t^^^ this expression has type {AbstractFloat}",
        ),
        (
            body("x[0] = 1 / 0;"),
            "kernel `k` does not compile (line 2): Division by zero
2 | @compute @workgroup_size(1) fn k() { x[0] = 1 / 0; }
  |                                             ^^^^^",
        ),
        (
            more("@group(0) @binding(1) var<storage> y: array<f16>;"),
            "kernel `k` does not compile (line 2): the `f16` enable extension is not enabled
2 | @group(0) @binding(1) var<storage> y: array<f16>;
  |                                             ^^^ the `f16` \"Enable Extension\" is needed for this functionality, but it is not currently enabled.
note: You can enable this extension by adding `enable f16;` at the top of the shader, before any other items.",
        ),
        (
            "@compute fn k() {}".into(),
            "kernel `k` does not compile (line 1): workgroup size is missing on compute shader entry point
1 | @compute fn k() {}
  |  ^^^^^^^ must be paired with a `@workgroup_size` attribute",
        ),
        (
            "\u{0}".into(),
            "kernel `k` does not compile (line 1): expected global item (`struct`, `const`, `var`, `alias`, `fn`, `diagnostic`, `enable`, `requires`, `;`) or the end of the file, found \"\\0\"
1 |
  | ^ expected global item",
        ),
    ];
    for (text, expected) in cases {
        let said = refused("k", &text);
        assert!(said.starts_with(expected.split("\n1 |\n").next().unwrap()), "{said}\n\nis not\n\n{expected}");
        assert!(expected.contains("1 |\n") || said == expected, "{said}\n\nis not\n\n{expected}");
    }
}

#[test]
fn a_text_whose_meaning_is_wrong_is_shown_at_its_place() {
    let cases = [
        (
            body("x[0] = 5u + 1i;"),
            "kernel `k` does not compile (line 2): Expression [4] is invalid: Operation Add can't work with",
            "\n2 | @compute @workgroup_size(1) fn k() { x[0] = 5u + 1i; }\n  |                                             ^^^^^^^",
        ),
        (
            body("x[0] = 1;").replace(", read_write", ""),
            "kernel `k` does not compile (line 2): The pointer [1] doesn't relate to a valid destination for a store",
            "\n2 | @compute @workgroup_size(1) fn k() { x[0] = 1; }\n  |                                      ^^^^ writing to this location is not permitted",
        ),
        (
            more("struct S { a: array<u32>, b: u32 } @group(0) @binding(1) var<storage> s: S;"),
            "kernel `k` does not compile (line 2): Type [2] 'S' is invalid: Field 'a' can't be dynamically-sized",
            "\n2 | struct S { a: array<u32>, b: u32 } @group(0) @binding(1) var<storage> s: S;\n  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            more("@group(0) @binding(1) var<uniform> p: array<u32, 4>;"),
            "kernel `k` does not compile (line 2): Global variable [1] 'p' is invalid: Alignment requirements for address space Uniform are not met by [2]: The array stride 4 is not a multiple of the required alignment 16",
            "\n  |                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            body("var<function> a: array<u32, 4>; x[0] = a[5];"),
            "kernel `k` does not compile (line 2): Expression [3] is invalid: Accessing index 5 is out of [0] bounds",
            "^^^^",
        ),
        (
            more("fn p(q: ptr<storage, array<u32>, read_write>) { (*q)[0] = 1; }"),
            "kernel `k` does not compile (line 2): Function [0] 'p' is invalid: Argument 'q' at index 0 is a pointer of space Storage",
            "^^^^",
        ),
        (
            more("fn f() { f(); }"),
            "kernel `k` does not compile (line 2): declaration of `f` is recursive",
            "\n2 | fn f() { f(); }\n  |          ^ uses itself here",
        ),
    ];
    for (text, begins, ends) in cases {
        let said = refused("k", &text);
        assert!(said.starts_with(begins) && said.ends_with(ends), "{said}\n\nis not\n\n{begins}…{ends}");
    }
}

#[test]
fn what_is_no_kernel_is_refused_with_what_kernels_are() {
    let arguments = "a kernel's arguments are buffers, `var<storage>`, and behind them parameters, one `var<uniform>`";
    let gap = "buffers are bound from 0, without gaps, in the order of the arguments";
    let entry = "@compute @workgroup_size(1) fn";
    let cases = [
        (String::new(), "its text has no entry point; a kernel's is `@compute`, here `fn k`".into()),
        ("fn k() {}".into(), "its text has no entry point; a kernel's is `@compute`, here `fn k`".into()),
        (format!("{entry} l() {{}}"), "the entry point of its text is `l`; it has to have the kernel's name".into()),
        (format!("{entry} k() {{}} {entry} l() {{}}"), "its text has 2 entry points, k, l; a kernel's has one".into()),
        (
            "@vertex fn k() -> @builtin(position) vec4f { return vec4f(); }".into(),
            "its entry point is `@vertex`, and a kernel's is `@compute`".into(),
        ),
        ("@fragment fn k() {}".into(), "its entry point is `@fragment`, and a kernel's is `@compute`".into()),
        (
            format!("{entry} k(@location(0) i: u32) {{}}"),
            "`i` of its entry point is no `@builtin`; arguments are bound as buffers".into(),
        ),
        (
            format!("struct I {{ @builtin(workgroup_id) a: vec3u, @location(0) b: u32 }} {entry} k(i: I) {{}}"),
            "`i` of its entry point is no `@builtin`; arguments are bound as buffers".into(),
        ),
        (body("").replace("group(0)", "group(1)"), "`x` is in group 1; arguments are in group 0".into()),
        (more("@group(2) @binding(1) var<uniform> p: u32;"), "`p` is in group 2; arguments are in group 0".into()),
        (body("").replace("binding(0)", "binding(1)"), format!("no buffer is at binding 0, and `x` is at 1; {gap}")),
        (
            more("@group(0) @binding(2) var<storage> y: array<u32>;"),
            format!("no buffer is at binding 1, and `y` is at 2; {gap}"),
        ),
        (more("@group(0) @binding(0) var<storage> y: array<u32>;"), "`x` and `y` are both at binding 0".into()),
        (
            more("@group(0) @binding(2) var<uniform> p: u32;"),
            "`p`, the parameters, is at binding 2; its place is 1, behind the buffers".into(),
        ),
        (
            body("").replace("binding(0)", "binding(1)") + "@group(0) @binding(0) var<uniform> p: u32;",
            "`p`, the parameters, is at binding 0; its place is 1, behind the buffers".into(),
        ),
        (
            more("@group(0) @binding(0) var<uniform> p: u32;"),
            "`p`, the parameters, is at binding 0; its place is 1, behind the buffers".into(),
        ),
        (
            more("@group(0) @binding(1) var<uniform> p: u32; @group(0) @binding(2) var<uniform> q: u32;"),
            "`p` and `q` are both `var<uniform>`; parameters are one".into(),
        ),
        (more("@group(0) @binding(1) var t: texture_2d<f32>;"), format!("`t` is a texture; {arguments}")),
        (
            more("@group(0) @binding(1) var t: texture_storage_2d<r32float, write>;"),
            format!("`t` is a texture; {arguments}"),
        ),
        (more("@group(0) @binding(1) var s: sampler;"), format!("`s` is a sampler; {arguments}")),
        (more("var<immediate> i: u32;"), format!("`i` is `var<immediate>`; {arguments}")),
        (more("var<storage> s: array<u32>;"), format!("`s` is not bound anywhere; {arguments}")),
    ];
    for (text, expected) in cases {
        match error(&SourceKernel::wgsl("k", text.as_str())) {
            Error::InvalidKernel { kernel, why } => assert_eq!((kernel.as_str(), why), ("k", expected), "{text}"),
            other => panic!("{text}\n{other}"),
        }
    }
}

#[test]
fn names_as_long_as_a_text_do_not_make_messages_as_long() {
    let name = "n".repeat(100_000);
    let texts = [
        body(&format!("{name} = 1;")),
        more(&format!("@group(1) @binding(1) var<storage> {name}: array<u32>;")),
        format!("@compute @workgroup_size(1) fn {name}() {{}}"),
        more(&format!("struct {name} {{ a: array<u32>, {name}: u32 }} @group(0) @binding(1) var<storage> s: {name};")),
        "@group(0) @binding(1) ".repeat(5_000),
    ];
    for text in texts {
        let said = refused("k", &text);
        assert!(said.len() < 6_000, "{} bytes", said.len());
    }
}

#[test]
fn a_refused_kernel_is_a_refusal_and_one_that_does_not_compile_names_its_line() {
    assert!(error(&SourceKernel::wgsl("k", "")).is_refusal());
    match error(&SourceKernel::wgsl("k", "\n\n oops")) {
        Error::Compile { kernel, line, .. } => assert_eq!((kernel.as_str(), line), ("k", Some(3))),
        other => panic!("{other}"),
    }
}
