//! With the compilers at hand: the kernels that lie here are what they make, and fresh ones run too.

use cudarc::driver::PushKernelArg;
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts};
use trunnion_cuda_double::compilers::Compilers;

use crate::gpu::{Gpu, block, text};

/// The environment variable that lets the test write the kernels anew rather than compare them.
const WRITE: &str = "TRUNNION_WRITE_KERNELS";

fn compile(compilers: &Compilers, name: &str, source: &str, more: &[&str]) -> Ptx {
    let mut options = vec![compilers.include(), "--device-int128".to_owned()];
    options.extend(more.iter().map(|&option| option.to_owned()));
    let options = CompileOptions {
        arch: Some("compute_90"),
        options,
        name: Some(format!("{name}.cu")),
        ..CompileOptions::default()
    };
    compile_ptx_with_opts(source, options).unwrap()
}

/// Lines of code, without the comments that say which build of the compiler it was.
fn code_of(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect()
}

#[test]
fn the_kernels_that_lie_here_are_what_the_compiler_makes() {
    let Some(compilers) = Compilers::for_test("the kernels that lie here are what the compiler makes") else { return };
    let sources = [
        ("arithmetic", include_str!("../kernels/arithmetic.cu")),
        ("calls", include_str!("../kernels/calls.cu")),
        ("copies", include_str!("../kernels/copies.cu")),
        ("memory", include_str!("../kernels/memory.cu")),
        ("threads", include_str!("../kernels/threads.cu")),
    ];
    let _gpu = Gpu::claim();
    for (name, source) in sources {
        let fresh = compile(compilers, name, source, &[]).to_src();
        if std::env::var_os(WRITE).is_some() {
            let path = format!("{}/tests/kernels/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, fresh).unwrap();
            continue;
        }
        let same = code_of(&fresh) == code_of(text(name));
        assert!(same, "{name}.ptx is not what {name}.cu becomes; with {WRITE}=1 this test writes it anew");
    }
}

#[test]
fn fast_mathematics_and_lines_of_source_are_understood() {
    let Some(compilers) = Compilers::for_test("fast mathematics and lines of source are understood") else { return };
    let gpu = Gpu::claim();
    let source = "extern \"C\" __global__ void f(const float* in, float* out) {
        float v = in[threadIdx.x];
        out[threadIdx.x] = sinf(v) / (1.f + expf(-v)) + sqrtf(fabsf(v)) + powf(fabsf(v) + 1.f, 1.5f);
    }";
    let module = gpu
        .context
        .load_module(compile(compilers, "fast", source, &["--use_fast_math", "--generate-line-info"]))
        .unwrap();
    let kernel = module.load_function("f").unwrap();
    let input: Vec<f32> = (0..64).map(|i| i as f32 / 8.0 - 4.0).collect();
    let from = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<f32>(64).unwrap();
    unsafe { gpu.stream.launch_builder(&kernel).arg(&from).arg(&mut out).launch(block(64)) }.unwrap();
    for (v, found) in input.iter().zip(gpu.stream.clone_dtoh(&out).unwrap()) {
        let expected = v.sin() / (1.0 + (-v).exp()) + v.abs().sqrt() + (v.abs() + 1.0).powf(1.5);
        assert!((found - expected).abs() <= expected.abs().max(1.0) * 1e-5, "{v}: {found} instead of {expected}");
    }
    gpu.clean();
}
