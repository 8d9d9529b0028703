@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn add(here: Here) {
    let i = element_of(here);
    if i < arrayLength(&out) {
        out[i] = a[i] + b[i];
    }
}
