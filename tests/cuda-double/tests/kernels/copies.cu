// Asynchronous copies, barrier objects and tensor maps, by the instructions themselves.
struct alignas(64) Map { char bytes[128]; };

__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

extern "C" __global__ void small_copies(const int* in, int* out, int waits) {
    __shared__ int s[64];
    s[threadIdx.x] = -1;
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(&s[threadIdx.x])), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (waits) asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__device__ void wait(unsigned bar, unsigned parity) {
    asm volatile(
        "{\n\t.reg .pred done;\nAGAIN:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@!done bra AGAIN;\n\t}" ::"r"(bar), "r"(parity) : "memory");
}

extern "C" __global__ void tile(const __grid_constant__ Map map, int* out, int x, int y) {
    __shared__ alignas(128) int s[4 * 8];
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&bar)) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(at(&bar)) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at(s)),
            "l"(&map), "r"(x), "r"(y), "r"(at(&bar)) : "memory");
    }
    wait(at(&bar), 0);
    out[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void put_tile(const __grid_constant__ Map map, int x, int y) {
    __shared__ alignas(128) int s[4 * 8];
    s[threadIdx.x] = threadIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y),
                     "r"(at(s)) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

extern "C" __global__ void phases(int* out) {
    __shared__ alignas(8) unsigned long long bar;
    __shared__ int s[64];
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(at(&bar)) : "memory");
    __syncthreads();
    for (int phase = 0; phase < 4; ++phase) {
        s[(threadIdx.x + phase) & 63] = phase * 64 + threadIdx.x;
        asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(at(&bar)) : "memory");
        wait(at(&bar), phase & 1);
        out[threadIdx.x] = s[threadIdx.x];
        asm volatile("bar.sync 0;" ::: "memory");
    }
}
