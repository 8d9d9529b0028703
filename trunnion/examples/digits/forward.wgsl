// Both layers for 8 images a workgroup: hidden = relu(images x weights + bias), logits = hidden x weights + bias.
//
// What all invocations read of a layer's input lies in workgroup memory: first the images, then the hidden layer. An invocation has a unit of the
// hidden layer for all 8 images, so that a workgroup reads each weight once.

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

// Where the last workgroup has fewer images, the rest of its tiles stays zero, and nothing of it is written.
var<workgroup> image_tile: array<f32, ROWS * PIXELS>;
var<workgroup> hidden_tile: array<f32, ROWS * HIDDEN>;

@compute @workgroup_size(128)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) local: u32) {
    let first = ROWS * group.x;
    let rows = min(ROWS, arrayLength(&logits) / CLASSES - first);

    for (var at = local; at < rows * PIXELS; at += HIDDEN) {
        image_tile[at] = images[first * PIXELS + at];
    }
    workgroupBarrier();

    var sums: array<f32, ROWS>;
    for (var pixel = 0u; pixel < PIXELS; pixel++) {
        let weight = hidden_weights[pixel * HIDDEN + local];
        for (var row = 0u; row < ROWS; row++) {
            sums[row] += image_tile[row * PIXELS + pixel] * weight;
        }
    }
    let bias = hidden_bias[local];
    for (var row = 0u; row < rows; row++) {
        let unit = max(sums[row] + bias, 0.0);
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
