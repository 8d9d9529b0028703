// Copies tiles of a tensor, eight numbers wide and four high, each to its place in `out`, as many a row as the grid has. The device copies them
// to shared memory by itself, and counts their bytes at a barrier.
struct alignas(64) TensorMap {
    char bytes[128];
};

struct Parameters {
    u64 width, height, pitch;
};

__device__ u32 shared_address(const void *place) {
    return u32(__cvta_generic_to_shared(place));
}

extern "C" __global__ void tiles(
    const u32 *x, u32 *out, const __grid_constant__ TensorMap map, Parameters parameters, u64 x_bytes, u64 out_bytes) {
    __shared__ alignas(128) u32 tile[32];
    __shared__ alignas(8) u64 barrier;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(shared_address(&barrier)) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                shared_address(tile)),
            "l"(&map), "r"(blockIdx.x * 8), "r"(blockIdx.y * 4), "r"(shared_address(&barrier))
            : "memory");
    }
    asm volatile(
        "{\n\t.reg .pred done;\nAGAIN:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n\t@!done bra AGAIN;\n\t}" ::"r"(shared_address(&barrier))
        : "memory");
    u64 i = u64(workgroup_of()) * 32 + threadIdx.x;
    if (have(i, out_bytes)) {
        out[i] = tile[threadIdx.x];
    }
}
