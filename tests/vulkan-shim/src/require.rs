//! What a run demands to be there, so that tests without a device do not pass by doing nothing; and whose turn it is to have devices.

use alloc::string::String;
use alloc::vec::Vec;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names the devices that must be there: backends, each perhaps with a part of an adapter's name, such as `vulkan:llvmpipe`.
const REQUIRE: &str = "TRUNNION_REQUIRE";

/// Whether a run demands any Vulkan device.
pub fn is_required() -> bool {
    asked().next().is_some()
}

/// Fails a test where `TRUNNION_REQUIRE` demands a Vulkan device whose adapter is none of these. Case does not matter.
///
/// # Panics
/// Then, with both.
#[track_caller]
pub fn require<A: AsRef<str>>(adapters: &[A]) {
    let adapters: Vec<&str> = adapters.iter().map(A::as_ref).collect();
    for name in asked() {
        let there = adapters.iter().any(|adapter| adapter.to_lowercase().contains(&name));
        assert!(there, "{REQUIRE} demands vulkan:{name}, and there are {adapters:?}");
    }
}

/// Held for as long as a test has a device. The validation layer finds its own state in a table without a lock, which changes when a device is
/// made or destroyed (KhronosGroup/Vulkan-ValidationLayers issue 4391): none comes or goes beside another test's at work.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For each Vulkan device that is demanded the part of its adapter's name, in lower case.
fn asked() -> impl Iterator<Item = String> {
    let text = std::env::var(REQUIRE).unwrap_or_default();
    let names: Vec<String> = text.split(',').filter_map(|asked| part(asked.trim())).collect();
    names.into_iter()
}

fn part(asked: &str) -> Option<String> {
    let (backend, name) = asked.split_once(':').unwrap_or((asked, ""));
    (backend == "vulkan").then(|| name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_vulkan_devices_are_looked_for_and_any_where_none_is_named() {
        assert_eq!(part("vulkan:SwiftShader").as_deref(), Some("swiftshader"));
        assert_eq!(part("vulkan").as_deref(), Some(""));
        assert_eq!((part("host"), part("cuda:vulkan"), part("")), (None, None, None));
    }
}
