//! The values of a kernel's constants, held against the `override` declarations of its text.

use crate::explain::invalid;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use naga::back::PipelineConstants;
use naga::{Module, Override, Scalar, ScalarKind, TypeInner};
use trunnion_runtime_core::error::Result;

/// The values, each under the name by which the compiler looks for it.
///
/// # Errors
/// [`Error::InvalidKernel`](trunnion_runtime_core::error::Error::InvalidKernel) for a constant that the text does not have, has with a
/// type that the value does not fit, or has twice, and for one that has no value.
pub(crate) fn values(kernel: &str, module: &Module, constants: &[(String, f64)]) -> Result<PipelineConstants> {
    let mut values = PipelineConstants::default();
    for (name, value) in constants {
        let named =
            |known: &&Override| known.name.as_ref() == Some(name) || known.id.is_some_and(|id| id.to_string() == *name);
        let Some(known) = module.overrides.iter().map(|(_, known)| known).find(named) else {
            return Err(invalid(kernel, format!("there is no `override {name}` in its text; {}", there_are(module))));
        };
        let TypeInner::Scalar(scalar) = module.types[known.ty].inner else {
            return Err(invalid(kernel, format!("`override {name}` is no number and no truth value")));
        };
        if let Some(range) = refused(scalar, *value) {
            return Err(invalid(
                kernel,
                format!("constant `{name}` is {value:?}, and `override {name}` takes {range}"),
            ));
        }
        if values.insert(key(known), *value).is_some() {
            return Err(invalid(kernel, format!("constant `{name}` is given by name and by number")));
        }
    }
    let lacks = |known: &&Override| known.init.is_none() && !values.contains_key(&key(known));
    if let Some(open) = module.overrides.iter().map(|(_, known)| known).find(lacks) {
        let name = open.name.clone().unwrap_or_else(|| key(open));
        return Err(invalid(kernel, format!("`override {name}` has no value; the kernel gives one as a constant")));
    }
    Ok(values)
}

/// What the compiler looks for.
fn key(known: &Override) -> String {
    known.id.map(|id| id.to_string()).or_else(|| known.name.clone()).unwrap_or_default()
}

/// What the type takes, where it does not take the value.
fn refused(scalar: Scalar, value: f64) -> Option<String> {
    let (from, to) = match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) | (ScalarKind::Float, 8) => return None,
        (ScalarKind::Float, 4) => (f64::from(f32::MIN), f64::from(f32::MAX)),
        (ScalarKind::Float, 2) => (-65504.0, 65504.0),
        (ScalarKind::Sint, 4) => (f64::from(i32::MIN), f64::from(i32::MAX)),
        (ScalarKind::Uint, 4) => (0.0, f64::from(u32::MAX)),
        _ => return Some("no value from outside: it has 64 bits".into()),
    };
    let whole = matches!(scalar.kind, ScalarKind::Sint | ScalarKind::Uint);
    // Written so that what is no number is refused too.
    let fits = from <= value && value <= to && (!whole || value == (value as i64) as f64);
    (!fits).then(|| format!("{} from {from} to {to}", if whole { "a whole number" } else { "a number" }))
}

fn there_are(module: &Module) -> String {
    // Expressions of overrides are among them, without a name.
    let named = module.overrides.iter().filter_map(|(_, known)| known.name.as_deref());
    match &named.collect::<Vec<_>>()[..] {
        [] => "it has none".into(),
        names => format!("there are: {}", names.join(", ")),
    }
}
