//! How many crates a build of ours compiles.

use crate::harness::{Case, Run};
use std::collections::BTreeSet;
use std::error::Error;
use std::process::Command;

pub fn crates(run: &mut Run) -> Result<(), Box<dyn Error>> {
    for (case, package, target) in
        [("runtime-core", "trunnion-runtime-core", 14.0), ("trunnion-host", "trunnion", 32.0)]
    {
        let ours = vec![count(package)? as f64];
        run.report(Case { case, ours, unit: "crates", peer: None, target: Some(target) });
    }
    Ok(())
}

/// Unique crates that `cargo build` of a package compiles for this machine, itself and build dependencies included.
fn count(package: &str) -> Result<usize, Box<dyn Error>> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let args =
        ["tree", "--manifest-path", manifest, "--edges", "normal,build", "--prefix", "none", "--package", package];
    let output = Command::new(env!("CARGO")).args(args).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let crates: BTreeSet<_> =
        text.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty()).collect();
    Ok(crates.len())
}
