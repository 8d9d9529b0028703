//! The memory that an invocation has of its own: the variables of functions, and `var<private>`.
//!
//! No device says how much of it there is, and drivers that run on the processor do not answer within any deadline once it is much: with
//! 1 MiB for one invocation one was still silent after 30 seconds. The time one of them takes grows with the square of it: a loop
//! over an array of 2 KiB was compiled in 4 seconds, of 4 KiB in 18, of 8 KiB not in a minute; with a barrier behind the loop in 0.4, 1.8 and
//! 6. So there is a limit, and it is what WGSL lets the variables of a function have: less would refuse what runs everywhere else. It
//! bounds what a driver is given, and does not promise that it is quick with all below. Functions are taken to be inlined, as compilers
//! of kernels do, so that the variables of one that is called twice count twice.

use crate::explain::invalid;
use alloc::format;
use alloc::vec::Vec;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{AddressSpace, Block, Expression, Function, GlobalVariable, Handle, Module, Statement, TypeInner};
use trunnion_runtime_core::error::Result;

/// The most bytes of an invocation's own memory, and of one value.
const MOST_BYTES: u64 = 8 << 10;

/// The most functions there are when each call is replaced by what it calls.
const MOST_CALLS: u64 = 1 << 14;

/// What a function takes, with all that it calls in place of the calls.
#[derive(Clone, Copy, Default)]
struct Cost {
    bytes: u64,
    calls: u64,
    /// Bytes of the largest value.
    value: u64,
}

/// Refuses code that takes more than it may.
///
/// # Errors
/// [`Error::InvalidKernel`](trunnion_runtime_core::error::Error::InvalidKernel).
pub(crate) fn check(kernel: &str, module: &Module, info: &ModuleInfo) -> Result<()> {
    let Some(entry) = module.entry_points.first() else { return Ok(()) };
    let of_entry = info.get_entry_point(0);
    // A function comes behind those that it calls.
    let mut costs = Vec::with_capacity(module.functions.len());
    for (handle, function) in module.functions.iter() {
        costs.push(cost(module, function, &info[handle], &costs));
    }
    let all = cost(module, &entry.function, of_entry, &costs);
    let is_used = |handle: Handle<GlobalVariable>| !of_entry[handle].is_empty();
    let private = module.global_variables.iter();
    let private = private.filter(|(handle, variable)| variable.space == AddressSpace::Private && is_used(*handle));
    let bytes = private
        .fold(all.bytes, |sum, (_, variable)| sum.saturating_add(size(module, &module.types[variable.ty].inner)));
    for (what, found, most) in [
        ("its variables, but for those of the workgroup, have bytes", bytes, MOST_BYTES),
        ("a value of its code has bytes", all.value, MOST_BYTES),
        ("each call in place of what it calls, it has functions", all.calls, MOST_CALLS),
    ] {
        if found > most {
            return Err(invalid(kernel, format!("{what}: {found}, and may have {most}")));
        }
    }
    Ok(())
}

fn cost(module: &Module, function: &Function, info: &FunctionInfo, known: &[Cost]) -> Cost {
    let variables = function.local_variables.iter().map(|(_, variable)| size(module, &module.types[variable.ty].inner));
    let values = function.expressions.iter().map(|(handle, _)| info[handle].ty.inner_with(&module.types));
    let arrays = values.filter(|inner| matches!(inner, TypeInner::Array { .. } | TypeInner::Struct { .. }));
    // A value is put into a variable to be indexed by what is not known before.
    let indexed = function.expressions.iter().filter_map(|(_, expression)| match expression {
        Expression::Access { base, .. } => Some(info[*base].ty.inner_with(&module.types)),
        _ => None,
    });
    let indexed = indexed.filter(|inner| matches!(inner, TypeInner::Array { .. })).map(|inner| size(module, inner));
    let mut cost = Cost {
        bytes: variables.chain(indexed).fold(0, u64::saturating_add),
        calls: 1,
        value: arrays.map(|inner| size(module, inner)).max().unwrap_or(0),
    };
    called(&function.body, &mut |callee| {
        let of = known.get(callee).copied().unwrap_or_default();
        cost.bytes = cost.bytes.saturating_add(of.bytes);
        cost.calls = cost.calls.saturating_add(of.calls);
        cost.value = cost.value.max(of.value);
    });
    cost
}

/// Calls `each` with the place of every function that is called, as often as it stands in the code.
fn called(block: &Block, each: &mut dyn FnMut(usize)) {
    for statement in block {
        match statement {
            Statement::Call { function, .. } => each(function.index()),
            Statement::Block(inner) => called(inner, each),
            Statement::If { accept, reject, .. } => {
                called(accept, each);
                called(reject, each);
            }
            Statement::Switch { cases, .. } => cases.iter().for_each(|case| called(&case.body, each)),
            Statement::Loop { body, continuing, .. } => {
                called(body, each);
                called(continuing, each);
            }
            _ => {}
        }
    }
}

/// More than there can be for a type that is too large to have a size.
fn size(module: &Module, inner: &TypeInner) -> u64 {
    inner.try_size(module.to_ctx()).map_or(u64::MAX, u64::from)
}
