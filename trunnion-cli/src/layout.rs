//! The pools that a trace is replayed on, as they are named on the command line.

use core::error::Error;
use core::str::FromStr;
use std::fs;
use std::path::PathBuf;
use trunnion_memory_pools::PoolsConfig;
use trunnion_memory_pools::trace::Trace;
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::text::size;

/// Pools by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Those that the trace was recorded on.
    Recorded,
    /// A layout that the library has.
    Named(String, PoolLayout),
    /// Those of another trace.
    File(PathBuf),
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "recorded" => Self::Recorded,
            "adaptive" => Self::Named(name.to_string(), PoolLayout::adaptive()),
            "slabs" => Self::Named(name.to_string(), PoolLayout::slabs()),
            "exclusive" => Self::Named(name.to_string(), PoolLayout::exclusive()),
            _ => match name.strip_prefix("fixed:") {
                Some(page) => {
                    let bytes = size(page).ok_or_else(|| format!("`{page}` is no size such as `64MiB`"))?;
                    Self::Named(name.to_string(), PoolLayout::fixed(bytes).map_err(|error| error.to_string())?)
                }
                None => Self::File(name.into()),
            },
        })
    }
}

impl Layout {
    /// What it is called in a table.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Recorded => "recorded".to_string(),
            Self::Named(name, _) => name.clone(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// How the pools are set up for a trace: but for a layout by name or another trace's, as the trace says they were.
    ///
    /// # Errors
    /// A file that cannot be read, or says nothing of pools.
    pub(crate) fn config(&self, trace: &Trace) -> Result<PoolsConfig, Box<dyn Error>> {
        let recorded = trace.pools.clone().unwrap_or_default();
        Ok(match self {
            Self::Recorded => recorded,
            Self::Named(_, layout) => PoolsConfig { layout: layout.clone(), ..recorded },
            Self::File(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| format!("cannot read {}, which is no layout's name: {error}", path.display()))?;
                let (other, _) = Trace::salvage(&text).map_err(|error| format!("{}: {error}", path.display()))?;
                other.pools.ok_or_else(|| format!("{} does not say what pools it was recorded on", path.display()))?
            }
        })
    }
}
