//! A range of a file: checked when it is named, read on first access.

use super::HostBuffer;
use super::lazy::LoadOnce;
use crate::error::{Error, Result};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Display;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The file is opened to read and not kept open, so that many ranges can wait without a descriptor each.
pub(super) struct FileRange {
    path: PathBuf,
    offset: u64,
    len: usize,
    loaded: LoadOnce,
}

impl FileRange {
    pub(super) fn new(path: &Path, offset: u64, len: u64) -> Result<Self> {
        let overflow =
            || Error::SizeOverflow { what: format!("{len} bytes from byte {offset} of {}", path.display()).into() };
        let host_len = usize::try_from(len).map_err(|_| overflow())?;
        let end = offset.checked_add(len).ok_or_else(overflow)?;
        // The working directory may be another one when the file is read.
        let path = std::path::absolute(path).map_err(|error| failed(path, error))?;
        check(&path, offset, end)?;
        // Whether it may be read shows only on opening it.
        fs::File::open(&path).map_err(|error| failed(&path, error))?;
        Ok(Self { path, offset, len: host_len, loaded: LoadOnce::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self) -> Result<&[u8]> {
        match self.loaded.get() {
            Some(bytes) => Ok(bytes),
            None => Ok(self.loaded.set(self.read()?)),
        }
    }

    fn read(&self) -> Result<HostBuffer> {
        // Before memory is taken for a file that has gone or shrunk. The end was found not to overflow.
        check(&self.path, self.offset, self.offset + self.len as u64)?;
        let mut buffer = HostBuffer::zeroed(self.len)?;
        self.read_into(self.offset, buffer.as_mut_slice())?;
        Ok(buffer)
    }

    /// Reads a part of the range, from its byte `start` on, unless the range was loaded before. Keeps nothing.
    pub(super) fn copy_unloaded(&self, start: usize, into: &mut [u8]) -> Result<bool> {
        if self.loaded.get().is_some() {
            return Ok(false);
        }
        // The part was found to be inside the range, whose end does not overflow.
        let offset = self.offset + start as u64;
        check(&self.path, offset, offset + into.len() as u64)?;
        self.read_into(offset, into)?;
        Ok(true)
    }

    fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut read = || {
            let mut file = fs::File::open(&self.path)?;
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(into)
        };
        read().map_err(|error| failed(&self.path, error))
    }
}

/// Refuses a path that is no regular file, before it is opened: opening a pipe waits for its other end.
fn check(path: &Path, offset: u64, end: u64) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| failed(path, error))?;
    if !metadata.is_file() {
        return Err(failed(path, "not a regular file"));
    }
    if metadata.len() < end {
        return Err(failed(path, format!("bytes {offset}..{end} asked for, the file has {}", metadata.len())));
    }
    Ok(())
}

fn failed(path: &Path, why: impl Display) -> Error {
    let path: String = path.display().to_string();
    Error::File { path, message: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicU32, Ordering};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(content: &[u8]) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("trunnion-bytes-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn content() -> Vec<u8> {
        (0..200).collect()
    }

    #[track_caller]
    fn assert_names(result: Result<impl Sized>, path: &Path, message: &str) {
        match result {
            Err(Error::File { path: named, message: got }) => {
                assert_eq!(named, path.display().to_string());
                assert!(got.contains(message), "{got}");
            }
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("no error"),
        }
    }

    #[test]
    fn a_range_of_a_file_is_read_on_first_access_and_kept() {
        let file = Scratch::new(&[0; 200]);
        let range = FileRange::new(&file.0, 3, 50).unwrap();
        fs::write(&file.0, content()).unwrap();
        let bytes = range.get().unwrap();
        assert_eq!(bytes, &content()[3..53]);
        assert_eq!(bytes.as_ptr() as usize % 16, 0);
        fs::remove_file(&file.0).unwrap();
        assert!(core::ptr::eq(bytes, range.get().unwrap()));
    }

    #[test]
    fn a_part_that_is_copied_out_is_read_alone_and_not_kept() {
        let file = Scratch::new(&content());
        let range = FileRange::new(&file.0, 10, 150).unwrap();
        let mut part = [0; 20];
        assert!(range.copy_unloaded(5, &mut part).unwrap());
        assert_eq!(part, content()[15..35]);
        assert!(range.loaded.get().is_none());
        // The rest of the range is of no interest to it.
        fs::write(&file.0, &content()[..40]).unwrap();
        assert!(range.copy_unloaded(5, &mut part).unwrap());
        assert_names(range.copy_unloaded(25, &mut part), &file.0, "35..55 asked for, the file has 40");
        fs::write(&file.0, content()).unwrap();
        range.get().unwrap();
        assert!(!range.copy_unloaded(5, &mut part).unwrap());
    }

    #[test]
    fn a_file_that_does_not_exist_is_refused_at_once_by_name() {
        let path = std::env::temp_dir().join("trunnion-bytes-there-is-no-such-file");
        assert_names(FileRange::new(&path, 0, 1), &path, "");
    }

    #[test]
    fn a_directory_is_refused_at_once_by_name() {
        assert_names(FileRange::new(&std::env::temp_dir(), 0, 0), &std::env::temp_dir(), "not a regular file");
    }

    #[test]
    fn an_empty_path_is_refused() {
        assert_names(FileRange::new(Path::new(""), 0, 0), Path::new(""), "");
    }

    #[test]
    fn a_file_that_is_too_short_is_refused_with_what_was_asked_and_what_there_is() {
        let file = Scratch::new(&content());
        assert!(FileRange::new(&file.0, 100, 100).is_ok());
        assert_names(FileRange::new(&file.0, 100, 101), &file.0, "100..201 asked for, the file has 200");
    }

    #[test]
    fn a_range_whose_end_overflows_is_refused_with_its_numbers() {
        let error = FileRange::new(Path::new("weights"), u64::MAX, 1).err().unwrap();
        assert!(matches!(error, Error::SizeOverflow { .. }));
        assert!(error.to_string().contains("1 bytes from byte 18446744073709551615 of weights"), "{error}");
    }

    #[test]
    fn a_file_that_vanished_is_an_error_until_it_is_back() {
        let file = Scratch::new(&content());
        let range = FileRange::new(&file.0, 0, 200).unwrap();
        fs::remove_file(&file.0).unwrap();
        assert_names(range.get(), &file.0, "");
        assert_names(range.get(), &file.0, "");
        fs::write(&file.0, content()).unwrap();
        assert_eq!(range.get().unwrap(), content());
    }

    #[test]
    fn a_file_that_shrank_is_an_error_with_what_is_left() {
        let file = Scratch::new(&content());
        let range = FileRange::new(&file.0, 10, 190).unwrap();
        fs::write(&file.0, &content()[..150]).unwrap();
        assert_names(range.get(), &file.0, "10..200 asked for, the file has 150");
    }

    #[test]
    fn threads_that_race_on_the_first_access_see_one_copy() {
        let file = Scratch::new(&content());
        let range = FileRange::new(&file.0, 0, 200).unwrap();
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let read = || range.get().unwrap().as_ptr() as usize;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|&at| at == seen[0]));
    }
}
