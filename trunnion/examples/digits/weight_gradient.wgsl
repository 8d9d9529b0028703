// The gradients of a layer's weights and bias: the layer's input, transposed, times the gradient of its output; and the
// sums of that one's columns.
//
// A workgroup has 16 rows of the weights, and goes through them in tiles of 32 columns. Of both factors it takes the
// part that makes a tile into workgroup memory: of the input four values to a vector. An invocation has four rows of a
// column. The first workgroup also has the bias.

const BATCH = 32u;
const WEIGHT_ROWS = 16u;
const COLUMNS = 32u;
const INVOCATIONS = 128u;
const VECTORS = WEIGHT_ROWS / 4u;

@group(0) @binding(0) var<storage> input: array<f32>;
@group(0) @binding(1) var<storage> output_gradient: array<f32>;
@group(0) @binding(2) var<storage, read_write> weights_gradient: array<f32>;
@group(0) @binding(3) var<storage, read_write> bias_gradient: array<f32>;

var<workgroup> input_tile: array<vec4f, BATCH * VECTORS>;
var<workgroup> output_tile: array<f32, BATCH * COLUMNS>;

@compute @workgroup_size(128)
fn weight_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) local: u32) {
    let inputs = arrayLength(&input) / BATCH;
    let outputs = arrayLength(&output_gradient) / BATCH;
    let first = WEIGHT_ROWS * group.x;

    // As many invocations as there are vectors. Both layers have a multiple of 16 inputs, so a workgroup has all of its rows.
    let start = local / VECTORS * inputs + first + local % VECTORS * 4u;
    input_tile[local] = vec4f(input[start], input[start + 1u], input[start + 2u], input[start + 3u]);

    let vector = local / COLUMNS;
    let column = local % COLUMNS;
    let row = first + vector * 4u;
    for (var left = 0u; left < outputs; left += COLUMNS) {
        if left + column < outputs {
            for (var image = vector; image < BATCH; image += INVOCATIONS / COLUMNS) {
                output_tile[image * COLUMNS + column] = output_gradient[image * outputs + left + column];
            }
        }
        workgroupBarrier();
        var sums: vec4f;
        for (var image = 0u; image < BATCH; image++) {
            sums += input_tile[image * VECTORS + vector] * output_tile[image * COLUMNS + column];
        }
        if left + column < outputs {
            let to = row * outputs + left + column;
            weights_gradient[to] = sums.x;
            weights_gradient[to + outputs] = sums.y;
            weights_gradient[to + 2u * outputs] = sums.z;
            weights_gradient[to + 3u * outputs] = sums.w;
        }
        // The tile is read to its end before the next one takes its place.
        workgroupBarrier();
    }

    if group.x == 0u {
        for (var unit = local; unit < outputs; unit += INVOCATIONS) {
            var sum = 0.0;
            for (var image = 0u; image < BATCH; image++) {
                sum += output_gradient[image * outputs + unit];
            }
            bias_gradient[unit] = sum;
        }
    }
}
