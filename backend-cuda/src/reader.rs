//! What is read of a kernel on the caller's thread: what it declares, and whether a source of its form can be that.

use crate::compiler::{self, Compiler};
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::kernel::{Kernel, KernelReader, Reading, Source};

/// The reader of a CUDA device: sources are not looked into, the declared interface counts, and code is held against it when it is
/// compiled.
#[derive(Debug)]
pub(crate) struct CudaReader {
    takes: Vec<SourceForm>,
    compiler: Arc<Compiler>,
}

impl CudaReader {
    pub(crate) fn new(compiler: &Arc<Compiler>) -> Self {
        let takes = match compiler.missing() {
            None => alloc::vec![SourceForm::CudaC, SourceForm::Ptx, SourceForm::Cubin],
            // What needs no compiler comes first.
            Some(_) => alloc::vec![SourceForm::Ptx, SourceForm::Cubin, SourceForm::CudaC],
        };
        Self { takes, compiler: compiler.clone() }
    }
}

impl KernelReader for CudaReader {
    fn takes(&self) -> &[SourceForm] {
        &self.takes
    }

    fn read(&self, kernel: &dyn Kernel, source: &Source) -> Result<Reading> {
        let name = kernel.name();
        let constants = kernel.constants();
        match (source.form(), source.as_text(), self.compiler.missing()) {
            (SourceForm::CudaC, _, Some(why)) => {
                let message = format!("CUDA C++ needs NVRTC: {why}");
                return Err(Error::Compile { kernel: name.to_string(), message, line: None });
            }
            (SourceForm::CudaC, Some(text), None) => {
                constants.iter().try_for_each(|(constant, _)| compiler::check_constant(name, text, constant))?;
            }
            (form, ..) => {
                if let Some((constant, _)) = constants.first() {
                    let why = format!("constant `{constant}` is given, and {form:?} leaves none open");
                    return Err(Error::InvalidKernel { kernel: name.to_string(), why });
                }
            }
        }
        Reading::declared(kernel)
    }
}
