// The gradients of a layer's weights and bias: the layer's input, transposed, times the gradient of its output; and the sums
// of that one's columns.
//
// A block has 16 rows of the weights, and goes through them in tiles of 32 columns. Of both factors it takes the part that
// makes a tile into shared memory. A thread has four rows of a column. The first block also has the bias.

constexpr unsigned BATCH = 32;
constexpr unsigned WEIGHT_ROWS = 16;
constexpr unsigned COLUMNS = 32;
constexpr unsigned INVOCATIONS = 128;

// Rounded twice, as plain Rust does it.
__device__ float add_product(float sum, float left, float right) {
    return __fadd_rn(sum, __fmul_rn(left, right));
}

extern "C" __global__ void weight_gradient(const float *input, const float *output_gradient, float *weights_gradient,
                                           float *bias_gradient, size_t input_bytes, size_t output_gradient_bytes,
                                           size_t weights_gradient_bytes, size_t bias_gradient_bytes) {
    __shared__ float input_tile[BATCH * WEIGHT_ROWS];
    __shared__ float output_tile[BATCH * COLUMNS];
    unsigned inputs = input_bytes / (BATCH * sizeof(float));
    unsigned outputs = output_gradient_bytes / (BATCH * sizeof(float));
    size_t first = size_t(WEIGHT_ROWS) * blockIdx.x;
    // Both layers have a multiple of 16 inputs, so a block has all of its rows, or none: then all of it leaves.
    if (first + WEIGHT_ROWS > inputs || weights_gradient_bytes < size_t(inputs) * outputs * sizeof(float) ||
        bias_gradient_bytes < outputs * sizeof(float)) {
        return;
    }
    unsigned local = threadIdx.x;
    for (unsigned at = local; at < BATCH * WEIGHT_ROWS; at += INVOCATIONS) {
        input_tile[at] = input[at / WEIGHT_ROWS * inputs + first + at % WEIGHT_ROWS];
    }

    unsigned four = local / COLUMNS * 4;
    unsigned column = local % COLUMNS;
    for (unsigned left = 0; left < outputs; left += COLUMNS) {
        bool is_there = left + column < outputs;
        if (is_there) {
            for (unsigned image = local / COLUMNS; image < BATCH; image += INVOCATIONS / COLUMNS) {
                output_tile[image * COLUMNS + column] = output_gradient[image * outputs + left + column];
            }
        }
        __syncthreads();
        if (is_there) {
            float sums[4] = {};
            for (unsigned image = 0; image < BATCH; image++) {
                for (unsigned row = 0; row < 4; row++) {
                    sums[row] = add_product(sums[row], input_tile[image * WEIGHT_ROWS + four + row],
                                            output_tile[image * COLUMNS + column]);
                }
            }
            for (unsigned row = 0; row < 4; row++) {
                weights_gradient[(first + four + row) * outputs + left + column] = sums[row];
            }
        }
        // The tile is read to its end before the next one takes its place.
        __syncthreads();
    }

    if (blockIdx.x == 0) {
        for (unsigned unit = local; unit < outputs; unit += INVOCATIONS) {
            float sum = 0.0f;
            for (unsigned image = 0; image < BATCH; image++) {
                sum += output_gradient[image * outputs + unit];
            }
            bias_gradient[unit] = sum;
        }
    }
}
