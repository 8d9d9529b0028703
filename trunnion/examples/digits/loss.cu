// The cross-entropy of 8 rows of logits a block with their labels, and the gradients of its mean over a batch by the logits
// and by the hidden layer.
//
// First a thread has a row; then, with the rows' gradients in shared memory, a unit of the hidden layer.

constexpr unsigned ROWS = 8;
constexpr unsigned BATCH = 32;
constexpr unsigned HIDDEN = 128;
constexpr unsigned CLASSES = 10;

// Rounded twice, as plain Rust does it.
__device__ float add_product(float sum, float left, float right) {
    return __fadd_rn(sum, __fmul_rn(left, right));
}

extern "C" __global__ void loss(const float *logits, const unsigned *labels, const float *output_weights, const float *hidden,
                                float *losses, float *logits_gradient, float *hidden_gradient, size_t logits_bytes,
                                size_t labels_bytes, size_t output_weights_bytes, size_t hidden_bytes, size_t losses_bytes,
                                size_t logits_gradient_bytes, size_t hidden_gradient_bytes) {
    __shared__ float gradient_tile[ROWS * CLASSES];
    // The whole block leaves, so nobody waits for it.
    if (output_weights_bytes < HIDDEN * CLASSES * sizeof(float)) {
        return;
    }
    size_t of_each = min(labels_bytes, losses_bytes) / sizeof(float);
    size_t of_logits = min(logits_bytes, logits_gradient_bytes) / (CLASSES * sizeof(float));
    size_t of_hidden = min(hidden_bytes, hidden_gradient_bytes) / (HIDDEN * sizeof(float));
    size_t all = min(of_each, min(of_logits, of_hidden));
    size_t first = size_t(ROWS) * blockIdx.x;
    unsigned local = threadIdx.x;
    unsigned rows = first < all ? min(size_t(ROWS), all - first) : 0;

    if (local < rows) {
        const float *own = logits + (first + local) * CLASSES;
        // Without the largest logit taken off, exp overflows for logits above 88.
        float largest = own[0];
        for (unsigned digit = 1; digit < CLASSES; digit++) {
            largest = fmaxf(largest, own[digit]);
        }
        float sum = 0.0f;
        for (unsigned digit = 0; digit < CLASSES; digit++) {
            sum += expf(own[digit] - largest);
        }
        // A label that is none stands for the last digit.
        unsigned label = min(labels[first + local], CLASSES - 1);
        losses[first + local] = logf(sum) - (own[label] - largest);
        for (unsigned digit = 0; digit < CLASSES; digit++) {
            float wanted = digit == label ? 1.0f : 0.0f;
            float gradient = (expf(own[digit] - largest) / sum - wanted) / float(BATCH);
            gradient_tile[local * CLASSES + digit] = gradient;
            logits_gradient[(first + local) * CLASSES + digit] = gradient;
        }
    }
    __syncthreads();

    for (unsigned row = 0; row < rows; row++) {
        float sum = 0.0f;
        for (unsigned digit = 0; digit < CLASSES; digit++) {
            sum = add_product(sum, gradient_tile[row * CLASSES + digit], output_weights[local * CLASSES + digit]);
        }
        size_t at = (first + row) * HIDDEN + local;
        hidden_gradient[at] = hidden[at] > 0.0f ? sum : 0.0f;
    }
}
