// Stands before the text of every kernel here: where a thread is, blocks counted as workgroups on the host, x first. Every kernel takes
// its buffers, its parameters, and then how many bytes the buffers have; it touches nothing beyond those.
using u32 = unsigned int;
using u64 = unsigned long long;

__device__ u32 workgroup_of() {
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

__device__ u64 element_of() {
    return u64(workgroup_of()) * 64 + threadIdx.x;
}

// Whether buffers of so many bytes have an element of 32 bits there.
template <typename... Bytes> __device__ bool have(u64 element, Bytes... bytes) {
    return (... && (element < bytes / 4));
}

