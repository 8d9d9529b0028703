//! What a CUDA device can be told, as a builder and as the names and values of a configuration file.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::env;
use std::path::{Path, PathBuf};
use trunnion_backend_core::LimitOptions;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::options::{self, write_changed};

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
/// so that what other devices lack can be tested on this one.
///
/// ```
/// use trunnion_backend_cuda::CudaOptions;
/// use trunnion_backend_core::LimitOptions;
/// let small = LimitOptions { max_shared: Some(48 << 10), ..LimitOptions::default() };
/// let plain = CudaOptions::default().vmm(false).staging(true).limits(small);
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
    pub(crate) limits: LimitOptions,
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
            limits: LimitOptions::default(),
        }
    }
}

/// The names of the options beside the limits, and what their values look like.
const NAMES: [(&str, &str); 8] = [
    ("code", "`cubin` or `ptx`"),
    ("compile_options", "options of NVRTC, separated by spaces"),
    ("compiler", "the path of NVRTC, or of the directory it is installed in"),
    ("include_paths", "directories, separated as in `PATH`"),
    ("library", "the path of the driver, or `double`"),
    ("priority", "a number, of which lower ones go first"),
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

    /// Less of the device than it offers: its limits, lowered. Default all of it.
    pub fn limits(mut self, limits: LimitOptions) -> Self {
        self.limits = limits;
        self
    }

    /// Sets one option from text.
    ///
    /// # Errors
    /// [`Error::UnknownOption`](trunnion_runtime_core::error::Error::UnknownOption) and
    /// [`Error::BadOption`](trunnion_runtime_core::error::Error::BadOption) name it and list what is valid.
    pub fn set(self, name: &str, value: &str) -> Result<Self> {
        options::set(self, crate::NAME, &LimitOptions::among(&NAMES), (name, value), Self::assign)
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
            "priority" => self.priority = value.parse().ok()?,
            "staging" => self.staging = value.parse().ok()?,
            "vmm" => self.vmm = value.parse().ok()?,
            _ => self.limits.assign(name, value)?,
        }
        Some(())
    }

    fn text(&self, name: &str) -> String {
        let path = |path: &Option<PathBuf>| path.as_deref().map_or(String::new(), shown);
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
            "priority" => self.priority.to_string(),
            "staging" => self.staging.to_string(),
            "vmm" => self.vmm.to_string(),
            _ => self.limits.text(name),
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
        write_changed(f, &LimitOptions::among(&NAMES), |name| self.text(name), |name| default.text(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use trunnion_runtime_core::error::Error;

    #[test]
    fn every_option_can_be_set_from_text_and_shown() {
        let values = [
            ("code", "ptx"),
            ("compile_options", "--use_fast_math -DA=1"),
            ("compiler", "/opt/nvrtc"),
            ("include_paths", "/a:/b c"),
            ("library", "double"),
            ("max_shared", "64"),
            ("priority", "-3"),
            ("staging", "true"),
            ("vmm", "false"),
        ];
        assert!(NAMES.iter().all(|(known, _)| values.iter().any(|(name, _)| name == known)));
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
            .priority(-3)
            .staging(true)
            .vmm(false)
            .limits(LimitOptions { max_shared: Some(64), ..LimitOptions::default() });
        assert_eq!(options, built);
        assert_eq!(CudaOptions::default().to_string(), "");
    }

    #[test]
    fn a_bad_value_names_it_and_what_is_valid() {
        for (name, value) in [
            ("code", "sass"),
            ("compiler", ""),
            ("library", ""),
            ("max_shared", "4GiB"),
            ("priority", "high"),
            ("staging", "1"),
            ("vmm", ""),
        ] {
            let error = CudaOptions::default().set(name, value).unwrap_err();
            let (_, valid) = LimitOptions::among(&NAMES).into_iter().find(|(known, _)| *known == name).unwrap();
            let (backend, option, value, valid) = (crate::NAME, name.into(), value.into(), valid.to_string());
            assert_eq!(error, Error::BadOption { backend, option, value, valid });
        }
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = CudaOptions::default().set("libary", "double").unwrap_err();
        let known = LimitOptions::among(&NAMES).into_iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(error, Error::UnknownOption { backend: crate::NAME, option: "libary".into(), known });
    }
}
