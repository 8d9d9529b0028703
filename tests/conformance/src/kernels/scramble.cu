extern "C" __global__ void scramble(u32 *x, u64 bytes) {
    u64 i = element_of();
    if (have(i, bytes)) {
        x[i] = x[i] * 3 + 1;
    }
}
