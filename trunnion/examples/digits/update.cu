// Moves each weight by its velocity, which keeps a share of what it was: 1280 weights a block.

constexpr unsigned UPDATES = 1280;
constexpr unsigned INVOCATIONS = 128;
constexpr float LEARNING_RATE = 0.1f;
constexpr float MOMENTUM = 0.9f;
// The smallest positive number that is normal.
constexpr float SMALLEST = 1.1754944e-38f;

extern "C" __global__ void update(const float *gradient, float *velocity, float *weights, size_t gradient_bytes,
                                  size_t velocity_bytes, size_t weights_bytes) {
    size_t all = min(gradient_bytes, min(velocity_bytes, weights_bytes)) / sizeof(float);
    size_t first = size_t(UPDATES) * blockIdx.x;
    size_t last = min(first + UPDATES, all);
    for (size_t at = first + threadIdx.x; at < last; at += INVOCATIONS) {
        // Each product rounded, as plain Rust does it.
        float moved = __fadd_rn(__fmul_rn(MOMENTUM, velocity[at]), gradient[at]);
        float kept = fabsf(moved) < SMALLEST ? 0.0f : moved;
        velocity[at] = kept;
        weights[at] = __fsub_rn(weights[at], __fmul_rn(LEARNING_RATE, kept));
    }
}
