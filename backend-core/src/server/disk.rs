//! The folder of compiled kernels.
//!
//! A file is named by the hash of what its code depends on: source, name, interface, workgroup size, constants, bounds, the
//! compiler, the hardware. An edited source has another name, and never meets stale code. What a compiler reads besides, such as headers
//! that a program may edit, is in no name: code that may depend on it is not given to be kept, by the driver that knows.
//!
//! A file holds a header and the code; one that does not fit its header is damaged, ignored and replaced. Files are written beside and
//! renamed, so that nobody reads half of one.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `TRUNNION` |
//! | 8..12 | version of this layout |
//! | 12..28 | the hash the file is named by |
//! | 28..36 | length of the code |
//! | 36..52 | hash of the code |
//! | 52.. | the code |
//!
//! Numbers are little-endian.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicU32, Ordering};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::server::Bounds;

const MAGIC: &[u8; 8] = b"TRUNNION";
const VERSION: u32 = 1;
const HEADER: usize = 52;

pub(super) struct Folder {
    path: PathBuf,
    compiler: String,
    hardware: String,
}

impl Folder {
    pub(super) fn new(path: &str, compiler: &str, hardware: &str) -> Self {
        Self { path: path.into(), compiler: compiler.into(), hardware: hardware.into() }
    }

    /// Where the kernel's code is kept; `None` for a kernel whose source cannot be looked at.
    pub(super) fn path(&self, kernel: &KernelHandle, bounds: Bounds) -> Option<PathBuf> {
        Some(self.file(self.key(kernel, bounds)?))
    }

    /// The code that was kept; `None` when there is none.
    ///
    /// # Errors
    /// The path of a file that is damaged.
    pub(super) fn load(&self, kernel: &KernelHandle, bounds: Bounds) -> Result<Option<Vec<u8>>, String> {
        let Some(key) = self.key(kernel, bounds) else { return Ok(None) };
        let path = self.file(key);
        let mut file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(_) => return Err(path.display().to_string()),
        };
        if file.get(..HEADER) != Some(&header(key, file.get(HEADER..).unwrap_or_default())[..]) {
            return Err(path.display().to_string());
        }
        file.drain(..HEADER);
        Ok(Some(file))
    }

    /// Keeps the kernel's code, in place of what was kept before.
    pub(super) fn store(&self, kernel: &KernelHandle, bounds: Bounds, code: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(key) = self.key(kernel, bounds) else { return Ok(()) };
        fs::create_dir_all(&self.path)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let beside = self.path.join(format!("{key:032x}.{}.{number}.new", std::process::id()));
        let mut file = header(key, code).to_vec();
        file.extend_from_slice(code);
        let written = fs::write(&beside, &file).and_then(|()| fs::rename(&beside, self.file(key)));
        if written.is_err() {
            // What is left of it is of no use; that it cannot be removed changes nothing.
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn file(&self, key: u128) -> PathBuf {
        Path::new(&self.path).join(format!("{key:032x}.kernel"))
    }

    fn key(&self, kernel: &KernelHandle, bounds: Bounds) -> Option<u128> {
        let source = kernel.source();
        let content = source.content()?;
        let mut hash = Fnv::new();
        (VERSION, kernel.name(), source.form(), content, kernel.interface()).hash(&mut hash);
        for (name, value) in kernel.constants() {
            (name, value.to_bits()).hash(&mut hash);
        }
        (kernel.constants().len(), kernel.workgroup_size(), bounds, &self.compiler, &self.hardware).hash(&mut hash);
        Some(hash.0)
    }
}

fn header(key: u128, code: &[u8]) -> [u8; HEADER] {
    let mut check = Fnv::new();
    check.write(code);
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..28].copy_from_slice(&key.to_le_bytes());
    header[28..36].copy_from_slice(&(code.len() as u64).to_le_bytes());
    header[36..].copy_from_slice(&check.0.to_le_bytes());
    header
}

/// FNV-1a with 128 bits: the same in every run, which the standard library's hasher does not promise.
struct Fnv(u128);

impl Fnv {
    const fn new() -> Self {
        Self(0x6C62_272E_07BB_0142_62B8_2175_6295_C58D)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        (self.0 >> 64) as u64 ^ self.0 as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        let mut hash = Fnv::new();
        hash.write(b"a");
        assert_eq!(hash.0, 0xD228_CB69_6F1A_8CAF_7891_2B70_4E4A_8964);
    }
}
