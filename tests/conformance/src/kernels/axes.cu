extern "C" __global__ void axes(u32 *out, u64 bytes) {
    u64 at = u64(workgroup_of()) * 6;
    if (threadIdx.x != 0 || !have(at + 5, bytes)) {
        return;
    }
    out[at] = blockIdx.x;
    out[at + 1] = blockIdx.y;
    out[at + 2] = blockIdx.z;
    out[at + 3] = gridDim.x;
    out[at + 4] = gridDim.y;
    out[at + 5] = gridDim.z;
}
