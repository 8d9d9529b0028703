// What threads do together: shared memory, barriers, warps, atomics.
extern "C" __global__ void block_sum(const float* in, float* out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0.f;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

extern "C" __global__ void dynamic_sum(const float* in, float* out, int n) {
    extern __shared__ float d[];
    int t = threadIdx.x;
    d[t] = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) d[t] += in[i];
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (t < k) d[t] += d[t + k];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, d[0]);
}

extern "C" __global__ void warp_sum(const float* in, float* out, int n) {
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(~0u, v, o);
    if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
}

extern "C" __global__ void transpose(const float* in, float* out, int w, int h) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < w && y + j < h) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < h && y + j < w) out[(y + j) * h + x] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[16][16], bs[16][16];
    int r = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float acc = 0;
    for (int i = 0; i < k; i += 16) {
        as[threadIdx.y][threadIdx.x] = r < m && i + threadIdx.x < k ? a[r * k + i + threadIdx.x] : 0.f;
        bs[threadIdx.y][threadIdx.x] = col < n && i + threadIdx.y < k ? b[(i + threadIdx.y) * n + col] : 0.f;
        __syncthreads();
        for (int j = 0; j < 16; ++j) acc += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    if (r < m && col < n) c[r * n + col] = acc;
}

extern "C" __global__ void histogram(const unsigned char* data, unsigned* bins, int n) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[data[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}

extern "C" __global__ void votes(int* out) {
    int t = threadIdx.x;
    unsigned odd = __ballot_sync(~0u, t & 1);
    int any = __any_sync(~0u, t == 3), all = __all_sync(~0u, t < 32);
    unsigned same = __match_any_sync(~0u, t / 4);
    unsigned sum = __reduce_add_sync(~0u, (unsigned)t);
    int count = __syncthreads_count(t < 5);
    unsigned mask = 0;
    if (t < 7) mask = __activemask();
    out[t] = __popc(odd) + any * 100 + all * 200 + (int)(same >> (t / 4 * 4) & 0xf) * 1000 + (int)sum * 100000 + count + (int)__popc(mask);
}

extern "C" __global__ void swaps(int* p) {
    int old = *p, seen;
    do {
        seen = old;
        old = atomicCAS(p, seen, seen * 2 + 1);
    } while (seen != old);
    atomicMax(p + 1, (int)threadIdx.x);
    atomicInc((unsigned*)p + 2, 4);
}

// Lanes of one warp, ordered by a barrier of the warp alone.
extern "C" __global__ void warp_exchange(int* out) {
    __shared__ int s[32];
    s[threadIdx.x] = threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = s[31 - threadIdx.x];
}

// Wrong on purpose: nothing between a write and another thread's read.
extern "C" __global__ void race(int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = s[63 - threadIdx.x];
}

// Wrong on purpose: threads of one block at two barriers.
extern "C" __global__ void divergent(int* out) {
    if (threadIdx.x < 32) {
        out[threadIdx.x] = 1;
        asm volatile("bar.sync 0;" ::: "memory");
    } else {
        out[threadIdx.x] = 2;
        asm volatile("bar.sync 0;" ::: "memory");
        out[threadIdx.x] = 3;
    }
}

// Wrong on purpose: half of the threads wait at a barrier that takes all.
extern "C" __global__ void stuck(int* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
    else asm volatile("bar.sync 2, 64;" ::: "memory");
    out[threadIdx.x] = 1;
}

// Wrong on purpose: a lane that has ended is named.
extern "C" __global__ void gone(int* out, int n) {
    if (threadIdx.x >= n) return;
    out[threadIdx.x] = __shfl_xor_sync(~0u, (int)threadIdx.x, 1);
}

// Blocks that wait for each other.
extern "C" __global__ void grid_barrier(unsigned* counter, int* out) {
    out[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    atomicAdd(counter, 1u);
    while (atomicAdd(counter, 0u) < gridDim.x) {}
    int sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += ((volatile int*)out)[i];
    out[gridDim.x + blockIdx.x] = sum;
}
