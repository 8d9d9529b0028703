struct Parameters {
    value: u32,
}

@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<uniform> parameters: Parameters;

@compute @workgroup_size(64)
fn put(here: Here) {
    let i = element_of(here);
    if i < arrayLength(&out) {
        out[i] = parameters.value;
    }
}
