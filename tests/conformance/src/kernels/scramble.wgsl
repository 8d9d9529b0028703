@group(0) @binding(0) var<storage, read_write> x: array<u32>;

@compute @workgroup_size(64)
fn scramble(here: Here) {
    let i = element_of(here);
    if i < arrayLength(&x) {
        x[i] = x[i] * 3u + 1u;
    }
}
