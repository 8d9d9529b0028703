//! The network's arithmetic as kernels, each with three sources: on the host a workgroup calls the functions of `reference.rs` on its own rows
//! of the result; any other device is given CUDA C or WGSL, whose workgroups have the same rows.

use trunnion::Result;
use trunnion::error::KernelFault;
use trunnion::prelude::*;

use super::data::{CLASSES, PIXELS};
use super::reference::{self, BATCH, HIDDEN};

/// Rows of a batch that a workgroup works on.
const ROWS: usize = 8;
/// Rows of a weight matrix that a workgroup works on.
const WEIGHT_ROWS: usize = 16;
/// Weights that a workgroup updates.
const UPDATES: usize = 1280;
/// Invocations of most workgroups, where a workgroup is not one call of a Rust function.
const INVOCATIONS: usize = 128;
/// Columns of a weight matrix in a tile.
const COLUMNS: usize = 32;

/// Every kernel of the network, prepared.
#[derive(Debug)]
pub struct Kernels {
    /// order, images, labels -> images and labels in that order
    pub gather: KernelHandle,
    /// images, weights and bias of both layers -> hidden: relu(images x weights + bias), logits: hidden x weights + bias
    pub forward: KernelHandle,
    /// logits, labels, output weights, hidden -> losses, gradients of the logits and of the hidden layer
    pub loss: KernelHandle,
    /// hidden, gradient of the logits -> gradients of the output weights and bias
    pub output_gradient: KernelHandle,
    /// images, gradient of the hidden layer -> gradients of the hidden weights and bias
    pub hidden_gradient: KernelHandle,
    /// gradient -> velocity, weights
    pub update: KernelHandle,
    /// losses; how many rows they are of -> their mean
    pub mean: KernelHandle,
    /// logits -> digits
    pub predict: KernelHandle,
}

/// The grid in which each workgroup has its rows of a batch.
pub fn batch_grid(rows: usize) -> Grid {
    Grid::x(rows.div_ceil(ROWS) as u32)
}

/// The grid in which each workgroup has its rows of a weight matrix.
pub fn weight_grid(rows: usize) -> Grid {
    Grid::x(rows.div_ceil(WEIGHT_ROWS) as u32)
}

/// The grid in which each workgroup has its share of all weights.
pub fn update_grid(weights: usize) -> Grid {
    Grid::x(weights.div_ceil(UPDATES) as u32)
}

/// Bytes of rows of `columns` values.
const fn rows_of(rows: usize, columns: usize) -> u64 {
    (rows * columns * size_of::<f32>()) as u64
}

/// An interface with one more output for each number of columns, of which each workgroup has its rows of a batch.
fn with_rows(inputs: Interface, columns: &[usize]) -> Interface {
    columns.iter().fold(inputs, |interface, columns| interface.overwrite(rows_of(ROWS, *columns)))
}

/// What a host runs for each workgroup.
type HostKernel = fn(&Workgroup<'_>) -> Result<(), KernelFault>;

/// The text of `name.wgsl` and that of `name.cu` beside this file.
macro_rules! texts {
    ($name:literal) => {
        [Source::wgsl(include_str!(concat!($name, ".wgsl"))), cuda_c(include_str!(concat!($name, ".cu")))]
    };
}

/// CUDA C of a file beside this one.
#[allow(unsafe_code, reason = "the files are vouched for")]
fn cuda_c(text: &'static str) -> Source {
    // SAFETY: each of them is told how many bytes its buffers have, works on as many rows as all of them hold, and on none where an array of
    // another shape, such as weights, is too short. Numbers that it finds in buffers, labels and rows, are compared before they are indices.
    unsafe { Source::cuda_c(text) }
}

impl Kernels {
    /// Prepares them for a client's device.
    pub fn prepare(client: &Client) -> Result<Self> {
        let kernel = |name: &str, invocations: usize, interface: Interface, host: HostKernel, texts: [Source; 2]| {
            let kernel = SourceKernel::new(name, interface).workgroup_size([invocations as u32, 1, 1]);
            client.prepare(texts.into_iter().fold(kernel.source(Source::host(host)), SourceKernel::source))
        };
        let reads = |count: usize| (0..count).fold(Interface::new(), |interface, _| interface.read());
        let gradient = |width: usize, host: HostKernel| {
            kernel("weight_gradient", INVOCATIONS, weight_gradient_interface(width), host, texts!("weight_gradient"))
        };
        // What the texts have in workgroup memory; the functions of the host take none of it.
        let tiles = |values: usize| rows_of(1, values) as u32;
        let forward_interface = with_rows(reads(5), &[HIDDEN, CLASSES]).shared(tiles(ROWS * (PIXELS + HIDDEN)));
        let loss_interface = with_rows(reads(4), &[1, CLASSES, HIDDEN]).shared(tiles(ROWS * CLASSES));
        let update_interface = reads(1).partition(rows_of(UPDATES, 1)).partition(rows_of(UPDATES, 1));
        let mean_interface = reads(1).overwrite(rows_of(1, 1)).parameters_of::<u32>().shared(tiles(INVOCATIONS));
        Ok(Self {
            gather: kernel("gather", PIXELS, with_rows(reads(3), &[PIXELS, 1]), gather, texts!("gather"))?,
            forward: kernel("forward", INVOCATIONS, forward_interface, forward, texts!("forward"))?,
            loss: kernel("loss", INVOCATIONS, loss_interface, loss, texts!("loss"))?,
            output_gradient: gradient(CLASSES, |group| weight_gradient(group, HIDDEN))?,
            hidden_gradient: gradient(HIDDEN, |group| weight_gradient(group, PIXELS))?,
            update: kernel("update", INVOCATIONS, update_interface, update, texts!("update"))?,
            mean: kernel("mean", INVOCATIONS, mean_interface, mean, texts!("mean"))?,
            predict: kernel("predict", ROWS, with_rows(reads(1), &[1]), predict, texts!("predict"))?,
        })
    }
}

fn gather(group: &Workgroup<'_>) -> Result<(), KernelFault> {
    let (order, images, labels) = (group.read::<u32>(0)?, group.read::<f32>(1)?, group.read::<u32>(2)?);
    let own = order[ROWS * group.id()[0] as usize..].iter().map(|row| *row as usize);
    let to = group.part::<f32>(3)?.chunks_exact_mut(PIXELS).zip(group.part::<u32>(4)?);
    for ((image, label), row) in to.zip(own) {
        image.copy_from_slice(&images[row * PIXELS..][..PIXELS]);
        *label = labels[row];
    }
    Ok(())
}

/// The rows of a matrix of `columns` that belong to the workgroup's rows of the result.
fn own_rows<'a, T>(group: &Workgroup<'_>, matrix: &'a [T], columns: usize) -> &'a [T] {
    let first = ROWS * group.id()[0] as usize;
    let last = (first + ROWS).min(matrix.len() / columns);
    &matrix[first * columns..last * columns]
}

fn forward(group: &Workgroup<'_>) -> Result<(), KernelFault> {
    let images = own_rows(group, group.read(0)?, PIXELS);
    let (hidden, logits) = (group.part(5)?, group.part(6)?);
    reference::matmul(images, group.read(1)?, hidden, PIXELS);
    reference::add_bias_relu(hidden, group.read(2)?);
    reference::matmul(hidden, group.read(3)?, logits, HIDDEN);
    reference::add_bias(logits, group.read(4)?);
    Ok(())
}

fn loss(group: &Workgroup<'_>) -> Result<(), KernelFault> {
    let (logits, labels) = (own_rows(group, group.read(0)?, CLASSES), own_rows(group, group.read(1)?, 1));
    let (weights, hidden) = (group.read(2)?, own_rows(group, group.read(3)?, HIDDEN));
    let (losses, logits_gradient, hidden_gradient) = (group.part(4)?, group.part(5)?, group.part(6)?);
    reference::softmax_cross_entropy(logits, labels, losses, logits_gradient, BATCH);
    reference::matmul_transposed_right(logits_gradient, weights, hidden_gradient, CLASSES);
    reference::relu_gradient(hidden_gradient, hidden);
    Ok(())
}

/// Of a layer with `width` outputs: its input and the gradient of its output; the gradients of its weights and, all by the first
/// workgroup, of its bias.
fn weight_gradient_interface(width: usize) -> Interface {
    let tiles = rows_of(BATCH, WEIGHT_ROWS + COLUMNS) as u32;
    Interface::new().read().read().overwrite(rows_of(WEIGHT_ROWS, width)).overwrite(rows_of(1, width)).shared(tiles)
}

fn weight_gradient(group: &Workgroup<'_>, inputs: usize) -> Result<(), KernelFault> {
    let (left, right) = (group.read(0)?, group.read(1)?);
    let first = WEIGHT_ROWS * group.id()[0] as usize;
    reference::matmul_transposed_left(left, right, group.part(2)?, inputs, first..(first + WEIGHT_ROWS).min(inputs));
    if group.id()[0] == 0 {
        reference::sum_rows(right, group.part(3)?);
    }
    Ok(())
}

fn update(group: &Workgroup<'_>) -> Result<(), KernelFault> {
    let own = group.part_range::<f32>(1)?;
    reference::momentum_update(group.part(2)?, group.part(1)?, &group.read(0)?[own]);
    Ok(())
}

fn mean(group: &Workgroup<'_>) -> Result<(), KernelFault> {
    let (losses, rows) = (group.read::<f32>(0)?, group.parameters::<u32>()?);
    group.part::<f32>(1)?.fill(losses.iter().sum::<f32>() / rows as f32);
    Ok(())
}

fn predict(group: &Workgroup<'_>) -> Result<(), KernelFault> {
    let logits = own_rows(group, group.read(0)?, CLASSES);
    group.part::<u32>(1)?.copy_from_slice(&reference::predictions(logits));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::reference::{LEARNING_RATE, MOMENTUM};
    use super::*;

    #[test]
    fn the_numbers_the_texts_repeat_are_those_of_the_rust_files() {
        let numbers = [
            ("ROWS", ROWS.to_string()),
            ("WEIGHT_ROWS", WEIGHT_ROWS.to_string()),
            ("UPDATES", UPDATES.to_string()),
            ("INVOCATIONS", INVOCATIONS.to_string()),
            ("COLUMNS", COLUMNS.to_string()),
            ("BATCH", BATCH.to_string()),
            ("PIXELS", PIXELS.to_string()),
            ("HIDDEN", HIDDEN.to_string()),
            ("CLASSES", CLASSES.to_string()),
            ("LEARNING_RATE", LEARNING_RATE.to_string()),
            ("MOMENTUM", MOMENTUM.to_string()),
        ];
        let sources = [
            texts!("gather"),
            texts!("forward"),
            texts!("loss"),
            texts!("weight_gradient"),
            texts!("update"),
            texts!("mean"),
            texts!("predict"),
        ];
        let mut compared = 0;
        for source in sources.iter().flatten() {
            let declared = ["const ", "constexpr unsigned ", "constexpr float "];
            let lines = source.as_text().unwrap().lines();
            let constants = lines.filter_map(|line| declared.iter().find_map(|declared| line.strip_prefix(declared)));
            for (name, value) in constants.filter_map(|line| line.trim_end_matches(';').split_once(" = ")) {
                if let Some((_, expected)) = numbers.iter().find(|(known, _)| *known == name) {
                    assert_eq!(value.trim_end_matches(['u', 'f']), expected, "{name}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 41);
    }
}
