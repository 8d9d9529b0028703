//! What stands for the workloads on Vulkan in a build without feature `vulkan`: their cases, not run.

use crate::harness::Run;
use std::error::Error;

const WHY: &str = "built without feature `vulkan`";

pub fn dispatch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    run.not_run("vulkan", WHY);
    Ok(())
}

pub fn start(run: &mut Run) -> Result<(), Box<dyn Error>> {
    run.not_run("vulkan", WHY);
    Ok(())
}

pub fn transfer(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let cases = ["vulkan-upload-64MiB", "vulkan-download-64MiB", "vulkan-upload-4KiB"];
    cases.iter().for_each(|case| run.not_run(case, WHY));
    Ok(())
}
