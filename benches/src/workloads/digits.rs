//! One training epoch of the example on the host, beside the same inner functions called over slices in plain Rust.

use crate::harness::{Case, Run, Target, interleave, median};
use data::{CLASSES, Dataset, PIXELS, shuffled};
use reference::{BATCH, HIDDEN, Weights};
use std::cell::UnsafeCell;
use std::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

// The example's own files.
#[path = "../../../trunnion/examples/digits/data.rs"]
#[allow(dead_code, reason = "the example uses all of it")]
mod data;
#[path = "../../../trunnion/examples/digits/kernels.rs"]
mod kernels;
#[path = "../../../trunnion/examples/digits/reference.rs"]
#[allow(dead_code, reason = "the example's tests use all of it")]
mod reference;
#[path = "../../../trunnion/examples/digits/train.rs"]
#[allow(dead_code, reason = "the example uses all of it")]
mod train;

pub fn epoch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let rows = data::load()?.train;
    let order = shuffled(rows.rows(), 1, 0);
    let mut trainer = train::Trainer::open(super::start::open_host()?, 1, &rows)?;
    let device = || {
        let start = Instant::now();
        trainer.epoch(&order).expect("the epoch runs");
        start.elapsed().as_secs_f64() * 1e3
    };
    let mut alone = Alone::new(&rows);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let team = Team::new(&rows, threads);
    let mut one = Vec::new();
    let rounds = run.rounds(31);
    let (ours, together) = interleave(rounds, device, || {
        one.push(alone.epoch(&order));
        team.epoch(&order)
    });
    // Threads do not pay for matrices as small as these on every machine; the better peer counts.
    let name = format!("plain Rust on {threads} threads");
    let peer =
        if median(&one) < median(&together) { ("plain Rust on 1 thread", one) } else { (name.as_str(), together) };
    run.report(Case { case: "eager", ours, unit: "ms", peer: Some(peer), target: Some(Target::Ratio(1.3)) });
    Ok(())
}

/// The training of `reference.rs` as it stands.
struct Alone<'a> {
    rows: &'a Dataset,
    weights: Weights,
    velocity: Weights,
    scratch: reference::Scratch,
}

impl<'a> Alone<'a> {
    fn new(rows: &'a Dataset) -> Self {
        Self { rows, weights: Weights::random(1), velocity: Weights::zero(), scratch: reference::Scratch::new(BATCH) }
    }

    fn epoch(&mut self, order: &[u32]) -> f64 {
        let start = Instant::now();
        let (mut images, mut labels) = (vec![0.0; BATCH * PIXELS], vec![0; BATCH]);
        let mut sum = 0.0;
        for batch in order.chunks_exact(BATCH) {
            self.rows.gather(batch, &mut images, &mut labels);
            reference::step(&mut self.weights, &mut self.velocity, &mut self.scratch, &images, &labels);
            sum += self.scratch.losses.iter().sum::<f32>();
        }
        std::hint::black_box(sum);
        start.elapsed().as_secs_f64() * 1e3
    }
}

/// Values that the threads of a team share: each stage writes disjoint ranges of some and reads others, and a barrier follows.
struct Values(UnsafeCell<Vec<f32>>);

// SAFETY: access goes through the two functions below, whose callers keep a barrier between writers and readers.
unsafe impl Sync for Values {}

impl Values {
    fn new(values: Vec<f32>) -> Self {
        Self(UnsafeCell::new(values))
    }

    /// # Safety
    /// Nobody writes them until the next barrier.
    unsafe fn all(&self) -> &[f32] {
        // SAFETY: the caller's promise; the vector itself is never changed.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// Nobody else touches the range until the next barrier.
    #[allow(clippy::mut_from_ref, reason = "ranges are disjoint")]
    unsafe fn part(&self, range: Range<usize>) -> &mut [f32] {
        // SAFETY: as above; the slice is made from the pointer so that no reference to the whole is.
        unsafe { std::slice::from_raw_parts_mut((*self.0.get()).as_mut_ptr().add(range.start), range.len()) }
    }
}

/// The same training on several threads, each with its rows of every stage, with barriers that spin.
struct Team<'a> {
    rows: &'a Dataset,
    threads: usize,
    arrived: AtomicUsize,
    weights: [Values; 4],
    velocity: [Values; 4],
    gradient: [Values; 4],
    images: Values,
    hidden: Values,
    hidden_gradient: Values,
    logits: Values,
    logits_gradient: Values,
    losses: Values,
}

impl<'a> Team<'a> {
    fn new(rows: &'a Dataset, threads: usize) -> Self {
        let parameters = |w: Weights| [w.hidden, w.hidden_bias, w.output, w.output_bias].map(Values::new);
        let zeros = |count: usize| Values::new(vec![0.0; count]);
        Self {
            rows,
            threads,
            arrived: AtomicUsize::new(0),
            weights: parameters(Weights::random(1)),
            velocity: parameters(Weights::zero()),
            gradient: parameters(Weights::zero()),
            images: zeros(BATCH * PIXELS),
            hidden: zeros(BATCH * HIDDEN),
            hidden_gradient: zeros(BATCH * HIDDEN),
            logits: zeros(BATCH * CLASSES),
            logits_gradient: zeros(BATCH * CLASSES),
            losses: zeros(BATCH),
        }
    }

    fn epoch(&self, order: &[u32]) -> f64 {
        self.arrived.store(0, Ordering::Release);
        let start = Instant::now();
        thread::scope(|scope| {
            for rank in 1..self.threads {
                scope.spawn(move || self.part(order, rank));
            }
            self.part(order, 0);
        });
        start.elapsed().as_secs_f64() * 1e3
    }

    /// The thread's share of `count` rows.
    fn share(&self, count: usize, rank: usize) -> Range<usize> {
        count * rank / self.threads..count * (rank + 1) / self.threads
    }

    fn barrier(&self, passed: &mut usize) {
        *passed += self.threads;
        self.arrived.fetch_add(1, Ordering::AcqRel);
        while self.arrived.load(Ordering::Acquire) < *passed {
            std::hint::spin_loop();
        }
    }

    fn part(&self, order: &[u32], rank: usize) {
        let mut passed = 0;
        let batch = self.share(BATCH, rank);
        let rows_of = |columns: usize| batch.start * columns..batch.end * columns;
        let mut labels = vec![0; batch.len()];
        for chunk in order.chunks_exact(BATCH) {
            // SAFETY: in each stage a thread writes its own rows only, and reads what an earlier stage wrote or its own rows.
            unsafe {
                self.rows.gather(&chunk[batch.clone()], self.images.part(rows_of(PIXELS)), &mut labels);
                let [w1, b1, w2, b2] = self.weights.each_ref().map(|values| values.all());
                let hidden = self.hidden.part(rows_of(HIDDEN));
                reference::matmul(self.images.part(rows_of(PIXELS)), w1, hidden, PIXELS);
                reference::add_bias_relu(hidden, b1);
                let logits = self.logits.part(rows_of(CLASSES));
                reference::matmul(hidden, w2, logits, HIDDEN);
                reference::add_bias(logits, b2);
                let logits_gradient = self.logits_gradient.part(rows_of(CLASSES));
                reference::softmax_cross_entropy(
                    logits,
                    &labels,
                    self.losses.part(batch.clone()),
                    logits_gradient,
                    BATCH,
                );
                let hidden_gradient = self.hidden_gradient.part(rows_of(HIDDEN));
                reference::matmul_transposed_right(logits_gradient, w2, hidden_gradient, CLASSES);
                reference::relu_gradient(hidden_gradient, hidden);
            }
            self.barrier(&mut passed);
            // SAFETY: as above; the layers are complete, and each thread has its rows of every weight.
            unsafe {
                for (layer, (left, columns, right, width)) in [
                    (self.images.all(), PIXELS, self.hidden_gradient.all(), HIDDEN),
                    (self.hidden.all(), HIDDEN, self.logits_gradient.all(), CLASSES),
                ]
                .into_iter()
                .enumerate()
                {
                    let own = self.share(columns, rank);
                    let values = own.start * width..own.end * width;
                    let out = self.gradient[2 * layer].part(values.clone());
                    reference::matmul_transposed_left(left, right, out, columns, own);
                    let (weights, velocity) = (&self.weights[2 * layer], &self.velocity[2 * layer]);
                    reference::momentum_update(weights.part(values.clone()), velocity.part(values), out);
                    if rank == layer % self.threads {
                        let bias = self.gradient[2 * layer + 1].part(0..width);
                        reference::sum_rows(right, bias);
                        let (weights, velocity) = (&self.weights[2 * layer + 1], &self.velocity[2 * layer + 1]);
                        reference::momentum_update(weights.part(0..width), velocity.part(0..width), bias);
                    }
                }
            }
            self.barrier(&mut passed);
        }
    }
}
