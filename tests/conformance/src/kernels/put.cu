struct Parameters {
    u32 value;
};

extern "C" __global__ void put(u32 *out, Parameters parameters, u64 bytes) {
    u64 i = element_of();
    if (have(i, bytes)) {
        out[i] = parameters.value;
    }
}
