struct Parameters {
    a: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> parameters: Parameters;

@compute @workgroup_size(64)
fn saxpy(here: Here) {
    let i = element_of(here);
    if i < arrayLength(&y) {
        y[i] += parameters.a * x[i];
    }
}
