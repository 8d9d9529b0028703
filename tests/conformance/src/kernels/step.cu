extern "C" __global__ void step(u32 *x, u64 bytes) {
    u64 i = element_of();
    if (have(i, bytes)) {
        x[i] += 1;
    }
}
