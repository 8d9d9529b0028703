@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn does_not_compile(here: Here) {
    let i = element_of(here);
    if i < arrayLength(&out) {
        out[i] = source[i];
    }
}
