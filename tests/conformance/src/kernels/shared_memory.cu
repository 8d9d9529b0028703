extern "C" __global__ void shared_memory(u32 *out, u64 bytes) {
    __shared__ u32 found[64];
    u32 i = workgroup_of();
    // Nobody clears it before a block begins.
    found[threadIdx.x] = 0;
    found[threadIdx.x] += i + 1;
    __syncthreads();
    if (threadIdx.x == 0 && have(i, bytes)) {
        u32 sum = 0;
        for (u32 lane = 0; lane < 64; lane++) {
            sum += found[lane];
        }
        out[i] = sum;
    }
}
