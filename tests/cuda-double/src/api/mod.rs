//! The driver's functions, under the names and with the arguments that programs know.
//!
//! Each counts as a call, fails where a test wants it, and turns what went wrong into its code. No panic crosses.

#![allow(unsafe_code, reason = "functions are exported by name")]
#![allow(non_snake_case, reason = "the names are CUDA's")]

mod capture;
mod context;
mod controls;
mod copy;
mod device;
mod event;
mod function;
mod graph;
mod graph_nodes;
mod launch;
mod mapping;
mod memory;
mod module;
mod peer;
mod pointers;
mod pool;
mod stream;
mod tensor;

use alloc::sync::Arc;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use crate::codes::{Code, Outcome};
use crate::context::{self as contexts, Context};
use crate::driver::driver;
use crate::stream::Stream;

/// Functions of the driver: each counted, each giving a code.
macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $kind),*) -> $crate::codes::Code {
            $crate::api::call(stringify!($name), || -> $crate::codes::Outcome { $body })
        }
    )* };
}
use exports;

/// What works before `cuInit`.
const ALWAYS: [&str; 5] = ["cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetExportTable"];

/// One call: counted, refused where it is to fail, and carried out.
fn call(name: &'static str, body: impl FnOnce() -> Outcome) -> Code {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        gate(name)?;
        body()
    }));
    match outcome {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    }
}

fn gate(name: &'static str) -> Outcome {
    let context = contexts::current_or_broken().ok();
    let calls = context.as_ref().map_or(&driver().calls, |context| &context.device.calls);
    if let Some(code) = calls.count(name) {
        if let Some(context) = context.filter(|_| code.is_sticky()) {
            context.break_with(code);
        }
        return Err(code);
    }
    if driver().is_ready() || ALWAYS.contains(&name) { Ok(()) } else { Err(Code::NOT_INITIALIZED) }
}

/// [`Code::INVALID_VALUE`] unless something holds.
fn require(holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Handles of streams that stand for one without being made. Equivalent to: `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// The stream of a handle, and this thread's context, which must be whole.
fn stream_of(handle: usize) -> Outcome<Arc<Stream>> {
    let context = contexts::current()?;
    stream_in(&context, handle)
}

fn stream_in(context: &Arc<Context>, handle: usize) -> Outcome<Arc<Stream>> {
    match handle {
        0 | LEGACY => context.legacy_stream(),
        PER_THREAD => contexts::own_stream(context),
        _ => {
            let stream = driver().streams.get(handle)?;
            stream.context.check()?;
            Ok(stream)
        }
    }
}
