@group(0) @binding(0) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn axes(here: Here) {
    if here.lane != 0u {
        return;
    }
    let at = workgroup_of(here) * 6u;
    out[at] = here.group.x;
    out[at + 1u] = here.group.y;
    out[at + 2u] = here.group.z;
    out[at + 3u] = here.grid.x;
    out[at + 4u] = here.grid.y;
    out[at + 5u] = here.grid.z;
}
