//! What a CUDA device can be told, as a builder and as the names and values of a configuration file.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::env;
use std::path::{Path, PathBuf};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::options::{self, write_changed};
use trunnion_runtime_core::text::{at_least_one, axes, size};

/// What CUDA C is compiled to.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeForm {
    /// Code for the device's own architecture.
    Cubin,
    /// Code that the driver compiles for its device when it is loaded.
    Ptx,
}

/// How CUDA devices are used. The default is everything a device offers; the other settings turn parts of it off, or take less of it,
/// so that what other devices lack can be tested on this one. A limit lowers what the device says and never raises it.
///
/// ```
/// use trunnion_backend_cuda::CudaOptions;
/// let plain = CudaOptions::default().vmm(false).staging(true).max_shared(48 << 10);
/// assert_eq!(plain.to_string(), "max_shared = 49152, staging = true, vmm = false");
/// ```
///
/// In text ([`set`](Self::set), [`apply`](Self::apply)) a size may end in `KiB`, `MiB` or `GiB`, counts by axis are written `x,y,z` or as
/// one number for all three, directories are separated as in `PATH`, and options of the compiler by spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    pub(crate) library: Option<PathBuf>,
    pub(crate) compiler: Option<PathBuf>,
    pub(crate) include_paths: Vec<PathBuf>,
    pub(crate) compile_options: Vec<String>,
    pub(crate) code: Option<CodeForm>,
    pub(crate) priority: i32,
    pub(crate) staging: bool,
    pub(crate) vmm: bool,
    pub(crate) memory: Option<u64>,
    pub(crate) pinned_memory: Option<u64>,
    pub(crate) row_pitch: Option<u64>,
    pub(crate) max_allocation: Option<u64>,
    pub(crate) max_binding: Option<u64>,
    pub(crate) max_buffers: Option<u32>,
    pub(crate) max_parameters: Option<u32>,
    pub(crate) max_grid: Option<[u32; 3]>,
    pub(crate) max_workgroup: Option<[u32; 3]>,
    pub(crate) max_invocations: Option<u32>,
    pub(crate) max_shared: Option<u32>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            library: None,
            compiler: None,
            include_paths: Vec::new(),
            compile_options: Vec::new(),
            code: None,
            priority: 0,
            staging: false,
            vmm: true,
            memory: None,
            pinned_memory: None,
            row_pitch: None,
            max_allocation: None,
            max_binding: None,
            max_buffers: None,
            max_parameters: None,
            max_grid: None,
            max_workgroup: None,
            max_invocations: None,
            max_shared: None,
        }
    }
}

/// The options' names, and what their values look like.
const NAMES: [(&str, &str); 19] = [
    ("code", "`cubin` or `ptx`"),
    ("compile_options", "options of NVRTC, separated by spaces"),
    ("compiler", "the path of NVRTC, or of the directory it is installed in"),
    ("include_paths", "directories, separated as in `PATH`"),
    ("library", "the path of the driver, or `double`"),
    ("max_allocation", "a size such as `64MiB`"),
    ("max_binding", "a size such as `64MiB`"),
    ("max_buffers", "a count"),
    ("max_grid", "counts of at least 1, `x,y,z` or one for all"),
    ("max_invocations", "a count of at least 1"),
    ("max_parameters", "a count of bytes"),
    ("max_shared", "a size below 4GiB"),
    ("max_workgroup", "counts of at least 1, `x,y,z` or one for all"),
    ("memory", "a size such as `64MiB`"),
    ("pinned_memory", "a size such as `64MiB`"),
    ("priority", "a number, of which lower ones go first"),
    ("row_pitch", "a size that is a power of two"),
    ("staging", "`true` or `false`"),
    ("vmm", "`true` or `false`"),
];

impl CudaOptions {
    /// The file of the driver, or `double` for `libtrunnion_cuda_double.so` beside the program or in `deps` there. It is opened before
    /// anything else is looked for, so that whoever looks for a driver later finds it too. Default what `TRUNNION_CUDA_DRIVER` says, else the
    /// system's. There is one driver in a process: once it is open, another one is
    /// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable).
    pub fn library(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }

    /// NVRTC: its file, or the directory it is installed in. Default what `TRUNNION_CUDA_COMPILERS` says, else the system's.
    pub fn compiler(mut self, path: impl Into<PathBuf>) -> Self {
        self.compiler = Some(path.into());
        self
    }

    /// Adds a directory that CUDA C includes from.
    pub fn include_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.include_paths.push(path.into());
        self
    }

    /// Adds an option for NVRTC, such as `--use_fast_math`.
    pub fn compile_option(mut self, option: impl Into<String>) -> Self {
        self.compile_options.push(option.into());
        self
    }

    /// What CUDA C is compiled to. Default the device's own code; PTX for a driver that takes nothing else, as the double does.
    pub fn code(mut self, form: CodeForm) -> Self {
        self.code = Some(form);
        self
    }

    /// The priority of the device's streams: of work that waits, that of lower numbers goes first. Kept within what the device has.
    /// Default 0, which is the least urgent.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Page-locked bytes too go through staging blocks. Default false: they are copied from where they are.
    pub fn staging(mut self, forced: bool) -> Self {
        self.staging = forced;
        self
    }

    /// Whether pages are made by mapping memory where the device can (`cuMemCreate`, `cuMemMap`). Default true.
    pub fn vmm(mut self, allowed: bool) -> Self {
        self.vmm = allowed;
        self
    }

    /// Bytes of device memory, at most. Default all there are.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Bytes of host memory that are page-locked for staging, at most. Default whatever the driver gives.
    pub fn pinned_memory(mut self, bytes: u64) -> Self {
        self.pinned_memory = Some(bytes);
        self
    }

    /// What rows of an optimized layout are padded to, in bytes: rounded up to a power of two. Default 128.
    pub fn row_pitch(mut self, bytes: u64) -> Self {
        self.row_pitch = Some(bytes.max(1).checked_next_power_of_two().unwrap_or(1 << 63));
        self
    }

    /// The largest allocation, in bytes.
    pub fn max_allocation(mut self, bytes: u64) -> Self {
        self.max_allocation = Some(bytes);
        self
    }

    /// The largest range a kernel can be bound to, in bytes.
    pub fn max_binding(mut self, bytes: u64) -> Self {
        self.max_binding = Some(bytes);
        self
    }

    /// The most buffers of a kernel.
    pub fn max_buffers(mut self, count: u32) -> Self {
        self.max_buffers = Some(count);
        self
    }

    /// The most bytes of parameters.
    pub fn max_parameters(mut self, bytes: u32) -> Self {
        self.max_parameters = Some(bytes);
        self
    }

    /// The most blocks by axis, each at least 1.
    pub fn max_grid(mut self, counts: [u32; 3]) -> Self {
        self.max_grid = Some(counts.map(|count| count.max(1)));
        self
    }

    /// The most threads of a block by axis, each at least 1.
    pub fn max_workgroup(mut self, counts: [u32; 3]) -> Self {
        self.max_workgroup = Some(counts.map(|count| count.max(1)));
        self
    }

    /// The most threads of a block together, at least 1.
    pub fn max_invocations(mut self, count: u32) -> Self {
        self.max_invocations = Some(count.max(1));
        self
    }

    /// The most bytes of shared memory of a block.
    pub fn max_shared(mut self, bytes: u32) -> Self {
        self.max_shared = Some(bytes);
        self
    }

    /// Sets one option from text.
    ///
    /// # Errors
    /// [`Error::UnknownOption`](trunnion_runtime_core::error::Error::UnknownOption) and
    /// [`Error::BadOption`](trunnion_runtime_core::error::Error::BadOption) name it and list what is valid.
    pub fn set(self, name: &str, value: &str) -> Result<Self> {
        options::set(self, crate::NAME, &NAMES, (name, value), Self::assign)
    }

    /// Sets options from text, as they stand in a configuration.
    ///
    /// # Errors
    /// As for [`set`](Self::set), for the first one that is wrong.
    pub fn apply(self, options: &BTreeMap<String, String>) -> Result<Self> {
        options::apply(self, options, Self::set)
    }

    fn assign(&mut self, name: &str, value: &str) -> Option<()> {
        let path = || Some(PathBuf::from(value)).filter(|path| !path.as_os_str().is_empty());
        match name {
            "code" => {
                self.code = Some(match value {
                    "cubin" => CodeForm::Cubin,
                    "ptx" => CodeForm::Ptx,
                    _ => return None,
                });
            }
            "compile_options" => self.compile_options = value.split_whitespace().map(ToString::to_string).collect(),
            "compiler" => self.compiler = Some(path()?),
            "include_paths" => self.include_paths = env::split_paths(value).collect(),
            "library" => self.library = Some(path()?),
            "max_allocation" => self.max_allocation = Some(size(value)?),
            "max_binding" => self.max_binding = Some(size(value)?),
            "max_buffers" => self.max_buffers = Some(value.parse().ok()?),
            "max_grid" => self.max_grid = Some(axes(value)?),
            "max_invocations" => self.max_invocations = Some(at_least_one(value)?),
            "max_parameters" => self.max_parameters = Some(value.parse().ok()?),
            "max_shared" => self.max_shared = Some(u32::try_from(size(value)?).ok()?),
            "max_workgroup" => self.max_workgroup = Some(axes(value)?),
            "memory" => self.memory = Some(size(value)?),
            "pinned_memory" => self.pinned_memory = Some(size(value)?),
            "priority" => self.priority = value.parse().ok()?,
            "row_pitch" => self.row_pitch = Some(size(value).filter(|bytes| bytes.is_power_of_two())?),
            "staging" => self.staging = value.parse().ok()?,
            "vmm" => self.vmm = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    fn text(&self, name: &str) -> String {
        fn number<T: ToString>(value: Option<T>) -> String {
            value.map_or(String::new(), |value| value.to_string())
        }
        let path = |path: &Option<PathBuf>| path.as_deref().map_or(String::new(), shown);
        let three = |counts: Option<[u32; 3]>| counts.map_or(String::new(), |[x, y, z]| format!("{x},{y},{z}"));
        match name {
            "code" => match self.code {
                None => String::new(),
                Some(CodeForm::Cubin) => "cubin".to_string(),
                Some(CodeForm::Ptx) => "ptx".to_string(),
            },
            "compile_options" => self.compile_options.join(" "),
            "compiler" => path(&self.compiler),
            "include_paths" => match env::join_paths(&self.include_paths) {
                Ok(joined) => joined.to_string_lossy().into_owned(),
                Err(_) => self.include_paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(" "),
            },
            "library" => path(&self.library),
            "max_allocation" => number(self.max_allocation),
            "max_binding" => number(self.max_binding),
            "max_buffers" => number(self.max_buffers),
            "max_grid" => three(self.max_grid),
            "max_invocations" => number(self.max_invocations),
            "max_parameters" => number(self.max_parameters),
            "max_shared" => number(self.max_shared),
            "max_workgroup" => three(self.max_workgroup),
            "memory" => number(self.memory),
            "pinned_memory" => number(self.pinned_memory),
            "priority" => self.priority.to_string(),
            "row_pitch" => number(self.row_pitch),
            "staging" => self.staging.to_string(),
            _ => self.vmm.to_string(),
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The options that are not at their default, as `name = value`.
impl core::fmt::Display for CudaOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let default = Self::default();
        write_changed(f, &NAMES, |name| self.text(name), |name| default.text(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_runtime_core::error::Error;

    #[test]
    fn every_option_can_be_set_from_text_and_shown() {
        let values = [
            ("code", "ptx"),
            ("compile_options", "--use_fast_math -DA=1"),
            ("compiler", "/opt/nvrtc"),
            ("include_paths", "/a:/b c"),
            ("library", "double"),
            ("max_allocation", "1024"),
            ("max_binding", "512"),
            ("max_buffers", "5"),
            ("max_grid", "7,8,9"),
            ("max_invocations", "16"),
            ("max_parameters", "32"),
            ("max_shared", "64"),
            ("max_workgroup", "4,5,6"),
            ("memory", "4096"),
            ("pinned_memory", "8192"),
            ("priority", "-3"),
            ("row_pitch", "256"),
            ("staging", "true"),
            ("vmm", "false"),
        ];
        assert_eq!(values.map(|(name, _)| name), NAMES.map(|(name, _)| name));
        let map: BTreeMap<_, _> = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let options = CudaOptions::default().apply(&map).unwrap();
        let shown: Vec<_> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        assert_eq!(options.to_string(), shown.join(", "));
        let built = CudaOptions::default()
            .code(CodeForm::Ptx)
            .compile_option("--use_fast_math")
            .compile_option("-DA=1")
            .compiler("/opt/nvrtc")
            .include_path("/a")
            .include_path("/b c")
            .library("double")
            .max_allocation(1024)
            .max_binding(512)
            .max_buffers(5)
            .max_grid([7, 8, 9])
            .max_invocations(16)
            .max_parameters(32)
            .max_shared(64)
            .max_workgroup([4, 5, 6])
            .memory(4096)
            .pinned_memory(8192)
            .priority(-3)
            .row_pitch(256)
            .staging(true)
            .vmm(false);
        assert_eq!(options, built);
        assert_eq!(CudaOptions::default().to_string(), "");
    }

    #[test]
    fn a_bad_value_names_it_and_what_is_valid() {
        for (name, value) in [
            ("code", "sass"),
            ("compiler", ""),
            ("library", ""),
            ("max_buffers", "-1"),
            ("max_grid", "1,2"),
            ("max_grid", "0"),
            ("max_shared", "4GiB"),
            ("memory", "99999999999999999GiB"),
            ("priority", "high"),
            ("row_pitch", "48"),
            ("staging", "1"),
            ("vmm", ""),
        ] {
            let error = CudaOptions::default().set(name, value).unwrap_err();
            let (_, valid) = NAMES.iter().find(|(known, _)| *known == name).unwrap();
            let (backend, option, value, valid) = (crate::NAME, name.into(), value.into(), valid.to_string());
            assert_eq!(error, Error::BadOption { backend, option, value, valid });
        }
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = CudaOptions::default().set("libary", "double").unwrap_err();
        let known = NAMES.map(|(name, _)| name.to_string()).to_vec();
        assert_eq!(error, Error::UnknownOption { backend: crate::NAME, option: "libary".into(), known });
    }
}
