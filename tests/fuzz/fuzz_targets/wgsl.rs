//! A kernel in WGSL: what is read is what its own interface says when it is declared, and is written as SPIR-V in every way; what is not is
//! refused with a message that is not as long as the text, and names one of its lines.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::sync::Arc;
use trunnion_kernel_wgsl::{Capabilities, Module, Parameters, Reader, SpirVOptions};
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::kernel::{KernelReader, Reading, Source, SourceKernel};
use trunnion_runtime_core::server::Bounds;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let everything = Capabilities {
        float16: true,
        float64: true,
        int64: true,
        int64_atomics: true,
        float32_atomics: true,
        subgroup_operations: u32::MAX,
    };
    let reader = Reader::new(vec![SourceForm::Wgsl], everything);
    let source = Source::wgsl(text);
    for constant in [None, Some(2.0)] {
        let with = |kernel: SourceKernel| match constant {
            Some(value) => kernel.constant("N", value),
            None => kernel,
        };
        let reading = match reader.read(&with(SourceKernel::wgsl("k", text)), &source) {
            Ok(reading) => reading,
            Err(error) => {
                refused(&error, text);
                continue;
            }
        };
        let Reading { interface, workgroup, parsed } = reading;
        let declared = SourceKernel::new("k", interface.clone()).workgroup_size(workgroup).source(source.clone());
        let again = reader.read(&with(declared), &source).unwrap();
        assert_eq!((&again.interface, again.workgroup), (&interface, workgroup));

        let module: Arc<Module> = parsed.unwrap().downcast().unwrap();
        assert_eq!(module.fewest_bytes().len(), interface.buffers.len());
        for (bounds, push_constants) in [(Bounds::Checked, 0), (Bounds::Unchecked, 128)] {
            match module.spirv(&SpirVOptions { bounds, push_constants, ..SpirVOptions::default() }) {
                Ok(spirv) => match spirv.parameters {
                    Parameters::None => assert_eq!(interface.parameters, 0),
                    Parameters::PushConstants(bytes) => {
                        assert!(bytes == interface.parameters && bytes <= push_constants);
                    }
                    Parameters::Uniform { binding, bytes } => {
                        assert_eq!((binding as usize, bytes), (interface.buffers.len(), interface.parameters));
                    }
                },
                Err(error) => refused(&error, text),
            }
        }
    }
    Corpus::Keep
});

fn refused(error: &Error, text: &str) {
    assert!(error.to_string().len() < 8192, "{error}");
    match error {
        Error::Compile { line, .. } => {
            assert!(line.is_none_or(|line| (1..=text.split('\n').count()).contains(&(line as usize))), "{error}");
        }
        Error::InvalidKernel { .. } => {}
        other => panic!("{other}"),
    }
}
