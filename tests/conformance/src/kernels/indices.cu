extern "C" __global__ void indices(u32 *out, u64 bytes) {
    u32 i = workgroup_of();
    if (threadIdx.x == 0 && have(i, bytes)) {
        out[i] = i;
    }
}
