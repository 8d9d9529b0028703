//! Executing kernels: block after block, each thread a place in the code and its registers.

mod barrier;
mod block;
mod call;
mod copy;
mod mbarrier;
mod memory;
mod print;
mod shared;
mod step;
mod thread;
mod warp;

use crate::codes::{Code, Fault};
use crate::memory::Access;
use crate::ptx::{Function, Module};
use block::Block;

/// Threads of a warp.
pub(crate) const WARP: usize = 32;

/// One launch, whose parameters were checked.
pub(crate) struct Launch<'a> {
    pub(crate) module: &'a Module,
    /// Index of the kernel.
    pub(crate) kernel: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory beyond what the kernel declares.
    pub(crate) dynamic_shared: u32,
    pub(crate) parameters: &'a [u8],
    /// Instructions of all threads together, after which the launch counts as endless.
    pub(crate) limit: u64,
    /// Blocks may wait for each other, so all are there at once.
    pub(crate) is_cooperative: bool,
}

impl Launch<'_> {
    fn function(&self) -> &Function {
        &self.module.functions[self.kernel]
    }

    fn blocks(&self) -> impl Iterator<Item = [u32; 3]> {
        let [x, y, z] = self.grid;
        (0..z).flat_map(move |bz| (0..y).flat_map(move |by| (0..x).map(move |bx| [bx, by, bz])))
    }

    fn too_long(&self) -> Fault {
        let why = format!("kernel {} has not ended after {} instructions", self.function().name, self.limit);
        Fault::new(Code::LAUNCH_TIMEOUT, why)
    }
}

/// Runs a launch to its end; how many instructions that took.
pub(crate) fn run(launch: &Launch<'_>, access: &mut Access<'_>) -> Result<u64, Fault> {
    if launch.is_cooperative {
        return run_together(launch, access);
    }
    let mut block = Block::new(launch);
    let mut before = 0;
    for at in launch.blocks() {
        block.begin(at);
        while !block.is_done() {
            block.round(access)?;
            if before + block.executed() > launch.limit {
                return Err(launch.too_long());
            }
        }
        before += block.executed();
    }
    Ok(before)
}

/// All blocks in turns, a few instructions of each thread at a time.
fn run_together(launch: &Launch<'_>, access: &mut Access<'_>) -> Result<u64, Fault> {
    let mut blocks: Vec<_> = launch
        .blocks()
        .map(|at| {
            let mut block = Block::new(launch);
            block.begin(at);
            block
        })
        .collect();
    loop {
        for block in blocks.iter_mut().filter(|block| !block.is_done()) {
            block.round(access)?;
        }
        let executed = blocks.iter().map(Block::executed).sum();
        if blocks.iter().all(Block::is_done) {
            return Ok(executed);
        }
        if executed > launch.limit {
            return Err(launch.too_long());
        }
    }
}
