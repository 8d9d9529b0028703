//! Texts that nobody wrote: whatever is read, nothing panics and every error is one of the reader's own.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod rig;

use proptest::prelude::*;
use rig::{everything, read_with};
use trunnion_kernel_wgsl::{Module, SpirVOptions};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::kernel::SourceKernel;
use trunnion_runtime_core::server::Bounds;

const WHOLE: &str = "struct P { n: u32, v: vec3<f32>, m: mat2x2f }
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b: array<atomic<u32>>;
@group(0) @binding(2) var<uniform> p: P;
@id(3) override N: i32 = 4;
var<workgroup> w: array<f32, 64>;
const TABLE = array(1.5, -2.0, 0x1p-3);
fn f(x: ptr<function, f32>, i: u32) -> f32 { *x = a[i].x * p.v[i % 3] - TABLE[i]; return select(*x, 1.0, p.n > 3u); }
@compute @workgroup_size(8, N, 1)
fn k(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
    var y = 0.5f;
    for (var i = 0u; i < p.n; i += 1u) { if i == 7 { continue; } y += f(&y, i & 3u); }
    w[l] = y; workgroupBarrier();
    loop { if y < 0 { break; } y -= w[l ^ 1]; continuing { y *= 0.5; } }
    switch l { case 0, 1: { atomicAdd(&b[id.x], u32(y)); } default: { atomicStore(&b[0], 1u); } }
}
";

/// Reads a text as its kernel `k`, and writes what was read.
fn read(text: String) {
    let kernel = SourceKernel::wgsl("k", text.as_str()).constant("N", 2.0);
    for kernel in [SourceKernel::wgsl("k", text.as_str()), kernel] {
        match read_with(&kernel, everything()) {
            Ok(reading) => {
                let module: std::sync::Arc<Module> = reading.parsed.unwrap().downcast().unwrap();
                for (bounds, push_constants) in [(Bounds::Checked, 256), (Bounds::Unchecked, 0)] {
                    let options = SpirVOptions { bounds, push_constants, ..SpirVOptions::default() };
                    match module.spirv(&options) {
                        Ok(_) | Err(Error::Compile { .. }) => {}
                        Err(other) => panic!("{other}\n{text}"),
                    }
                }
            }
            Err(Error::Compile { .. } | Error::InvalidKernel { .. }) => {}
            Err(other) => panic!("{other}\n{text}"),
        }
    }
}

/// The pieces of the whole text, of which others are put together.
fn pieces() -> Vec<&'static str> {
    let mut pieces = vec![
        " ",
        "\n",
        "1",
        "0",
        "-",
        "4294967295",
        "enable f16;",
        "f16",
        "bool",
        "@",
        "é",
        "array<",
        "vec2",
        "let",
        "return",
    ];
    let mut rest = WHOLE;
    while let Some(first) = rest.chars().next() {
        let name = |c: char| c.is_alphanumeric() || c == '_';
        let end = match rest.find(|c| !name(c)) {
            Some(0) => first.len_utf8(),
            Some(end) => end,
            None => rest.len(),
        };
        pieces.push(&rest[..end]);
        rest = &rest[end..];
    }
    pieces
}

#[test]
fn the_whole_text_is_a_kernel() {
    let reading = read_with(&SourceKernel::wgsl("k", WHOLE), everything()).unwrap();
    assert_eq!((reading.interface.buffers.len(), reading.workgroup), (2, [8, 4, 1]));
}

proptest! {
    #[test]
    fn any_characters_are_read_or_refused(text in any::<String>()) {
        read(text);
    }

    #[test]
    fn any_pieces_of_a_kernel_are_read_or_refused(pieces in prop::collection::vec(prop::sample::select(pieces()), 0..60)) {
        read(pieces.concat());
    }

    #[test]
    fn a_kernel_with_pieces_put_in_others_place_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3_usize, prop::sample::select(pieces())), 1..6)
    ) {
        let mut whole: Vec<&str> = pieces();
        whole.drain(..15);
        for (place, removed, piece) in changes {
            let place = place.index(whole.len());
            let end = (place + removed).min(whole.len());
            whole.splice(place..end, [piece]);
        }
        read(whole.concat());
    }
}
