//! What tests do with clients of a backend's devices.

use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;

/// A client of the same device, on a stream of its own.
pub fn on_new_stream(client: &Client) -> Client {
    let mut client = client.clone();
    client.set_stream(StreamId::new());
    client
}

/// What a buffer holds.
pub fn bytes(client: &Client, handle: &Handle) -> Vec<u8> {
    client.read_one(handle).unwrap().as_slice().unwrap().to_vec()
}

/// The same as numbers.
pub fn words(client: &Client, handle: &Handle) -> Vec<u32> {
    bytes(client, handle).chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// Bytes, of which no two side by side are the same; others with another seed.
pub fn pattern(size: usize, seed: u8) -> Vec<u8> {
    (0..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}
