//! The compiler kept from its caller: a panic in it is an error of the kernel, and a deep text has a stack of its own.

use crate::depth::Depth;
use crate::explain::invalid;
use alloc::format;
use trunnion_runtime_core::error::Result;

/// The stack that any caller is taken to have left, in bytes.
const USUAL: usize = 1 << 20;

/// The most stack that a text may take, in bytes: what is that deep is not only slow to read, but to drop too.
#[cfg(feature = "std")]
const MOST: usize = 16 << 20;
/// There are no threads, and so no stack but the caller's.
#[cfg(not(feature = "std"))]
const MOST: usize = USUAL;

/// Refuses a text that is too deep.
///
/// # Errors
/// [`Error::InvalidKernel`](trunnion_runtime_core::error::Error::InvalidKernel).
pub(crate) fn check(kernel: &str, depth: Depth) -> Result<()> {
    let Depth { stack, line } = depth;
    if stack <= MOST {
        return Ok(());
    }
    let why = format!(
        "its text goes too deep at line {line}: reading it takes up to {stack} bytes of stack, and may take {MOST}"
    );
    Err(invalid(kernel, why))
}

/// Runs `compile` where it has as much stack as the text takes. Its panic becomes
/// [`Error::Panicked`](trunnion_runtime_core::error::Error::Panicked).
#[cfg(feature = "std")]
pub(crate) fn run<R: Send>(kernel: &str, depth: Depth, compile: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    use alloc::string::{String, ToString};
    use core::any::Any;
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;
    use std::thread;
    use trunnion_runtime_core::error::Error;

    let panicked = |payload: &(dyn Any + Send)| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::Panicked { what: format!("the WGSL compiler, on kernel `{kernel}`,"), message })
    };
    if depth.stack <= USUAL {
        return catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|payload| panicked(&*payload));
    }
    thread::scope(|scope| {
        let stack = 2 * depth.stack;
        let thread = thread::Builder::new().name("trunnion-wgsl".into()).stack_size(stack);
        match thread.spawn_scoped(scope, compile) {
            Ok(thread) => thread.join().unwrap_or_else(|payload| panicked(&*payload)),
            Err(error) => Err(crate::explain::not_compiled(
                kernel,
                format!("its text is deep, and there is no thread with {stack} bytes of stack: {error}"),
            )),
        }
    })
}

/// Runs `compile`. Without `std` panics cannot be caught.
#[cfg(not(feature = "std"))]
pub(crate) fn run<R>(_: &str, _: Depth, compile: impl FnOnce() -> Result<R>) -> Result<R> {
    compile()
}
