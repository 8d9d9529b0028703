//! The driver's library: found, opened once in a process, and asked whether it can be used.
//!
//! Nothing here panics, whatever is missing: no library, a function, a driver that is too old are all
//! [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable) with the reason. What failed is tried again the next
//! time; what was opened stays for as long as the process does.

use crate::failure::{status, unavailable};
use crate::functions::Functions;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::mem;
use core::ptr::NonNull;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use trunnion_runtime_core::error::Result;

/// Says which driver is opened where no option does.
const VARIABLE: &str = "TRUNNION_CUDA_DRIVER";

/// The double of the driver, for tests.
const DOUBLE: &str = "libtrunnion_cuda_double.so";

/// The oldest driver that is used, as `cuDriverGetVersion` says it.
const NEEDED: i32 = 12_000;

static OPENED: Mutex<Option<Arc<Library>>> = Mutex::new(None);

/// The driver of this process.
pub(crate) struct Library {
    pub(crate) functions: Functions,
    /// The newest CUDA it is for, 1000 times the major number and 10 times the minor one.
    pub(crate) version: i32,
    /// Whether it is the double, which takes PTX only.
    pub(crate) is_double: bool,
    /// The file, where one was asked for.
    path: Option<PathBuf>,
}

impl Library {
    /// The driver of this process: the one at a path, or the one the environment names, or the system's.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable): why there is none.
    pub(crate) fn open(asked: Option<&Path>) -> Result<Arc<Self>> {
        let variable = || env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let asked = match asked.map(Path::to_owned).or_else(variable) {
            Some(path) => Some(locate(&path)?),
            None => None,
        };
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = &*opened {
            return match (asked, &library.path) {
                (Some(asked), path) if path.as_ref() != Some(&asked) => {
                    let used = path.as_ref().map_or("the system's".to_string(), |path| path.display().to_string());
                    Err(unavailable(format!("{} is not opened: this process uses {used} already", asked.display())))
                }
                _ => Ok(library.clone()),
            };
        }
        let library = match asked {
            Some(path) => Self::of_file(path)?,
            None => Self::of_system()?,
        };
        Ok(opened.insert(Arc::new(library)).clone())
    }

    fn of_file(path: PathBuf) -> Result<Self> {
        let library = load(&path).map_err(|why| unavailable(format!("{} does not load: {why}", path.display())))?;
        // SAFETY: what a file is that a program says is its driver, that program vouches for.
        let found = unsafe { Self::of(|name| symbol(&library, name)) }
            .map_err(|why| unavailable(format!("{}: {why}", path.display())))?;
        // A driver is never unloaded: it has threads, and its contexts.
        mem::forget(library);
        Ok(Self { path: Some(path), ..found })
    }

    fn of_system() -> Result<Self> {
        // SAFETY: the driver's library may be loaded by any program.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(unavailable("no driver is installed (libcuda.so.1, which comes with NVIDIA's display driver)"));
        }
        // SAFETY: as above; that it is there was seen, so that this does not end the process.
        let library = unsafe { cudarc::driver::sys::culib() };
        // SAFETY: it has the name of NVIDIA's driver.
        unsafe { Self::of(|name| symbol(library, name)) }.map_err(unavailable)
    }

    /// A driver whose functions are found so, initialised.
    ///
    /// # Errors
    /// Why it cannot be used.
    ///
    /// # Safety
    /// What is found under a name is the function that CUDA's manual describes under it.
    pub(crate) unsafe fn of(find: impl Fn(&CStr) -> Option<NonNull<c_void>>) -> Result<Self, String> {
        // An old driver lacks functions too, and says why.
        let version = find(c"cuDriverGetVersion").ok_or("the driver has no cuDriverGetVersion")?;
        // SAFETY: of the type that the manual gives it, by the caller's promise.
        let ask = unsafe { mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut i32) -> u32>(version) };
        let mut version = 0;
        // SAFETY: the place is for a number.
        match unsafe { ask(&raw mut version) } {
            status::SUCCESS if version >= NEEDED => {}
            status::SUCCESS => {
                let (has, needed) = (version_text(version), version_text(NEEDED));
                return Err(format!("the driver is for CUDA {has}, {needed} is needed"));
            }
            code => return Err(format!("cuDriverGetVersion: status {code}")),
        }
        let is_double = find(c"trunnion_double_claim_device").is_some();
        // SAFETY: the caller's promise.
        let functions = unsafe { Functions::find(find) }.map_err(|name| format!("the driver has no {name}"))?;
        // SAFETY: no flags is what there is.
        match unsafe { (functions.cuInit)(0) } {
            status::SUCCESS => Ok(Self { functions, version, is_double, path: None }),
            code => Err(format!("cuInit: {}", functions.words(code))),
        }
    }

    /// How many devices there are.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable) when there is none, or the driver does not say.
    pub(crate) fn count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the place is for a number.
        match unsafe { (self.functions.cuDeviceGetCount)(&raw mut count) } {
            status::SUCCESS if count > 0 => Ok(count.unsigned_abs()),
            status::SUCCESS | status::NO_DEVICE => {
                let hidden = env::var("CUDA_VISIBLE_DEVICES").map(|set| format!(" (CUDA_VISIBLE_DEVICES is `{set}`)"));
                Err(unavailable(format!("the driver has no device{}", hidden.unwrap_or_default())))
            }
            code => Err(unavailable(format!("cuDeviceGetCount: {}", self.functions.words(code)))),
        }
    }
}

/// A version as people write it.
pub(crate) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The file that is meant, by a path that stays the same.
fn locate(asked: &Path) -> Result<PathBuf> {
    let path = if asked.as_os_str() == "double" { double()? } else { asked.to_owned() };
    path.canonicalize().map_err(|error| unavailable(format!("{}: {error}", path.display())))
}

/// The double beside the program, or where cargo puts dependencies.
fn double() -> Result<PathBuf> {
    let program = env::current_exe().unwrap_or_default();
    let directories = program.ancestors().skip(1).take(3);
    let mut found = directories.flat_map(|directory| [directory.join(DOUBLE), directory.join("deps").join(DOUBLE)]);
    let missing = || unavailable(format!("`double`: {DOUBLE} is not beside {}", program.display()));
    found.find(|path| path.is_file()).ok_or_else(missing)
}

/// Opens a file so that whoever opens a library of its name later finds it.
#[cfg(unix)]
fn load(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: what a file is that a program says is its driver, that program vouches for.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map(Into::into)
}

#[cfg(not(unix))]
fn load(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: what a file is that a program says is its driver, that program vouches for.
    unsafe { libloading::Library::new(path) }
}

fn symbol(library: &libloading::Library, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: only the address is taken; what is done with it is whoever's who calls it.
    let found = unsafe { library.get::<*mut c_void>(name) }.ok()?;
    NonNull::new(*found)
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("path", &self.path)
            .field("version", &self.version)
            .field("is_double", &self.is_double)
            .finish_non_exhaustive()
    }
}
