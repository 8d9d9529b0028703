//! The vendor's compilers, where a machine has them: found, and loaded so that programs find them.
//!
//! `ci/cuda-compilers.sh` installs them into the target directory. They need no GPU.

#![allow(unsafe_code, reason = "libraries are loaded by their paths")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs};

use libloading::Library;

/// The environment variable that says where the compilers are installed.
pub const DIRECTORY_VARIABLE: &str = "TRUNNION_CUDA_COMPILERS";

/// The environment variable that names what must be there, as every test of the workspace reads it.
const REQUIRE: &str = "TRUNNION_REQUIRE";

/// Where they are within the target directory.
const DIRECTORY: &str = "cuda-compilers";

/// Why there are none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompilersError {
    /// They are installed nowhere that is looked at.
    #[error(
        "no CUDA compilers in {looked}; ci/cuda-compilers.sh installs them, and {DIRECTORY_VARIABLE} says where they are"
    )]
    Missing {
        /// Where they were looked for.
        looked: String,
    },
    /// A library of theirs does not load.
    #[error("{} does not load: {why}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What the loader says.
        why: String,
    },
}

/// The compilers.
#[derive(Debug)]
pub struct Compilers {
    /// Where `lib`, `include` and `bin` are.
    pub root: PathBuf,
    _libraries: Vec<Library>,
}

impl Compilers {
    /// Loads NVRTC, so that a program that opens it by its name finds it.
    ///
    /// # Errors
    ///
    /// [`CompilersError`], the same every time.
    pub fn load() -> Result<&'static Self, &'static CompilersError> {
        static LOADED: OnceLock<Result<Compilers, CompilersError>> = OnceLock::new();
        LOADED.get_or_init(Self::find).as_ref()
    }

    /// The compilers, or nothing where a test may do without; it says so on standard error then.
    ///
    /// # Panics
    ///
    /// Where `TRUNNION_REQUIRE` names `cuda`, or a device of it, and there are none: then a test must not do without.
    #[must_use]
    pub fn for_test(test: &str) -> Option<&'static Self> {
        match Self::load() {
            Ok(compilers) => Some(compilers),
            Err(error) => {
                let required = env::var(REQUIRE).unwrap_or_default();
                let is_cuda = |name: &str| name.trim().split(':').next() == Some("cuda");
                assert!(!required.split(',').any(is_cuda), "{REQUIRE} names cuda: {error}");
                eprintln!("skipped: {test}: {error}");
                None
            }
        }
    }

    fn find() -> Result<Self, CompilersError> {
        let mut looked: Vec<PathBuf> = env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from).into_iter().collect();
        if looked.is_empty() {
            let program = env::current_exe().unwrap_or_default();
            looked.extend(program.ancestors().skip(1).take(4).map(|directory| directory.join(DIRECTORY)));
        }
        let Some(root) = looked.iter().find_map(|directory| root_in(directory)) else {
            let looked: Vec<String> = looked.iter().map(|path| path.display().to_string()).collect();
            return Err(CompilersError::Missing { looked: looked.join(", ") });
        };
        // The compiler opens its builtins by name, so they come first.
        let files = ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"].map(|file| root.join("lib").join(file));
        let libraries = files.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { root, _libraries: libraries })
    }

    /// The directory of the headers, as an option of the compiler.
    #[must_use]
    pub fn include(&self) -> String {
        format!("--include-path={}", self.root.join("include").display())
    }
}

fn open(path: PathBuf) -> Result<Library, CompilersError> {
    // SAFETY: a library of the vendor's, whose initialisers are meant to run in any program.
    unsafe { Library::new(&path) }.map_err(|error| CompilersError::Broken { path, why: error.to_string() })
}

/// The compilers' own directory, in a virtual environment of Python or itself.
fn root_in(directory: &Path) -> Option<PathBuf> {
    let holds = |root: &PathBuf| root.join("lib/libnvrtc.so.13").is_file();
    let environments = fs::read_dir(directory.join("lib")).into_iter().flatten().flatten();
    let nested = environments.map(|python| python.path().join("site-packages/nvidia/cu13"));
    [directory.to_path_buf()].into_iter().chain(nested).find(holds)
}
