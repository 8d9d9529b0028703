// The sum of all losses, divided by how many count: one block, whose threads sum their shares and then add those up in
// pairs.

constexpr unsigned INVOCATIONS = 128;

struct Parameters {
    unsigned rows;
};

extern "C" __global__ void mean(const float *losses, float *mean_loss, Parameters parameters, size_t losses_bytes,
                                size_t mean_loss_bytes) {
    __shared__ float sums[INVOCATIONS];
    unsigned local = threadIdx.x;
    float sum = 0.0f;
    for (size_t at = local; at < losses_bytes / sizeof(float); at += INVOCATIONS) {
        sum += losses[at];
    }
    sums[local] = sum;
    for (unsigned half = INVOCATIONS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (local < half) {
            sums[local] += sums[local + half];
        }
    }
    if (local == 0 && mean_loss_bytes >= sizeof(float)) {
        mean_loss[0] = sums[0] / float(parameters.rows);
    }
}
