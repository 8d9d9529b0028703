//! NVIDIA's run-time compiler as a library: which one is loaded, and its functions.
//!
//! Once loaded it stays: nobody has shown that its threads and caches bear being unloaded. Result codes are taken as integers, since a
//! later library may have codes that are not known here.

use crate::options::CodeForm;
use crate::toolkit;
use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr;
use libloading::Library;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The environment variable that says where the compiler is, where no option does.
pub(crate) const DIRECTORY_VARIABLE: &str = "TRUNNION_CUDA_COMPILERS";

type Program = *mut c_void;

/// A text of the compiler's, asked for as its size and then as its bytes.
type SizeOf = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type BytesOf = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// Where a compiler is to be, where somebody said so, and the major version of the driver's.
type Wanted = (Option<PathBuf>, i32);

/// The compiler, loaded.
pub(crate) struct Nvrtc {
    /// The toolkit's headers, where they were found.
    pub(crate) include: Option<PathBuf>,
    version: (c_int, c_int),
    /// What it compiles for, as ten times the compute capability; empty where it does not say.
    architectures: Vec<u32>,
    create: Create,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    describe: unsafe extern "C" fn(c_int) -> *const c_char,
    log: (SizeOf, BytesOf),
    ptx: (SizeOf, BytesOf),
    /// Since version 11.1.
    cubin: Option<(SizeOf, BytesOf)>,
    _libraries: ManuallyDrop<Vec<Library>>,
}

/// A call of the compiler that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) call: &'static str,
    pub(crate) code: c_int,
    /// What the compiler calls the code.
    pub(crate) meaning: String,
}

impl Nvrtc {
    /// Loads the compiler from where it was asked for, else from where it is usual: the newest that is not newer than a driver for CUDA of
    /// this major version, or a newer one where there is no other. Of a process's loads of one place the first counts.
    ///
    /// # Errors
    /// Where it was looked for, and what would help.
    pub(crate) fn load(asked: Option<&Path>, driver: i32) -> Result<Arc<Self>, String> {
        static LOADED: Mutex<Vec<(Wanted, Arc<Nvrtc>)>> = Mutex::new(Vec::new());
        let asked = asked.map(Path::to_path_buf).or_else(|| env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from));
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = (asked, driver);
        if let Some((_, known)) = loaded.iter().find(|(of, _)| *of == wanted) {
            return Ok(known.clone());
        }
        let found = Arc::new(match &wanted.0 {
            Some(path) => Self::load_from(path, driver)?,
            None => Self::load_usual(driver)?,
        });
        loaded.push((wanted, found.clone()));
        Ok(found)
    }

    /// Its version.
    pub(crate) fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Ten times the compute capabilities it compiles for; empty where it does not say.
    pub(crate) fn architectures(&self) -> &[u32] {
        &self.architectures
    }

    /// Whether it makes code for hardware; every one makes PTX.
    pub(crate) fn makes_cubin(&self) -> bool {
        self.cubin.is_some()
    }

    /// A program of this source, which the compiler's log calls `name`.
    ///
    /// # Errors
    /// What the compiler answers.
    pub(crate) fn program(&self, source: &CStr, name: &CStr) -> Result<NvrtcProgram<'_>, Failed> {
        let mut raw = ptr::null_mut();
        // SAFETY: both texts end with a zero, there are no headers, and the place for the program is ours.
        let code = unsafe { (self.create)(&raw mut raw, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
        self.done("nvrtcCreateProgram", code)?;
        Ok(NvrtcProgram { nvrtc: self, raw })
    }

    fn done(&self, call: &'static str, code: c_int) -> Result<(), Failed> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any number can be asked about.
        let text = unsafe { (self.describe)(code) };
        let meaning = match text.is_null() {
            true => "a code without a name".to_string(),
            // SAFETY: the compiler's own text, which ends with a zero and stays.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(Failed { call, code, meaning })
    }

    fn load_usual(driver: i32) -> Result<Self, String> {
        let nowhere = || {
            Err(format!(
                "there is no {} where the system looks for libraries, nor in {}; the option `compiler` or {DIRECTORY_VARIABLE} \
                 says where NVRTC is",
                toolkit::known(),
                toolkit::listed(&toolkit::usual_directories())
            ))
        };
        Self::best(toolkit::usual(driver), driver).unwrap_or_else(nowhere)
    }

    fn load_from(path: &Path, driver: i32) -> Result<Self, String> {
        if path.is_file() {
            return Self::load_file(path);
        }
        Self::best(toolkit::find(path, driver), driver).unwrap_or_else(|| Err(toolkit::not_in(path)))
    }

    /// Of compilers that may be there, the first that is and is not newer than the driver, else the first that is; nothing where there is
    /// none.
    fn best(candidates: impl IntoIterator<Item = PathBuf>, driver: i32) -> Option<Result<Self, String>> {
        let (mut newer, mut broken) = (None, None);
        for candidate in candidates {
            match Self::load_file(&candidate) {
                Ok(found) if found.version.0 <= driver => return Some(Ok(found)),
                Ok(found) => drop(newer.get_or_insert(found)),
                // A name that the system does not know.
                Err(_) if !candidate.is_file() => {}
                Err(why) => drop(broken.get_or_insert(why)),
            }
        }
        newer.map(Ok).or(broken.map(Err))
    }

    fn load_file(file: &Path) -> Result<Self, String> {
        // One that does not load is missed when the compiler looks for it, with its words.
        let mut libraries: Vec<_> = toolkit::builtins(file).iter().filter_map(|path| open(path).ok()).collect();
        libraries.push(open(file)?);
        Self::of(libraries, file)
    }

    /// The compiler of the last of these libraries.
    fn of(libraries: Vec<Library>, file: &Path) -> Result<Self, String> {
        let libraries = ManuallyDrop::new(libraries);
        let library = libraries.last().ok_or("no library")?;
        let cubin = optional(library, "nvrtcGetCUBINSize").zip(optional(library, "nvrtcGetCUBIN"));
        let mut nvrtc = Self {
            include: None,
            version: (0, 0),
            architectures: Vec::new(),
            create: required(library, "nvrtcCreateProgram")?,
            destroy: required(library, "nvrtcDestroyProgram")?,
            compile: required(library, "nvrtcCompileProgram")?,
            describe: required(library, "nvrtcGetErrorString")?,
            log: (required(library, "nvrtcGetProgramLogSize")?, required(library, "nvrtcGetProgramLog")?),
            ptx: (required(library, "nvrtcGetPTXSize")?, required(library, "nvrtcGetPTX")?),
            cubin,
            _libraries: ManuallyDrop::new(Vec::new()),
        };
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = required(library, "nvrtcVersion")?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both places are ours.
        let code = unsafe { version(&raw mut major, &raw mut minor) };
        nvrtc.done("nvrtcVersion", code).map_err(|failed| failed.to_string())?;
        nvrtc.version = (major, minor);
        nvrtc.include = toolkit::headers(&place(version).unwrap_or_else(|| file.to_path_buf()));
        nvrtc.architectures = architectures(library);
        nvrtc._libraries = libraries;
        Ok(nvrtc)
    }
}

impl core::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Nvrtc").field("version", &self.version).finish_non_exhaustive()
    }
}

impl core::fmt::Display for Failed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.meaning, self.code)
    }
}

/// A program of the compiler's, given back when it is dropped.
pub(crate) struct NvrtcProgram<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl NvrtcProgram<'_> {
    /// Compiles it.
    ///
    /// # Errors
    /// What the compiler answers; the log says more.
    pub(crate) fn compile(&self, options: &[CString]) -> Result<(), Failed> {
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive, and there are as many options as it is said, each of which ends with a zero.
        let code = unsafe { (self.nvrtc.compile)(self.raw, pointers.len() as c_int, pointers.as_ptr()) };
        self.nvrtc.done("nvrtcCompileProgram", code)
    }

    /// What the compiler wrote; nothing where it does not say.
    pub(crate) fn log(&self) -> String {
        let bytes = self.bytes(self.nvrtc.log, "nvrtcGetProgramLog").unwrap_or_default();
        String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(&bytes)).trim_end().to_owned()
    }

    /// What it was compiled to, text without the zero behind it.
    ///
    /// # Errors
    /// What the compiler answers.
    pub(crate) fn code(&self, form: CodeForm) -> Result<Vec<u8>, Failed> {
        match (form, self.nvrtc.cubin) {
            (CodeForm::Cubin, Some(functions)) => self.bytes(functions, "nvrtcGetCUBIN"),
            (CodeForm::Cubin, None) | (CodeForm::Ptx, _) => {
                let mut text = self.bytes(self.nvrtc.ptx, "nvrtcGetPTX")?;
                text.pop_if(|last| *last == 0);
                Ok(text)
            }
        }
    }

    fn bytes(&self, (size_of, bytes_of): (SizeOf, BytesOf), call: &'static str) -> Result<Vec<u8>, Failed> {
        let mut size = 0;
        // SAFETY: the program is alive, and the place for the size is ours.
        self.nvrtc.done(call, unsafe { size_of(self.raw, &raw mut size) })?;
        let mut bytes = alloc::vec![0_u8; size];
        // SAFETY: there is room for as many bytes as the compiler just said.
        self.nvrtc.done(call, unsafe { bytes_of(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for NvrtcProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody else has it. That it cannot be given back changes nothing for anybody.
        let _ = unsafe { (self.nvrtc.destroy)(&raw mut self.raw) };
    }
}

/// The file that a function is in: a library that was opened by its name may be anywhere.
#[cfg(unix)]
fn place(function: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int) -> Option<PathBuf> {
    use core::mem::MaybeUninit;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address can be asked about, and the place is for what is known of it.
    let is_known = unsafe { libc::dladdr(function as *const c_void, found.as_mut_ptr()) } != 0;
    // SAFETY: it is numbers and pointers, each of which may be zero.
    let name = unsafe { found.assume_init() }.dli_fname;
    if !is_known || name.is_null() {
        return None;
    }
    // SAFETY: the loader's own text, which ends with a zero and stays for as long as the library, which is never unloaded.
    Some(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())))
}

#[cfg(not(unix))]
fn place(_: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int) -> Option<PathBuf> {
    None
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: a library of the vendor's, or one that the program's user put in its place, whose initialisers are meant to run in any program.
    unsafe { Library::new(path) }.map_err(|error| format!("{}: {error}", path.display()))
}

fn optional<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: each function is asked for with the type that NVIDIA's header gives it, its result as the integer that it is.
    unsafe { library.get::<F>(name) }.ok().map(|function| *function)
}

fn required<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    optional(library, name).ok_or_else(|| format!("the NVRTC that was found has no {name}"))
}

/// What the compiler compiles for; nothing where it does not say, as before version 11.2.
fn architectures(library: &Library) -> Vec<u32> {
    let count: Option<unsafe extern "C" fn(*mut c_int) -> c_int> = optional(library, "nvrtcGetNumSupportedArchs");
    let list: Option<unsafe extern "C" fn(*mut c_int) -> c_int> = optional(library, "nvrtcGetSupportedArchs");
    let Some((count, list)) = count.zip(list) else { return Vec::new() };
    let mut number = 0;
    // SAFETY: the place is ours.
    if unsafe { count(&raw mut number) } != 0 {
        return Vec::new();
    }
    let mut all = alloc::vec![0; usize::try_from(number).unwrap_or(0)];
    // SAFETY: there is room for as many as the compiler just said.
    match unsafe { list(all.as_mut_ptr()) } {
        0 => all.into_iter().filter_map(|one| u32::try_from(one).ok()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// A directory of compilers that do nothing but say their versions.
    struct Compilers(PathBuf);

    impl Compilers {
        fn of(test: &str, versions: &[(&str, i32, i32)]) -> Self {
            let root = env::temp_dir().join(format!("trunnion-nvrtc-{test}-{}", std::process::id()));
            fs::create_dir_all(root.join("lib")).unwrap();
            for (name, major, minor) in versions {
                let others =
                    ["CreateProgram", "DestroyProgram", "CompileProgram", "GetProgramLogSize", "GetProgramLog"];
                let others = others.into_iter().chain(["GetPTXSize", "GetPTX"]);
                let others: String = others.map(|name| format!("int nvrtc{name}(void) {{ return 1; }}\n")).collect();
                let text = format!(
                    "int nvrtcVersion(int *major, int *minor) {{ *major = {major}; *minor = {minor}; return 0; }}\n\
                     const char *nvrtcGetErrorString(int code) {{ return \"no\"; }}\n{others}"
                );
                let source = root.join("fake.c");
                fs::write(&source, text).unwrap();
                let mut compiler = Command::new("cc");
                compiler.args(["-shared", "-fPIC", "-o"]).arg(root.join("lib").join(name)).arg(&source);
                assert!(compiler.status().unwrap().success());
            }
            Self(root)
        }

        fn version(&self, driver: i32) -> (i32, i32) {
            Nvrtc::load(Some(&self.0), driver).unwrap().version()
        }
    }

    impl Drop for Compilers {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn of_two_compilers_the_newest_is_taken_that_is_not_newer_than_the_driver() {
        let both = Compilers::of("two", &[("libnvrtc.so.13", 13, 1), ("libnvrtc.so.12", 12, 6)]);
        assert_eq!([12, 13, 14].map(|driver| both.version(driver)), [(12, 6), (13, 1), (13, 1)]);
    }

    #[test]
    fn a_compiler_newer_than_the_driver_is_taken_where_there_is_no_other() {
        // Which version a name without one has shows when it is loaded.
        let newer = Compilers::of("newer", &[("libnvrtc.so", 14, 0), ("libnvrtc.so.13", 13, 1)]);
        assert_eq!([12, 13].map(|driver| newer.version(driver)), [(14, 0), (13, 1)]);
        let unnamed = Compilers::of("unnamed", &[("libnvrtc.so", 12, 2), ("libnvrtc.so.13", 13, 1)]);
        assert_eq!(unnamed.version(12), (12, 2));
    }

    #[test]
    fn one_that_does_not_load_is_named_where_there_is_no_other() {
        let broken = Compilers::of("broken", &[("libnvrtc.so.12", 12, 6)]);
        fs::write(broken.0.join("lib/libnvrtc.so.13"), "no library").unwrap();
        assert_eq!(broken.version(13), (12, 6));
        fs::remove_file(broken.0.join("lib/libnvrtc.so.12")).unwrap();
        let why = Nvrtc::load(Some(&broken.0), 14).unwrap_err();
        assert!(why.contains("libnvrtc.so.13"), "{why}");
    }
}
