//! Where NVIDIA's run-time compiler and the headers of its toolkit lie: in a directory that somebody names, or where they are usual.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The compiler's library by its names, each with the major version it has; the one without comes last.
#[cfg(not(windows))]
const NAMES: [(&str, Option<i32>); 3] =
    [("libnvrtc.so.13", Some(13)), ("libnvrtc.so.12", Some(12)), ("libnvrtc.so", None)];
#[cfg(windows)]
const NAMES: [(&str, Option<i32>); 2] = [("nvrtc64_130_0.dll", Some(13)), ("nvrtc64_120_0.dll", Some(12))];

/// How the name of the library begins that the compiler opens by name, so that it comes first.
#[cfg(not(windows))]
const BUILTINS: &str = "libnvrtc-builtins.so";
#[cfg(windows)]
const BUILTINS: &str = "nvrtc-builtins64_";

/// Where a toolkit's libraries are within its directory.
const FOLDERS: [&str; 4] = ["", "lib", "lib64", "bin"];

/// Where wheels of Python have them within `site-packages`.
const WHEELS: [&str; 2] = ["nvidia/cu13", "nvidia/cuda_nvrtc"];

/// Where headers are, seen from the folder of the library: that of a toolkit, of a system, of another wheel of Python.
const INCLUDES: [&str; 3] = ["../include", "../../include", "../../cuda_runtime/include"];

/// A header that every toolkit has.
const HEADER: &str = "cuda_fp16.h";

/// The names of the compiler's library for a driver of this major version, best first: the newest that is not newer than the driver.
fn names(driver: i32) -> impl Iterator<Item = &'static str> + Clone {
    let fits = move |version: Option<i32>| version.is_none_or(|version| version <= driver);
    let named = |keep: bool| NAMES.into_iter().filter(move |(_, version)| fits(*version) == keep).map(|(name, _)| name);
    named(true).chain(named(false))
}

/// The compiler's names, as a text.
pub(crate) fn known() -> String {
    NAMES.map(|(name, _)| name).join(", ")
}

/// Where it may be if nobody says: by its names, which the system looks for, and in the usual toolkits. Best first.
pub(crate) fn usual(driver: i32) -> impl Iterator<Item = PathBuf> {
    names(driver).map(PathBuf::from).chain(usual_directories().into_iter().flat_map(move |one| find(&one, driver)))
}

/// The directories of toolkits that are looked at if nobody names one.
pub(crate) fn usual_directories() -> Vec<PathBuf> {
    let named = ["CUDA_PATH", "CUDA_HOME"].iter().filter_map(env::var_os).map(PathBuf::from);
    named.chain([PathBuf::from("/usr/local/cuda")]).collect()
}

/// The compiler's files in a toolkit's directory, or in one that wheels of Python were installed to, best first for a driver of this
/// major version.
pub(crate) fn find(directory: &Path, driver: i32) -> Vec<PathBuf> {
    let pythons = fs::read_dir(directory.join("lib")).into_iter().flatten().flatten();
    let nested = pythons.flat_map(|python| WHEELS.map(|wheel| python.path().join("site-packages").join(wheel)));
    let roots: Vec<_> = [directory.to_path_buf()].into_iter().chain(nested).collect();
    let files = names(driver).flat_map(|name| {
        roots.iter().flat_map(move |root| FOLDERS.iter().map(move |folder| root.join(folder).join(name)))
    });
    files.filter(|file| file.is_file()).collect()
}

/// The libraries beside a compiler that it opens by name.
pub(crate) fn builtins(file: &Path) -> Vec<PathBuf> {
    let beside = file.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(BUILTINS);
    beside.filter(is_one).map(|entry| entry.path()).collect()
}

/// The toolkit's headers: where the compiler's file says, if it is more than a name, else in the usual toolkits.
pub(crate) fn headers(compiler: &Path) -> Option<PathBuf> {
    // What a system has is a link, as a rule, to where the toolkit has it.
    let files = [Some(compiler.to_path_buf()), compiler.canonicalize().ok()];
    let folders = files.iter().flatten().filter_map(|file| file.parent());
    let folders = folders.filter(|folder| !folder.as_os_str().is_empty());
    let beside = folders.flat_map(|folder| INCLUDES.map(|include| folder.join(include)));
    let usual = usual_directories().into_iter().map(|directory| directory.join("include"));
    let found = beside.chain(usual).find(|include| include.join(HEADER).is_file())?;
    Some(found.canonicalize().unwrap_or(found))
}

/// Paths, as a text.
pub(crate) fn listed(paths: &[PathBuf]) -> String {
    let all: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    all.join(", ")
}

/// Why there is no compiler in a directory.
pub(crate) fn not_in(directory: &Path) -> String {
    format!("there is no {} in {}", known(), directory.display())
}

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_newer_than_the_driver_comes_last() {
        let names = |driver| names(driver).collect::<Vec<_>>();
        assert_eq!(names(13), ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]);
        assert_eq!(names(14), names(13));
        assert_eq!(names(12), ["libnvrtc.so.12", "libnvrtc.so", "libnvrtc.so.13"]);
    }
}
