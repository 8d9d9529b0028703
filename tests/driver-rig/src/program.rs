//! A program that asks of a device all that a backend asks a driver for, and what came of it, for tests in which calls to the driver fail.

use crate::transfers::counting;
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::{KernelHandle, SourceKernel};

/// What came of a program.
#[derive(Debug, Default)]
pub struct Came {
    /// What was read, by name.
    pub reads: Vec<(&'static str, Result<Vec<u8>>)>,
    /// What calls answered that were not reads.
    pub errors: Vec<Error>,
    /// Bytes of what is read as `large`.
    large: usize,
}

impl Came {
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    fn read(&mut self, name: &'static str, client: &Client, handle: Option<&Handle>) {
        let Some(handle) = handle else { return };
        let bytes = client.read_one(handle);
        self.reads.push((name, bytes.and_then(|bytes| Ok(bytes.as_slice()?.to_vec()))));
    }

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

    fn all_errors(&self) -> impl Iterator<Item = &Error> {
        self.reads.iter().filter_map(|(_, read)| read.as_ref().err()).chain(&self.errors)
    }

    /// Every error, in words.
    pub fn said(&self) -> String {
        self.all_errors().map(|error| format!("{error}; {error:?}\n")).collect()
    }

    /// Whether an error says that the device is lost.
    pub fn is_lost(&self) -> bool {
        self.all_errors().any(Error::is_device_lost)
    }

    /// What was read is what a run without failures reads, or an error.
    pub fn assert_right(&self, what: &str) {
        for (name, read) in &self.reads {
            if let Ok(bytes) = read {
                assert!(
                    *bytes == expected(name, self.large),
                    "{what}: {name} is {:?}, …",
                    &bytes[..bytes.len().min(8)]
                );
            }
        }
    }

    /// Nothing failed.
    pub fn assert_whole(&self, what: &str) {
        self.assert_right(what);
        assert!(self.errors.is_empty() && self.reads.iter().all(|(_, read)| read.is_ok()), "{what}: {}", self.said());
        assert_eq!(self.reads.len(), READS, "{what}");
    }

    /// A device that is lost says one cause.
    pub fn assert_one_cause(&self, what: &str) {
        let causes = self.all_errors().filter_map(|error| match error {
            Error::DeviceLost { cause } => Some(cause),
            _ => None,
        });
        let mut causes: Vec<_> = causes.collect();
        causes.dedup();
        assert!(causes.len() <= 1, "{what}: {causes:?}");
    }
}

/// How much a program reads.
const READS: usize = 8;

/// Bytes of `x`, and of what is as large.
const SIZE: usize = 4096;

fn scaled(bytes: &[u8], a: u32, b: u32) -> Vec<u8> {
    let words = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
    words.flat_map(|x| (a.wrapping_mul(x).wrapping_add(b)).to_ne_bytes()).collect()
}

/// What is read under a name.
fn expected(name: &str, large: usize) -> Vec<u8> {
    let x = || counting(SIZE);
    match name {
        "copied" | "pinned" => x(),
        "scaled" => scaled(&x(), 3, 5),
        "counted" => scaled(&scaled(&x(), 3, 5), 2, 1),
        "elsewhere" => [&scaled(&x(), 3, 5)[..SIZE / 2], &[0; SIZE / 2]].concat(),
        "filled" => [1, 2, 3, 4, 5, 6, 7, 8].repeat(384),
        "words" => [1, 2, 3, 4].repeat(64),
        "large" => vec![1; large],
        other => panic!("{other}"),
    }
}

/// Runs the program, whatever fails. The kernel runs in workgroups of 64, has buffers `x` and `y`, and parameters `a` and `b` of four bytes
/// each: an element of `y` becomes `a * x + b` where both buffers have it. Of a buffer of 2 MiB `large` bytes are used.
pub fn run(client: &Client, scale: SourceKernel, large: u64) -> Came {
    let mut came = Came { large: large as usize, ..Came::default() };
    let kernel = came.note(client.prepare(scale));
    let counts: Vec<u8> = [16_u32, 1, 1].iter().flat_map(|count| count.to_ne_bytes()).collect();
    let counts = came.note(client.create_from_slice(&counts));
    let [scaled, counted] = core::array::from_fn(|_| came.note(client.empty(SIZE as u64)));
    let x = came.note(client.create_from_slice(&counting(SIZE)));
    let pinned = came.note(client.create_from_slice_pinned(&counting(SIZE)));
    let copied = came.note(client.empty(SIZE as u64));
    let filled = came.note(client.empty(3072));
    let words = came.note(client.empty(256));
    // As large as what a driver may map at once.
    let whole = came.note(client.empty(2 << 20));
    let large = whole.as_ref().and_then(|whole| whole.slice(..large).ok());
    let elsewhere = came.note(client.zeros(SIZE as u64));

    came.launch(client, kernel.as_ref(), Grid::x(16), [x.as_ref(), scaled.as_ref()], [3, 5]);
    if let Some(counts) = counts {
        came.launch(client, kernel.as_ref(), Grid::Dynamic(counts), [scaled.as_ref(), counted.as_ref()], [2, 1]);
    }
    if let (Some(x), Some(copied)) = (&x, &copied) {
        came.note(client.copy(x, copied));
    }
    let patterns = [(&filled, &[1, 2, 3, 4, 5, 6, 7, 8][..]), (&large, &[1]), (&words, &[1, 2, 3, 4])];
    for (handle, pattern) in patterns {
        if let Some(handle) = handle {
            came.note(client.fill(handle, pattern));
        }
    }
    // Another stream, which waits for this one.
    let mut other = client.clone();
    other.set_stream(StreamId::new());
    if let (Some(scaled), Some(elsewhere)) = (&scaled, &elsewhere) {
        let half = ..SIZE as u64 / 2;
        came.note(scaled.slice(half).and_then(|from| other.copy(&from, &elsewhere.slice(half)?)));
    }
    came.read("elsewhere", &other, elsewhere.as_ref());
    let ours = [
        ("scaled", &scaled),
        ("counted", &counted),
        ("copied", &copied),
        ("filled", &filled),
        ("pinned", &pinned),
        ("words", &words),
        ("large", &large),
    ];
    for (name, handle) in ours {
        came.read(name, client, handle.as_ref());
    }
    let done = client.sync_timeout(Duration::from_secs(20));
    came.note(done);
    drop((x, pinned, copied, filled, words, elsewhere, scaled, counted, large, whole));
    let memory = client.memory_usage();
    came.note(memory);
    came
}

/// A device on which nothing fails any more copies what it is given.
pub fn assert_copies(client: &Client, what: &str) {
    let (a, b) = (client.create_from_slice(&[7; 100]).unwrap(), client.empty(100).unwrap());
    client.copy(&a, &b).unwrap();
    assert_eq!(client.read_one(&b).unwrap().as_slice().unwrap(), [7; 100], "{what}");
}
