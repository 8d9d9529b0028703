//! The compiler's toolkit: which headers are found, and when what was compiled of them may be kept.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::{Compiled, compiling, cuda};
use rig::{Rig, claim, double, part};
use std::path::PathBuf;
use std::process::Command;
use trunnion_backend_core::driver::{Driver, StoredCode};
use trunnion_backend_cuda::CudaOptions;
use trunnion_cuda_double::compilers::Compilers;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::kernel::Interface;
use trunnion_runtime_core::server::Bounds;

const STEPS: &str = "#include <step.h>\nextern \"C\" __global__ void k(unsigned* x) { x[0] = STEP; }";
const HALVES: &str = "#include <cuda_fp16.h>\n\
    extern \"C\" __global__ void k(unsigned* x) { x[0] = (unsigned)__half2float(__float2half(1.5f) + __float2half(0.5f)); }";

fn one() -> Interface {
    Interface::new().claim(Access::ReadWrite)
}

/// A directory of the test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trunnion-cuda-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What a kernel of this text stores, where this was stored of it before, and what is to be stored now.
fn stores(rig: &mut Rig, text: &str, stored: Option<&[u8]>) -> (u32, StoredCode) {
    let kernel = rig.prepare(cuda("k", text, one())).unwrap();
    let compiled = rig.driver.compile(&kernel, Bounds::Unchecked, stored).unwrap();
    let page = rig.page_of(&[0; 4]);
    rig.run_with(&Compiled { kernel, code: compiled.code }, [1, 1, 1], &[part(&page, 0, 4)], &[]).unwrap();
    (rig.first(&page), compiled.stored)
}

#[test]
fn a_header_that_was_edited_is_read_again_whatever_was_stored() {
    let here = Scratch::new("edited");
    compiling(&CudaOptions::default().include_path(&here.0), |rig| {
        // What somebody stored of the header as it was.
        let (_, stored) = stores(rig, "extern \"C\" __global__ void k(unsigned* x) { x[0] = 5; }", None);
        let StoredCode::Keep(stale) = stored else { panic!("nothing to keep: {stored:?}") };
        for step in [5, 9] {
            std::fs::write(here.0.join("step.h"), format!("#define STEP {step}\n")).unwrap();
            for stored in [None, Some(&stale[..])] {
                let (found, stored) = stores(rig, STEPS, stored);
                assert!(found == step && matches!(stored, StoredCode::None), "{found}, {stored:?}");
            }
        }
    });
}

#[test]
fn what_has_no_headers_but_the_toolkits_is_kept() {
    compiling(&CudaOptions::default(), |rig| {
        let (found, stored) = stores(rig, HALVES, None);
        let StoredCode::Keep(bytes) = stored else { panic!("nothing to keep: {stored:?}") };
        assert_eq!(found, 2);
        let (found, stored) = stores(rig, HALVES, Some(&bytes));
        assert!(found == 2 && matches!(stored, StoredCode::Used), "{found}, {stored:?}");
    });
}

#[test]
fn the_headers_of_a_compiler_that_the_system_finds_by_its_name_are_found() {
    const NAME: &str = "the_headers_of_a_compiler_that_the_system_finds_by_its_name_are_found";
    const ALONE: &str = "TRUNNION_TEST_ALONE";
    if std::env::var(ALONE).is_ok() {
        let device = claim();
        let mut rig = Rig::new(device, &CudaOptions::default().library(double().path()));
        assert_eq!(stores(&mut rig, HALVES, None).0, 2);
        drop(rig);
        rig::assert_clean(&device);
        return;
    }
    let Some(compilers) = Compilers::for_test(NAME) else { return };
    // Where a system has libraries, those of the compiler are links into its toolkit.
    let here = Scratch::new("by-name");
    for library in std::fs::read_dir(compilers.root.join("lib")).unwrap().map(|file| file.unwrap().path()) {
        std::os::unix::fs::symlink(&library, here.0.join(library.file_name().unwrap())).unwrap();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture"]).env(ALONE, "1").env("LD_LIBRARY_PATH", &here.0);
    for name in ["TRUNNION_CUDA_COMPILERS", "CUDA_PATH", "CUDA_HOME"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
