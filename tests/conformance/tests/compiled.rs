//! That the CUDA compilers take the CUDA C of every kernel for each generation of hardware, and that none needs many registers or more
//! memory than it says: what no driver without hardware shows.

#![forbid(unsafe_code)]
#![cfg(feature = "cuda")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trunnion_backend_cuda::cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use trunnion_conformance::kernels;
use trunnion_cuda_double::compilers::Compilers;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::kernel::Kernel;
use trunnion_runtime_core::properties::{
    DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, Target, TargetProperties,
};

/// The generations, as a compiler of text calls them and as the assembler does: 7.5, 8.0, 9.0 and 10.0.
const GENERATIONS: [(&str, &str); 4] =
    [("compute_75", "sm_75"), ("compute_80", "sm_80"), ("compute_90", "sm_90"), ("compute_100", "sm_100")];

/// The first of them with tensor maps.
const WITH_TENSOR_MAPS: usize = 2;

/// With so many registers a thread, five workgroups of 128 fit into a multiprocessor of any of them.
const MOST_REGISTERS: u32 = 96;

/// A kernel in CUDA C.
struct Text {
    name: String,
    text: String,
    constants: Vec<String>,
    shared: u32,
    /// The first of the generations it is for.
    oldest: usize,
}

/// The suite's own.
fn suite() -> Vec<Text> {
    let device = DeviceId { backend: BackendName::new("test").unwrap(), index: 0 };
    let properties = DeviceProperties::new(
        DeviceInfo::new(device, DeviceKind::Other, "", "", ""),
        Features::new(Vec::new(), Vec::new()),
        Limits::default(),
        TargetProperties::new("", 16, 1),
    );
    let target = Target { properties: &properties, takes: &[SourceForm::CudaC] };
    let text = |kernel: &dyn Kernel| {
        let source = kernel.source(&target)?;
        let constants = kernel.constants().into_iter().map(|(name, value)| format!("--define-macro={name}={value}"));
        let interface = kernel.interface()?;
        Some(Text {
            name: kernel.name().to_string(),
            text: source.as_text()?.to_string(),
            constants: constants.collect(),
            // A tile and its barrier are the source's own.
            shared: interface.shared.max(if interface.tensor_maps.is_empty() { 0 } else { 256 }),
            oldest: if interface.tensor_maps.is_empty() { 0 } else { WITH_TENSOR_MAPS },
        })
    };
    let others = [kernels::gather(31), kernels::echo(272), kernels::tiles()];
    kernels::all().iter().chain(&others).filter_map(|kernel| text(kernel)).collect()
}

/// Those of the example `digits`: a file each, called as the kernel.
fn digits() -> Vec<Text> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../trunnion/examples/digits");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let text = |file: PathBuf| Text {
        name: file.file_stem().unwrap().to_str().unwrap().to_string(),
        text: std::fs::read_to_string(&file).unwrap(),
        constants: Vec::new(),
        shared: 6 << 10,
        oldest: 0,
    };
    files.filter(|file| file.extension().is_some_and(|extension| extension == "cu")).map(text).collect()
}

/// What the assembler says a kernel needs.
#[derive(Debug, Default)]
struct Needs {
    registers: u32,
    shared: u32,
    /// Bytes of a thread's own memory, for what found no register among them.
    local: u32,
}

fn assembled(compilers: &Compilers, name: &str, ptx: &str, generation: &str) -> Needs {
    let mut assembler = Command::new(compilers.root.join("bin/ptxas"))
        .args(["-v", "--warning-as-error", "--output-file=/dev/null", "--gpu-name", generation, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assembler.stdin.take().unwrap().write_all(ptx.as_bytes()).unwrap();
    let output = assembler.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name} for {generation}: {said}");
    // `Used 10 registers, 256 bytes smem`, and `0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`.
    let words: Vec<&str> = said.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    let mut needs = Needs { registers: u32::MAX, ..Needs::default() };
    for window in words.windows(3) {
        let Ok(count) = window[0].parse::<u32>() else { continue };
        match (window[1], window[2]) {
            ("registers", _) => needs.registers = count,
            ("bytes", "smem") => needs.shared = count,
            ("bytes", "stack" | "spill") => needs.local += count,
            _ => {}
        }
    }
    needs
}

#[test]
fn every_kernel_compiles_for_every_generation_with_few_registers_and_none_spilled() {
    let Some(compilers) = Compilers::for_test("every kernel compiles for every generation") else { return };
    let (suite, digits) = (suite(), digits());
    assert_eq!((suite.len(), digits.len()), (23, 7));
    let (mut most, mut compiled) = (0, 0);
    for kernel in suite.iter().chain(&digits) {
        for &(architecture, generation) in &GENERATIONS[kernel.oldest..] {
            let name = &kernel.name;
            let options = CompileOptions {
                arch: Some(architecture),
                options: kernel.constants.clone(),
                name: Some(format!("{name}.cu")),
                ..CompileOptions::default()
            };
            let ptx = match compile_ptx_with_opts(&kernel.text, options) {
                Ok(ptx) => ptx.to_src(),
                Err(CompileError::CompileError { log, .. }) => panic!("{name} for {architecture}: {log:?}"),
                Err(error) => panic!("{name} for {architecture}: {error:?}"),
            };
            assert!(ptx.contains(&format!(".entry {name}(")), "{name} is no kernel of its text");
            let needs = assembled(compilers, name, &ptx, generation);
            assert!(
                needs.registers <= MOST_REGISTERS && needs.local == 0 && needs.shared <= kernel.shared,
                "{name} for {generation} needs {needs:?}; at most {MOST_REGISTERS} registers, {} bytes shared and none of its own",
                kernel.shared
            );
            most = most.max(needs.registers);
            compiled += 1;
        }
    }
    println!("{compiled} times compiled; {most} registers at most");
}
