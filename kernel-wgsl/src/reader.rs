//! The reader of a device that takes WGSL.

use crate::capabilities::Capabilities;
use crate::module::Module;
use alloc::sync::Arc;
use alloc::vec::Vec;
use trunnion_runtime_core::error::{Result, SourceForm};
use trunnion_runtime_core::kernel::{Kernel, KernelReader, Reading, Source};

/// The reader of a device that takes WGSL. It reads each text once, on the caller's thread: what came of it is a [`Module`] that the
/// kernel's handle holds. Of sources in other forms what is declared counts.
///
/// Reading takes a fraction of a millisecond, more for long texts, and up to 1 MiB of stack; a text that takes more is read on a thread of
/// its own (without `std` it is refused).
#[derive(Clone, Debug)]
pub struct Reader {
    takes: Vec<SourceForm>,
    capabilities: Capabilities,
}

impl Reader {
    /// A reader for a device that takes these forms, best first, and has what WGSL code may use beyond its core.
    pub fn new(takes: Vec<SourceForm>, capabilities: Capabilities) -> Self {
        Self { takes, capabilities }
    }
}

impl KernelReader for Reader {
    fn takes(&self) -> &[SourceForm] {
        &self.takes
    }

    fn read(&self, kernel: &dyn Kernel, source: &Source) -> Result<Reading> {
        match source.as_text() {
            Some(text) if source.form() == SourceForm::Wgsl => {
                let (module, interface, workgroup) = Module::read(kernel, text, self.capabilities)?;
                Ok(Reading { interface, workgroup, parsed: Some(Arc::new(module)) })
            }
            _ => Reading::declared(kernel),
        }
    }
}
