//! Compiling several kernels at the same time, for drivers whose compilers bear it.

use crate::driver::CompileJob;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZero;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use trunnion_runtime_core::error::{Error, Result};

/// As many compilations as the machine has cores for.
pub fn at_once() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Compiles several kernels on as many threads as there are cores for, the caller's among them. The answers are in the jobs' order.
pub fn compile_together<T: Send>(
    jobs: &[CompileJob<'_>],
    compile: impl Fn(&CompileJob<'_>) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let answers: Vec<Mutex<Option<_>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((job, answer)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(i).zip(answers.get(i))
        } {
            let compiled = compile(job);
            *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(compiled);
        }
    };
    thread::scope(|scope| {
        for _ in 1..at_once().min(jobs.len()) {
            // Where the system gives no thread, the others compile its share.
            let _ = thread::Builder::new().name("trunnion-compile".into()).spawn_scoped(scope, work);
        }
        work();
    });
    let missing = || Err(Error::Panicked { what: "a compilation".into(), message: String::from("it gave no answer") });
    answers
        .into_iter()
        .map(|answer| answer.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(missing))
        .collect()
}
