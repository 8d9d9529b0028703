//! A file to write to.

use super::{Record, RecordOptions};
use crate::program::Sink;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use trunnion_runtime_core::server::Opened;

/// A file that is written from its beginning.
pub struct FileSink {
    path: PathBuf,
    file: BufWriter<File>,
}

impl FileSink {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// The path, and why it cannot be written.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, String> {
        let path = path.as_ref().to_path_buf();
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file: BufWriter::new(file) }),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// [`create`](Self::create), where a path this process wrote to before is not written again: of several devices that are recorded to
    /// `run`, the second is recorded to `run-2`.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_another(path: impl AsRef<Path>) -> Result<Self, String> {
        static WRITTEN: spin::Mutex<Vec<PathBuf>> = spin::Mutex::new(Vec::new());
        let path = path.as_ref().to_path_buf();
        let before = {
            let mut written = WRITTEN.lock();
            written.push(path.clone());
            written.iter().filter(|known| **known == path).count() - 1
        };
        match before {
            0 => Self::create(path),
            before => Self::create(format!("{}-{}", path.display(), before + 1)),
        }
    }

    fn named(&self, result: std::io::Result<()>) -> Result<(), String> {
        result.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Sink for FileSink {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let result = self.file.write_all(line.as_bytes()).and_then(|()| self.file.write_all(b"\n"));
        self.named(result)
    }

    fn flush(&mut self) -> Result<(), String> {
        let result = self.file.flush();
        self.named(result)
    }
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Records to a file, or logs why it is not written.
pub(crate) fn to_file(opened: Opened, path: &str) -> Opened {
    match FileSink::create_another(path) {
        Ok(sink) => Record::around(opened, sink, RecordOptions::default()).0,
        Err(why) => {
            log::error!("nothing is recorded: {why}");
            opened
        }
    }
}
