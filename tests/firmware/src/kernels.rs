//! The kernels that checks launch.

use trunnion_runtime_core::error::KernelFault;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

/// Elements a workgroup has for itself.
pub(crate) const PART: usize = 16;
/// Bytes a workgroup has for itself.
pub(crate) const PART_BYTES: u64 = 4 * PART as u64;

/// Adds a number to every element.
pub(crate) fn add() -> SourceKernel {
    let interface = Interface::new().partition(PART_BYTES).parameters_of::<u32>();
    SourceKernel::new("add", interface).source(Source::host(|group| {
        let number: u32 = group.parameters()?;
        group.part::<u32>(0)?.iter_mut().for_each(|x| *x = x.wrapping_add(number));
        Ok(())
    }))
}

/// Replaces the second buffer by twice the first.
pub(crate) fn double() -> SourceKernel {
    let interface = Interface::new().read().overwrite(PART_BYTES);
    SourceKernel::new("double", interface).source(Source::host(|group| {
        let (from, range) = (group.read::<u32>(0)?, group.part_range::<u32>(1)?);
        group.part::<u32>(1)?.iter_mut().zip(&from[range]).for_each(|(to, from)| *to = 2 * from);
        Ok(())
    }))
}

/// Fails in every workgroup.
pub(crate) fn fails() -> SourceKernel {
    SourceKernel::new("fails", Interface::new().partition(PART_BYTES))
        .source(Source::host(|_| Err(KernelFault::Message("on purpose".into()))))
}
