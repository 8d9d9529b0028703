@group(0) @binding(0) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn indices(here: Here) {
    let i = workgroup_of(here);
    if here.lane == 0u {
        out[i] = i;
    }
}
