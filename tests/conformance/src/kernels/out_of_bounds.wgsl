@group(0) @binding(0) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn out_of_bounds(here: Here) {
    if here.lane == 0u {
        out[arrayLength(&out)] = 1u;
    }
}
