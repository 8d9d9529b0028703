//! How many crates a build compiles, both counted by `cargo tree` in the same way.
//!
//! The peer of our core is the crate its users compile against. A peer of `trunnion` with the host would be its whole CPU runtime; counted
//! here is what every such runtime stands on, `cubecl-server`, which has no device in it yet. The peer of `trunnion` with Vulkan is the
//! runtime that reaches Vulkan devices.

use crate::beside::{Figures, attempt};
use benches::harness::{Run, Target};
use benches::workloads::build::{MANIFEST, OURS, count};
use std::error::Error;

const PEERS: [&str; OURS.len()] = ["cubecl-runtime", "cubecl-server", "cubecl-wgpu"];

pub fn crates(run: &mut Run) -> Result<(), Box<dyn Error>> {
    for ((case, package, features, target), peer) in OURS.into_iter().zip(PEERS) {
        let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let figures = Figures::single(
            count(MANIFEST, package, features)? as f64,
            attempt(|| count(peers, peer, &[])).map(|count| count as f64),
        );
        figures.report_beside(peer, run, case, "crates", Some(Target::Value(target)));
    }
    Ok(())
}
