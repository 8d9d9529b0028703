@group(0) @binding(0) var<storage, read_write> a: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> b: array<atomic<u32>>;

@compute @workgroup_size(64)
fn accumulate(here: Here) {
    let i = element_of(here);
    if i < min(arrayLength(&a), arrayLength(&b)) {
        atomicAdd(&b[i], atomicLoad(&a[i]));
    }
}
