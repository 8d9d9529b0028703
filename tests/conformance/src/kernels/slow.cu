#ifndef turns
#define turns 1
#endif

// Loads from memory, each waited for, take a GPU about as long as they take a processor that interprets this.
__device__ void beat(const volatile u32 *memory, u32 same) {
    for (u32 load = 0; load < 64 && *memory == same; load++) {
    }
}

extern "C" __global__ void slow(const u32 *source, u32 *out, u64 source_bytes, u64 out_bytes) {
    if (threadIdx.x == 0 && have(0, source_bytes)) {
        for (u32 turn = 0; turn < u32(turns); turn++) {
            beat(source, source[0]);
        }
    }
    __syncthreads();
    u64 i = element_of();
    if (have(i, source_bytes, out_bytes)) {
        out[i] = source[i];
    }
}
