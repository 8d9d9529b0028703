// Copies images and labels in a given order, 8 of each a workgroup; an invocation has a pixel.

const ROWS = 8u;
const PIXELS = 64u;

@group(0) @binding(0) var<storage> order: array<u32>;
@group(0) @binding(1) var<storage> images: array<f32>;
@group(0) @binding(2) var<storage> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> ordered_images: array<f32>;
@group(0) @binding(4) var<storage, read_write> ordered_labels: array<u32>;

@compute @workgroup_size(64)
fn gather(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) pixel: u32) {
    let first = ROWS * group.x;
    let last = min(first + ROWS, arrayLength(&ordered_labels));
    for (var row = first; row < last; row++) {
        let chosen = order[row];
        ordered_images[row * PIXELS + pixel] = images[chosen * PIXELS + pixel];
        if pixel == 0u {
            ordered_labels[row] = labels[chosen];
        }
    }
}
