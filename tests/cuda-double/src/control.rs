//! Steering the double from a test: opening it, failures and budgets, and what it noticed.

#![allow(unsafe_code, reason = "functions of the shared library are called by their names")]

use alloc::ffi::CString;
use core::ffi::{c_char, c_int};
use core::fmt;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io};

use libloading::Library;

use crate::report::Report;

/// The environment variable that says where the shared library lies, if not beside the test.
pub const PATH_VARIABLE: &str = "TRUNNION_CUDA_DOUBLE";

const FILE: &str = "libtrunnion_cuda_double.so";

/// Why the double cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The shared library is in none of the places where cargo puts it.
    #[error("{FILE} is not beside {near}; {PATH_VARIABLE} may say where it is")]
    Missing {
        /// The program that looked.
        near: String,
    },
    /// The shared library does not load.
    #[error("{} does not load: {why}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What the loader says.
        why: String,
    },
    /// Another driver is loaded already, so that the double would not be found.
    #[error("another CUDA driver is loaded already: {path}")]
    Other {
        /// The file.
        path: String,
    },
}

/// Why a control did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{control} gave {code}")]
pub struct ControlError {
    /// The exported function.
    pub control: &'static str,
    /// What it gave, as `CUresult`: 1 for a bad argument, 100 where every device is claimed, 101 for no such device.
    pub code: u32,
}

/// The double, loaded. There is one in a process.
pub struct Double {
    library: Library,
    path: PathBuf,
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Double").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Where the shared library is: where the variable says, or beside the program, or where cargo puts dependencies.
fn locate() -> Result<PathBuf, OpenError> {
    if let Some(path) = env::var_os(PATH_VARIABLE) {
        return Ok(PathBuf::from(path));
    }
    let program = env::current_exe().unwrap_or_default();
    let directories = program.ancestors().skip(1).take(3);
    let found = directories.flat_map(|directory| [directory.join(FILE), directory.join("deps").join(FILE)]);
    found
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| OpenError::Missing { near: program.display().to_string() })
}

/// The file of the CUDA driver that is mapped into this process, if one is: the double's, or a real one's.
///
/// # Errors
///
/// Whatever reading the process's own map gives.
pub fn mapped_driver() -> io::Result<Option<String>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_driver = |file: &&str| {
        Path::new(file)
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name == FILE || name.starts_with("libcuda.so"))
    };
    Ok(files.into_iter().find(is_driver).map(str::to_owned))
}

impl Double {
    /// Loads the double into this process, before anything else looks for a CUDA driver: whoever does so later finds it.
    ///
    /// # Errors
    ///
    /// [`OpenError`], the same every time.
    pub fn open() -> Result<&'static Self, &'static OpenError> {
        static OPEN: OnceLock<Result<Double, OpenError>> = OnceLock::new();
        OPEN.get_or_init(Self::load).as_ref()
    }

    fn load() -> Result<Self, OpenError> {
        if let Ok(Some(path)) = mapped_driver()
            && !path.ends_with(FILE)
        {
            return Err(OpenError::Other { path });
        }
        let path = locate()?;
        let path = path.canonicalize().unwrap_or(path);
        // SAFETY: the library is this crate's own, and has no initialiser.
        match unsafe { Library::new(&path) } {
            Ok(library) => Ok(Self { library, path }),
            Err(error) => Err(OpenError::Broken { path, why: error.to_string() }),
        }
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A device that no other test of this process has, with everything as at the beginning.
    ///
    /// # Errors
    ///
    /// The code 100 where every device is claimed; [`Double::set_device_count`] makes more.
    pub fn claim_device(&'static self) -> Result<Device, ControlError> {
        let mut ordinal = 0;
        self.call("trunnion_double_claim_device", |f: unsafe extern "C" fn(*mut c_int) -> u32| {
            // SAFETY: the pointer is to a number of ours.
            unsafe { f(&raw mut ordinal) }
        })?;
        Ok(Device { double: self, ordinal })
    }

    /// A device by its ordinal, whoever has it.
    #[must_use]
    pub fn device(&'static self, ordinal: u32) -> Device {
        Device { double: self, ordinal: ordinal as c_int }
    }

    /// What happens in threads without a context: counts and failures there are those of no device.
    #[must_use]
    pub fn without_device(&'static self) -> Device {
        Device { double: self, ordinal: -1 }
    }

    /// Gives the process so many devices, 1024 at most. Those that are taken away should not be in use.
    ///
    /// # Errors
    ///
    /// The code 1 for more.
    pub fn set_device_count(&self, count: u32) -> Result<(), ControlError> {
        self.call("trunnion_double_set_device_count", |f: unsafe extern "C" fn(u32) -> u32| {
            // SAFETY: a number is all it takes.
            unsafe { f(count) }
        })
    }

    fn call<F: Copy>(&self, control: &'static str, call: impl FnOnce(F) -> u32) -> Result<(), ControlError> {
        // SAFETY: the types of the controls are those of this crate, which the library is made of as well.
        let code = match unsafe { self.library.get::<F>(control) } {
            Ok(function) => call(*function),
            Err(_) => return Err(ControlError { control, code: 500 }),
        };
        if code == 0 { Ok(()) } else { Err(ControlError { control, code }) }
    }
}

/// A device of the double.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    double: &'static Double,
    ordinal: c_int,
}

/// A control that fills a buffer with text.
type Lines = unsafe extern "C" fn(c_int, *mut u8, usize, *mut usize) -> u32;

impl Device {
    /// What programs call it by. Negative for no device.
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    fn number(&self, control: &'static str, number: u64) -> Result<(), ControlError> {
        self.double.call(control, |f: unsafe extern "C" fn(c_int, u64) -> u32| {
            // SAFETY: numbers are all it takes.
            unsafe { f(self.ordinal, number) }
        })
    }

    fn plain(&self, control: &'static str) -> Result<(), ControlError> {
        self.double.call(control, |f: unsafe extern "C" fn(c_int) -> u32| {
            // SAFETY: a number is all it takes.
            unsafe { f(self.ordinal) }
        })
    }

    fn lines(&self, control: &'static str) -> Result<Vec<String>, ControlError> {
        let mut buffer = vec![0u8; 4096];
        loop {
            let mut length = 0;
            self.double.call(control, |f: Lines| {
                // SAFETY: the buffer is ours and has the room it is said to have.
                unsafe { f(self.ordinal, buffer.as_mut_ptr(), buffer.len(), &raw mut length) }
            })?;
            if length <= buffer.len() {
                let text = String::from_utf8_lossy(&buffer[..length]);
                return Ok(text.lines().map(str::to_owned).collect());
            }
            // Room for what may come meanwhile.
            buffer = vec![0; length * 2];
        }
    }

    /// What the double noticed since this was last asked, oldest first. A thousand reports are kept.
    ///
    /// # Errors
    ///
    /// The code 101 for a device that is none; so for every method here.
    pub fn take_reports(&self) -> Result<Vec<Report>, ControlError> {
        let lines = self.lines("trunnion_double_take_reports")?;
        Ok(lines.iter().filter_map(|line| Report::parse(line)).collect())
    }

    /// How often a function of the driver was called by threads with a context of this device.
    pub fn calls(&self, name: &str) -> Result<u64, ControlError> {
        let control = "trunnion_double_calls";
        let name = CString::new(name).map_err(|_| ControlError { control, code: 1 })?;
        let mut count = 0;
        self.double.call(control, |f: unsafe extern "C" fn(c_int, *const c_char, *mut u64) -> u32| {
            // SAFETY: the name ends with a zero, and the number is ours.
            unsafe { f(self.ordinal, name.as_ptr(), &raw mut count) }
        })?;
        Ok(count)
    }

    /// Every function that was called, with how often, by name.
    pub fn all_calls(&self) -> Result<Vec<(String, u64)>, ControlError> {
        let lines = self.lines("trunnion_double_all_calls")?;
        let split = |line: &String| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        Ok(lines.iter().filter_map(split).collect())
    }

    /// Counts calls from zero again.
    pub fn forget_calls(&self) -> Result<(), ControlError> {
        self.plain("trunnion_double_forget_calls")
    }

    /// Lets the `nth` call from now of a function give a code of `CUresult` and do nothing; 0 stands for every call. The
    /// code 0 lets it work again. A code that tells of work that died breaks the context, as such work does.
    pub fn fail(&self, name: &str, nth: u64, code: u32) -> Result<(), ControlError> {
        let control = "trunnion_double_fail";
        let name = CString::new(name).map_err(|_| ControlError { control, code: 1 })?;
        self.double.call(control, |f: unsafe extern "C" fn(c_int, *const c_char, u64, u32) -> u32| {
            // SAFETY: the name ends with a zero; the rest are numbers.
            unsafe { f(self.ordinal, name.as_ptr(), nth, code) }
        })
    }

    /// Gives the device so many bytes of memory; 1 GiB is what it begins with.
    pub fn set_memory(&self, bytes: u64) -> Result<(), ControlError> {
        self.number("trunnion_double_set_memory", bytes)
    }

    /// Bytes of memory in use, those that pools hold among them.
    pub fn memory_used(&self) -> Result<u64, ControlError> {
        let mut bytes = 0;
        self.double.call("trunnion_double_memory_used", |f: unsafe extern "C" fn(c_int, *mut u64) -> u32| {
            // SAFETY: the number is ours.
            unsafe { f(self.ordinal, &raw mut bytes) }
        })?;
        Ok(bytes)
    }

    /// Lets a launch end with 702 after so many instructions of its threads together; 500 million to begin with.
    pub fn set_instruction_limit(&self, instructions: u64) -> Result<(), ControlError> {
        self.number("trunnion_double_set_instruction_limit", instructions)
    }

    /// Lets streams pause before some of their work, the same for the same seed, so that rare orders come up. 0 stops it.
    pub fn set_delays(&self, seed: u64) -> Result<(), ControlError> {
        self.number("trunnion_double_set_delays", seed)
    }

    /// Lets events come so much later than what they stand for; with a seed of [`set_delays`](Self::set_delays) up to twice that, each by a
    /// time of its own. What is asked of the stream afterwards waits with them.
    pub fn set_lateness(&self, late: Duration) -> Result<(), ControlError> {
        self.number("trunnion_double_set_lateness", u64::try_from(late.as_micros()).unwrap_or(u64::MAX))
    }

    /// Whether somebody holds the device's primary context: until then it may be in use.
    pub fn is_retained(&self) -> Result<bool, ControlError> {
        let mut retained = 0;
        self.double.call("trunnion_double_is_retained", |f: unsafe extern "C" fn(c_int, *mut c_int) -> u32| {
            // SAFETY: the number is ours.
            unsafe { f(self.ordinal, &raw mut retained) }
        })?;
        Ok(retained != 0)
    }

    /// Says whether kernels here may be allowed to touch another device's memory; to begin with they may.
    pub fn set_reaches(&self, other: Self, reaches: bool) -> Result<(), ControlError> {
        self.double.call("trunnion_double_set_peer", |f: unsafe extern "C" fn(c_int, c_int, c_int) -> u32| {
            // SAFETY: numbers are all it takes.
            unsafe { f(self.ordinal, other.ordinal, c_int::from(reaches)) }
        })
    }

    /// Lets another test claim the device, which should have nothing left to do.
    pub fn release(&self) -> Result<(), ControlError> {
        self.reset()?;
        self.plain("trunnion_double_release_device")
    }

    /// Waits for the device's work, makes broken contexts whole, lets nothing fail any more, forgets reports and counts.
    pub fn reset(&self) -> Result<(), ControlError> {
        self.plain("trunnion_double_reset")
    }
}
