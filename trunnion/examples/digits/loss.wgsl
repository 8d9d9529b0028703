// The cross-entropy of 8 rows of logits a workgroup with their labels, and the gradients of its mean over a batch by
// the logits and by the hidden layer.
//
// First an invocation has a row; then, with the rows' gradients in workgroup memory, a unit of the hidden layer.

const ROWS = 8u;
const BATCH = 32u;
const HIDDEN = 128u;
const CLASSES = 10u;

@group(0) @binding(0) var<storage> logits: array<f32>;
@group(0) @binding(1) var<storage> labels: array<u32>;
@group(0) @binding(2) var<storage> output_weights: array<f32>;
@group(0) @binding(3) var<storage> hidden: array<f32>;
@group(0) @binding(4) var<storage, read_write> losses: array<f32>;
@group(0) @binding(5) var<storage, read_write> logits_gradient: array<f32>;
@group(0) @binding(6) var<storage, read_write> hidden_gradient: array<f32>;

var<workgroup> gradient_tile: array<f32, ROWS * CLASSES>;

@compute @workgroup_size(128)
fn loss(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) local: u32) {
    let first = ROWS * group.x;
    let rows = min(ROWS, arrayLength(&losses) - first);

    if local < rows {
        let start = (first + local) * CLASSES;
        // Without the largest logit taken off, exp overflows for logits above 88.
        var largest = logits[start];
        for (var digit = 1u; digit < CLASSES; digit++) {
            largest = max(largest, logits[start + digit]);
        }
        var sum = 0.0;
        for (var digit = 0u; digit < CLASSES; digit++) {
            sum += exp(logits[start + digit] - largest);
        }
        let label = labels[first + local];
        losses[first + local] = log(sum) - (logits[start + label] - largest);
        for (var digit = 0u; digit < CLASSES; digit++) {
            let wanted = select(0.0, 1.0, digit == label);
            let gradient = (exp(logits[start + digit] - largest) / sum - wanted) / f32(BATCH);
            gradient_tile[local * CLASSES + digit] = gradient;
            logits_gradient[start + digit] = gradient;
        }
    }
    workgroupBarrier();

    for (var row = 0u; row < rows; row++) {
        var sum = 0.0;
        for (var digit = 0u; digit < CLASSES; digit++) {
            sum += gradient_tile[row * CLASSES + digit] * output_weights[local * CLASSES + digit];
        }
        let at = (first + row) * HIDDEN + local;
        hidden_gradient[at] = select(0.0, sum, hidden[at] > 0.0);
    }
}
