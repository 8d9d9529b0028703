@group(0) @binding(0) var<storage, read_write> out: array<u32>;

var<workgroup> found: array<u32, 64>;

@compute @workgroup_size(64)
fn shared_memory(here: Here) {
    let i = workgroup_of(here);
    found[here.lane] += i + 1u;
    workgroupBarrier();
    if here.lane == 0u && i < arrayLength(&out) {
        var sum = 0u;
        for (var lane = 0u; lane < 64u; lane++) {
            sum += found[lane];
        }
        out[i] = sum;
    }
}
