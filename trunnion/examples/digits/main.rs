//! Trains a small network to read handwritten digits on the backend you name, and paints what it learned.
//!
//! `cargo run --release --example digits -- --backend host --epochs 30 --seed 1 --out out`; on a GPU or another Vulkan device
//! `cargo run --release --features vulkan --example digits -- --backend vulkan`, on one of NVIDIA's by CUDA
//! `cargo run --release --features cuda --example digits -- --backend cuda`.
//!
//! The last line on stdout is the share of the 359 test digits read right. Exit code 2 means bad arguments, 1 any other failure.
// But where the CUDA C beside this file is vouched for.
#![deny(unsafe_code)]

mod args;
#[allow(dead_code, reason = "the tests and the bench `digits` also use whole batches on the host")]
mod data;
mod font;
mod kernels;
#[cfg(all(test, feature = "cuda"))]
mod on_double;
mod plot;
#[allow(dead_code, reason = "the tests and the bench `digits` also use whole steps in plain Rust")]
mod reference;
mod train;

use core::error::Error;
use std::fs;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use args::Args;
use plot::Picture;
use train::Trainer;

fn main() -> ExitCode {
    let Err(error) = run(&Args::parse()) else {
        return ExitCode::SUCCESS;
    };
    let mut text = format!("digits: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        // Some errors say what caused them themselves.
        if !text.contains(&error.to_string()) {
            text += &format!(": {error}");
        }
        cause = error.source();
    }
    // Where stderr is closed, the exit code has to say it alone.
    let _ = writeln!(stderr(), "{text}");
    ExitCode::FAILURE
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    // First, so that a directory that can't be made doesn't cost a training run.
    fs::create_dir_all(&args.out)
        .map_err(|error| format!("cannot make the directory {}: {error}", args.out.display()))?;
    let data::Split { train, test } = data::load()?;
    let rows = train.rows();
    let client = match &args.backend {
        Some(name) => trunnion::open(name.as_str())?,
        None => trunnion::default_client()?,
    };
    let (device, name) = (client.device_id(), client.name());
    let mut trainer = Trainer::open(client, args.seed, &train)?;

    let started = Instant::now();
    let losses = train_epochs(&mut trainer, rows, args)?;
    let seconds = started.elapsed().as_secs_f64();

    let predictions = trainer.predict(&test)?;
    let right = predictions.iter().zip(&test.labels).filter(|(read, label)| read == label).count();
    let accuracy = right as f64 / test.rows() as f64;

    let epochs = match args.epochs {
        1 => "1 epoch".into(),
        epochs => format!("{epochs} epochs"),
    };
    let path = args.out.join("digits.png");
    let picture = Picture {
        title: &format!("Handwritten digits: MLP 64-128-10 on {device}"),
        subtitle: &format!(
            "test accuracy {accuracy:.4} ({right} of {}) after {epochs}, seed {}",
            test.rows(),
            args.seed
        ),
        losses: &losses,
        test: &test,
        predictions: &predictions,
    };
    picture.save(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;

    let mut out = stdout().lock();
    writeln!(out, "{epochs} on {name} took {seconds:.2} s")?;
    writeln!(out, "\n{}", trainer.memory_report()?)?;
    writeln!(out, "picture in {}", path.display())?;
    writeln!(out, "test accuracy {accuracy:.4}")?;
    Ok(())
}

/// Trains for `args.epochs`, with a progress bar where stderr is a terminal; gives the mean loss of each epoch.
fn train_epochs(trainer: &mut Trainer, rows: usize, args: &Args) -> Result<Vec<f32>, Box<dyn Error>> {
    let style = ProgressStyle::with_template("training [{bar:40}] {pos}/{len} epochs, {msg}")?;
    let bar = ProgressBar::new(args.epochs.into()).with_style(style);
    let mut losses = Vec::new();
    for epoch in 0..args.epochs {
        let loss = trainer.epoch(&data::shuffled(rows, args.seed, epoch))?;
        if !loss.is_finite() {
            return Err(format!("the mean loss of epoch {} is {loss}; a number was expected", epoch + 1).into());
        }
        losses.push(loss);
        bar.set_message(format!("loss {loss:.4}"));
        bar.inc(1);
    }
    bar.finish();
    Ok(losses)
}
