//! A program that uses everything the backend asks of a driver, and what came of it.

use crate::bench::{bytes_of, words_of};
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::{KernelHandle, SourceKernel};

const SCALE: &str = "
struct Parameters { a: u32, b: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> p: Parameters;
@compute @workgroup_size(64) fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&x) && id.x < arrayLength(&y) { y[id.x] = p.a * x[id.x] + p.b; }
}";

/// What came of a program.
#[derive(Debug, Default)]
pub struct Came {
    /// What was read, by name.
    pub reads: Vec<(&'static str, Result<Vec<u32>, Error>)>,
    /// What calls answered that were not reads.
    pub errors: Vec<Error>,
}

impl Came {
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    fn read(&mut self, name: &'static str, client: &Client, handle: Option<&Handle>) {
        let Some(handle) = handle else { return };
        let bytes = client.read_one(handle);
        self.reads.push((name, bytes.and_then(|bytes| Ok(words_of(bytes.as_slice()?)))));
    }

    /// Every error, in words.
    pub fn said(&self) -> String {
        let reads = self.reads.iter().filter_map(|(_, read)| read.as_ref().err());
        reads.chain(&self.errors).map(|error| format!("{error}; {error:?}\n")).collect()
    }

    pub fn is_lost(&self) -> bool {
        let reads = self.reads.iter().filter_map(|(_, read)| read.as_ref().err());
        reads.chain(&self.errors).any(Error::is_device_lost)
    }

    /// What was read is what a run without failures reads, or an error.
    pub fn assert_right(&self, what: &str) {
        for (name, read) in &self.reads {
            if let Ok(words) = read {
                assert!(*words == expected(name), "{what}: {name} is {:?}, …", &words[..words.len().min(8)]);
            }
        }
    }

    /// Nothing failed.
    pub fn assert_whole(&self, what: &str) {
        self.assert_right(what);
        assert!(self.errors.is_empty() && self.reads.iter().all(|(_, read)| read.is_ok()), "{what}: {}", self.said());
        assert_eq!(self.reads.len(), NAMES.len(), "{what}");
    }
}

const NAMES: [&str; 7] = ["scaled", "counted", "copied", "filled", "pinned", "elsewhere", "large"];

fn source() -> Vec<u32> {
    (0..1024).collect()
}

fn expected(name: &str) -> Vec<u32> {
    let scaled = || source().into_iter().map(|x| 3 * x + 5).collect::<Vec<u32>>();
    match name {
        "scaled" | "copied" => scaled(),
        "counted" => scaled().into_iter().map(|x| 2 * x + 1).collect(),
        "filled" => words_of(&[1, 2, 3, 4, 5, 6, 7, 8].repeat(384)),
        "pinned" => source(),
        "elsewhere" => source().into_iter().zip(0..).map(|(x, i)| if i < 512 { 3 * x + 5 } else { 0 }).collect(),
        "large" => vec![0x0101_0101; 1 << 18],
        other => panic!("{other}"),
    }
}

/// Runs the program, whatever fails.
pub fn run(client: &Client) -> Came {
    let mut came = Came::default();
    let kernel = came.note(client.prepare(SourceKernel::wgsl("scale", SCALE)));
    let x = came.note(client.create_from_slice(&bytes_of(&source())));
    let counts = came.note(client.create_from_slice(&bytes_of(&[16, 1, 1])));
    let pinned = came.note(client.create_from_slice_pinned(&bytes_of(&source())));
    let [scaled, counted, copied] = core::array::from_fn(|_| came.note(client.empty(4096)));
    let filled = came.note(client.empty(3072));
    let large = came.note(client.empty(1 << 20));
    let elsewhere = came.note(client.zeros(4096));

    came.launch(client, kernel.as_ref(), Grid::x(16), [x.as_ref(), scaled.as_ref()], [3, 5]);
    if let Some(counts) = counts {
        came.launch(client, kernel.as_ref(), Grid::Dynamic(counts), [scaled.as_ref(), counted.as_ref()], [2, 1]);
    }
    if let (Some(scaled), Some(copied)) = (&scaled, &copied) {
        came.note(client.copy(scaled, copied));
    }
    for (handle, pattern) in [(&filled, &[1, 2, 3, 4, 5, 6, 7, 8][..]), (&large, &[1])] {
        if let Some(handle) = handle {
            came.note(client.fill(handle, pattern));
        }
    }
    // Another stream, which waits for this one.
    let mut other = client.clone();
    other.set_stream(StreamId::new());
    if let (Some(scaled), Some(elsewhere)) = (&scaled, &elsewhere) {
        came.note(scaled.slice(..2048).and_then(|from| other.copy(&from, &elsewhere.slice(..2048)?)));
    }
    came.read("elsewhere", &other, elsewhere.as_ref());
    let ours = [&scaled, &counted, &copied, &filled, &pinned];
    for (name, handle) in ["scaled", "counted", "copied", "filled", "pinned"].into_iter().zip(ours) {
        came.read(name, client, handle.as_ref());
    }
    came.read("large", client, large.as_ref());
    let done = client.sync_timeout(Duration::from_secs(20));
    came.note(done);
    came
}

impl Came {
    fn launch(
        &mut self,
        client: &Client,
        kernel: Option<&KernelHandle>,
        grid: Grid,
        buffers: [Option<&Handle>; 2],
        parameters: [u32; 2],
    ) {
        if let (Some(kernel), [Some(from), Some(to)]) = (kernel, buffers) {
            self.note(client.launch(kernel, grid, ([from, to], &parameters)));
        }
    }
}
