// Both layers for 8 images a workgroup: hidden = relu(images x weights + bias), logits = hidden x weights + bias.
//
// What all invocations read of a layer's input lies in workgroup memory: first the images, four to a vector, then the
// hidden layer. An invocation has a unit of the hidden layer for all 8 images, so that a workgroup reads each weight
// once.

const ROWS = 8u;
const PIXELS = 64u;
const HIDDEN = 128u;
const CLASSES = 10u;

@group(0) @binding(0) var<storage> images: array<f32>;
@group(0) @binding(1) var<storage> hidden_weights: array<f32>;
@group(0) @binding(2) var<storage> hidden_bias: array<f32>;
@group(0) @binding(3) var<storage> output_weights: array<f32>;
@group(0) @binding(4) var<storage> output_bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> hidden: array<f32>;
@group(0) @binding(6) var<storage, read_write> logits: array<f32>;

var<workgroup> image_tile: array<vec4f, 2 * PIXELS>;
var<workgroup> hidden_tile: array<f32, ROWS * HIDDEN>;

// A pixel of four images; of those past the last one, which make a last workgroup whole, 0.
fn four_images(first: u32, pixel: u32) -> vec4f {
    var pixels: vec4f;
    for (var row = 0u; row < 4u; row++) {
        let at = (first + row) * PIXELS + pixel;
        if at < arrayLength(&images) {
            pixels[row] = images[at];
        }
    }
    return pixels;
}

@compute @workgroup_size(128)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) local: u32) {
    let first = ROWS * group.x;
    let rows = min(ROWS, arrayLength(&logits) / CLASSES - first);

    // As many invocations as there are vectors.
    image_tile[local] = four_images(first + local / PIXELS * 4u, local % PIXELS);
    workgroupBarrier();

    var upper: vec4f;
    var lower: vec4f;
    for (var pixel = 0u; pixel < PIXELS; pixel++) {
        let weight = hidden_weights[pixel * HIDDEN + local];
        upper += image_tile[pixel] * weight;
        lower += image_tile[PIXELS + pixel] * weight;
    }
    let bias = hidden_bias[local];
    for (var row = 0u; row < rows; row++) {
        let sum = select(lower, upper, row < 4u)[row % 4u];
        let unit = max(sum + bias, 0.0);
        hidden_tile[row * HIDDEN + local] = unit;
        hidden[(first + row) * HIDDEN + local] = unit;
    }
    workgroupBarrier();

    if local < rows * CLASSES {
        let row = local / CLASSES;
        let digit = local % CLASSES;
        var sum = 0.0;
        for (var unit = 0u; unit < HIDDEN; unit++) {
            sum += hidden_tile[row * HIDDEN + unit] * output_weights[unit * CLASSES + digit];
        }
        logits[first * CLASSES + local] = sum + output_bias[digit];
    }
}
