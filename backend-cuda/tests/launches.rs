//! Launches: what a kernel is given, its parameters, its shared memory, its grid, known or in memory.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::{bytes_of, compiling, cuda, each_compiling};
use rig::{Rig, part};
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::{Driver, DriverGrid};
use trunnion_backend_cuda::CudaOptions;
use trunnion_driver_rig::launches;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, Resource};
use trunnion_runtime_core::kernel::{Interface, SourceKernel};

/// Adds one to each element, so that the count of launches shows.
const ADD: &str = "
extern \"C\" __global__ void add(unsigned* x, unsigned long long bytes) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < bytes / 4) x[i] += 1;
}";

/// `y = a * x + b`, where the parameters are more than one word and not a multiple of eight bytes.
const SCALE: &str = "
struct Parameters { unsigned a, b, first; };
extern \"C\" __global__ void scale(const unsigned* x, unsigned* y, Parameters p, unsigned long long, unsigned long long y_bytes) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x + p.first;
    if (i < y_bytes / 4) y[i] = p.a * x[i] + p.b;
}";

/// Says how many workgroups there were, and how long each buffer is.
const LENGTHS: &str = "
extern \"C\" __global__ void lengths(unsigned* out, const unsigned* a, unsigned* b, unsigned long long, unsigned long long a_bytes,
                                   unsigned long long b_bytes) {
    if (blockIdx.x || blockIdx.y || blockIdx.z || threadIdx.x) return;
    out[0] = a_bytes;
    out[1] = b_bytes;
    out[2] = gridDim.x * gridDim.y * gridDim.z;
    out[3] = a != nullptr && b != nullptr;
}";

/// Sums its workgroup's part by dynamic shared memory.
const SHARED: &str = "
extern \"C\" __global__ void sums(const unsigned* x, unsigned* out) {
    extern __shared__ unsigned dynamic[];
    __shared__ unsigned fixed[64];
    unsigned t = threadIdx.x, last = LAST;
    fixed[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    dynamic[t == 63 ? last : t] = fixed[63 - t];
    __syncthreads();
    if (t == 0) {
        unsigned sum = dynamic[last];
        #pragma unroll 1
        for (unsigned i = 0; i < 63; ++i) sum += dynamic[i];
        out[blockIdx.x] = sum;
    }
}";

fn add() -> SourceKernel {
    cuda("add", ADD, Interface::new().claim(Access::ReadWrite)).workgroup_size([64, 1, 1])
}

fn scale() -> SourceKernel {
    let interface = Interface::new().read().claim(Access::ReadWrite).parameters(12);
    cuda("scale", SCALE, interface).workgroup_size([32, 1, 1])
}

fn lengths() -> SourceKernel {
    cuda("lengths", LENGTHS, Interface::new().claim(Access::ReadWrite).read().claim(Access::ReadWrite))
}

#[test]
fn a_kernel_runs_over_the_part_of_a_page_it_is_given() {
    each_compiling(|rig| {
        let add = rig.compile(add()).unwrap();
        launches::a_kernel_runs_over_the_part_of_a_page_it_is_given(rig, &add);
    });
}

#[test]
fn parameters_arrive_by_value_behind_the_pointers() {
    each_compiling(|rig| {
        let scale = rig.compile(scale()).unwrap();
        launches::launches_of_a_batch_have_parameters_of_their_own(rig, &scale);
    });
}

#[test]
fn a_kernel_takes_as_many_lengths_as_it_declares() {
    compiling(&CudaOptions::default(), |rig| {
        for (arguments, expected) in [
            ("", 7),
            (", unsigned long long a", 1000 + 8),
            (", unsigned long long a, unsigned long long b", 1000 + 8 + 16),
        ] {
            let value = match expected {
                7 => "7",
                1008 => "1000 + a",
                _ => "1000 + a + b",
            };
            let text = format!(
                "extern \"C\" __global__ void take(unsigned* x, unsigned* y, unsigned short p{arguments}) {{ x[0] = {value}; y[3] = p; }}"
            );
            let interface = Interface::new().claim(Access::ReadWrite).claim(Access::ReadWrite).parameters(2);
            let kernel = rig.compile(cuda("take", &text, interface)).unwrap();
            let page = rig.page_of(&[0; 64]);
            let buffers = [part(&page, 0, 8), part(&page, 128, 16)];
            rig.run_with(&kernel, [1, 1, 1], &buffers, &513_u16.to_ne_bytes()).unwrap();
            assert_eq!(rig.read_u32(part(&page, 0, 4)), [expected]);
            assert_eq!(rig.read_u32(part(&page, 140, 4)), [513]);
        }
    });
}

#[test]
fn a_buffer_of_no_bytes_is_a_pointer_and_no_length() {
    each_compiling(|rig| {
        let kernel = rig.compile(lengths()).unwrap();
        let (out, page) = (rig.page_of(&[99; 4]), rig.page_of(&[1; 64]));
        rig.run_with(&kernel, [2, 3, 1], &[part(&out, 0, 16), part(&page, 0, 0), part(&page, 0, 20)], &[]).unwrap();
        assert_eq!(rig.read_u32(part(&out, 0, 16)), [0, 20, 6, 1]);
    });
}

#[test]
fn other_buffers_or_parameters_than_a_kernel_has_are_refused_and_nothing_is_encoded() {
    compiling(&CudaOptions::default(), |rig| {
        let kernel = rig.compile(scale()).unwrap();
        let page = rig.page_of(&[1; 64]);
        let mut stream = rig.driver.open_stream().unwrap();
        let both = [part(&page, 0, 128), part(&page, 128, 128)];
        let grid = || DriverGrid::Static([1, 1, 1]);
        let error = rig.launch_with(&mut stream, 1, &kernel, grid(), &both[..1], &[0; 12]).unwrap_err();
        assert_eq!(error, Error::BufferCount { kernel: "scale".into(), got: 1, expected: 2 });
        let error = rig.launch_with(&mut stream, 1, &kernel, grid(), &both, &[0; 16]).unwrap_err();
        assert_eq!(error, Error::ParameterSize { kernel: "scale".into(), got: 16, expected: 12 });
        let counts = DriverGrid::Dynamic(part(&page, 0, 8));
        let error = rig.launch_with(&mut stream, 1, &kernel, counts, &both, &[0; 12]).unwrap_err();
        assert_eq!(error, Error::OutOfRange { what: "grid in memory".into(), range: 0..12, size: 8 });
        rig.driver.submit(&mut stream, 1).unwrap();
        assert!(rig.finish(&mut stream, 1).failed.is_empty());
        assert_eq!(rig.device.calls("cuLaunchKernel").unwrap(), 0);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn shared_memory_is_the_sources_own_and_what_the_interface_declares_beyond_it() {
    // What needs no asking, what does, and everything there is.
    for together in [256 + 256, 40 << 10, 100 << 10, 227 << 10] {
        compiling(&CudaOptions::default(), |rig| {
            let interface = Interface::new().read().claim(Access::ReadWrite).shared(together);
            let last = (together - 256) / 4 - 1;
            let kernel = cuda("sums", SHARED, interface).workgroup_size([64, 1, 1]).constant("LAST", f64::from(last));
            let kernel = rig.compile(kernel).unwrap();
            assert_eq!(kernel.code.shared_bytes(), together);
            let (x, out) = (rig.page_of(&(0..256).collect::<Vec<_>>()), rig.page_of(&[0; 4]));
            rig.run_with(&kernel, [4, 1, 1], &[part(&x, 0, 1024), part(&out, 0, 16)], &[]).unwrap();
            let sums: Vec<u32> = (0..4).map(|i| (64 * i..64 * (i + 1)).sum()).collect();
            assert_eq!(rig.read_u32(part(&out, 0, 16)), sums);
        });
    }
}

#[test]
fn workgroups_and_shared_memory_over_the_limit_are_refused_before_the_driver_sees_a_launch() {
    let sums = |bytes: u32| {
        let interface = Interface::new().read().claim(Access::ReadWrite).shared(bytes);
        cuda("sums", SHARED, interface).workgroup_size([64, 1, 1]).constant("LAST", 63.0)
    };
    let too_many = |kernel: &str, resource, requested, max| Error::TooManyResources {
        kernel: kernel.into(),
        resource,
        requested,
        max,
    };
    compiling(&CudaOptions::default(), |rig| {
        let error = rig.compile(sums((227 << 10) + 1)).map(|_| ()).unwrap_err();
        assert_eq!(error, too_many("sums", Resource::SharedMemory, (227 << 10) + 1, 227 << 10));
        let error = rig.compile(add().workgroup_size([2048, 1, 1])).map(|_| ()).unwrap_err();
        assert_eq!(error, too_many("add", Resource::WorkgroupSizeX, 2048, 1024));
        let error = rig.compile(add().workgroup_size([64, 32, 1])).map(|_| ()).unwrap_err();
        assert_eq!(error, too_many("add", Resource::Invocations, 2048, 1024));
        // What its author bounds the code for.
        let bounded = ADD.replace("void add", "void __launch_bounds__(128) add");
        let bounded =
            |size| cuda("add", &bounded, Interface::new().claim(Access::ReadWrite)).workgroup_size([size, 1, 1]);
        assert!(rig.compile(bounded(128)).is_ok());
        let error = rig.compile(bounded(256)).map(|_| ()).unwrap_err();
        assert_eq!(error, too_many("add", Resource::Invocations, 256, 128));
    });
    compiling(
        &CudaOptions::default().limits(LimitOptions { max_shared: Some(300), ..LimitOptions::default() }),
        |rig| {
            let error = rig.compile(sums(512)).map(|_| ()).unwrap_err();
            assert_eq!(error, too_many("sums", Resource::SharedMemory, 512, 300));
        },
    );
    compiling(
        &CudaOptions::default().limits(LimitOptions { max_invocations: Some(32), ..LimitOptions::default() }),
        |rig| {
            let error = rig.compile(add()).map(|_| ()).unwrap_err();
            assert_eq!(error, too_many("add", Resource::Invocations, 64, 32));
        },
    );
    // What is declared fits, and what the source has does not.
    compiling(
        &CudaOptions::default().limits(LimitOptions { max_shared: Some(200), ..LimitOptions::default() }),
        |rig| {
            let error = rig.compile(sums(100)).map(|_| ()).unwrap_err();
            assert_eq!(error, too_many("sums", Resource::SharedMemory, 256, 200));
        },
    );
}

#[test]
fn a_batch_of_64_launches_runs_in_order() {
    compiling(&CudaOptions::default(), |rig| {
        let (add, scale) = (rig.compile(add()).unwrap(), rig.compile(scale()).unwrap());
        launches::a_batch_of_64_launches_runs_in_order(rig, (&add, &scale), |_| ());
    });
}

#[test]
fn counts_in_memory_run_as_many_workgroups_and_zeros_none() {
    compiling(&CudaOptions::default(), |rig| {
        let lengths = rig.compile(lengths()).unwrap();
        launches::counts_in_memory_run_as_many_workgroups_and_zeros_none(rig, &lengths);
    });
}

#[test]
fn counts_in_memory_over_the_limit_are_a_failure_of_their_launch_alone() {
    let limits = LimitOptions { max_grid: Some(launches::SMALL_GRID), ..LimitOptions::default() };
    compiling(&CudaOptions::default().limits(limits), |rig| {
        let (add, lengths) = (rig.compile(add()).unwrap(), rig.compile(lengths()).unwrap());
        launches::counts_in_memory_over_the_limit_are_a_failure_of_their_launch_alone(rig, (&add, &lengths));
    });
}

#[test]
fn what_waits_for_a_launch_with_counts_in_memory_comes_after_it_on_every_stream() {
    for seed in 0..8 {
        compiling(&CudaOptions::default(), |rig: &mut Rig| {
            rig.device.set_delays(seed).unwrap();
            let (add, scale) = (rig.compile(add()).unwrap(), rig.compile(scale()).unwrap());
            let (x, y) = (rig.page_of(&[1; 128]), rig.page_of(&[0; 128]));
            let counts = rig.page_of(&[0, 1, 1]);
            let mut streams = [0; 3].map(|_| rig.driver.open_stream().unwrap());
            let [first, second, third] = &mut streams;
            for round in 0..4_u64 {
                // The counts come from a kernel, and so does what the second stream reads; the third waits for the second, which is held.
                let at = 10 * round;
                rig.launch(first, at + 1, &add, [1, 1, 1], &[part(&counts, 0, 4)]).unwrap();
                let grid = DriverGrid::Dynamic(part(&counts, 0, 12));
                rig.launch_with(first, at + 2, &add, grid, &[part(&x, 0, 512)], &[]).unwrap();
                rig.driver.submit(first, at + 2).unwrap();
                rig.driver.wait(second, first, at + 2);
                let places = [part(&x, 0, 512), part(&y, 0, 512)];
                let grid = DriverGrid::Static([4, 1, 1]);
                rig.launch_with(second, at + 3, &scale, grid, &places, &bytes_of(&[2, 0, 0])).unwrap();
                rig.driver.submit(second, at + 3).unwrap();
                rig.driver.wait(third, second, at + 3);
                rig.launch(third, at + 4, &add, [2, 1, 1], &[part(&y, 0, 512)]).unwrap();
                rig.driver.submit(third, at + 4).unwrap();
                rig.driver.wait(first, third, at + 4);
            }
            rig.driver.submit(first, 50).unwrap();
            assert_eq!(rig.finish(first, 50).failed, []);
            assert_eq!(rig.finish(second, 33).failed, []);
            assert_eq!(rig.finish(third, 34).failed, []);
            // One workgroup in the first round, two and more in the others.
            let expected: Vec<u32> = (0..128).map(|i| if i < 64 { 5 } else { 4 }).collect();
            assert_eq!(rig.read_u32(part(&x, 0, 512)), expected);
            let expected: Vec<u32> = expected.iter().map(|x| 2 * x + 1).collect();
            assert_eq!(rig.read_u32(part(&y, 0, 512)), expected);
            streams.into_iter().for_each(|stream| rig.driver.close_stream(stream));
        });
    }
}
