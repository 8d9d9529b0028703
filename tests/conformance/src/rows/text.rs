//! L1, L2, L5, L8 on devices that take WGSL: what is read from a kernel's text, what it must agree with, and its constants.

use crate::check::{Failure, Outcome, raw};
use crate::context::Context;
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Args, Interface, Source, SourceKernel};

tests! {
    L1 a_kernel_that_declares_nothing_is_what_its_text_says;
    L1 a_text_that_does_what_is_not_declared_is_refused;
    L1 a_text_that_is_wrong_names_the_line;
    L2 an_index_outside_reaches_no_other_bytes;
    L5 parameters_of_every_size_reach_the_kernel;
    L5 a_buffer_of_no_bytes_has_no_elements;
    L8 constants_make_another_kernel_of_one_text;
    L8 a_constant_the_text_does_not_have_is_refused;
}

/// A device of the test's own that takes WGSL.
fn client(cx: &Context) -> Outcome<Client> {
    let client = cx.client()?;
    match client.features().sources.contains(&SourceForm::Wgsl) {
        true => Ok(client),
        false => Err(Failure::Skipped(format!("{}: the device takes no WGSL", client.name()))),
    }
}

const DOUBLE: &str = "@group(0) @binding(0) var<storage> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(32)
fn double(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&y) { y[id.x] = 2 * x[id.x]; }
}";

fn declared(name: &str, interface: Interface, text: impl Into<alloc::sync::Arc<str>>) -> SourceKernel {
    SourceKernel::new(name, interface).workgroup_size([32, 1, 1]).source(Source::wgsl(text))
}

fn a_kernel_that_declares_nothing_is_what_its_text_says(cx: &Context) -> Outcome {
    let client = client(cx)?;
    let double = client.prepare(SourceKernel::wgsl("double", DOUBLE))?;
    let buffers = &double.interface().buffers;
    ensure_eq!(buffers.iter().map(|buffer| buffer.access).collect::<Vec<_>>(), [Access::Read, Access::Write]);
    ensure_eq!((double.workgroup_size(), double.interface().parameters), ([32, 1, 1], 0));
    let (x, y) = (client.create_from_slice(raw(&[21u32; 40]))?, client.zeros(160)?);
    client.launch(&double, Grid::x(2), [&x, &y])?;
    ensure_eq!(client.read_one(&y)?.to_vec::<u32>()?, [42; 40]);
    ensure_err!(client.launch(&double, Grid::x(2), [&x]), Error::BufferCount { got: 1, expected: 2, .. });
    // One kernel, however often its text is given.
    ensure_eq!(client.prepare(SourceKernel::wgsl("double", DOUBLE))?.slot(), double.slot());
    ensure_eq!(client.compile_statistics()?.compiled, 1);
    Ok(())
}

fn a_text_that_does_what_is_not_declared_is_refused(cx: &Context) -> Outcome {
    let client = client(cx)?;
    let covered = || Interface::new().read().partition(128);
    client.prepare(declared("double", covered(), DOUBLE))?;
    for (kernel, says) in [
        (declared("double", Interface::new().read().read(), DOUBLE), "`y`"),
        (declared("double", Interface::new().read(), DOUBLE), "`y`"),
        (declared("double", covered().read(), DOUBLE), "binding 2"),
        (declared("double", covered().parameters(4), DOUBLE), "4"),
        (declared("double", covered(), DOUBLE).workgroup_size([64, 1, 1]), "64"),
        (declared("treble", covered(), DOUBLE), "double"),
        (declared("double", Interface::new().overwrite(128).partition(128), DOUBLE.replace("2 *", "2 +")), "`x`"),
    ] {
        let error = ensure_err!(client.prepare(kernel), Error::InvalidKernel { .. });
        ensure!(error.to_string().contains(says) && error.is_refusal(), "{says} is not in {error}");
    }
    ensure_eq!(client.compile_statistics()?.compiled, 0);
    Ok(())
}

fn a_text_that_is_wrong_names_the_line(cx: &Context) -> Outcome {
    let client = client(cx)?;
    for (text, line) in [
        (DOUBLE.replace("2 *", "2.5 *"), 5),
        (DOUBLE.replace("id.x]; }", "id.x] }"), 5),
        (DOUBLE.replace("array<u32>;\n@compute", "array<u23>;\n@compute"), 2),
    ] {
        let error = ensure_err!(client.prepare(SourceKernel::wgsl("double", text)), Error::Compile { .. });
        ensure!(
            matches!(&error, Error::Compile { line: Some(at), kernel, .. } if *at == line && kernel == "double"),
            "{error:?}"
        );
        ensure!(error.to_string().contains(&format!("line {line}")), "{error}");
    }
    Ok(())
}

fn an_index_outside_reaches_no_other_bytes(cx: &Context) -> Outcome {
    let client = client(cx)?;
    let text = "@group(0) @binding(0) var<storage> at: array<u32>;
        @group(0) @binding(1) var<storage, read_write> seen: array<u32>;
        @group(0) @binding(2) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1)
        fn reach() {
            for (var i = 0u; i < 4u; i++) {
                seen[i] = out[at[i]];
                out[at[i]] = 9u;
            }
        }";
    let reach = client.prepare(SourceKernel::wgsl("reach", text))?;
    let part = client.limits().binding_alignment.max(16);
    let elements = part as usize / 4;
    for separate in [false, true] {
        let client = cx.open(&Variant { separate_memory: separate, ..Variant::plain() })?;
        let reach = client.prepare_shared(reach.kernel().clone())?;
        let at = client.create_from_slice(raw(&[elements as u32, 2 * elements as u32, 1 << 20, u32::MAX]))?;
        let memory = client.create_from_slice(raw(&vec![5u32; 3 * elements]))?;
        let (seen, middle) = (client.zeros(16)?, memory.slice(part..2 * part)?);
        client.launch(&reach, Grid::x(1), [&at, &seen, &middle])?;
        let bytes = client.read_one(&memory)?.to_vec::<u32>()?;
        let (before, after) = (&bytes[..elements], &bytes[2 * elements..]);
        ensure!(before.iter().chain(after).all(|x| *x == 5), "bytes outside the buffer changed: {bytes:?}");
        // Whatever is read is of the buffer, or nothing.
        let seen = client.read_one(&seen)?.to_vec::<u32>()?;
        ensure!(seen.iter().all(|x| [0, 5, 9].contains(x)), "{seen:?}");
    }
    Ok(())
}

fn parameters_of_every_size_reach_the_kernel(cx: &Context) -> Outcome {
    let client = client(cx)?;
    let most = client.limits().max_parameters.min(256) / 16;
    // On both sides of what a device may keep beside the code.
    for bytes in (1..=most).map(|vectors| 16 * vectors) {
        let text = format!(
            "struct Parameters {{ words: array<vec4<u32>, {}> }}
            @group(0) @binding(0) var<storage, read_write> out: array<u32>;
            @group(0) @binding(1) var<uniform> parameters: Parameters;
            @compute @workgroup_size(64)
            fn words(@builtin(local_invocation_index) i: u32) {{
                if i < {}u {{ out[i] = parameters.words[i / 4u][i % 4u]; }}
            }}",
            bytes / 16,
            bytes / 4
        );
        let words = client.prepare(SourceKernel::wgsl("words", text))?;
        ensure_eq!(words.interface().parameters, bytes);
        let given: Vec<u32> = (0..bytes / 4).map(|i| 1000 * bytes + i).collect();
        let out = client.zeros(256)?;
        client.launch(&words, Grid::x(1), Args::new().buffer(&out).parameter_bytes(raw(&given)))?;
        let seen = client.read_one(&out)?.to_vec::<u32>()?;
        let (seen, rest) = seen.split_at(given.len());
        ensure!(seen == given && rest.iter().all(|word| *word == 0), "{bytes} bytes: {seen:?}");
    }
    Ok(())
}

fn a_buffer_of_no_bytes_has_no_elements(cx: &Context) -> Outcome {
    let client = client(cx)?;
    let text = "@group(0) @binding(0) var<storage> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> length: array<u32>;
        @compute @workgroup_size(1) fn measure() { length[0] = arrayLength(&x); }";
    let measure = client.prepare(SourceKernel::wgsl("measure", text))?;
    let memory = client.create_from_slice(raw(&[7u32; 64]))?;
    for (bytes, elements) in [(0, 0), (4, 1), (8, 2), (256, 64), (0, 0)] {
        let length = client.create_from_slice(raw(&[99u32]))?;
        client.launch(&measure, Grid::x(1), [&memory.slice(..bytes)?, &length])?;
        ensure_eq!(client.read_one(&length)?.to_vec::<u32>()?, [elements], "{bytes} bytes");
    }
    // One that is written has none either, and nothing else is written in its place.
    let step = client.prepare(kernels::step())?;
    client.launch(&step, cover(64)?, [&memory.slice(..0)?])?;
    client.launch(&step, cover(64)?, [&client.empty(0)?])?;
    ensure_eq!(client.read_one(&memory)?.to_vec::<u32>()?, [7; 64]);
    Ok(())
}

const SCALED: &str = "override factor: u32 = 3;
@id(7) override extra: u32;
override GROUP: u32 = 32;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(GROUP)
fn scaled(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&x) { x[id.x] = factor * x[id.x] + extra; }
}";

fn constants_make_another_kernel_of_one_text(cx: &Context) -> Outcome {
    let client = client(cx)?;
    let scaled = |factor: Option<f64>, extra: f64| {
        let kernel = SourceKernel::wgsl("scaled", SCALED).constant("7", extra);
        factor.into_iter().fold(kernel, |kernel, factor| kernel.constant("factor", factor))
    };
    for (factor, extra, expected) in [(None, 1.0, 31), (Some(2.0), 1.0, 21), (Some(2.0), 5.0, 25), (Some(0.0), 8.0, 8)]
    {
        let kernel = client.prepare(scaled(factor, extra))?;
        let x = client.create_from_slice(raw(&[10u32; 64]))?;
        client.launch(&kernel, Grid::x(2), [&x])?;
        ensure_eq!(client.read_one(&x)?.to_vec::<u32>()?, [expected; 64], "{factor:?}, {extra}");
    }
    // A workgroup is as large as its constants say.
    let wide = client.prepare(scaled(Some(1.0), 1.0).constant("GROUP", 64.0))?;
    ensure_eq!(wide.workgroup_size(), [64, 1, 1]);
    let x = client.create_from_slice(raw(&[10u32; 64]))?;
    client.launch(&wide, Grid::x(1), [&x])?;
    ensure_eq!(client.read_one(&x)?.to_vec::<u32>()?, [11; 64]);
    ensure_eq!(client.compile_statistics()?.compiled, 5);
    ensure_eq!(client.prepare(scaled(None, 1.0))?.id(), client.prepare(scaled(None, 1.0))?.id());
    Ok(())
}

fn a_constant_the_text_does_not_have_is_refused(cx: &Context) -> Outcome {
    let client = client(cx)?;
    let scaled = || SourceKernel::wgsl("scaled", SCALED);
    for (kernel, says) in [
        (scaled().constant("7", 1.0).constant("fractor", 1.0), "fractor"),
        (scaled().constant("7", 1.0).constant("8", 1.0), "8"),
        (scaled().constant("7", -1.0), "-1"),
        (scaled().constant("7", 0.5), "0.5"),
        (scaled(), "extra"),
    ] {
        let error = ensure_err!(client.prepare(kernel), Error::InvalidKernel { .. });
        ensure!(error.to_string().contains(says), "{says} is not in {error}");
    }
    Ok(())
}
