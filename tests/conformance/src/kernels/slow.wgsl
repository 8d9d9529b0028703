override turns: u32 = 1u;

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

var<workgroup> beats: atomic<u32>;

fn beat() {
    atomicAdd(&beats, 1u);
    atomicAdd(&beats, 1u);
    atomicAdd(&beats, 1u);
    atomicAdd(&beats, 1u);
}

@compute @workgroup_size(64)
fn slow(here: Here) {
    for (var turn = 0u; turn < turns; turn++) {
        beat();
        beat();
        beat();
        beat();
    }
    let i = element_of(here);
    if i < arrayLength(&out) {
        // Depends on the beats, else they could be left out: there is always one.
        out[i] = source[i] + select(1u, 0u, atomicLoad(&beats) > 0u);
    }
}
