extern "C" __global__ void out_of_bounds(u32 *out, u64 bytes) {
    u64 beyond = bytes / 4;
    // Nobody but the kernel keeps it inside the buffer, which is all that is promised of it.
    if (threadIdx.x == 0 && have(beyond, bytes)) {
        out[beyond] = 1;
    }
}
