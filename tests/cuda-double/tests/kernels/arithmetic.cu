// Arithmetic of every width, against what the host computes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void fill(unsigned* out, unsigned value, unsigned long long n) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}

extern "C" __global__ void single_math(const float* in, float* out) {
    float v = in[threadIdx.x];
    out[threadIdx.x] = logf(fabsf(v) + 1) + powf(fabsf(v), 1.7f) + sinf(v) + cosf(v) + erff(v) + fmodf(v, 3.f) + floorf(v)
        + rintf(v) + atan2f(v, 2.f) + expf(v) + tanhf(v) + rsqrtf(fabsf(v) + 1.f) + v / 3.f;
}

extern "C" __global__ void double_math(const double* in, double* out) {
    double v = in[threadIdx.x];
    out[threadIdx.x] = exp(v) + log(fabs(v) + 1) + pow(v, 3.0) + sin(v) / sqrt(fabs(v) + 1) + rsqrt(fabs(v) + 1) + fmod(v, 3.0);
}

// Sines of large angles need the slow path, which has a table and a function of its own.
extern "C" __global__ void large_angles(const float* in, float* out) { out[threadIdx.x] = sinf(in[threadIdx.x]); }

extern "C" __global__ void wide_integers(const long long* in, long long* out, long long by) {
    long long v = in[threadIdx.x];
    out[threadIdx.x] = v / by + v % by + __popcll(v) + __clzll(v) + __ffsll(v) + __mul64hi(v, by) + (long long)__brevll(v);
}

extern "C" __global__ void narrow_integers(const unsigned char* in, signed char* bytes, short* shorts, int n) {
    int i = threadIdx.x;
    if (i < n) {
        bytes[i] = (signed char)(in[i] * 2 - 7);
        shorts[i] = (short)(in[i] << 3);
    }
}

// A product of 128 bits, by words with carries.
extern "C" __global__ void long_product(const unsigned long long* in, unsigned long long* out) {
    unsigned long long a = in[0], b = in[1];
    unsigned __int128 p = (unsigned __int128)a * b + in[2];
    out[0] = (unsigned long long)p;
    out[1] = (unsigned long long)(p >> 64);
}

extern "C" __global__ void halves(const __half* a, const __half* b, __half* sums, float* widened, __half2* squares) {
    int i = threadIdx.x;
    sums[i] = __hadd(a[i], b[i]);
    widened[i] = __half2float(__hfma(a[i], b[i], a[i]));
    const __half2* pairs = (const __half2*)a;
    if (i < blockDim.x / 2) squares[i] = __hmul2(pairs[i], pairs[i]);
}

extern "C" __global__ void brains(const __nv_bfloat16* a, __nv_bfloat16* out, int* less) {
    int i = threadIdx.x;
    out[i] = __hadd(a[i], __float2bfloat16(__bfloat162float(a[i]) * 1.5f));
    less[i] = __hlt(a[i], __float2bfloat16(1.f));
}

extern "C" __global__ void vectors(const float4* in, float4* out) {
    float4 v = in[threadIdx.x];
    v.x += 1; v.y *= 2; v.z -= 3; v.w /= 4;
    out[threadIdx.x] = v;
}
