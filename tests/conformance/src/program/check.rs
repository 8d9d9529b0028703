//! A program on a device against the model.

use super::{Budget, Recipe, THREADS, keep, model, replay_on_threads, set_variant, shrink, with_expectations};
use crate::check::{Failure, Outcome};
use crate::context::Context;
use crate::factory::Variant;
use crate::kernels::{self, BROKEN, TOO_MANY};
use core::time::Duration;
use trunnion_server_layers::program::{Program, Replayed};

/// Runs a program, on as many threads as it says, on a device of its own, and says how what it gives differs from the model.
///
/// # Errors
/// When there is no such device.
pub fn mismatch(cx: &Context, variant: &Variant, program: &Program) -> Outcome<Option<String>> {
    let expected = model(program).map_err(Failure::new)?;
    let client = cx.open(variant)?;
    let threads = program.setting(THREADS).and_then(|threads| threads.parse().ok()).unwrap_or(1);
    let seen = match replay_on_threads(program, &client, &kernels::table(), threads) {
        Ok(seen) => seen,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let differs = expected.difference(&seen).map(|difference| difference.table("model", "device"));
    Ok(differs.or_else(|| unknown_failure(&seen)))
}

/// A failure that no launch of the programs makes.
fn unknown_failure(seen: &Replayed) -> Option<String> {
    let failures = seen.reads.iter().chain(&seen.buffers).flat_map(|(_, observed)| &observed.failures);
    let mut others = failures.filter(|(_, why)| !why.contains(BROKEN) && !why.contains(TOO_MANY));
    others.next().map(|(_, why)| format!("a failure of another cause: {why}"))
}

/// Fails when a random program gives something else than the model. The program is then made small and kept.
///
/// # Errors
/// How it differs, and where the program is kept.
pub fn prove(cx: &Context, name: &str, variant: &Variant, recipe: Recipe) -> Outcome {
    let mut program = recipe.make();
    set_variant(&mut program, variant);
    let Some(mut how) = mismatch(cx, variant, &program)? else { return Ok(()) };
    let steps = program.steps.len();
    // What depends on the order in which threads come does not fail every time.
    let budget = Budget { time: Duration::from_secs(15), ..Budget::default() };
    let small = shrink(&program, budget, |program| {
        let seen = (0..2).find_map(|_| mismatch(cx, variant, program).ok().flatten());
        let fails = seen.is_some();
        how = seen.unwrap_or(core::mem::take(&mut how));
        fails
    });
    let whole = model(&small).map(|expected| with_expectations(&small, &expected)).map_err(Failure::new)?;
    let backend = cx.factory().name();
    let kept = match keep(&format!("{backend}-{name}-{}", recipe.seed), &whole) {
        Ok(path) => format!(
            "kept in {path}; again with: cargo run -p trunnion-conformance -- --backend {backend} --replay {path}",
            path = path.display()
        ),
        Err(error) => format!("it could not be kept: {error}\n{whole}"),
    };
    Err(Failure::new(format_args!(
        "seed {}: {how}\n{} of {steps} steps are enough, {kept}",
        recipe.seed,
        small.steps.len()
    )))
}
