//! The program that asks for all that a driver does, on Vulkan.

use trunnion_driver_rig::program::{self, Came};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::kernel::SourceKernel;

const SCALE: &str = "
struct Parameters { a: u32, b: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> p: Parameters;
@compute @workgroup_size(64) fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&x) && id.x < arrayLength(&y) { y[id.x] = p.a * x[id.x] + p.b; }
}";

/// Runs the program, whatever fails. What is read of a fill is longer than most that goes through staging at once.
pub fn run(client: &Client) -> Came {
    program::run(client, SourceKernel::wgsl("scale", SCALE), 1 << 20)
}
