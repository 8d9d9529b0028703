//! How many crates a build of ours compiles.

use crate::harness::{Case, Run, Target};
use std::collections::BTreeSet;
use std::error::Error;
use std::process::Command;

/// Our builds that are counted: the case, the package, its features beside the default ones, and how many crates it may take.
pub const OURS: [(&str, &str, &[&str], f64); 3] = [
    ("runtime-core", "trunnion-runtime-core", &[], 14.0),
    ("trunnion-host", "trunnion", &[], 32.0),
    ("trunnion-vulkan", "trunnion", &["vulkan"], 58.0),
];

/// The workspace's manifest.
pub const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");

/// `build`: ours alone.
///
/// # Errors
/// cargo's own.
pub fn crates(run: &mut Run) -> Result<(), Box<dyn Error>> {
    for (case, package, features, target) in OURS {
        let ours = vec![count(MANIFEST, package, features)? as f64];
        run.report(Case { case, ours, unit: "crates", peer: None, target: Some(Target::Value(target)) });
    }
    Ok(())
}

/// Unique crates that `cargo build` of a package of that manifest compiles for this machine, with the package's default features
/// and these, itself and build dependencies included.
///
/// # Errors
/// cargo's own.
pub fn count(manifest: &str, package: &str, features: &[&str]) -> Result<usize, Box<dyn Error>> {
    let args =
        ["tree", "--manifest-path", manifest, "--edges", "normal,build", "--prefix", "none", "--package", package];
    let output = Command::new(env!("CARGO")).args(args).args(["--features", &features.join(",")]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let crates: BTreeSet<_> =
        text.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty()).collect();
    Ok(crates.len())
}
