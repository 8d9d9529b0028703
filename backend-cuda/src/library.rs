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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Survey};
    use crate::driver::CudaDriver;
    use crate::import::CudaImport;
    use crate::options::CudaOptions;
    use alloc::vec::Vec;
    use core::time::Duration;
    use std::thread;
    use std::time::Instant;
    use trunnion_backend_core::driver::{Driver, Outcome, Place};
    use trunnion_cuda_double::Double;
    use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
    use trunnion_runtime_core::error::Error;
    use trunnion_runtime_core::foreign::Foreign;
    use trunnion_runtime_core::layout::Rows;

    fn double() -> libloading::Library {
        load(Double::open().unwrap().path()).unwrap()
    }

    /// The double without these functions.
    fn without(hidden: &[&str]) -> Result<Library, String> {
        let library = double();
        // SAFETY: the double's functions are what the manual says.
        let found = unsafe {
            Library::of(|name| {
                let is_hidden = hidden.iter().any(|hidden| name.to_bytes() == hidden.as_bytes());
                symbol(&library, name).filter(|_| !is_hidden)
            })
        };
        mem::forget(library);
        found
    }

    /// The double with one function replaced.
    fn with(replaced: &'static CStr, function: *const ()) -> Result<Library, String> {
        let library = double();
        // SAFETY: the double's functions are what the manual says, and so is the one in the place of its own.
        let found = unsafe {
            Library::of(|name| match name == replaced {
                true => NonNull::new(function.cast_mut().cast()),
                false => symbol(&library, name),
            })
        };
        mem::forget(library);
        found
    }

    #[test]
    fn a_function_that_is_needed_and_missing_is_named() {
        assert!(without(&[]).is_ok());
        let all = Functions::NEEDED;
        assert!(all.len() >= 35, "{}", all.len());
        for name in all.iter().chain(&["cuDriverGetVersion"]) {
            assert_eq!(without(&[name]).unwrap_err(), format!("the driver has no {name}"));
        }
    }

    #[test]
    fn what_can_be_done_without_is_done_without() {
        let device = Double::open().unwrap().claim_device().unwrap();
        let offered: Vec<_> = without(&[]).unwrap().functions.offered().map(|(name, _)| name).collect();
        assert!(offered.len() >= 15, "{offered:?}");
        let mut hidden: Vec<Vec<&str>> = offered.iter().map(|name| Vec::from([*name])).collect();
        hidden.push(offered.clone());
        for hidden in hidden {
            let library = Arc::new(without(&hidden).unwrap());
            let survey = Survey::of(&library, device.ordinal() as u32).unwrap();
            let opened = Device::open(&survey, &CudaOptions::default()).unwrap();
            let info = &opened.properties.info;
            assert!(info.details.contains(&("without".into(), hidden.join(" "))), "{info}");
            works(&mut CudaDriver::new(opened).unwrap());
            // What ends on a thread of its own may take a moment.
            let begun = Instant::now();
            while device.memory_used() != Ok(0) && begun.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(device.memory_used(), Ok(0), "{hidden:?}");
        }
        assert_eq!(device.take_reports().unwrap(), []);
        device.release().unwrap();
    }

    /// Bytes go to a large page and come back.
    fn works(driver: &mut CudaDriver) {
        let page = driver.allocate(4 << 20).unwrap();
        let (place, rows) = (Place { page: &page, offset: 256, size: 100 }, Rows::single(100));
        let mut stream = driver.open_stream().unwrap();
        let zeros = HostBuffer::zeroed(100).unwrap();
        // SAFETY: the page is freed when both are done.
        unsafe {
            driver.write(&mut stream, 1, Bytes::copy_from_slice(&[7_u8; 100]), place, &rows).unwrap();
            driver.read(&mut stream, 2, 0, place, &rows, zeros).unwrap();
        }
        driver.submit(&mut stream, 2).unwrap();
        let (mut outcome, begun) = (Outcome::default(), Instant::now());
        while driver.poll(&mut stream, &mut outcome).unwrap() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
        assert_eq!(outcome.read[0].2.as_slice(), [7; 100]);
        driver.close_stream(stream);
        driver.release(page);
    }

    #[test]
    fn an_old_driver_is_told_what_is_needed() {
        extern "C" fn old(version: &mut i32) -> u32 {
            *version = 11_040;
            status::SUCCESS
        }
        extern "C" fn refuses(_: &mut i32) -> u32 {
            999
        }
        let why = with(c"cuDriverGetVersion", old as *const ()).unwrap_err();
        assert_eq!(why, "the driver is for CUDA 11.4, 12.0 is needed");
        let why = with(c"cuDriverGetVersion", refuses as *const ()).unwrap_err();
        assert_eq!(why, "cuDriverGetVersion: status 999");
    }

    #[test]
    fn a_driver_that_does_not_begin_says_why_also_by_a_number_that_nobody_knows() {
        extern "C" fn unknown(_: u32) -> u32 {
            12_345
        }
        extern "C" fn no_device(_: u32) -> u32 {
            status::NO_DEVICE
        }
        assert_eq!(with(c"cuInit", unknown as *const ()).unwrap_err(), "cuInit: status 12345");
        let why = with(c"cuInit", no_device as *const ()).unwrap_err();
        assert_eq!(why, "cuInit: CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is detected");
    }

    #[test]
    fn what_a_driver_lacks_to_reach_another_device_is_named() {
        let [here, there] = [(); 2].map(|()| Double::open().unwrap().claim_device().unwrap());
        let driver = |hidden: &[&str], ordinal: i32, maps: bool| {
            let survey = Survey::of(&Arc::new(without(hidden).unwrap()), ordinal as u32).unwrap();
            CudaDriver::new(Device::open(&survey, &CudaOptions::default().vmm(maps)).unwrap()).unwrap()
        };
        for (hidden, maps, why) in [
            ("cuDeviceCanAccessPeer", true, ""),
            ("cuMemSetAccess", true, " (the driver has no cuMemSetAccess)"),
            ("cuMemRetainAllocationHandle", true, " (it is of no context, no mapping and no pool)"),
            ("cuCtxEnablePeerAccess", false, " (the driver has no cuCtxEnablePeerAccess)"),
        ] {
            let mut owner = driver(&[], there.ordinal(), maps);
            let page = owner.allocate(2 << 20).unwrap();
            let mut user = driver(&[hidden], here.ordinal(), maps);
            // SAFETY: refused before it is used.
            let foreign = Foreign::new(unsafe { CudaImport::new(page.address(), page.size(), ()) });
            let said = match user.import(&foreign).unwrap_err() {
                Error::Driver { message, .. } => message,
                other => panic!("{hidden}: {other}"),
            };
            let [owner_is, user_is] = [there, here].map(|device| device.ordinal());
            let which = format!("memory of device {owner_is}, which device {user_is} does not reach");
            assert_eq!(said, format!("{which}{why}: its bytes go through the host"), "{hidden}");
            owner.release(page);
        }
        for device in [here, there] {
            assert_eq!(device.take_reports().unwrap(), []);
            device.release().unwrap();
        }
    }
}
