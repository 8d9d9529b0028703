//! What is read from a text, and how it is held against what a kernel declares.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod rig;

use rig::{error, everything, module, module_of, read, read_with};
use trunnion_kernel_wgsl::{Capabilities, Module, Reader};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::kernel::{HostUse, Interface, KernelReader, Source, SourceKernel};

/// Reads `a`, writes `b`, does both with `c`, and only asks for the length of `d`.
const FOUR: &str = "
struct Header { count: u32, scale: f32, rest: array<vec2f> }
struct Parameters { offset: u32, bias: vec3f }
@group(0) @binding(4) var<uniform> parameters: Parameters;
@group(0) @binding(2) var<storage, read_write> c: array<atomic<u32>>;
@group(0) @binding(0) var<storage> a: Header;
@group(0) @binding(1) var<storage, read_write> b: array<vec4f, 3>;
@group(0) @binding(3) var<storage, read_write> d: array<mat4x4f>;
var<workgroup> tile: array<f32, 33>;
var<workgroup> unused: array<f32, 99>;
fn inner(i: u32) { b[i] = vec4f(a.rest[i], parameters.bias.xy); }
@compute @workgroup_size(8, 4)
fn four(@builtin(local_invocation_index) i: u32) {
    tile[i] = f32(arrayLength(&d) + parameters.offset);
    workgroupBarrier();
    inner(i);
    atomicAdd(&c[i], u32(tile[31 - i]));
}";

fn four(interface: Interface) -> SourceKernel {
    SourceKernel::new("four", interface).workgroup_size([8, 4, 1]).source(Source::wgsl(FOUR))
}

fn declared() -> Interface {
    let interface = Interface::new().read().partition(64).atomic().read();
    interface.parameters(32).shared(132)
}

fn why(kernel: &SourceKernel) -> String {
    match error(kernel) {
        Error::InvalidKernel { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_that_declares_nothing_is_what_its_code_does() {
    let reading = read(&SourceKernel::wgsl("four", FOUR)).unwrap();
    assert_eq!(reading.workgroup, [8, 4, 1]);
    let Interface { buffers, parameters, shared, in_place, .. } = reading.interface;
    let buffers: Vec<_> = buffers.iter().map(|buffer| (buffer.access, buffer.host, buffer.min_size)).collect();
    assert_eq!(
        buffers,
        [
            (Access::Read, HostUse::Slice, 16),
            (Access::Write, HostUse::Claim, 48),
            (Access::ReadWrite, HostUse::Atomic, 0),
            (Access::Read, HostUse::Slice, 0),
        ]
    );
    assert_eq!((parameters, shared, in_place), (32, 132, false));
}

#[test]
fn the_fewest_bytes_of_a_buffer_hold_an_element() {
    let module = module("four", FOUR);
    assert_eq!((module.kernel(), module.fewest_bytes()), ("four", &[16, 48, 4, 64][..]));
}

#[test]
fn what_is_declared_counts_where_it_covers_what_the_code_does() {
    let covers = Interface::new().partition(64).at_least(99).overwrite(64).atomic().claim(Access::ReadWrite);
    let covers = covers.parameters(32).shared(1000).in_place();
    let reading = read(&four(covers.clone())).unwrap();
    // But for the fewest bytes: the second is always of 48.
    let mut expected = covers;
    expected.buffers[1].min_size = 48;
    assert_eq!(reading.interface, expected);
}

#[test]
fn a_use_that_is_not_declared_is_refused_and_named() {
    let with = |place: usize, access: Access, host: HostUse| {
        let mut interface = declared();
        (interface.buffers[place].access, interface.buffers[place].host) = (access, host);
        why(&four(interface))
    };
    assert!(read(&four(declared())).is_ok());
    let cases = [
        (1, Access::Read, HostUse::Slice, "`b` at binding 1 is declared Read, and the code writes it"),
        (2, Access::Read, HostUse::Slice, "`c` at binding 2 is declared Read, and the code writes it"),
        (2, Access::Write, HostUse::Atomic, "`c` at binding 2 is declared Write, and the code reads it"),
        (2, Access::Overwrite, HostUse::Atomic, "`c` at binding 2 is declared Overwrite, and the code reads it"),
        (0, Access::Write, HostUse::Claim, "`a` at binding 0 is declared Write, and the code reads it"),
        (3, Access::Overwrite, HostUse::Claim, "`d` at binding 3 is declared Overwrite, and the code never writes it"),
    ];
    for (place, access, host, expected) in cases {
        assert_eq!(with(place, access, host), expected);
    }
}

#[test]
fn counts_and_sizes_that_are_not_those_declared_are_refused_with_both() {
    let three = Interface::new().read().partition(64).atomic().parameters(32).shared(132);
    let cases = [
        (four(three), "its text has `d` at binding 3, and 3 buffers are declared"),
        (four(declared().read()), "5 buffers are declared, and its text has 4: none is at binding 4"),
        (four(declared().parameters(24)), "24 bytes of parameters are declared, and `parameters` has 32"),
        (four(declared().shared(128)), "128 bytes of shared memory are declared, and its `var<workgroup>` have 132"),
        (
            four(declared()).workgroup_size([32, 1, 1]),
            "a workgroup size of [32, 1, 1] is declared, and its text has [8, 4, 1]",
        ),
    ];
    for (kernel, expected) in cases {
        assert_eq!(why(&kernel), expected);
    }
    let plain = SourceKernel::new("k", Interface::new().parameters(4));
    let plain = plain.source(Source::wgsl("@compute @workgroup_size(1) fn k() {}"));
    let expected = "4 bytes of parameters are declared, and its text has none: no `var<uniform>` is at binding 0";
    assert_eq!(why(&plain), expected);
}

#[test]
fn a_workgroup_size_may_be_declared_alone() {
    let kernel = SourceKernel::wgsl("four", FOUR);
    assert_eq!(read(&kernel.clone().workgroup_size([8, 4, 1])).unwrap().workgroup, [8, 4, 1]);
    assert!(why(&kernel.workgroup_size([8, 4, 2])).contains("[8, 4, 2]"));
}

/// A tile and a workgroup as large as constants say.
const SIZED: &str = "
@id(7) override GROUP: u32;
override TILE: i32 = 2;
override SCALE: f32 = 1.0;
override HALF: bool = false;
var<workgroup> tile: array<u32, TILE * 4>;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> never: array<f32>;
@compute @workgroup_size(GROUP, 2)
fn sized(@builtin(local_invocation_index) i: u32) {
    tile[i] = 1;
    x[i] = SCALE + f32(tile[0]);
    if HALF { x[i] = 2; }
}";

#[test]
fn constants_have_their_values_before_anything_is_read() {
    let sized = || SourceKernel::wgsl("sized", SIZED);
    let reading = read(&sized().constant("GROUP", 16.0).constant("TILE", 5.0)).unwrap();
    assert_eq!((reading.workgroup, reading.interface.shared), ([16, 2, 1], 80));
    assert_eq!(reading.interface.buffers.len(), 2, "a buffer that no code uses is an argument all the same");
    let reading = read(&sized().constant("7", 4.0)).unwrap();
    assert_eq!((reading.workgroup, reading.interface.shared), ([4, 2, 1], 32));
}

#[test]
fn constants_that_the_text_does_not_take_are_refused_with_what_it_takes() {
    let sized = || SourceKernel::wgsl("sized", SIZED).constant("GROUP", 1.0);
    let there_are = "there are: GROUP, TILE, SCALE, HALF";
    let cases = [
        (
            SourceKernel::wgsl("sized", SIZED),
            "`override GROUP` has no value; the kernel gives one as a constant".into(),
        ),
        (sized().constant("LANES", 1.0), format!("there is no `override LANES` in its text; {there_are}")),
        (sized().constant("8", 1.0), format!("there is no `override 8` in its text; {there_are}")),
        (sized().constant("7", 2.0), "constant `GROUP` is given by name and by number".into()),
        (
            sized().constant("GROUP", -1.0),
            "constant `GROUP` is -1.0, and `override GROUP` takes a whole number from 0 to 4294967295".into(),
        ),
        (
            sized().constant("TILE", 1.5),
            "constant `TILE` is 1.5, and `override TILE` takes a whole number from -2147483648 to 2147483647".into(),
        ),
        (
            sized().constant("GROUP", 0.0),
            "its constants make a workgroup size that has a zero or a negative axis".into(),
        ),
    ];
    for (kernel, expected) in cases {
        assert_eq!(why(&kernel), expected);
    }
    assert!(why(&sized().constant("SCALE", 1e39)).contains("takes a number from -340282346638528860000000000000"));
    assert!(error(&sized().constant("TILE", -1.0)).to_string().contains("does not compile"));
    assert_eq!(
        why(&SourceKernel::wgsl("k", "@compute @workgroup_size(1) fn k() {}").constant("A", 1.0)),
        "there is no `override A` in its text; it has none"
    );
}

#[test]
fn capabilities_let_code_use_what_the_device_has() {
    let texts =
        [("enable f16;", "f16(x[0])"), ("", "u32(f64(x[0]))"), ("", "u32(u64(x[0]))"), ("", "subgroupAdd(u32(x[0]))")];
    for (enable, expression) in texts {
        let text = format!(
            "{enable} @group(0) @binding(0) var<storage, read_write> x: array<f32>;
            @compute @workgroup_size(1) fn k() {{ x[0] = f32({expression}); }}"
        );
        let kernel = SourceKernel::wgsl("k", text);
        assert!(matches!(read(&kernel), Err(Error::Compile { .. })), "{expression}");
        assert!(read_with(&kernel, everything()).is_ok(), "{expression}: {:?}", read_with(&kernel, everything()));
    }
    let vote = SourceKernel::wgsl("k", "@compute @workgroup_size(1) fn k() { if subgroupAny(true) { return; } }");
    assert!(read_with(&vote, Capabilities { subgroup_operations: 2, ..Capabilities::default() }).is_ok());
    assert!(read_with(&vote, Capabilities { subgroup_operations: 1, ..Capabilities::default() }).is_err());
}

#[test]
fn sources_in_other_forms_are_what_is_declared() {
    let host = SourceKernel::new("h", Interface::new().read()).source(Source::host(|_| Ok(())));
    let reader = Reader::new(vec![SourceForm::SpirV, SourceForm::Wgsl], everything());
    assert_eq!(reader.takes(), [SourceForm::SpirV, SourceForm::Wgsl]);
    let reading = reader.read(&host, &Source::host(|_| Ok(()))).unwrap();
    assert_eq!((reading.interface, reading.workgroup), (Interface::new().read(), [1, 1, 1]));
    assert!(reading.parsed.is_none());
    let nothing = SourceKernel::wgsl("k", "");
    assert!(matches!(reader.read(&nothing, &Source::host(|_| Ok(()))), Err(Error::InvalidKernel { .. })));
}

#[test]
fn what_was_read_can_be_used_by_any_thread() {
    fn shared<T: Send + Sync>(_: &T) {}
    let module = module_of(&four(declared()), everything());
    shared::<Module>(&module);
    assert!(format!("{module:?}").contains("four"));
}

#[test]
fn an_invocation_has_only_so_much_memory_of_its_own() {
    let kernel = |outside: &str, code: &str| {
        let x = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;";
        SourceKernel::wgsl("k", format!("{x}\n{outside}\n@compute @workgroup_size(1) fn k() {{ {code} }}"))
    };
    let both = |elements: usize| {
        let outside = "var<private> p: array<u32, 1024>; var<private> unused: array<u32, 9999>;";
        let code = format!("var a: array<u32, {elements}>; a[x[0]] = 1u; p[x[1]] = a[x[2]]; x[0] = p[x[3]];");
        kernel(outside, &code)
    };
    read(&both(1024)).unwrap();
    assert!(why(&both(1025)).contains("bytes: 8196, and may have 8192"), "{}", why(&both(1025)));
    // What is called twice has its variables twice.
    let called = "fn f(i: u32) -> u32 { var a: array<u32, 1025>; a[i] = i; return a[x[i]]; }";
    read(&kernel(called, "x[0] = f(1u);")).unwrap();
    let twice =
        why(&kernel(called, "if x[0] == 1u { x[0] = f(1u); } else { loop { x[0] = f(2u); if x[0] > 9u { break; } } }"));
    assert!(twice.contains("bytes: 8200, and may have 8192"), "{twice}");
    let value = why(&kernel("", "let a = array<u32, 2049>(); x[0] = a[3];"));
    assert!(value.contains("value") && value.contains("bytes: 8196, and may have 8192"), "{value}");
    let indexed = why(&kernel("", "let a = array<u32, 1025>(); let b = array<u32, 1025>(); x[0] = a[x[1]] + b[x[1]];"));
    assert!(indexed.contains("bytes: 8200, and may have 8192"), "{indexed}");
    // Each calls the one before twice.
    let doubling = |levels: u32| {
        let mut text = String::from("fn f0(s: u32) -> u32 { return s * x[s]; }\n");
        for level in 1..levels {
            let below = level - 1;
            text += &format!("fn f{level}(s: u32) -> u32 {{ return f{below}(s) + f{below}(s + 1u); }}\n");
        }
        kernel(&text, &format!("x[1] = f{}(x[0]);", levels - 1))
    };
    read(&doubling(13)).unwrap();
    let calls = why(&doubling(64));
    assert!(calls.contains("may have 16384"), "{calls}");
}
