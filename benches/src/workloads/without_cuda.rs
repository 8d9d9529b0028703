//! What stands for the workloads on a GPU by CUDA in a build without feature `cuda`: their cases, not run.

use crate::harness::Run;
use std::error::Error;

const WHY: &str = "built without feature `cuda`";

pub fn launch(run: &mut Run) -> Result<(), Box<dyn Error>> {
    run.not_run("launch", WHY);
    Ok(())
}

pub fn pool_hit(run: &mut Run) -> Result<(), Box<dyn Error>> {
    run.not_run("pool-hit", WHY);
    Ok(())
}

pub fn pinned_upload(run: &mut Run) -> Result<(), Box<dyn Error>> {
    run.not_run("pinned-upload", WHY);
    Ok(())
}
