//! Tensor maps: tiles that the device copies by itself, and what is refused.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::{compiling, cuda};
use rig::part;
use trunnion_backend_core::driver::{Driver, DriverGrid};
use trunnion_backend_cuda::CudaOptions;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, Resource};
use trunnion_runtime_core::kernel::{Interface, SourceKernel, Swizzle, TensorMap};

/// Copies the tile of each workgroup, eight numbers by four, from the tensor to its place in `out`.
const TILES: &str = r#"
struct alignas(64) Map { char bytes[128]; };
struct Parameters { unsigned long long width, height, pitch; };

__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

extern "C" __global__ void tiles(const int* x, int* out, const __grid_constant__ Map map, Parameters p) {
    __shared__ alignas(128) int tile[32];
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&bar)) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(at(&bar)) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at(tile)),
            "l"(&map), "r"(blockIdx.x * 8), "r"(blockIdx.y * 4), "r"(at(&bar)) : "memory");
    }
    asm volatile(
        "{\n\t.reg .pred done;\nAGAIN:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n\t@!done bra AGAIN;\n\t}" ::"r"(at(&bar)) : "memory");
    out[(blockIdx.y * gridDim.x + blockIdx.x) * 32 + threadIdx.x] = tile[threadIdx.x] + (int)(p.width - p.width);
}"#;

fn tiles() -> SourceKernel {
    let interface = Interface::new().read().claim(Access::ReadWrite).parameters(24);
    let map = TensorMap::new(0, ElemType::I32, [8, 4]);
    cuda("tiles", TILES, interface.tensor_map(map)).workgroup_size([32, 1, 1])
}

fn shape(width: u64, height: u64, pitch: u64) -> Vec<u8> {
    [width, height, pitch].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn tiles_come_from_where_the_buffer_lies_with_zeros_where_they_hang_over() {
    compiling(&CudaOptions::default(), |rig| {
        assert!(rig.driver.properties().features.tensor_maps);
        let kernel = rig.compile(tiles()).unwrap();
        // Ten numbers a row at a distance of twelve, behind other things in the page.
        let numbers: Vec<u32> = (0..4).chain(1..=12 * 6).collect();
        let (x, out) = (rig.page_of(&numbers), rig.page_of(&[99; 128]));
        rig.run_with(&kernel, [2, 2, 1], &[part(&x, 16, 12 * 6 * 4), part(&out, 0, 512)], &shape(10, 6, 48)).unwrap();
        let element = |i: usize| {
            let (tile, within) = (i / 32, i % 32);
            let (column, row) = (tile % 2 * 8 + within % 8, tile / 2 * 4 + within / 8);
            if column < 10 && row < 6 { (row * 12 + column + 1) as u32 } else { 0 }
        };
        assert_eq!(rig.read_u32(part(&out, 0, 512)), (0..128).map(element).collect::<Vec<_>>());
        // Other shapes are other parameters, not another kernel.
        rig.run_with(&kernel, [1, 1, 1], &[part(&x, 16, 64), part(&out, 0, 128)], &shape(4, 2, 32)).unwrap();
        assert_eq!(rig.read_u32(part(&out, 0, 64)), [1, 2, 3, 4, 0, 0, 0, 0, 9, 10, 11, 12, 0, 0, 0, 0]);
        assert_eq!(rig.device.calls("cuTensorMapEncodeTiled").unwrap(), 2);
    });
}

#[test]
fn a_tensor_that_leaves_its_buffer_is_refused_before_the_driver_sees_it() {
    compiling(&CudaOptions::default(), |rig| {
        let kernel = rig.compile(tiles()).unwrap();
        let (x, out) = (rig.page_of(&[1; 64]), rig.page_of(&[0; 64]));
        let mut stream = rig.driver.open_stream().unwrap();
        for (size, shape, why) in [
            (255, shape(8, 8, 32), "needs 256"),
            (256, shape(9, 8, 32), "needs 260"),
            (256, shape(8, 8, 33), "stride 0 of its tensor is 33 bytes"),
            (256, shape(0, 8, 32), "dimension 0 of its tensor has 0 elements"),
            (256, shape(8, u64::MAX, 32), "dimension 1"),
        ] {
            let buffers = [part(&x, 0, size), part(&out, 0, 128)];
            let grid = DriverGrid::Static([1, 1, 1]);
            match rig.launch_with(&mut stream, 1, &kernel, grid, &buffers, &shape) {
                Err(Error::BufferSize { kernel, index: 0, got, why: said }) => {
                    assert!(kernel == "tiles" && got == size && said.contains(why), "{said}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(rig.device.calls("cuTensorMapEncodeTiled").unwrap(), 0);
        // What was refused left nothing behind: the launch after it has arguments of its own.
        let (buffers, grid) = ([part(&x, 0, 256), part(&out, 0, 128)], DriverGrid::Static([1, 1, 1]));
        rig.launch_with(&mut stream, 2, &kernel, grid, &buffers, &shape(8, 8, 32)).unwrap();
        rig.driver.submit(&mut stream, 2).unwrap();
        assert_eq!(rig.finish(&mut stream, 2).failed, []);
        assert_eq!(rig.read_u32(part(&out, 0, 128)), [1; 32]);
        rig.driver.close_stream(stream);
    });
}

#[test]
fn a_map_that_the_interface_or_the_code_contradicts_is_refused() {
    compiling(&CudaOptions::default(), |rig| {
        let with = |map: TensorMap| {
            let interface = Interface::new().read().claim(Access::ReadWrite).parameters(24);
            cuda("tiles", TILES, interface.tensor_map(map))
        };
        for (map, why) in [
            (TensorMap::new(2, ElemType::I32, [8, 4]), "tensor map 0: it is of buffer 2, there are 2"),
            (TensorMap::new(0, ElemType::I32, [6, 4]), "24 bytes, multiples of 16"),
            (TensorMap::new(0, ElemType::I32, [16, 4]).swizzle(Swizzle::Within32), "permuted within 32"),
            (TensorMap::new(0, ElemType::I32, [8, 4]).shape_at(8), "bytes 8..32 of the parameters, which have 24"),
        ] {
            match rig.compile(with(map)).map(|_| ()) {
                Err(Error::InvalidKernel { why: said, .. }) => assert!(said.contains(why), "{said}"),
                other => panic!("{other:?}"),
            }
        }
        let interface = Interface::new().read().claim(Access::ReadWrite).parameters(24);
        match rig.compile(cuda("tiles", TILES, interface)).map(|_| ()) {
            Err(Error::InvalidKernel { why, .. }) => assert!(why.contains("argument 2 has 128 bytes"), "{why}"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_failure_to_make_a_map_is_of_its_launch() {
    compiling(&CudaOptions::default(), |rig| {
        let kernel = rig.compile(tiles()).unwrap();
        let (x, out) = (rig.page_of(&[1; 64]), rig.page_of(&[0; 64]));
        let mut stream = rig.driver.open_stream().unwrap();
        rig.device.fail("cuTensorMapEncodeTiled", 1, 801).unwrap();
        let (buffers, grid) = ([part(&x, 0, 256), part(&out, 0, 128)], DriverGrid::Static([1, 1, 1]));
        let error = rig.launch_with(&mut stream, 1, &kernel, grid, &buffers, &shape(8, 8, 32)).unwrap_err();
        assert!(matches!(&error, Error::Driver { call, code: 801, .. } if call == "cuTensorMapEncodeTiled"), "{error}");
        rig.driver.close_stream(stream);
    });
}

/// A kernel that takes so many maps and adds what it finds in the first bytes of some of them.
fn many(maps: usize) -> SourceKernel {
    let declared: Vec<String> = (0..maps).map(|i| format!("const __grid_constant__ Map m{i}")).collect();
    let text = format!(
        "struct alignas(64) Map {{ unsigned words[32]; }};\nstruct Parameters {{ unsigned long long width, height, pitch; }};\n\
         extern \"C\" __global__ void many(const int* x, unsigned* out, {}, Parameters p) {{\n\
         out[0] = (m0.words[0] == m{}.words[0]) + p.width; }}",
        declared.join(", "),
        maps - 1
    );
    let interface = Interface::new().read().claim(Access::ReadWrite).parameters(24);
    let map = || TensorMap::new(0, ElemType::I32, [8, 4]);
    cuda("many", &text, (0..maps).fold(interface, |interface, _| interface.tensor_map(map())))
}

#[test]
fn as_many_maps_as_a_function_takes_work_and_more_are_refused_with_both_numbers() {
    compiling(&CudaOptions::default(), |rig| {
        // Two pointers, padding up to the maps, the maps, the parameters: beyond the 4 KiB of older drivers.
        let kernel = rig.compile(many(255)).unwrap();
        let (x, out) = (rig.page_of(&[1; 64]), rig.page_of(&[0; 64]));
        rig.run_with(&kernel, [1, 1, 1], &[part(&x, 0, 256), part(&out, 0, 128)], &shape(8, 8, 32)).unwrap();
        assert_eq!(rig.first(&out), 9);
        let before = rig.device.calls("cuModuleLoadDataEx").unwrap();
        for maps in [256, 10_000] {
            let requested = 16 + 128 * maps as u64 + 24;
            let (kernel, resource) = ("many".into(), Resource::Arguments);
            let refused = rig.compile(many(maps)).map(|_| ()).unwrap_err();
            assert_eq!(refused, Error::TooManyResources { kernel, resource, requested, max: 32_764 });
        }
        assert_eq!(rig.device.calls("cuModuleLoadDataEx").unwrap(), before);
    });
}
