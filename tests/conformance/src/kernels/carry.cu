extern "C" __global__ void carry(const u32 *source, u32 *out, u64 source_bytes, u64 out_bytes) {
    u64 i = element_of();
    if (have(i, source_bytes, out_bytes)) {
        out[i] = source[i];
    }
}
