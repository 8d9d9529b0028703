//! Contexts: a process's own of each device, others, and which one a thread uses.

use alloc::sync::Arc;

use super::pointers::{Host, Out};
use super::{exports, require};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::context::{self as contexts, Context};
use crate::driver::driver;
use crate::sync::lock;

/// Limits and configurations that can be set, and say back what was never used.
const STACK: usize = 1024;

fn create(out: Out<usize>, device: i32) -> Outcome {
    let context = Context::new(driver().device(device)?, false);
    contexts::push_current(context.handle);
    out.set(context.handle)
}

/// Waits for everything a context was asked; its error if something failed.
fn synchronise(context: &Arc<Context>) -> Outcome {
    capture::forbid_meanwhile(context)?;
    context.wait();
    context.check()
}

exports! {
    fn cuDevicePrimaryCtxRetain(out: Out<usize>, device: i32) {
        let device = driver().device(device)?;
        let mut primary = lock(&device.primary);
        let context = match &primary.context {
            Some(context) => context.clone(),
            None => Context::new(device.clone(), true),
        };
        out.set(context.handle)?;
        primary.context = Some(context);
        primary.retained += 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        let device = driver().device(device)?;
        let mut primary = lock(&device.primary);
        if primary.retained == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        primary.retained -= 1;
        if primary.retained == 0
            && let Some(context) = primary.context.take()
        {
            context.wait();
            context.close();
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        let device = driver().device(device)?;
        let mut primary = lock(&device.primary);
        if let Some(context) = primary.context.take() {
            context.wait();
            context.close();
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let device = driver().device(device)?;
        flags.set(0)?;
        active.set(i32::from(lock(&device.primary).context.is_some()))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, _flags: u32) {
        driver().device(device).map(drop)
    }

    fn cuCtxCreate_v2(out: Out<usize>, _flags: u32, device: i32) {
        create(out, device)
    }

    fn cuCtxCreate_v3(out: Out<usize>, _parameters: Host, count: i32, _flags: u32, device: i32) {
        require(count == 0)?;
        create(out, device)
    }

    fn cuCtxCreate_v4(out: Out<usize>, parameters: Host, _flags: u32, device: i32) {
        // Affinities and compute partitions are not played.
        if !parameters.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        create(out, device)
    }

    fn cuCtxDestroy_v2(handle: usize) {
        let context = driver().contexts.get(handle).map_err(|_| Code::INVALID_CONTEXT)?;
        if context.is_primary {
            return Err(Code::INVALID_CONTEXT);
        }
        context.wait();
        context.close();
        if contexts::current_handle() == handle {
            contexts::pop_current()?;
        }
        Ok(())
    }

    fn cuCtxSetCurrent(handle: usize) {
        if handle != 0 {
            driver().contexts.get(handle).map_err(|_| Code::INVALID_CONTEXT)?;
        }
        contexts::set_current(handle);
        Ok(())
    }

    fn cuCtxGetCurrent(out: Out<usize>) {
        out.set(contexts::current_handle())
    }

    fn cuCtxPushCurrent_v2(handle: usize) {
        driver().contexts.get(handle).map_err(|_| Code::INVALID_CONTEXT)?;
        contexts::push_current(handle);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(out: Out<usize>) {
        let handle = contexts::pop_current()?;
        out.set_if_wanted(handle);
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<i32>) {
        device.set(contexts::current_or_broken()?.device.ordinal as i32)
    }

    fn cuCtxGetApiVersion(handle: usize, version: Out<u32>) {
        if handle != 0 {
            driver().contexts.get(handle).map_err(|_| Code::INVALID_CONTEXT)?;
        }
        version.set(3020)
    }

    fn cuCtxSynchronize() {
        synchronise(&contexts::current()?)
    }

    fn cuCtxGetFlags(flags: Out<u32>) {
        contexts::current()?;
        flags.set(0)
    }

    fn cuCtxSetFlags(_flags: u32) {
        contexts::current().map(drop)
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        contexts::current()?;
        require(limit < 16)?;
        value.set(STACK)
    }

    fn cuCtxSetLimit(limit: u32, _value: usize) {
        contexts::current()?;
        require(limit < 16)
    }

    fn cuCtxGetCacheConfig(config: Out<u32>) {
        contexts::current()?;
        config.set(0)
    }

    fn cuCtxSetCacheConfig(config: u32) {
        contexts::current()?;
        require(config < 4)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        contexts::current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() {
        contexts::current().map(drop)
    }
}
