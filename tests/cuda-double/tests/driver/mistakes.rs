//! Every mistake a GPU may hide is found, with the thread and the line it happened on.

use cudarc::driver::{CudaFunction, CudaSlice, LaunchConfig, PushKernelArg, sys};
use trunnion_cuda_double::ReportKind;

use crate::gpu::{Gpu, block, code, shape};

/// Launches a kernel that takes a buffer and a number.
fn launch(gpu: &Gpu, kernel: &CudaFunction, buffer: &CudaSlice<f32>, number: i64) -> u32 {
    gpu.came_to(unsafe { gpu.stream.launch_builder(kernel).arg(buffer).arg(&number).launch(block(1)) })
}

#[test]
fn a_write_out_of_bounds_breaks_the_context_for_good() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("memory", "write_at");
    let buffer = gpu.stream.alloc_zeros::<f32>(25).unwrap();
    assert_eq!(launch(&gpu, &kernel, &buffer, 24), 0);
    gpu.clean();
    assert_eq!(launch(&gpu, &kernel, &buffer, 25), 700);
    gpu.noticed(
        ReportKind::Fault,
        &["write_at", "thread (0,0,0) of block (0,0,0)", "PTX line", "100 bytes ends 0 bytes before"],
    );
    assert_eq!(code(gpu.stream.synchronize()), 700);
    assert_eq!(code(gpu.stream.alloc_zeros::<f32>(1)), 700);
    gpu.device.reset().unwrap();
    assert_eq!(launch(&gpu, &kernel, &buffer, 0), 0);
}

#[test]
fn a_misaligned_address_is_its_own_error() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("memory", "write_byte_address");
    let buffer = gpu.stream.alloc_zeros::<f32>(25).unwrap();
    assert_eq!(launch(&gpu, &kernel, &buffer, 6), 716);
    gpu.noticed(ReportKind::Fault, &["misaligned address", "write of 4 bytes", "PTX line"]);
    gpu.device.reset().unwrap();
}

#[test]
fn memory_that_was_freed_is_known_as_such() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("memory", "write_at");
    let buffer = gpu.stream.alloc_zeros::<f32>(25).unwrap();
    let address = gpu.stream.clone_htod(&[0u64]).map(drop).map(|()| buffer.leak()).unwrap();
    unsafe { cudarc::driver::result::free_sync(address) }.unwrap();
    let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&address).arg(&3i64).launch(block(1)) };
    assert_eq!(gpu.came_to(launched), 700);
    gpu.noticed(ReportKind::Fault, &["use after free", "12 bytes into a freed allocation of 100 bytes"]);
    gpu.device.reset().unwrap();
    assert_eq!(code(unsafe { cudarc::driver::result::free_sync(address) }), 1);
    gpu.noticed(ReportKind::BadFree, &["freed twice"]);
}

#[test]
fn memory_that_nobody_wrote_is_not_to_be_read() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("memory", "copy");
    let from = unsafe { gpu.stream.alloc::<i32>(8) }.unwrap();
    let mut to = gpu.stream.alloc_zeros::<i32>(8).unwrap();
    unsafe { gpu.stream.launch_builder(&kernel).arg(&from).arg(&mut to).arg(&8i32).launch(block(8)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    gpu.noticed(ReportKind::Uninitialised, &["copy", "0 bytes into an allocation of 32 bytes", "thread (0,0,0)"]);
    // Copies read too.
    let mut host = [0i32; 8];
    gpu.stream.memcpy_dtoh(&from, &mut host).unwrap();
    gpu.noticed(ReportKind::Uninitialised, &["copy to the host"]);
}

#[test]
fn shared_memory_without_a_barrier_is_a_race() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.alloc_zeros::<i32>(64).unwrap();
    let kernel = gpu.kernel("threads", "race");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(64)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    gpu.noticed(ReportKind::SharedRace, &["kernel race", "PTX line", "no barrier between"]);
}

#[test]
fn shared_memory_has_its_own_bounds_and_its_own_unwritten_bytes() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.alloc_zeros::<i32>(32).unwrap();
    let kernel = gpu.kernel("memory", "shared_unwritten");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(32)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    gpu.noticed(ReportKind::Uninitialised, &["thread (16,0,0)", "byte 64 of shared memory"]);
    let kernel = gpu.kernel("memory", "shared_overrun");
    let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).arg(&1i32).launch(block(32)) };
    assert_eq!(gpu.came_to(launched), 700);
    gpu.noticed(ReportKind::Fault, &["thread (31,0,0)", "out of bounds", "which has 128 bytes"]);
    gpu.device.reset().unwrap();
}

#[test]
fn threads_that_wait_at_different_barriers_are_named() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.alloc_zeros::<i32>(64).unwrap();
    let kernel = gpu.kernel("threads", "divergent");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(64)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    gpu.noticed(
        ReportKind::DivergentBarrier,
        &["thread (0,0,0)", "thread (32,0,0)", "different instructions of barrier 0"],
    );
    let kernel = gpu.kernel("threads", "stuck");
    let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(64)) };
    assert_eq!(gpu.came_to(launched), 702);
    gpu.noticed(ReportKind::DivergentBarrier, &["wait for each other for ever", "(32 there)"]);
    gpu.device.reset().unwrap();
}

#[test]
fn a_lane_that_has_ended_is_not_to_be_named() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.alloc_zeros::<i32>(32).unwrap();
    let kernel = gpu.kernel("threads", "gone");
    let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).arg(&20i32).launch(block(32)) };
    assert_eq!(gpu.came_to(launched), 719);
    gpu.noticed(ReportKind::Fault, &["names lane 20, which has ended"]);
    gpu.device.reset().unwrap();
}

#[test]
fn a_kernel_that_never_ends_is_ended() {
    let gpu = Gpu::claim();
    gpu.device.set_instruction_limit(100_000).unwrap();
    let kernel = gpu.kernel("memory", "forever");
    let buffer = gpu.stream.alloc_zeros::<i32>(1).unwrap();
    let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&buffer).launch(block(4)) };
    assert_eq!(gpu.came_to(launched), 702);
    gpu.noticed(ReportKind::Fault, &["has not ended after 100000 instructions"]);
    gpu.device.reset().unwrap();
}

#[test]
fn assertions_and_traps_end_the_launch() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("calls", "check");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&1i32).launch(block(1)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&0i32).launch(block(1)) };
    assert_eq!(gpu.came_to(launched), 710);
    gpu.noticed(ReportKind::Fault, &["assertion `x > 0` failed in void check(int)"]);
    gpu.device.reset().unwrap();
    let kernel = gpu.kernel("calls", "trap");
    let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&1i32).launch(block(1)) };
    assert_eq!(gpu.came_to(launched), 719);
    gpu.device.reset().unwrap();
}

#[test]
fn launches_that_hardware_refuses_are_refused_with_the_limit() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("arithmetic", "fill");
    let mut out = gpu.stream.alloc_zeros::<u32>(8).unwrap();
    let shapes: [(LaunchConfig, &[&str]); 5] = [
        (shape(0, 1), &["0 blocks along axis 0", "between 1 and 2147483647"]),
        (shape(1, 1025), &["1025 threads along axis 0", "1024"]),
        (LaunchConfig { block_dim: (64, 64, 1), ..block(1) }, &["4096 threads a block", "1024"]),
        (LaunchConfig { grid_dim: (1, 65536, 1), ..block(1) }, &["65536 blocks along axis 1", "65535"]),
        (LaunchConfig { shared_mem_bytes: 50_000, ..block(1) }, &["50000 bytes of dynamic shared memory", "49152"]),
    ];
    for (shape, words) in shapes {
        let launched = unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).arg(&1u32).arg(&8u64).launch(shape) };
        assert_eq!(code(launched), 1, "{shape:?}");
        gpu.noticed(ReportKind::BadLaunch, words);
    }
    // Asked for, more shared memory is to be had.
    let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    kernel.set_attribute(attribute, 60_000).unwrap();
    let shape = LaunchConfig { shared_mem_bytes: 50_000, ..block(8) };
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).arg(&1u32).arg(&8u64).launch(shape) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [1; 8]);
    assert_eq!(code(kernel.set_attribute(attribute, 300_000)), 1);
    gpu.clean();
}

#[test]
fn an_opcode_that_is_not_known_is_named_and_never_guessed() {
    let gpu = Gpu::claim();
    let text = "
        .version 9.0\n.target sm_90\n.address_size 64
        .visible .entry good() { ret; }
        .visible .entry bad() {
            .reg .b32 %r<2>;
            frobnicate.u32 %r1, %r1;
            ret;
        }";
    let module = gpu.context.load_module(cudarc::nvrtc::Ptx::from_src(text)).unwrap();
    let good = module.load_function("good").unwrap();
    unsafe { gpu.stream.launch_builder(&good).launch(block(1)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    assert_eq!(code(module.load_function("bad")), 801);
    gpu.noticed(ReportKind::Unsupported, &["kernel bad", "PTX line 8", "`frobnicate.u32`", "not known to the double"]);
}

#[test]
fn a_text_that_is_no_ptx_is_refused_with_its_line() {
    let gpu = Gpu::claim();
    let load = |text: &str| code(gpu.context.load_module(cudarc::nvrtc::Ptx::from_src(text)));
    assert_eq!(load(".version 9.0\n.target sm_90\nhello"), 218);
    gpu.noticed(ReportKind::BadCall, &["ptx line 3", "`hello` begins no definition"]);
    assert_eq!(load(".version 9.1\n.target sm_90\n.address_size 64\n"), 222);
    gpu.noticed(ReportKind::BadCall, &["PTX 9.1", "up to 9.0"]);
    assert_eq!(load(".version 9.0\n.target sm_100\n.address_size 64\n"), 209);
    gpu.noticed(ReportKind::BadCall, &["sm_100", "sm_90"]);
    assert_eq!(code(gpu.module("memory").load_function("nothing")), 500);
}

#[test]
fn the_compilers_log_says_what_cannot_be_executed() {
    let _gpu = Gpu::claim();
    let text = c".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry bad() {\nfrobnicate;\n}\n";
    let mut log = [0u8; 200];
    let mut options =
        [sys::CUjit_option_enum::CU_JIT_INFO_LOG_BUFFER, sys::CUjit_option_enum::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), core::ptr::without_provenance_mut(log.len())];
    let mut module = core::ptr::null_mut();
    let result = unsafe {
        sys::cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
    };
    assert_eq!(result as u32, 0);
    let log = core::ffi::CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(log.contains("bad: ptx line 5: `frobnicate`"), "{log}");
    assert_eq!(values[1].addr(), log.len() + 1);
}
