//! The driver as a library: the file that is named, or the one that the process has.

use crate::functions::Functions;
use core::ffi::CStr;
use core::ops::Deref;
use core::ptr;
use libloading::Library;
use std::env;
use std::sync::OnceLock;

/// The name that every driver has, also one that was opened from a file of another name.
#[cfg(not(windows))]
const NAME: &str = "libcuda.so.1";
#[cfg(windows)]
const NAME: &str = "nvcuda.dll";

/// Says which driver a process uses; `double` is for one that is loaded already.
const VARIABLE: &str = "TRUNNION_CUDA_DRIVER";

/// A driver that is loaded. It is never unloaded: it has threads, and its contexts.
#[derive(Debug)]
pub struct Driver {
    functions: Functions,
}

impl Driver {
    /// Loads the driver in a file.
    ///
    /// # Errors
    /// Why it does not load.
    pub fn open(path: &str) -> Result<&'static Self, String> {
        // SAFETY: whoever names a file here says that it is a driver of CUDA, which any program may load.
        let library = unsafe { Library::new(path) }.map_err(|error| format!("{path} does not load: {error}"))?;
        // SAFETY: as above.
        let functions = unsafe { Functions::of(Box::leak(Box::new(library))) };
        Ok(Box::leak(Box::new(Self { functions })))
    }

    /// The driver of this process: the one in the file that `TRUNNION_CUDA_DRIVER` names, else the one that is loaded already, else the
    /// system's.
    ///
    /// # Errors
    /// Why it does not load; the same every time.
    pub fn of_process() -> Result<&'static Self, String> {
        static OPENED: OnceLock<Result<&'static Driver, String>> = OnceLock::new();
        let opened = OPENED.get_or_init(|| {
            let named = env::var(VARIABLE).ok().filter(|name| !name.is_empty() && name != "double");
            Self::open(named.as_deref().unwrap_or(NAME))
        });
        opened.clone()
    }

    /// What the driver calls a status.
    pub fn name(&self, status: u32) -> String {
        let mut name = ptr::null();
        // SAFETY: the place is for a pointer.
        let is_known = unsafe { self.cuGetErrorName(status, &raw mut name) } == 0 && !name.is_null();
        // SAFETY: the driver gave a text that ends with a zero and stays.
        if is_known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { "no name".to_string() }
    }

    /// What came of a call.
    ///
    /// # Errors
    /// The call and its status, where that is not 0.
    pub fn check(&self, call: &str, status: u32) -> Result<(), String> {
        if status == 0 { Ok(()) } else { Err(format!("{call} gave {status} ({})", self.name(status))) }
    }
}

impl Deref for Driver {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}
