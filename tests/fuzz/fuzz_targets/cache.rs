//! A file of the folder of compiled kernels. It is taken for code only if it is, byte by byte, what would have been written for that code.

#![no_main]

extern crate alloc;

// The folder is the server's own, which nothing outside can name: its file is built here once more.
#[path = "../../../backend-core/src/server/disk.rs"]
#[allow(missing_docs, reason = "written for inside the server")]
mod disk;

use disk::Folder;
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::{env, fs};
use tempfile::TempDir;
use trunnion_runtime_core::backend::Backend;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::id::ServiceId;
use trunnion_runtime_core::kernel::{DeclaredInterface, Interface, KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::server::Bounds;

struct Cached {
    folder: Folder,
    kernel: KernelHandle,
    file: PathBuf,
    _directory: TempDir,
}

static CACHED: LazyLock<Cached> = LazyLock::new(|| {
    // In memory where there is such a folder: it is written some thousand times a second.
    let shared = PathBuf::from("/dev/shm");
    let parent = if shared.is_dir() { shared } else { env::temp_dir() };
    let directory = TempDir::new_in(parent).expect("a folder for a file");
    let folder = Folder::new(directory.path().to_str().expect("its name is text"), "compiler 1", "hardware 1");
    let kernel = kernel();
    let file = folder.path(&kernel, Bounds::Checked).expect("the source is text");
    Cached { folder, kernel, file, _directory: directory }
});

/// A kernel whose source can be looked at, prepared for a device that takes it.
fn kernel() -> KernelHandle {
    let host = trunnion_backend_host::HostBackend::default();
    let mut properties = host.open(0, &Default::default()).expect("there is a host").properties;
    properties.features.sources = vec![SourceForm::Wgsl];
    let kernel = SourceKernel::new("fuzzed", Interface::new().read()).source(Source::wgsl("@compute fn fuzzed() {}"));
    let reader = DeclaredInterface(vec![SourceForm::Wgsl]);
    KernelHandle::prepare(Arc::new(kernel), &properties, &reader, ServiceId::new()).expect("it is valid")(0)
}

fuzz_target!(|data: &[u8]| {
    let Cached { folder, kernel, file, .. } = &*CACHED;
    // As it is: a file of anyone's.
    fs::write(file, data).expect("the folder is there");
    if let Ok(code) = folder.load(kernel, Bounds::Checked) {
        let code = code.expect("the file is there");
        folder.store(kernel, Bounds::Checked, &code).expect("the folder is there");
        assert_eq!(fs::read(file).expect("it was written"), data, "another file is taken for the same code");
    }
    // As code: kept and found; and, with a byte changed, not taken.
    folder.store(kernel, Bounds::Checked, data).expect("the folder is there");
    assert_eq!(folder.load(kernel, Bounds::Checked).as_ref(), Ok(&Some(data.to_vec())));
    let mut damaged = fs::read(file).expect("it was written");
    let place =
        data.iter().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))) % damaged.len();
    damaged[place] ^= 1 << (place % 8);
    fs::write(file, &damaged).expect("the folder is there");
    assert!(folder.load(kernel, Bounds::Checked).is_err(), "byte {place} is not looked at");
});
