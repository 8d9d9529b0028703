// Calls: functions that are not inlined, by name and by address, and what the runtime offers.
__device__ __noinline__ float product(float a, float b) { return a * b + 1.f; }
extern "C" __global__ void call(float* out) { out[threadIdx.x] = product(out[threadIdx.x], 2.f); }

struct Pair { long long sum; int count; };
__device__ __noinline__ Pair triangle(int n) {
    if (n == 0) return Pair{0, 0};
    Pair p = triangle(n - 1);
    return Pair{p.sum + n, p.count + 1};
}
extern "C" __global__ void recurse(long long* out, int n) {
    Pair p = triangle(n);
    out[0] = p.sum;
    out[1] = p.count;
}

__device__ __noinline__ int twice(int x) { return x * 2; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ int (*functions[2])(int) = {twice, square};
extern "C" __global__ void by_address(int* out) { out[threadIdx.x] = functions[threadIdx.x & 1](out[threadIdx.x]); }

extern "C" __global__ void print(int x, double y) { printf("x=%d y=%.2f %s|%5u|%%\n", x, y, "text", 7u); }
extern "C" __global__ void check(int x) { assert(x > 0); }
extern "C" __global__ void trap(int x) { if (x > 0) __trap(); }
