//! Draws what became of a device's memory: `cargo run --release --example memory_map [TRACE [OUT]]`.
//!
//! TRACE is what `TRUNNION_MEMORY_TRACE=FILE` or `Client::record_memory_start` wrote, a table of lifetimes (`id,lower,upper,size`), or a
//! log of RMM. It is replayed on the pools it was recorded on, where it says that, else on pools as they are by default. Without TRACE the
//! steps of a training run are made on the `host` backend and recorded beside the picture. OUT is `out/memory_map.svg` if not given.
//!
//! Exit code 2 means bad arguments, 1 any other failure.

use core::error::Error;
use core::mem;
use core::time::Duration;
use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trunnion_backend_host::{HostBackend, HostOptions, NAME};
use trunnion_memory_pools::trace::{Picture, Trace, replay};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{DeviceId, StreamId};
use trunnion_runtime_core::sink::FileSink;

const OUT: &str = "out/memory_map.svg";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (trace, out) = (arguments.next(), arguments.next().unwrap_or_else(|| OUT.into()));
    if arguments.next().is_some() || trace.as_ref().is_some_and(|trace| trace.to_string_lossy().starts_with('-')) {
        let _ = writeln!(stderr(), "usage: memory_map [TRACE [OUT]]");
        return ExitCode::from(2);
    }
    match run(trace.map(PathBuf::from), Path::new(&out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(stderr(), "memory_map: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(trace: Option<PathBuf>, out: &Path) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let (path, title) = match trace {
        Some(path) => {
            let title = format!("Memory of {}", path.file_name().unwrap_or_default().to_string_lossy());
            (path, title)
        }
        None => {
            let path = out.with_extension("trace");
            record(&path)?;
            writeln!(stdout(), "trace in {}", path.display())?;
            (path, "Memory of a training run on the host".to_string())
        }
    };
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let (trace, cut) = Trace::salvage(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    if let Some(error) = cut {
        writeln!(stderr(), "memory_map: {} is cut off: {error}", path.display())?;
    }
    let report = replay(&trace, &trace.pools.clone().unwrap_or_default());
    fs::write(out, Picture::of(&title, &report).to_string())
        .map_err(|error| format!("cannot write {}: {error}", out.display()))?;
    writeln!(stdout(), "{report}\n\npicture in {}", out.display())?;
    Ok(())
}

/// The bytes of a row of activations in each layer.
const LAYERS: [u64; 8] = [96 << 10, 200 << 10, 160 << 10, 120 << 10, 88 << 10, 60 << 10, 36 << 10, 10 << 10];

/// Makes the steps of a training run on a device of its own, and records what they ask of its memory.
fn record(path: &Path) -> Result<(), Box<dyn Error>> {
    // A device that reports late, as one does that is far away: what is freed is still in use.
    let backend = HostBackend::new(HostOptions::default().delay(Duration::from_micros(400)));
    let opened = backend.open(0, &OpenSettings::default())?;
    let client = Client::try_init(DeviceId { backend: NAME, index: 0 }, opened)?;
    client.record_memory_start(FileSink::create(path)?)?;
    train(&client)?;
    client.shutdown(Duration::from_secs(10));
    Ok(())
}

fn train(client: &Client) -> Result<(), Box<dyn Error>> {
    let (mut compute, mut loader) = (client.clone(), client.clone());
    compute.set_stream(StreamId::new());
    loader.set_stream(StreamId::new());
    let weights = compute.memory_persistent_allocation(|| {
        LAYERS.iter().map(|row| compute.zeros(row * 12)).collect::<Result<Vec<_>, _>>()
    })?;
    client.record_memory("weights")?;
    let mut next = batch(&loader, 0)?;
    for step in 0..12 {
        let input = mem::replace(&mut next, batch(&loader, step + 1)?);
        let rows = rows(step);
        let mut kept = vec![input];
        for (row, weight) in LAYERS.iter().zip(&weights) {
            // What a layer needs for a moment only, and what the way back needs.
            let scratch = compute.empty(row * rows / 3 + 1000)?;
            let output = compute.zeros(row * rows)?;
            copy_some(&compute, weight, &scratch)?;
            copy_some(&compute, &scratch, &output)?;
            kept.push(output);
        }
        let mut gradients = Vec::new();
        while let Some(output) = kept.pop() {
            let gradient = compute.empty(output.size_in_used() / 4 + 512)?;
            copy_some(&compute, &output, &gradient)?;
            gradients.push(gradient);
        }
        for (weight, gradient) in weights.iter().rev().zip(&gradients) {
            copy_some(&compute, gradient, weight)?;
        }
        if step == 6 {
            let all = LAYERS.iter().map(|row| row * 12).sum();
            let checkpoint = compute.memory_dedicated_allocation(|| compute.zeros(all))?;
            client.record_memory("checkpoint")?;
            compute.read_one(&checkpoint)?;
        }
        drop(gradients);
        client.record_memory(format!("step {step}"))?;
    }
    drop(next);
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    client.record_memory("cleaned up")?;
    Ok(())
}

/// Batches are not of one size.
fn rows(step: u64) -> u64 {
    [64, 48, 80, 64, 96, 56][step as usize % 6]
}

fn batch(loader: &Client, step: u64) -> Result<Handle, Box<dyn Error>> {
    Ok(loader.create_from_slice(&vec![step as u8; (rows(step) * (24 << 10)) as usize])?)
}

/// Work that touches both.
fn copy_some(client: &Client, from: &Handle, to: &Handle) -> Result<(), Box<dyn Error>> {
    let size = from.size_in_used().min(to.size_in_used()).min(64 << 10);
    client.copy(&from.slice(..size)?, &to.slice(..size)?)?;
    Ok(())
}
