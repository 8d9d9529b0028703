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

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use trunnion_runtime_core::error::Error;

    #[test]
    fn a_text_deeper_than_it_may_be_is_refused_with_its_line_and_the_limit() {
        assert_eq!(check("k", Depth { stack: MOST, line: 3 }), Ok(()));
        let error = check("k", Depth { stack: MOST + 1, line: 3 }).unwrap_err();
        let why =
            "its text goes too deep at line 3: reading it takes up to 16777217 bytes of stack, and may take 16777216";
        assert_eq!(error, Error::InvalidKernel { kernel: "k".into(), why: why.into() });
    }

    #[test]
    fn a_panic_is_an_error_of_the_kernel_on_the_callers_stack_and_on_another() {
        for stack in [0, 2 * USUAL] {
            let error = run::<()>("k", Depth { stack, line: 1 }, || panic!("on {}", "purpose")).unwrap_err();
            assert_eq!(error.to_string(), "the WGSL compiler, on kernel `k`, panicked: on purpose");
        }
    }

    #[test]
    fn what_takes_more_stack_has_another() {
        fn deep(n: usize) -> usize {
            let here = core::hint::black_box([n; 128]);
            if n == 0 { here[0] } else { deep(n - 1) + here[1] - n + 1 }
        }
        let levels = 4096;
        // More than the stack of a test's thread holds.
        assert_eq!(run("k", Depth { stack: 8 << 20, line: 1 }, || Ok(deep(levels))), Ok(levels));
    }
}
