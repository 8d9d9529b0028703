//! What a recorder of launches saw.

use super::{KernelId, LaunchMode};
use crate::server::CompileStatistics;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A kernel that was launched while a recorder was open. The modes of one kernel are listed apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LaunchedKernel {
    /// What errors and logs call it.
    pub name: String,
    /// Tells it from others of the same name.
    pub id: KernelId,
    /// What became of the launches.
    pub mode: LaunchMode,
    /// How many there were.
    pub launches: u64,
}

/// The launches of a device during some time, and what became of the kernels that were compiled in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LaunchRecord {
    /// The kernels, in the order of their first launches.
    pub kernels: Vec<LaunchedKernel>,
    /// What the cache of compiled code did in this time. What other threads compiled just as it began or ended may be counted too.
    pub compilation: CompileStatistics,
}

impl LaunchRecord {
    /// How many launches there were in a mode.
    pub fn launches(&self, mode: LaunchMode) -> u64 {
        self.kernels.iter().filter(|kernel| kernel.mode == mode).map(|kernel| kernel.launches).sum()
    }
}

/// A line a kernel, and one for the compiler.
impl fmt::Display for LaunchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for LaunchedKernel { name, id, mode, launches } in &self.kernels {
            writeln!(f, "{launches:>9} {mode:<12} {id} {name}")?;
        }
        let CompileStatistics { compiled, failed, from_disk, damaged } = &self.compilation;
        write!(f, "{compiled} compiled, {from_disk} from disk ({} damaged), {failed} failed", damaged.len())
    }
}
