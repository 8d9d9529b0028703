//! The settings there are, and what their values can be.

use super::Config;
use super::value;
use crate::device::Device;
use crate::executor::{Config as Executor, Execution};
use crate::pool_layout::PoolLayout;
use crate::service::BoundsPolicy;
use alloc::borrow::Cow;
use alloc::string::ToString;
use trunnion_runtime_core::text::{size, time};
use trunnion_server_layers::ParseLayersError;

/// The settings' names.
pub(super) const NAMES: [&str; 14] = [
    "backend",
    "bounds",
    "drop_timeout",
    "dry_run",
    "execution",
    "kernel_cache",
    "layers",
    "memory_budget",
    "memory_pools",
    "memory_trace",
    "ring",
    "spin",
    "staging_limit",
    "wait_timeout",
];

const SIZE: &str = "a number of bytes, a whole number with KiB, MiB, GiB or TiB, or 0 for no budget";
const STAGING: &str = "a number of bytes, a whole number with KiB, MiB, GiB or TiB, or 0 for no limit";
const RING: &str = if usize::BITS >= 64 { "a size from 4KiB to 1GiB" } else { "a size from 4KiB to 256MiB" };

const POOLS: &str = "adaptive, slabs, exclusive, fixed:SIZE with the size of a page, or 0 for adaptive";

/// The layout of pools that a text names.
fn pools(text: &str) -> Option<PoolLayout> {
    match text {
        "adaptive" => Some(PoolLayout::adaptive()),
        "slabs" => Some(PoolLayout::slabs()),
        "exclusive" => Some(PoolLayout::exclusive()),
        off if value::is_off(off) => Some(PoolLayout::adaptive()),
        fixed => PoolLayout::fixed(size(fixed.strip_prefix("fixed:")?)?).ok(),
    }
}

/// Sets what is named so; what is not valid is answered with what is.
pub(super) fn assign(config: &mut Config, key: &str, text: &str) -> Result<(), Cow<'static, str>> {
    let settings = &mut config.settings;
    match key {
        "backend" => {
            let valid = "`backend`, `backend:index`, `backend:part of the adapter's name`, or 0 for the best device";
            config.device = if value::is_off(text) { None } else { Some(Device::parse(text).map_err(|_| valid)?) };
        }
        "bounds" => {
            settings.bounds = match text {
                "auto" => BoundsPolicy::Auto,
                "enforce" => BoundsPolicy::Enforce,
                "validate" => BoundsPolicy::Validate,
                off if value::is_off(off) => BoundsPolicy::Auto,
                _ => return Err("auto, enforce, validate, or 0 for auto".into()),
            }
        }
        "drop_timeout" => {
            settings.drop_timeout =
                value::time_or_off(text).ok_or("a whole number with us, ms or s, or 0 for no wait")?
        }
        "dry_run" => {
            settings.open.dry_run = match text {
                "true" | "on" | "1" => true,
                off if value::is_off(off) => false,
                _ => return Err("true, or 0 for a real run".into()),
            }
        }
        "execution" => {
            settings.executor.execution = match text {
                "runner" => Execution::Runner,
                "inline" => Execution::Inline,
                _ => return Err("runner, inline".into()),
            }
        }
        "kernel_cache" => {
            settings.open.kernel_cache = match text {
                "" => return Err("a directory, or 0 for none".into()),
                off if value::is_off(off) => None,
                directory => Some(directory.to_string()),
            }
        }
        "layers" => config.layers = text.parse().map_err(|error: ParseLayersError| error.to_string())?,
        "memory_budget" => settings.open.memory_budget = value::size_or_off(text).ok_or(SIZE)?,
        "memory_pools" => settings.open.memory_pools = pools(text).ok_or(POOLS)?,
        "memory_trace" => {
            config.memory_trace = match text {
                "" => return Err("a file, or 0 for none".into()),
                off if value::is_off(off) => None,
                file => Some(file.to_string()),
            }
        }
        "ring" => {
            let bytes = size(text).and_then(|bytes| usize::try_from(bytes).ok());
            let fits = bytes.filter(|bytes| (Executor::MIN_RING_BYTES..=Executor::MAX_RING_BYTES).contains(bytes));
            settings.executor.ring_bytes = fits.ok_or(RING)?;
        }
        "spin" => {
            settings.executor.spin = value::time_or_off(text).ok_or("a whole number with us, ms or s, or 0 for none")?
        }
        "staging_limit" => settings.staging_limit = value::size_or_off(text).ok_or(STAGING)?,
        "wait_timeout" => {
            let time = time(text).filter(|time| !time.is_zero());
            settings.wait_timeout = time.ok_or("a whole number of at least 1 with us, ms or s")?;
        }
        // Only names of `NAMES` come here.
        _ => return Err("no value: there is no such setting".into()),
    }
    Ok(())
}
