//! CUDA C++ to code, by NVRTC: for which hardware, with which options, and what its log says.

use crate::device::Device;
use crate::includes::Includes;
use crate::library::version_text;
use crate::nvrtc::{Failed, Nvrtc};
use crate::options::{CodeForm, CudaOptions};
use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use trunnion_runtime_core::error::{Error, Result};

/// NVRTC's code for memory that ran out, which says nothing of the source.
const OUT_OF_MEMORY: i32 = 1;

/// The compiler, as a device uses it.
#[derive(Debug)]
pub(crate) struct Compiler {
    /// Or why there is none.
    nvrtc: Result<Arc<Nvrtc>, String>,
    options: Vec<String>,
    includes: Includes,
    form: CodeForm,
    /// Ten times the device's compute capability.
    capability: u32,
    /// The newest CUDA that the driver is for, as it says it.
    driver: i32,
}

/// A source to be compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) source: &'a str,
    pub(crate) constants: &'a [(String, f64)],
}

impl Compiler {
    /// The compiler for a device, as its options say. Where there is no NVRTC, whoever compiles is told why.
    pub(crate) fn of(device: &Device) -> Self {
        let ((major, minor), options) = (device.capability, &device.options);
        Self::new(options, device.code_form(), 10 * major + minor, device.library.version)
    }

    /// The compiler for devices of a compute capability, given ten times, with a driver of this version.
    fn new(options: &CudaOptions, form: CodeForm, capability: u32, driver: i32) -> Self {
        let nvrtc = Nvrtc::load(options.compiler.as_deref(), driver / 1000);
        let CudaOptions { include_paths, compile_options, .. } = options;
        let includes = Includes::of(!include_paths.is_empty(), compile_options.iter().map(String::as_str));
        let beside = nvrtc.as_ref().ok().and_then(|nvrtc| nvrtc.include.as_ref());
        let include = include_paths.iter().chain(beside).map(|path| format!("--include-path={}", path.display()));
        let options = compile_options.iter().cloned().chain(include).collect();
        Self { nvrtc, options, includes, form, capability, driver }
    }

    /// Why there is no compiler, where there is none.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.nvrtc.as_ref().err().map(String::as_str)
    }

    /// What its code depends on besides source, constants and hardware.
    pub(crate) fn identity(&self) -> String {
        match &self.nvrtc {
            Ok(nvrtc) => {
                let (major, minor) = nvrtc.version();
                format!("NVRTC {major}.{minor} to {:?} {}", self.form, self.options.join(" "))
            }
            Err(_) => "no NVRTC".to_string(),
        }
    }

    /// Whether all that the code of a source depends on is the source, its constants, the [identity](Self::identity) and the hardware, so
    /// that it may be kept: not where headers may be edited.
    pub(crate) fn knows_all_of(&self, source: &str) -> bool {
        self.includes.are_the_toolkits(source)
    }

    /// The error of code that this compiler made and the driver did not take: a compiler newer than the driver is named, with both versions.
    pub(crate) fn explained(&self, error: Error) -> Error {
        let version = self.nvrtc.as_ref().map_or((0, 0), |nvrtc| nvrtc.version());
        match error {
            Error::Compile { kernel, message, line } if version > (self.driver / 1000, self.driver % 1000 / 10) => {
                let (major, minor) = version;
                let driver = version_text(self.driver);
                let message = format!(
                    "{message}; NVRTC {major}.{minor} made it, and the driver is for CUDA {driver}: the option `compiler` names another NVRTC"
                );
                Error::Compile { kernel, message, line }
            }
            other => other,
        }
    }

    /// Compiles a source, to code for the device or to PTX.
    ///
    /// # Errors
    /// [`Error::Compile`] with NVRTC's log and the line of the first error in it; [`Error::InvalidKernel`] for a constant that cannot be a
    /// macro.
    pub(crate) fn compile(&self, text: Text<'_>) -> Result<Vec<u8>> {
        let refused = |message: String| Error::Compile { kernel: text.kernel.to_string(), message, line: None };
        let nvrtc = self.nvrtc.as_ref().map_err(|why| refused(format!("CUDA C++ needs NVRTC: {why}")))?;
        let (form, architecture) = target(nvrtc, self.capability, self.form).map_err(refused)?;
        let mut options = alloc::vec![architecture];
        options.extend(self.options.iter().cloned());
        for (name, value) in text.constants {
            check_constant(text.kernel, text.source, name)?;
            options.push(format!("--define-macro={name}={}", literal(*value)));
        }
        let zero = |what: &str| refused(format!("{what} has a zero byte"));
        let options = options.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let options = options.map_err(|_| zero("an option of the compiler"))?;
        let source = CString::new(text.source).map_err(|_| zero("the source"))?;
        let file = CString::new(format!("{}.cu", text.kernel)).map_err(|_| zero("the kernel's name"))?;

        let failed = |failed: Failed, log: String| failure(text.kernel, &failed, log);
        let program = nvrtc.program(&source, &file).map_err(|why| failed(why, String::new()))?;
        program.compile(&options).map_err(|why| failed(why, program.log()))?;
        let log = program.log();
        if !log.is_empty() {
            log::warn!("kernel `{}`: {log}", text.kernel);
        }
        program.code(form).map_err(|why| failed(why, String::new()))
    }
}

/// What is compiled for a compute capability, and how NVRTC is told. A device that the compiler does not know gets PTX of the newest
/// kind that it can run, which the driver compiles on.
fn target(nvrtc: &Nvrtc, capability: u32, form: CodeForm) -> Result<(CodeForm, String), String> {
    let known = nvrtc.architectures();
    let form = if nvrtc.makes_cubin() { form } else { CodeForm::Ptx };
    if known.is_empty() || known.contains(&capability) {
        return Ok(match form {
            CodeForm::Cubin => (form, format!("--gpu-architecture=sm_{capability}")),
            CodeForm::Ptx => (form, format!("--gpu-architecture=compute_{capability}")),
        });
    }
    match known.iter().filter(|known| **known < capability).max() {
        Some(newest) => Ok((CodeForm::Ptx, format!("--gpu-architecture=compute_{newest}"))),
        None => {
            let (major, minor) = nvrtc.version();
            let oldest = known.iter().min().copied().unwrap_or_default();
            Err(format!(
                "NVRTC {major}.{minor} compiles for compute capability {}.{} and later, the device has {}.{}",
                oldest / 10,
                oldest % 10,
                capability / 10,
                capability % 10
            ))
        }
    }
}

/// A constant is a macro, so its name must be one, and one that the source has: another would silently do nothing. What headers have is
/// not looked into.
///
/// # Errors
/// [`Error::InvalidKernel`].
pub(crate) fn check_constant(kernel: &str, source: &str, name: &str) -> Result<()> {
    let is_name = words(name).eq([name]) && !name.starts_with(|first: char| first.is_ascii_digit());
    let why = if !is_name {
        format!("constant `{name}` is not the name of a macro")
    } else if !source.contains("include") && !words(source).any(|word| word == name) {
        format!("constant `{name}` is not in the source")
    } else {
        return Ok(());
    };
    Err(Error::InvalidKernel { kernel: kernel.to_string(), why })
}

/// The names and numbers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|part: char| !part.is_ascii_alphanumeric() && part != '_').filter(|word| !word.is_empty())
}

/// A constant's value in C++: whole numbers as integers, so that they can be sizes.
fn literal(value: f64) -> String {
    let is_whole = value == value.trunc() && value.abs() < 9e15 && !(value == 0.0 && value.is_sign_negative());
    let text = if is_whole { format!("{}", value as i64) } else { format!("{value:e}") };
    if value.is_sign_negative() { format!("({text})") } else { text }
}

/// The error of a call that failed.
fn failure(kernel: &str, failed: &Failed, log: String) -> Error {
    if failed.code == OUT_OF_MEMORY {
        let Failed { call, code, meaning } = failed.clone();
        return Error::Driver { call: call.to_string(), code: i64::from(code), message: meaning };
    }
    let line = first_line(&log);
    let message = match log.is_empty() {
        true => failed.to_string(),
        false if line.is_some() => log,
        false => format!("{failed}: {log}"),
    };
    Error::Compile { kernel: kernel.to_string(), message, line }
}

/// The line of the first error in a log, whose lines begin as `name(line): error`.
fn first_line(log: &str) -> Option<u32> {
    log.lines().find_map(|line| {
        let (place, what) = line.split_once("): ")?;
        let is_error = what.starts_with("error") || what.starts_with("catastrophic error");
        let (_, number) = place.rsplit_once('(').filter(|_| is_error)?;
        number.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use trunnion_cuda_double::Double;
    use trunnion_cuda_double::compilers::Compilers;

    #[test]
    fn whole_constants_are_integers_and_others_keep_every_digit() {
        for (value, text) in [
            (64.0, "64"),
            (-3.0, "(-3)"),
            (0.5, "5e-1"),
            (0.1, "1e-1"),
            (1e300, "1e300"),
            (-0.25, "(-2.5e-1)"),
            (-0.0, "(-0e0)"),
            (4_294_967_296.0, "4294967296"),
        ] {
            assert_eq!(literal(value), text);
        }
    }

    #[test]
    fn the_line_of_the_first_error_is_found_behind_warnings() {
        let log = "k.cu(2): warning #177-D: variable \"a\" was declared but never referenced\n\n\
                   k.cu(7): error: identifier \"b\" is undefined\nk.cu(9): error: expected a \";\"";
        assert_eq!(first_line(log), Some(7));
        assert_eq!(first_line("k.cu(3): catastrophic error: cannot open source file \"x.h\""), Some(3));
        assert_eq!(first_line("nvrtc: error: invalid value for --gpu-architecture (-arch)"), None);
    }

    #[test]
    fn a_constant_must_be_a_macro_that_the_source_has() {
        let source = "int x = N + N_2;";
        assert!(check_constant("k", source, "N").is_ok() && check_constant("k", source, "N_2").is_ok());
        assert!(
            check_constant("k", "#include <n.h>", "N").is_ok() && check_constant("k", "# include <n.h>", "N").is_ok()
        );
        for (name, why) in
            [("M", "not in the source"), ("N_", "not in the source"), ("7", "not the name"), ("", "not the name")]
        {
            let error = check_constant("k", source, name).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&format!("`{name}`")), "{error}");
        }
    }

    fn compiler(test: &str, options: &CudaOptions, form: CodeForm, capability: u32) -> Option<Compiler> {
        let compilers = Compilers::for_test(test)?;
        // NVRTC looks for a driver, and finds the double.
        Double::open().unwrap();
        Some(Compiler::new(&options.clone().compiler(&compilers.root), form, capability, 13_000))
    }

    #[test]
    fn code_that_a_driver_older_than_the_compiler_refuses_is_told_with_both_versions() {
        let test = "code that a driver older than the compiler refuses is told with both versions";
        let Some(mut compiler) = compiler(test, &CudaOptions::default(), CodeForm::Cubin, 90) else { return };
        let refused = || Error::Compile { kernel: "k".to_string(), message: "it is refused".to_string(), line: None };
        assert_eq!(compiler.explained(refused()), refused());
        compiler.driver = 12_080;
        let error = compiler.explained(refused()).to_string();
        for words in ["it is refused", "NVRTC 13.0", "CUDA 12.8", "`compiler`"] {
            assert!(error.contains(words), "{error}");
        }
        let other = Error::InvalidKernel { kernel: "k".to_string(), why: "arguments".to_string() };
        assert_eq!(compiler.explained(other.clone()), other);
    }

    #[test]
    fn a_source_becomes_ptx_or_code_for_the_hardware() {
        let source = "extern \"C\" __global__ void add(unsigned *x) { x[threadIdx.x] += N; }";
        let constants = [("N".to_string(), 3.0)];
        let text = Text { kernel: "add", source, constants: &constants };
        // The last is hardware that the compiler does not know yet.
        for (form, capability, target) in [
            (CodeForm::Ptx, 90, Some("sm_90")),
            (CodeForm::Ptx, 75, Some("sm_75")),
            (CodeForm::Cubin, 90, None),
            (CodeForm::Cubin, 75, None),
            (CodeForm::Cubin, 990, Some("sm_121")),
        ] {
            let test = "a source becomes PTX or code for the hardware";
            let Some(compiler) = compiler(test, &CudaOptions::default(), form, capability) else { return };
            let bytes = compiler.compile(text).unwrap();
            let image = Image::of(&bytes).unwrap();
            assert_eq!((image.target(), image.entries()), (target, alloc::vec!["add"]));
        }
    }

    #[test]
    fn hardware_that_is_too_old_for_the_compiler_is_named_with_the_oldest() {
        let test = "hardware that is too old for the compiler is named with the oldest";
        let Some(compiler) = compiler(test, &CudaOptions::default(), CodeForm::Cubin, 52) else { return };
        let error = compiler.compile(Text { kernel: "k", source: "", constants: &[] }).unwrap_err().to_string();
        assert!(error.contains("compute capability 7.5 and later, the device has 5.2"), "{error}");
    }
}
