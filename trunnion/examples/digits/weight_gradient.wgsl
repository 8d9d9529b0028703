// The gradients of a layer's weights and bias: the layer's input, transposed, times the gradient of its output; and the sums of that one's columns.
//
// A workgroup has 16 rows of the weights, and goes through them in tiles of 16 columns. Of both factors it takes the part that makes a tile into
// workgroup memory, from where each value is read 16 times. The first workgroup also has the bias.

const BATCH = 32u;
const WEIGHT_ROWS = 16u;
const COLUMNS = 16u;
const INVOCATIONS = 128u;

@group(0) @binding(0) var<storage> input: array<f32>;
@group(0) @binding(1) var<storage> output_gradient: array<f32>;
@group(0) @binding(2) var<storage, read_write> weights_gradient: array<f32>;
@group(0) @binding(3) var<storage, read_write> bias_gradient: array<f32>;

var<workgroup> input_tile: array<f32, BATCH * WEIGHT_ROWS>;
var<workgroup> output_tile: array<f32, BATCH * COLUMNS>;

@compute @workgroup_size(128)
fn weight_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) local: u32) {
    let inputs = arrayLength(&input) / BATCH;
    let outputs = arrayLength(&output_gradient) / BATCH;
    let first = WEIGHT_ROWS * group.x;

    for (var at = local; at < BATCH * WEIGHT_ROWS; at += INVOCATIONS) {
        let unit = first + at % WEIGHT_ROWS;
        if unit < inputs {
            input_tile[at] = input[at / WEIGHT_ROWS * inputs + unit];
        }
    }
    for (var left = 0u; left < outputs; left += COLUMNS) {
        for (var at = local; at < BATCH * COLUMNS; at += INVOCATIONS) {
            let unit = left + at % COLUMNS;
            if unit < outputs {
                output_tile[at] = output_gradient[at / COLUMNS * outputs + unit];
            }
        }
        workgroupBarrier();
        for (var at = local; at < WEIGHT_ROWS * COLUMNS; at += INVOCATIONS) {
            let row = at / COLUMNS;
            let column = at % COLUMNS;
            var sum = 0.0;
            for (var image = 0u; image < BATCH; image++) {
                sum += input_tile[image * WEIGHT_ROWS + row] * output_tile[image * COLUMNS + column];
            }
            if first + row < inputs && left + column < outputs {
                weights_gradient[(first + row) * outputs + left + column] = sum;
            }
        }
        // The tile is read to its end before the next one takes its place.
        workgroupBarrier();
    }

    if group.x == 0u {
        for (var column = local; column < outputs; column += INVOCATIONS) {
            var sum = 0.0;
            for (var image = 0u; image < BATCH; image++) {
                sum += output_gradient[image * outputs + column];
            }
            bias_gradient[column] = sum;
        }
    }
}
