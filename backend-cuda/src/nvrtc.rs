//! NVIDIA's run-time compiler as a library: where it is looked for, and its functions.
//!
//! Once loaded it stays: nobody has shown that its threads and caches bear being unloaded. Result codes are taken as integers, since a
//! later library may have codes that are not known here.

use crate::options::CodeForm;
use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int};
use core::mem::ManuallyDrop;
use core::ptr;
use libloading::Library;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

/// The environment variable that says where the compiler is, where no option does.
pub(crate) const DIRECTORY_VARIABLE: &str = "TRUNNION_CUDA_COMPILERS";

/// The library's names, newest first.
#[cfg(not(windows))]
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
#[cfg(windows)]
const NAMES: [&str; 2] = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];

/// How the name of the library begins that the compiler opens by name, so that it comes first.
#[cfg(not(windows))]
const BUILTINS: &str = "libnvrtc-builtins.so";
#[cfg(windows)]
const BUILTINS: &str = "nvrtc-builtins64_";

/// Where a toolkit's libraries are within its directory.
const FOLDERS: [&str; 4] = ["", "lib", "lib64", "bin"];

/// Where wheels of Python have them within `site-packages`.
const WHEELS: [&str; 2] = ["nvidia/cu13", "nvidia/cuda_nvrtc"];

type Program = *mut core::ffi::c_void;

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

/// The compiler, loaded.
pub(crate) struct Nvrtc {
    /// The toolkit's headers, where they lie beside the library.
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
    /// Loads the compiler from where it was asked for, else from where it is usual; of a process's loads of one place the first counts.
    ///
    /// # Errors
    /// Where it was looked for, and what would help.
    pub(crate) fn load(asked: Option<&Path>) -> Result<Arc<Self>, String> {
        static LOADED: Mutex<Vec<(Option<PathBuf>, Arc<Nvrtc>)>> = Mutex::new(Vec::new());
        let asked = asked.map(Path::to_path_buf).or_else(|| env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from));
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = loaded.iter().find(|(of, _)| *of == asked) {
            return Ok(known.clone());
        }
        let found = Arc::new(match &asked {
            Some(path) => Self::load_from(path)?,
            None => Self::load_usual()?,
        });
        loaded.push((asked, found.clone()));
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

    fn load_usual() -> Result<Self, String> {
        let by_name = NAMES.iter().find_map(|name| open(Path::new(name)).ok());
        if let Some(library) = by_name {
            return Self::of(alloc::vec![library], None);
        }
        let toolkits = ["CUDA_PATH", "CUDA_HOME"].iter().filter_map(env::var_os).map(PathBuf::from);
        let toolkits: Vec<_> = toolkits.chain([PathBuf::from("/usr/local/cuda")]).collect();
        match toolkits.iter().find_map(|toolkit| find(toolkit)) {
            Some(file) => Self::load_file(&file),
            None => Err(format!(
                "there is no {} where the system looks for libraries, nor in {}; the option `compiler` or {DIRECTORY_VARIABLE} \
                 says where NVRTC is",
                NAMES.join(", "),
                listed(&toolkits)
            )),
        }
    }

    fn load_from(path: &Path) -> Result<Self, String> {
        if path.is_file() {
            return Self::load_file(path);
        }
        match find(path) {
            Some(file) => Self::load_file(&file),
            None => Err(format!("there is no {} in {}", NAMES.join(", "), path.display())),
        }
    }

    fn load_file(file: &Path) -> Result<Self, String> {
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut libraries = Vec::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            // One that does not load is missed when the compiler looks for it, with its words.
            if name.to_string_lossy().starts_with(BUILTINS)
                && let Ok(library) = open(&entry.path())
            {
                libraries.push(library);
            }
        }
        libraries.push(open(file)?);
        let include = folder.parent().map(|root| root.join("include")).filter(|include| include.is_dir());
        Self::of(libraries, include)
    }

    /// The compiler of the last of these libraries.
    fn of(libraries: Vec<Library>, include: Option<PathBuf>) -> Result<Self, String> {
        let libraries = ManuallyDrop::new(libraries);
        let library = libraries.last().ok_or("no library")?;
        let cubin = optional(library, "nvrtcGetCUBINSize").zip(optional(library, "nvrtcGetCUBIN"));
        let mut nvrtc = Self {
            include,
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

/// The compiler's file in a toolkit's directory, or in one that wheels of Python were installed to.
fn find(directory: &Path) -> Option<PathBuf> {
    let pythons = fs::read_dir(directory.join("lib")).into_iter().flatten().flatten();
    let nested = pythons.flat_map(|python| WHEELS.map(|wheel| python.path().join("site-packages").join(wheel)));
    let roots: Vec<_> = [directory.to_path_buf()].into_iter().chain(nested).collect();
    let files = roots.iter().flat_map(|root| FOLDERS.iter().map(move |folder| root.join(folder)));
    files.flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|file| file.is_file())
}

fn listed(paths: &[PathBuf]) -> String {
    let all: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    all.join(", ")
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
