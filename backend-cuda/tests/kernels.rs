//! Kernels: CUDA C++, PTX and code for hardware, what each of them is refused for, and what is kept of them.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::{Compiled, compiling, cuda, ptx};
use rig::{Rig, claim, double, each_with, part};
use trunnion_backend_core::driver::{CompileJob, Driver, StoredCode};
use trunnion_backend_cuda::{CodeForm, CudaOptions};
use trunnion_cuda_double::ReportKind;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::kernel::{Interface, Kernel, Source, SourceKernel};
use trunnion_runtime_core::server::Bounds;

const ADD: &str = "
extern \"C\" __global__ void add(unsigned* x, unsigned long long bytes) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < bytes / 4) x[i] += 1;
}";

/// Stores 7 in the first element; it takes no length.
const SEVEN: &str = "
.version 8.0
.target sm_70
.address_size 64
.visible .entry seven(.param .u64 x) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [x];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, 7;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

fn one() -> Interface {
    Interface::new().claim(Access::ReadWrite)
}

fn plain() -> CudaOptions {
    CudaOptions::default()
}

/// The message and line with which a kernel does not compile.
#[track_caller]
fn does_not_compile(rig: &mut Rig, kernel: impl Kernel) -> (String, Option<u32>) {
    let name = kernel.name().to_string();
    match rig.compile(kernel).map(|_| ()) {
        Err(Error::Compile { kernel, message, line }) if kernel == name => (message, line),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_invalid(rig: &mut Rig, kernel: impl Kernel, words: &[&str]) {
    match rig.compile(kernel).map(|_| ()) {
        Err(Error::InvalidKernel { why, .. }) => {
            words.iter().for_each(|word| assert!(why.contains(word), "`{word}` is not in `{why}`"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_in_cuda_c_is_told_with_the_compilers_log_and_its_line() {
    compiling(&plain(), |rig| {
        let text =
            "extern \"C\" __global__ void k(unsigned* x) {\n    int unused;\n    x[0] = missing;\n    x[1] = other;\n}";
        let (message, line) = does_not_compile(rig, cuda("k", text, one()));
        assert_eq!(line, Some(3), "{message}");
        for word in ["identifier \"missing\" is undefined", "identifier \"other\" is undefined", "k.cu(4)"] {
            assert!(message.contains(word), "{message}");
        }
        let (message, _) = does_not_compile(rig, cuda("k", "extern \"C\" __global__ void k() {}\0", one()));
        assert!(message.contains("zero byte"), "{message}");
    });
    compiling(&plain().compile_option("--no-such-option"), |rig| {
        let (message, _) = does_not_compile(rig, cuda("add", ADD, one()));
        assert!(message.contains("--no-such-option"), "{message}");
    });
}

#[test]
fn a_kernel_that_is_not_in_the_source_is_told_with_those_that_are() {
    compiling(&plain(), |rig| {
        let (message, _) = does_not_compile(rig, cuda("sub", ADD, one()));
        assert!(message.contains("no kernel `sub`") && message.contains("`add`"), "{message}");
        let (message, _) = does_not_compile(rig, ptx("eight", SEVEN, one()));
        assert!(message.contains("no kernel `eight`") && message.contains("`seven`"), "{message}");
        let (message, _) = does_not_compile(rig, ptx("se\0ven", SEVEN, one()));
        assert!(message.contains("zero byte"), "{message}");
    });
}

#[test]
fn code_that_takes_other_arguments_than_are_declared_is_refused() {
    compiling(&plain(), |rig| {
        let taking = |arguments: &str, interface: Interface| {
            cuda("k", &format!("extern \"C\" __global__ void k({arguments}) {{}}"), interface)
        };
        let both = || Interface::new().read().claim(Access::ReadWrite).parameters(12);
        for (arguments, words) in [
            ("", &["takes 0 arguments", "at least 3", "pointer to buffer 0"][..]),
            ("int*, int*", &["takes 2 arguments", "argument 2", "the parameters, 12 bytes"]),
            ("int*, int", &["argument 1 has 4 bytes", "pointer to buffer 1, 8 bytes"]),
            ("int*, int*, double2", &["argument 2 has 16 bytes", "the parameters, 12 bytes"]),
            ("int*, int*, int3, int", &["argument 3 has 4 bytes", "length of buffer 0, 8 bytes"]),
            ("int*, int*, int3, size_t, size_t, size_t", &["more than the 5 arguments", "12 bytes of parameters"]),
        ] {
            is_invalid(rig, taking(arguments, both()), words);
        }
        for arguments in ["int*, int*, int3", "int*, int*, int3, size_t", "int*, int*, int3, size_t, size_t"] {
            rig.compile(taking(arguments, both())).unwrap();
        }
        rig.compile(taking("", Interface::new())).unwrap();
    });
}

#[test]
fn constants_are_macros_of_cuda_c_and_nothing_else_has_them() {
    compiling(&plain(), |rig| {
        let text = "extern \"C\" __global__ void k(float* x) { float local[SIZE]; local[SIZE - 1] = FACTOR; x[0] = local[SIZE - 1] - SHIFT; }";
        let kernel = |size: f64, factor: f64| {
            cuda("k", text, one()).constant("SIZE", size).constant("FACTOR", factor).constant("SHIFT", -3.0)
        };
        for (size, factor, expected) in [(4.0, 0.5, 3.5_f32), (1.0, -2.25, 0.75), (2.0, 1e20, 1e20)] {
            let compiled = rig.compile(kernel(size, factor)).unwrap();
            let page = rig.page_of(&[0; 4]);
            rig.run_with(&compiled, [1, 1, 1], &[part(&page, 0, 4)], &[]).unwrap();
            assert_eq!(rig.read_u32(part(&page, 0, 4)), [expected.to_bits()]);
        }
        let (message, line) = does_not_compile(rig, kernel(0.5, 1.0));
        assert!(line == Some(1) && message.contains("double"), "{message}");
        is_invalid(rig, cuda("add", ADD, one()).constant("STEP", 1.0), &["`STEP`", "not in the source"]);
        is_invalid(rig, cuda("add", ADD, one()).constant("7", 1.0), &["`7`", "name of a macro"]);
        is_invalid(rig, ptx("seven", SEVEN, one()).constant("N", 1.0), &["`N`", "Ptx leaves none open"]);
    });
}

#[test]
fn headers_are_found_where_the_options_say_and_beside_the_compiler() {
    let directory = std::env::temp_dir().join(format!("trunnion-cuda-headers-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("step.h"), "#define STEP 5\n").unwrap();
    let text = "#include <step.h>\n#include <cuda_fp16.h>\n\
                extern \"C\" __global__ void k(unsigned* x) { x[0] = STEP + (unsigned)__half2float(__float2half(1.5f) + __float2half(0.5f)); }";
    compiling(&plain().include_path(&directory), |rig| {
        let kernel = rig.compile(cuda("k", text, one())).unwrap();
        let page = rig.page_of(&[0; 4]);
        rig.run_with(&kernel, [1, 1, 1], &[part(&page, 0, 4)], &[]).unwrap();
        assert_eq!(rig.read_u32(part(&page, 0, 4)), [7]);
    });
    compiling(&plain(), |rig| {
        let (message, line) = does_not_compile(rig, cuda("k", text, one()));
        assert!(line == Some(1) && message.contains("step.h"), "{message}");
    });
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn ptx_runs_and_needs_no_compiler() {
    let missing = std::env::temp_dir().join("trunnion-no-compiler-is-here");
    each_with(&plain(), |rig| {
        let kernel = rig.compile(ptx("seven", SEVEN, one())).unwrap();
        let page = rig.page_of(&[0; 4]);
        rig.run_with(&kernel, [1, 1, 1], &[part(&page, 0, 4)], &[]).unwrap();
        assert_eq!(rig.read_u32(part(&page, 0, 4)), [7]);
    });
    let device = claim();
    let mut rig = Rig::new(device, &plain().library(double().path()).compiler(&missing));
    assert_eq!(rig.driver.reader().takes(), [SourceForm::Ptx, SourceForm::Cubin, SourceForm::CudaC]);
    // Of a kernel that has both, that is taken which works.
    // SAFETY: it stores in the first element of a buffer that has one.
    let both = ptx("seven", SEVEN, one()).source(unsafe { Source::cuda_c("not read") });
    rig.compile(both).unwrap();
    let (message, line) = does_not_compile(&mut rig, cuda("add", ADD, one()));
    assert!(
        line.is_none() && message.contains("NVRTC") && message.contains("trunnion-no-compiler-is-here"),
        "{message}"
    );
    drop(rig);
    device.release().unwrap();
}

#[test]
fn ptx_that_the_driver_refuses_is_told_with_its_log() {
    each_with(&plain(), |rig| {
        let (message, line) = does_not_compile(rig, ptx("seven", &SEVEN.replace("ret;", "leave;"), one()));
        assert!(message.contains("leave") || message.contains("ptx line"), "{message}");
        let _ = line;
        for (text, why) in
            [("", "no `.version`"), ("hello", "no `.version`"), (".version 8.0\n.target sm_70\n\0", "zero at byte")]
        {
            let (message, _) = does_not_compile(rig, ptx("seven", text, one()));
            assert!(message.contains(why), "{message}");
        }
        let (message, line) =
            does_not_compile(rig, ptx("seven", ".version 8.0\n.target sm_70\n.address_size 64\nhello { }\n", one()));
        assert!(message.contains("CUDA_ERROR_INVALID_PTX") && line == Some(4), "{message}: {line:?}");
        // For hardware that comes later.
        let (message, _) = does_not_compile(rig, ptx("seven", &SEVEN.replace("sm_70", "sm_121"), one()));
        assert!(message.contains("compute capability 9.0 but sm_121"), "{message}");
        let kinds: Vec<_> = rig.device.take_reports().unwrap().iter().map(|report| report.kind).collect();
        assert!(kinds.iter().all(|kind| matches!(kind, ReportKind::BadCall | ReportKind::Unsupported)), "{kinds:?}");
    });
}

#[test]
fn ptx_newer_than_the_driver_is_told_with_both_versions() {
    const UNSUPPORTED_PTX_VERSION: u32 = 222;
    each_with(&plain(), |rig| {
        rig.device.fail("cuModuleLoadDataEx", 1, UNSUPPORTED_PTX_VERSION).unwrap();
        let (message, _) = does_not_compile(rig, ptx("seven", &SEVEN.replace("8.0", "9.7"), one()));
        assert!(message.contains("PTX 9.7") && message.contains("CUDA 13.0"), "{message}");
        rig.compile(ptx("seven", SEVEN, one())).unwrap();
    });
}

#[test]
fn failures_of_each_call_that_loads_code_are_typed_and_pass() {
    each_with(&plain(), |rig| {
        let calls = [
            "cuModuleLoadDataEx",
            "cuModuleGetFunction",
            "cuFuncGetAttribute",
            "cuFuncGetParamInfo",
            "cuFuncSetAttribute",
        ];
        let codes = [1, 2, 3, 200, 201, 209, 218, 221, 222, 300, 301, 304, 400, 401, 500, 801, 999];
        let kernel = || ptx("seven", SEVEN, one().shared(100 << 10));
        for call in calls {
            for code in codes {
                // What no argument has that number is not a failure.
                if (call, code) == ("cuFuncGetParamInfo", 1) {
                    continue;
                }
                rig.device.fail(call, 1, code).unwrap();
                let error = rig.compile(kernel()).map(|_| ()).unwrap_err();
                assert!(!error.is_device_lost(), "{call} with {code}: {error}");
                if code == 2 {
                    assert!(error.is_out_of_memory(), "{call}: {error}");
                }
                rig.device.fail(call, 0, 0).unwrap();
            }
        }
        rig.compile(kernel()).unwrap();
        // Whatever was loaded is given back, but for the calls that failed to.
        let (asked, failed) = (rig.device.calls("cuModuleLoadDataEx").unwrap(), codes.len() as u64);
        rig::eventually("it is given back", || rig.device.calls("cuModuleUnload") == Ok(asked - failed));
    });
}

#[test]
fn code_for_hardware_is_looked_over_before_the_driver_sees_it() {
    each_with(&plain(), |rig| {
        // SAFETY: none of these is code that could run.
        let cubin = |bytes: Vec<u8>| SourceKernel::new("k", one()).source(unsafe { Source::cubin(bytes) });
        for (bytes, why) in [
            (vec![], "bytes []"),
            (b"MZ\x90\0".to_vec(), "[4d 5a 90 00]"),
            (b"\x7fELF\x02\x01".to_vec(), "has 6 bytes, a header alone 64"),
            ([&b"\x7fELF\x02\x01"[..], &[0; 100]].concat(), "for machine 0, not 190"),
        ] {
            let (message, _) = does_not_compile(rig, cubin(bytes));
            assert!(message.contains(why), "{message}");
        }
        assert_eq!(rig.device.calls("cuModuleLoadDataEx").unwrap(), 0);
    });
}

#[test]
fn code_for_other_hardware_names_this_one() {
    // The double executes PTX, and answers as hardware does to code for other hardware.
    compiling(&plain().code(CodeForm::Cubin), |rig| {
        let (message, _) = does_not_compile(rig, cuda("add", ADD, one()));
        assert!(message.contains("not for this device") && message.contains("9.0"), "{message}");
    });
}

#[test]
fn kernels_compile_together_and_answer_in_order() {
    compiling(&plain(), |rig| {
        let text = |i: u32| ADD.replace("+= 1", &format!("+= {i}"));
        let mut kernels: Vec<_> =
            (1..6).map(|i| rig.prepare(cuda("add", &text(i), one()).workgroup_size([64, 1, 1])).unwrap()).collect();
        kernels.insert(2, rig.prepare(cuda("add", "broken", one())).unwrap());
        let jobs: Vec<_> =
            kernels.iter().map(|kernel| CompileJob { kernel, bounds: Bounds::Checked, stored: None }).collect();
        assert!(rig.driver.compiles_at_once() >= 1);
        let page = rig.page_of(&[0; 64]);
        let mut answers = rig.driver.compile_together(&jobs);
        assert!(matches!(answers.remove(2), Err(Error::Compile { .. })));
        kernels.remove(2);
        for ((compiled, kernel), i) in answers.into_iter().zip(&kernels).zip(1..) {
            let compiled = Compiled { kernel: kernel.clone(), code: compiled.unwrap().code };
            rig.run_with(&compiled, [1, 1, 1], &[part(&page, 0, 256)], &[]).unwrap();
            assert_eq!(rig.read_u32(part(&page, 0, 4)), [(1..=i).sum::<u32>()]);
        }
    });
}

#[test]
fn stored_code_is_used_where_it_is_whole_and_replaced_where_it_is_not() {
    compiling(&plain(), |rig| {
        let kernel = rig.prepare(cuda("add", ADD, one()).workgroup_size([64, 1, 1])).unwrap();
        let first = rig.driver.compile(&kernel, Bounds::Checked, None).unwrap();
        let StoredCode::Keep(bytes) = first.stored else { panic!("nothing to keep: {:?}", first.stored) };
        let again = rig.driver.compile(&kernel, Bounds::Checked, Some(&bytes)).unwrap();
        assert!(matches!(again.stored, StoredCode::Used), "{:?}", again.stored);
        let page = rig.page_of(&[5; 64]);
        rig.run_with(&Compiled { kernel: kernel.clone(), code: again.code }, [1, 1, 1], &[part(&page, 0, 256)], &[])
            .unwrap();
        assert_eq!(rig.read_u32(part(&page, 0, 4)), [6]);

        // Empty, cut off, overwritten, another kernel's, code that is none.
        let cut = bytes[..bytes.len() / 2].to_vec();
        let other = SEVEN.as_bytes().to_vec();
        let mut torn = bytes.clone();
        torn[bytes.len() / 2..].fill(0);
        for damaged in [vec![], cut, other, torn, b"\x7fELF".to_vec(), vec![0xFF; 100]] {
            let compiled = rig.driver.compile(&kernel, Bounds::Checked, Some(&damaged)).unwrap();
            assert!(matches!(&compiled.stored, StoredCode::Damaged(anew) if *anew == bytes), "{:?}", damaged.len());
        }
        assert!(rig.device.take_reports().unwrap().iter().all(|report| report.kind == ReportKind::BadCall));
        // PTX is not kept: the driver does that.
        let kernel = rig.prepare(ptx("seven", SEVEN, one())).unwrap();
        let compiled = rig.driver.compile(&kernel, Bounds::Checked, None).unwrap();
        assert!(matches!(compiled.stored, StoredCode::None), "{:?}", compiled.stored);
    });
}

#[test]
fn the_compiler_and_its_options_are_part_of_what_kept_code_is_known_by() {
    let identity = |options: CudaOptions| {
        let mut identity = String::new();
        compiling(&options, |rig| identity = rig.driver.compiler_identity().to_string());
        identity
    };
    let usual = identity(plain());
    assert!(usual.contains("NVRTC 13.0"), "{usual}");
    assert_eq!(identity(plain()), usual);
    for other in
        [plain().compile_option("--use_fast_math"), plain().include_path("/here"), plain().code(CodeForm::Cubin)]
    {
        assert_ne!(identity(other), usual);
    }
}

#[test]
fn code_may_be_dropped_while_it_runs_and_after_its_driver() {
    let mut kept = None;
    compiling(&plain(), |rig| {
        let kernel = rig.compile(cuda("add", ADD, one()).workgroup_size([64, 1, 1])).unwrap();
        let page = rig.page_of(&[5; 64]);
        let mut stream = rig.driver.open_stream().unwrap();
        for seq in 1..=50 {
            rig.launch(&mut stream, seq, &kernel, [1, 1, 1], &[part(&page, 0, 256)]).unwrap();
        }
        rig.driver.submit(&mut stream, 50).unwrap();
        drop(kernel);
        assert_eq!(rig.finish(&mut stream, 50).failed, []);
        rig.driver.close_stream(stream);
        assert_eq!(rig.read_u32(part(&page, 0, 256)), [55; 64]);
        kept = Some(rig.compile(ptx("seven", SEVEN, one())).unwrap());
    });
    drop(kept);
}
