//! Launches: what a kernel is bound to, its parameters, its grid, known or in memory.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Rig, all, each, each_with, part};
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::{CompileJob, Driver, StoredCode};
use trunnion_backend_vulkan::VulkanOptions;
use trunnion_driver_rig::launches;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};
use trunnion_runtime_core::server::Bounds;

/// Adds one to each element, so that the count of launches shows.
const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&x) { x[id.x] += 1u; }
}";

/// `y = a * x + b`, where the parameters are more than one word and not a multiple of 16 bytes.
const SCALE: &str = "
struct Parameters { a: u32, b: u32, first: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> p: Parameters;
@compute @workgroup_size(32) fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + p.first;
    if i < arrayLength(&y) { y[i] = p.a * x[i] + p.b; }
}";

/// Says how many workgroups there were, and how many elements each buffer has.
const LENGTHS: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read_write> b: array<vec4<u32>>;
@compute @workgroup_size(1) fn lengths(@builtin(num_workgroups) groups: vec3<u32>) {
    out[0] = arrayLength(&a);
    out[1] = arrayLength(&b);
    out[2] = groups.x * groups.y * groups.z;
    b[3] = vec4<u32>(9u);
}";

#[test]
fn a_kernel_runs_over_the_part_of_a_page_it_is_given() {
    each(|rig| {
        let add = rig.wgsl("add", ADD);
        launches::a_kernel_runs_over_the_part_of_a_page_it_is_given(rig, &add);
    });
}

#[test]
fn parameters_arrive_by_push_constants_and_by_a_uniform_block() {
    each(|rig| {
        let scale = rig.wgsl("scale", SCALE);
        launches::launches_of_a_batch_have_parameters_of_their_own(rig, &scale);
    });
}

#[test]
fn buffers_of_no_bytes_or_of_too_few_have_no_elements() {
    each(|rig| {
        let kernel = rig.wgsl("lengths", LENGTHS);
        let (out, page) = (rig.page_of(&[99; 4]), rig.page_of(&[1; 64]));
        rig.run(&kernel, [2, 3, 1], &[all(&out), part(&page, 0, 0), part(&page, 0, 0)]).unwrap();
        assert_eq!(rig.read_u32(part(&out, 0, 12)), [0, 0, 6]);
        rig.run(&kernel, [1, 1, 1], &[all(&out), part(&page, 0, 20), part(&page, 0, 12)]).unwrap();
        assert_eq!(rig.read_u32(part(&out, 0, 12)), [5, 0, 1]);
        // What lies out of bounds is not touched.
        assert_eq!(rig.read_u32(part(&page, 0, 256)), [1; 64]);
    });
}

#[test]
fn a_batch_of_64_launches_with_barriers_between_runs_in_order() {
    each(|rig| {
        let (add, scale) = (rig.wgsl("add", ADD), rig.wgsl("scale", SCALE));
        launches::a_batch_of_64_launches_runs_in_order(rig, (&add, &scale), |stream| {
            assert!(stream.barriers() >= 319, "{}", stream.barriers());
        });
    });
}

#[test]
fn counts_in_memory_run_as_many_workgroups_and_zeros_none() {
    each(|rig| {
        let lengths = rig.wgsl("lengths", LENGTHS);
        launches::counts_in_memory_run_as_many_workgroups_and_zeros_none(rig, &lengths);
    });
}

#[test]
fn counts_in_memory_over_the_limit_are_a_failure_of_their_launch_alone() {
    let limits = LimitOptions { max_grid: Some(launches::SMALL_GRID), ..LimitOptions::default() };
    for options in rig::variants() {
        each_with(&options.limits(limits.clone()), |rig| {
            let (add, lengths) = (rig.wgsl("add", ADD), rig.wgsl("lengths", LENGTHS));
            launches::counts_in_memory_over_the_limit_are_a_failure_of_their_launch_alone(rig, (&add, &lengths));
        });
    }
}

#[test]
fn kernels_compile_together_and_answer_in_order() {
    each(|rig| {
        let text = |i: u32| ADD.replace("+= 1u", &format!("+= {i}u"));
        let kernels: Vec<_> = (1..6).map(|i| rig.prepare(SourceKernel::wgsl("add", text(i))).unwrap()).collect();
        let jobs: Vec<_> =
            kernels.iter().map(|kernel| CompileJob { kernel, bounds: Bounds::Checked, stored: None }).collect();
        assert!(rig.driver.compiles_at_once() >= 1);
        let page = rig.page_of(&[0; 64]);
        for ((compiled, kernel), i) in rig.driver.compile_together(&jobs).into_iter().zip(&kernels).zip(1..) {
            let compiled = rig::Compiled { kernel: kernel.clone(), code: compiled.unwrap().code };
            rig.run(&compiled, [1, 1, 1], &[part(&page, 0, 256)]).unwrap();
            assert_eq!(rig.read_u32(part(&page, 0, 4)), [(1..=i).sum::<u32>()]);
        }
    });
}

#[test]
fn stored_code_is_used_where_it_is_this_drivers_and_replaced_where_it_is_not() {
    each(|rig| {
        let kernel = rig.prepare(SourceKernel::wgsl("add", ADD)).unwrap();
        let first = rig.driver.compile(&kernel, Bounds::Checked, None).unwrap();
        let StoredCode::Keep(bytes) = first.stored else { panic!("nothing to keep: {:?}", first.stored) };
        let again = rig.driver.compile(&kernel, Bounds::Checked, Some(&bytes)).unwrap();
        assert!(matches!(again.stored, StoredCode::Used), "{:?}", again.stored);
        let page = rig.page_of(&[5; 64]);
        rig.run(&rig::Compiled { kernel: kernel.clone(), code: again.code }, [1, 1, 1], &[all(&page)]).unwrap();
        assert_eq!(rig.read_u32(part(&page, 0, 4)), [6]);

        // Cut off, empty, of another layout, vendor, device and driver.
        let mut wrong = vec![bytes[..31].to_vec(), vec![]];
        wrong.extend([0, 4, 8, 12, 16, 31].map(|at| {
            let mut other = bytes.clone();
            other[at] ^= 0x55;
            other
        }));
        for damaged in wrong {
            let compiled = rig.driver.compile(&kernel, Bounds::Checked, Some(&damaged)).unwrap();
            assert!(matches!(compiled.stored, StoredCode::Damaged(_)), "{:?}", &damaged[..damaged.len().min(32)]);
        }
    });
}

#[test]
fn spirv_that_is_none_or_not_this_kernels_is_refused_before_the_driver_sees_it() {
    let kernel = |words: Vec<u32>| {
        let interface = Interface::new().claim(Access::ReadWrite);
        // SAFETY: none of these is a module that could run.
        SourceKernel::new("go", interface).source(unsafe { Source::spirv(words) })
    };
    each_with(&VulkanOptions::default(), |rig: &mut Rig| {
        for (words, why) in [
            (vec![], "no words"),
            (vec![1, 2, 3, 4, 5], "begins with 0x00000001"),
            (vec![0x0723_0203, 0x0001_0300, 0, 1, 0], "no function"),
            (vec![0x0723_0203, 0x0001_0300, 0, 1, 0, 0x0005_0036, 1, 2, 0, 3], "no compute entry point `go`"),
        ] {
            match rig.compile(kernel(words)).map(|_| ()) {
                Err(Error::Compile { kernel, message, .. }) => {
                    assert!(kernel == "go" && message.contains(why), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

/// A module that stores a specialisation constant, by its id 3, in the first element of its one buffer.
fn storing(constant: u32) -> Vec<u32> {
    let text = |name: &[u8; 4]| u32::from_le_bytes(*name);
    let instructions: [(u32, &[u32]); 26] = [
        (17, &[1]),                     // OpCapability Shader
        (14, &[0, 1]),                  // OpMemoryModel Logical GLSL450
        (15, &[5, 1, text(b"go\0\0")]), // OpEntryPoint GLCompute %1 "go"
        (16, &[1, 17, 1, 1, 1]),        // OpExecutionMode %1 LocalSize 1 1 1
        (71, &[2, 1, 3]),               // OpDecorate %2 SpecId 3
        (71, &[3, 6, 4]),               // OpDecorate %3 ArrayStride 4
        (71, &[4, 2]),                  // OpDecorate %4 Block
        (72, &[4, 0, 35, 0]),           // OpMemberDecorate %4 0 Offset 0
        (71, &[5, 34, 0]),              // OpDecorate %5 DescriptorSet 0
        (71, &[5, 33, 0]),              // OpDecorate %5 Binding 0
        (19, &[6]),                     // %6 = OpTypeVoid
        (33, &[7, 6]),                  // %7 = OpTypeFunction %6
        (21, &[8, 32, 0]),              // %8 = OpTypeInt 32 0
        (29, &[3, 8]),                  // %3 = OpTypeRuntimeArray %8
        (30, &[4, 3]),                  // %4 = OpTypeStruct %3
        (32, &[9, 12, 4]),              // %9 = OpTypePointer StorageBuffer %4
        (32, &[10, 12, 8]),             // %10 = OpTypePointer StorageBuffer %8
        (59, &[9, 5, 12]),              // %5 = OpVariable %9 StorageBuffer
        (43, &[8, 11, 0]),              // %11 = OpConstant %8 0
        (50, &[8, 2, constant]),        // %2 = OpSpecConstant %8
        (54, &[6, 1, 0, 7]),            // %1 = OpFunction %6 None %7
        (248, &[12]),                   // %12 = OpLabel
        (65, &[10, 13, 5, 11, 11]),     // %13 = OpAccessChain %10 %5 %11 %11
        (62, &[13, 2]),                 // OpStore %13 %2
        (253, &[]),                     // OpReturn
        (56, &[]),                      // OpFunctionEnd
    ];
    let mut words = vec![0x0723_0203, 0x0001_0300, 0, 14, 0];
    for (code, operands) in instructions {
        words.push((operands.len() as u32 + 1) << 16 | code);
        words.extend_from_slice(operands);
    }
    words
}

#[test]
fn spirv_runs_with_the_values_its_constants_are_given() {
    let kernel = || {
        // SAFETY: it stores in the first element of a buffer that has one.
        let source = unsafe { Source::spirv(storing(7)) };
        SourceKernel::new("go", Interface::new().claim(Access::ReadWrite).at_least(4)).source(source)
    };
    each(|rig| {
        let page = rig.page_of(&[0; 4]);
        for (kernel, expected) in [(kernel(), 7), (kernel().constant("3", 4_000_000_000.0), 4_000_000_000)] {
            let compiled = rig.compile(kernel).unwrap();
            rig.run(&compiled, [1, 1, 1], &[all(&page)]).unwrap();
            assert_eq!(rig.read_u32(part(&page, 0, 4)), [expected]);
        }
        for (kernel, why) in [
            (kernel().constant("4", 1.0), "has, by id: 3"),
            (kernel().constant("3", 0.5), "0.5 is no value of u32"),
            (kernel().workgroup_size([2, 1, 1]), "its workgroup size is [1, 1, 1], the kernel's [2, 1, 1]"),
        ] {
            match rig.compile(kernel).map(|_| ()) {
                Err(Error::Compile { message, .. }) => assert!(message.contains(why), "{message}"),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_kernel_with_as_much_memory_of_its_own_as_it_may_have_runs() {
    let text = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
fn own(seed: u32) -> u32 {
    var a: array<u32, 2047>;
    for (var i = 0u; i < 2047u; i++) { a[i] = i * seed; }
    workgroupBarrier();
    return a[seed % 2047u];
}
@compute @workgroup_size(64) fn k(@builtin(local_invocation_index) i: u32) { x[i] = own(x[i]); }";
    each_with(&VulkanOptions::default(), |rig: &mut Rig| {
        let kernel = rig.wgsl("k", text);
        let page = rig.page_of(&(0..64).collect::<Vec<_>>());
        rig.run(&kernel, [1, 1, 1], &[part(&page, 0, 256)]).unwrap();
        let squares: Vec<u32> = (0..64).map(|i| i * i).collect();
        assert_eq!(rig.read_u32(part(&page, 0, 256)), squares);
    });
}
