//! Kernels: what they need, and how many blocks of them fit.

use super::pointers::{In, Out};
use super::{exports, require};
use crate::codes::{Code, Outcome};
use crate::device::{CAPABILITY, MULTIPROCESSORS};
use crate::driver::driver;
use crate::occupancy;

/// Dynamic shared memory by block size, as a function of the program. Equivalent to: `CUoccupancyB2DSize`.
type SharedBySize = Option<unsafe extern "C" fn(i32) -> usize>;

fn best(grid: Out<i32>, block: Out<i32>, kernel: usize, by_size: SharedBySize, shared: usize, limit: i32) -> Outcome {
    let kernel = driver().kernels.get(kernel)?;
    require(limit >= 0)?;
    let shared_of = |threads: u32| match by_size {
        // SAFETY: the caller of the driver promised a function that gives a size for any block size.
        Some(by_size) => unsafe { by_size(threads as i32) as u32 },
        None => shared as u32,
    };
    let (threads, blocks) = occupancy::best(&kernel, limit as u32, shared_of);
    grid.set((blocks * MULTIPROCESSORS) as i32)?;
    block.set(threads as i32)
}

fn active(out: Out<i32>, kernel: usize, threads: i32, shared: usize) -> Outcome {
    let kernel = driver().kernels.get(kernel)?;
    require(threads > 0)?;
    out.set(occupancy::blocks(&kernel, threads as u32, shared as u32) as i32)
}

exports! {
    fn cuFuncGetAttribute(out: Out<i32>, attribute: u32, kernel: usize) {
        let kernel = driver().kernels.get(kernel)?;
        let function = kernel.function();
        let capability = (CAPABILITY.0 * 10 + CAPABILITY.1) as i32;
        out.set(match attribute {
            0 => kernel.most_threads() as i32,
            1 => function.shared_bytes as i32,
            3 => function.local_bytes as i32,
            // Registers as PTX has them say nothing of hardware's.
            4 => 32,
            5 | 6 => capability,
            8 => kernel.dynamic_limit() as i32,
            2 | 7 | 9..=15 => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    fn cuFuncSetAttribute(kernel: usize, attribute: u32, value: i32) {
        let kernel = driver().kernels.get(kernel)?;
        match attribute {
            8 => kernel.set_dynamic_limit(value),
            // How memory is split between cache and shared memory is not played.
            9 => require((-1..=100).contains(&value)),
            10..=15 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuFuncSetCacheConfig(kernel: usize, config: u32) {
        driver().kernels.get(kernel)?;
        require(config < 4)
    }

    fn cuFuncGetModule(out: Out<usize>, kernel: usize) {
        out.set(driver().kernels.get(kernel)?.loaded.handle)
    }

    fn cuFuncGetParamInfo(kernel: usize, index: usize, offset: Out<usize>, size: Out<usize>) {
        let kernel = driver().kernels.get(kernel)?;
        let parameter = kernel.function().inputs.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.set(parameter.offset)?;
        size.set_if_wanted(parameter.size);
        Ok(())
    }

    fn cuFuncIsLoaded(state: Out<u32>, kernel: usize) {
        driver().kernels.get(kernel)?;
        state.set(1)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, kernel: usize, threads: i32, shared: usize) {
        active(out, kernel, threads, shared)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, kernel: usize, threads: i32, shared: usize, flags: u32) {
        require(flags < 2)?;
        active(out, kernel, threads, shared)
    }

    fn cuOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, kernel: usize, by_size: SharedBySize, shared: usize, limit: i32) {
        best(grid, block, kernel, by_size, shared, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, kernel: usize, by_size: SharedBySize, shared: usize, limit: i32, flags: u32,
    ) {
        require(flags < 2)?;
        best(grid, block, kernel, by_size, shared, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, kernel: usize, blocks: i32, threads: i32) {
        let kernel = driver().kernels.get(kernel)?;
        require(blocks > 0 && threads > 0)?;
        out.set(occupancy::available_shared(&kernel, blocks as u32) as usize)
    }

    fn cuOccupancyMaxPotentialClusterSize(_out: Out<i32>, kernel: usize, _config: In<u8>) {
        driver().kernels.get(kernel)?;
        Err(Code::NOT_SUPPORTED)
    }

    fn cuOccupancyMaxActiveClusters(_out: Out<i32>, kernel: usize, _config: In<u8>) {
        driver().kernels.get(kernel)?;
        Err(Code::NOT_SUPPORTED)
    }
}
