@group(0) @binding(0) var<storage, read_write> counts: array<atomic<u32>>;

@compute @workgroup_size(64)
fn count(here: Here) {
    let length = arrayLength(&counts);
    if here.lane != 0u || length == 0u {
        return;
    }
    let i = workgroup_of(here);
    if i < length - 1u {
        atomicAdd(&counts[i], 1u);
    }
    atomicAdd(&counts[length - 1u], 1u);
}
