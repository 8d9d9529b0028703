//! Where recordings go, line by line: a string, a file, a port of a board.

use alloc::boxed::Box;
use alloc::string::String;

#[cfg(feature = "std")]
pub use file::FileSink;

/// Takes the lines of a recording.
pub trait Sink {
    /// Takes a line, given without its end.
    ///
    /// # Errors
    /// Why it was not taken. Nothing more is given to the sink then.
    fn line(&mut self, line: &str) -> Result<(), String>;

    /// What was taken is to be safe where the process ends now.
    ///
    /// # Errors
    /// As for [`line`](Self::line).
    fn flush(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl Sink for String {
    fn line(&mut self, line: &str) -> Result<(), String> {
        self.push_str(line);
        self.push('\n');
        Ok(())
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        (**self).line(line)
    }

    fn flush(&mut self) -> Result<(), String> {
        (**self).flush()
    }
}

#[cfg(feature = "std")]
mod file {
    use super::Sink;
    use crate::error::{Error, Result};
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use core::fmt;
    use std::fs::File;
    use std::io::{BufWriter, Write};
    use std::path::{Path, PathBuf};

    /// A file that is written from its beginning.
    pub struct FileSink {
        path: PathBuf,
        file: BufWriter<File>,
    }

    impl FileSink {
        /// Makes the file, or empties it.
        ///
        /// # Errors
        /// [`Error::File`] says why it cannot be written.
        pub fn create(path: impl AsRef<Path>) -> Result<Self> {
            let path = path.as_ref().to_path_buf();
            match File::create(&path) {
                Ok(file) => Ok(Self { path, file: BufWriter::new(file) }),
                Err(error) => Err(Error::File { path: path.display().to_string(), message: error.to_string() }),
            }
        }

        /// [`create`](Self::create), where a path this process wrote to before is not written again: of several devices that are
        /// recorded to `run`, the second is recorded to `run-2`.
        ///
        /// # Errors
        /// As for [`create`](Self::create).
        pub fn create_another(path: impl AsRef<Path>) -> Result<Self> {
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

        fn named(&self, result: std::io::Result<()>) -> core::result::Result<(), String> {
            result.map_err(|error| format!("{}: {error}", self.path.display()))
        }
    }

    impl Sink for FileSink {
        fn line(&mut self, line: &str) -> core::result::Result<(), String> {
            let result = self.file.write_all(line.as_bytes()).and_then(|()| self.file.write_all(b"\n"));
            self.named(result)
        }

        fn flush(&mut self) -> core::result::Result<(), String> {
            let result = self.file.flush();
            self.named(result)
        }
    }

    impl fmt::Debug for FileSink {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("FileSink").field("path", &self.path).finish_non_exhaustive()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boxed_sink_takes_lines_like_the_one_inside() {
        let mut boxed: Box<dyn Sink> = Box::new(String::new());
        assert_eq!((boxed.line("a"), boxed.flush()), (Ok(()), Ok(())));
        let mut text = Box::new(String::new());
        assert_eq!((text.line("a"), text.line("b")), (Ok(()), Ok(())));
        assert_eq!(*text, "a\nb\n");
    }

    #[cfg(feature = "std")]
    #[test]
    fn a_file_that_cannot_be_made_is_named() {
        let error = FileSink::create("/no/such/directory/trace").unwrap_err();
        assert!(alloc::string::ToString::to_string(&error).starts_with("/no/such/directory/trace: "), "{error}");
    }

    #[cfg(feature = "std")]
    #[test]
    fn a_path_that_was_written_before_gets_a_number() {
        let path = std::env::temp_dir().join(alloc::format!("trunnion-sink-{}", std::process::id()));
        for expected in ["", "-2", "-3"] {
            FileSink::create_another(&path).unwrap().line("x").unwrap();
            let written = alloc::format!("{}{expected}", path.display());
            assert_eq!(std::fs::read_to_string(&written).unwrap(), "x\n");
            std::fs::remove_file(written).unwrap();
        }
    }
}
