// Moves each weight by its velocity, which keeps a share of what it was: 1280 weights a workgroup.

const UPDATES = 1280u;
const INVOCATIONS = 128u;
const LEARNING_RATE = 0.1;
const MOMENTUM = 0.9;
// The smallest positive number that is normal: with smaller ones a processor takes many times as long.
const SMALLEST = 1.1754944e-38;

@group(0) @binding(0) var<storage> gradient: array<f32>;
@group(0) @binding(1) var<storage, read_write> velocity: array<f32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;

@compute @workgroup_size(128)
fn update(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) local: u32) {
    let first = UPDATES * group.x;
    let last = min(first + UPDATES, arrayLength(&weights));
    for (var at = first + local; at < last; at += INVOCATIONS) {
        let moved = MOMENTUM * velocity[at] + gradient[at];
        let kept = select(moved, 0.0, abs(moved) < SMALLEST);
        velocity[at] = kept;
        weights[at] -= LEARNING_RATE * kept;
    }
}
