// Both layers for 8 images a block: hidden = relu(images x weights + bias), logits = hidden x weights + bias.
//
// What all threads read of a layer's input lies in shared memory: first the images, then the hidden layer. A thread has a
// unit of the hidden layer for all 8 images, so that a block reads each weight once.

constexpr unsigned ROWS = 8;
constexpr unsigned PIXELS = 64;
constexpr unsigned HIDDEN = 128;
constexpr unsigned CLASSES = 10;

// Rounded twice, as plain Rust does it.
__device__ float add_product(float sum, float left, float right) {
    return __fadd_rn(sum, __fmul_rn(left, right));
}

extern "C" __global__ void forward(const float *images, const float *hidden_weights, const float *hidden_bias,
                                   const float *output_weights, const float *output_bias, float *hidden, float *logits,
                                   size_t images_bytes, size_t hidden_weights_bytes, size_t hidden_bias_bytes,
                                   size_t output_weights_bytes, size_t output_bias_bytes, size_t hidden_bytes,
                                   size_t logits_bytes) {
    __shared__ float image_tile[ROWS * PIXELS];
    __shared__ float hidden_tile[ROWS * HIDDEN];
    // The whole block leaves, so nobody waits for it.
    if (hidden_weights_bytes < PIXELS * HIDDEN * sizeof(float) || hidden_bias_bytes < HIDDEN * sizeof(float) ||
        output_weights_bytes < HIDDEN * CLASSES * sizeof(float) || output_bias_bytes < CLASSES * sizeof(float)) {
        return;
    }
    size_t all = min(min(images_bytes / PIXELS, hidden_bytes / HIDDEN), logits_bytes / CLASSES) / sizeof(float);
    size_t first = size_t(ROWS) * blockIdx.x;
    unsigned local = threadIdx.x;
    unsigned rows = first < all ? min(size_t(ROWS), all - first) : 0;

    // Of images past the last one, which make a last block whole, 0.
    for (unsigned at = local; at < ROWS * PIXELS; at += HIDDEN) {
        image_tile[at] = at < rows * PIXELS ? images[first * PIXELS + at] : 0.0f;
    }
    __syncthreads();

    float sums[ROWS] = {};
    for (unsigned pixel = 0; pixel < PIXELS; pixel++) {
        float weight = hidden_weights[pixel * HIDDEN + local];
        for (unsigned row = 0; row < ROWS; row++) {
            sums[row] = add_product(sums[row], image_tile[row * PIXELS + pixel], weight);
        }
    }
    float bias = hidden_bias[local];
    for (unsigned row = 0; row < ROWS; row++) {
        if (row < rows) {
            float unit = fmaxf(sums[row] + bias, 0.0f);
            hidden_tile[row * HIDDEN + local] = unit;
            hidden[(first + row) * HIDDEN + local] = unit;
        }
    }
    __syncthreads();

    if (local < rows * CLASSES) {
        unsigned row = local / CLASSES;
        unsigned digit = local % CLASSES;
        float sum = 0.0f;
        for (unsigned unit = 0; unit < HIDDEN; unit++) {
            sum = add_product(sum, hidden_tile[row * HIDDEN + unit], output_weights[unit * CLASSES + digit]);
        }
        logits[first * CLASSES + local] = sum + output_bias[digit];
    }
}
