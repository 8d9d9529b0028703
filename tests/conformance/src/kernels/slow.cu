#ifndef turns
#define turns 1
#endif

// Takes a GPU about as long as a processor that interprets it: loads from memory, and arithmetic that waits for each.
__device__ u32 beat(const volatile u32 *memory, u32 state) {
#pragma unroll 1
    for (u32 load = 0; load < 48; load++) {
        state ^= *memory;
        for (u32 round = 0; round < 3; round++) {
            state = state * 1664525 + 1013904223;
            state ^= state >> 15;
        }
    }
    return state;
}

extern "C" __global__ void slow(const u32 *source, u32 *out, u64 source_bytes, u64 out_bytes) {
    __shared__ volatile u32 heard;
    if (threadIdx.x == 0 && have(0, source_bytes)) {
        u32 state = 0;
        for (u32 turn = 0; turn < u32(turns); turn++) {
            state = beat(source, state);
        }
        // Else the beats could be left out.
        heard = state;
    }
    __syncthreads();
    u64 i = element_of();
    if (have(i, source_bytes, out_bytes)) {
        out[i] = source[i];
    }
}
