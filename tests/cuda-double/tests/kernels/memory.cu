// Memory of every kind, and every way to get it wrong.
extern "C" __global__ void local_array(const int* in, int* out, int k) {
    int t[32];
    for (int i = 0; i < 32; i++) t[i] = in[i] + i;
    int s = 0;
    for (int i = 0; i < k; i++) s += t[(i * 7 + k) & 31];
    out[threadIdx.x] = s;
}

extern "C" __global__ void choose(const int* in, int* out) {
    int i = threadIdx.x;
    switch (in[i]) {
    case 0: out[i] = 5; break;
    case 1: out[i] = in[i + 1]; break;
    case 2: out[i] = in[i] * 3; break;
    case 3: out[i] = 7 + in[i + 2]; break;
    case 4: out[i] = in[i + 3] ^ 3; break;
    case 5: out[i] = in[i + 1] / 3; break;
    case 6: out[i] = in[i] * in[i] * in[i]; break;
    default: out[i] = -1;
    }
}

__constant__ float table[4] = {1.f, 2.f, 4.f, 8.f};
__device__ int counter = 5;
__device__ int* pointer = &counter;

extern "C" __global__ void variables(float* out) {
    out[threadIdx.x] = table[threadIdx.x & 3] + *pointer;
    __syncthreads();
    if (threadIdx.x == 0) counter = 9;
}

extern "C" __global__ void write_at(float* p, long long offset) { p[offset] = 1.f; }
extern "C" __global__ void write_byte_address(char* p, long long offset) { *(int*)(p + offset) = 1; }
extern "C" __global__ void copy(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}
extern "C" __global__ void add_one(int* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] += 1;
}
extern "C" __global__ void forever(volatile int* p) { while (*p == 0) {} }

extern "C" __global__ void shared_overrun(int* out, int at) {
    __shared__ int s[32];
    s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = ((volatile int*)s)[threadIdx.x + at];
}

extern "C" __global__ void shared_unwritten(int* out) {
    __shared__ int s[64];
    if (threadIdx.x < 16) s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
