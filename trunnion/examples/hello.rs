//! Multiplies and adds on whatever device there is, on the host in Rust, by CUDA in CUDA C and elsewhere in WGSL:
//! `cargo run -p trunnion --example hello`.

use trunnion::prelude::*;

fn main() -> Result<(), trunnion::OpenError> {
    let client = trunnion::default_client()?;
    let saxpy = SourceKernel::new("saxpy", Interface::new().read().partition(64 * 4).parameters_of::<f32>())
        .workgroup_size([64, 1, 1])
        .source(Source::host(|group| {
            let (a, x, part) = (group.parameters::<f32>()?, group.read::<f32>(0)?, group.part_range::<f32>(1)?);
            group.part::<f32>(1)?.iter_mut().zip(&x[part]).for_each(|(y, x)| *y += a * x);
            Ok(())
        }))
        .source(Source::wgsl(
            "@group(0) @binding(0) var<storage> x: array<f32>;
             @group(0) @binding(1) var<storage, read_write> y: array<f32>;
             struct Parameters { a: f32 }
             @group(0) @binding(2) var<uniform> parameters: Parameters;
             @compute @workgroup_size(64) fn saxpy(@builtin(global_invocation_id) id: vec3u) {
                 if id.x < arrayLength(&y) { y[id.x] += parameters.a * x[id.x]; }
             }",
        ));
    // SAFETY: an element is touched where both buffers have it.
    let saxpy = saxpy.source(unsafe {
        Source::cuda_c(
            "extern \"C\" __global__ void saxpy(const float *x, float *y, float a, size_t x_bytes, size_t y_bytes) {
                 size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
                 if (i < min(x_bytes, y_bytes) / sizeof(float)) y[i] += a * x[i];
             }",
        )
    });
    let x = Buffer::from_slice(&client, &[1.0f32; 1000])?;
    let y = Buffer::from_slice(&client, &[0.5f32; 1000])?;
    client.launch(&client.prepare(saxpy)?, Grid::cover(1000, 64)?, args![&x, &y; &2.0f32])?;
    println!("{}: 2 * 1 + 0.5 = {}, 1000 times", client.name(), y.read()?[999]);
    Ok(())
}
