// The sum of all losses, divided by how many count: one workgroup, whose invocations sum their shares and then add
// those up in pairs.

const INVOCATIONS = 128u;

struct Parameters {
    rows: u32,
}

@group(0) @binding(0) var<storage> losses: array<f32>;
@group(0) @binding(1) var<storage, read_write> mean_loss: array<f32>;
@group(0) @binding(2) var<uniform> parameters: Parameters;

var<workgroup> sums: array<f32, INVOCATIONS>;

@compute @workgroup_size(128)
fn mean(@builtin(local_invocation_index) local: u32) {
    var sum = 0.0;
    for (var at = local; at < arrayLength(&losses); at += INVOCATIONS) {
        sum += losses[at];
    }
    sums[local] = sum;
    for (var half = INVOCATIONS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            sums[local] += sums[local + half];
        }
    }
    if local == 0u {
        mean_loss[0] = sums[0] / f32(parameters.rows);
    }
}
