@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> total: array<atomic<u32>>;

@compute @workgroup_size(64)
fn sum(here: Here) {
    let i = element_of(here);
    if i < arrayLength(&x) {
        atomicAdd(&total[0], x[i]);
    }
}
