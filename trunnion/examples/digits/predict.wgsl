// The digit with the largest logit in each row, the smaller of two equal ones; an invocation has a row.

const CLASSES = 10u;

@group(0) @binding(0) var<storage> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> digits: array<u32>;

@compute @workgroup_size(8)
fn predict(@builtin(global_invocation_id) invocation: vec3u) {
    let row = invocation.x;
    if row >= arrayLength(&digits) {
        return;
    }
    var best = 0u;
    for (var digit = 1u; digit < CLASSES; digit++) {
        if logits[row * CLASSES + digit] > logits[row * CLASSES + best] {
            best = digit;
        }
    }
    digits[row] = best;
}
