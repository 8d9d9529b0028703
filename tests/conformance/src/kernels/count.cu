extern "C" __global__ void count(u32 *counts, u64 bytes) {
    u64 length = bytes / 4;
    if (threadIdx.x != 0 || length == 0) {
        return;
    }
    u64 i = workgroup_of();
    if (i < length - 1) {
        atomicAdd(&counts[i], 1);
    }
    atomicAdd(&counts[length - 1], 1);
}
