//! A program that uses everything the backend asks of a driver, and what came of it.

use std::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;

/// What came of a program.
#[derive(Debug, Default)]
pub struct Came {
    /// What was read, by name.
    pub reads: Vec<(&'static str, Result<Vec<u8>, Error>)>,
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
        self.reads.push((name, bytes.and_then(|bytes| Ok(bytes.as_slice()?.to_vec()))));
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
            if let Ok(bytes) = read {
                assert!(*bytes == expected(name), "{what}: {name} is {:?}, …", &bytes[..bytes.len().min(8)]);
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

const NAMES: [&str; 6] = ["copied", "filled", "pinned", "elsewhere", "large", "words"];

fn source() -> Vec<u8> {
    (0..4096).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn expected(name: &str) -> Vec<u8> {
    match name {
        "copied" | "pinned" => source(),
        "filled" => [1, 2, 3, 4, 5, 6, 7, 8].repeat(384),
        "elsewhere" => source().into_iter().zip(0..).map(|(byte, i)| if i < 2048 { byte } else { 0 }).collect(),
        "large" => vec![1; 4 << 20],
        "words" => [1, 2, 3, 4].repeat(64),
        other => panic!("{other}"),
    }
}

/// Runs the program, whatever fails.
pub fn run(client: &Client) -> Came {
    let mut came = Came::default();
    let x = came.note(client.create_from_slice(&source()));
    let pinned = came.note(client.create_from_slice_pinned(&source()));
    let copied = came.note(client.empty(4096));
    let filled = came.note(client.empty(3072));
    let words = came.note(client.empty(256));
    let large = came.note(client.empty(4 << 20));
    let elsewhere = came.note(client.zeros(4096));

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
    if let (Some(copied), Some(elsewhere)) = (&copied, &elsewhere) {
        came.note(copied.slice(..2048).and_then(|from| other.copy(&from, &elsewhere.slice(..2048)?)));
    }
    came.read("elsewhere", &other, elsewhere.as_ref());
    let ours = [("copied", &copied), ("filled", &filled), ("pinned", &pinned), ("words", &words), ("large", &large)];
    for (name, handle) in ours {
        came.read(name, client, handle.as_ref());
    }
    let done = client.sync_timeout(Duration::from_secs(20));
    came.note(done);
    drop((x, pinned, copied, filled, words, elsewhere));
    drop(large);
    let memory = client.memory_usage();
    came.note(memory);
    came
}
