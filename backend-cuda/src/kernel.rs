//! Kernels as functions of modules: from CUDA C++ as NVRTC compiled it, from PTX, from code for the hardware; held against what the
//! kernel declares; and what of them is worth keeping.
//!
//! A function takes the kernel's buffers in the interface's order, each as a pointer; behind them its tensor maps, and then the parameters, by
//! value, where there are any; and last the length of each buffer in bytes, of 64 bits, as many of them as it declares. A kernel's workgroup-shared memory is what
//! its source has of its own and what is allocated when it is launched, so the latter is what its interface declares beyond the former.

use crate::compiler::{Compiler, Text};
use crate::device::Device;
use crate::failure::status;
use crate::image::Image;
use crate::module::{self, Module};
use crate::tensor;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ptr;
use cudarc::driver::sys;
use trunnion_backend_core::driver::{CompileJob, Compiled, StoredCode};
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::error::{Error, Resource, Result, SourceForm};
use trunnion_runtime_core::kernel::{KernelHandle, TensorMap};

use sys::CUfunction_attribute_enum as Attribute;

/// Bytes of a pointer, and of a length.
const WORD: usize = size_of::<u64>();

/// Bytes of arguments that every function can take, and how many since CUDA 12.1, on hardware of compute capability 7.0 and later.
const MOST_ARGUMENTS: (u64, u64) = (4096, 32_764);

/// A compiled kernel. Batches that use it hold it, so that it may be dropped at any time, also after its driver.
///
/// Equivalent to: a `CUfunction` with its `CUmodule`.
#[derive(Clone)]
pub struct CudaCode(pub(crate) Arc<Function>);

impl CudaCode {
    /// Registers that each thread of it has.
    ///
    /// Equivalent to: `CU_FUNC_ATTRIBUTE_NUM_REGS`.
    pub fn registers(&self) -> u32 {
        self.0.registers
    }

    /// Bytes of memory that each thread has of its own because registers do not suffice, or because its source says so.
    ///
    /// Equivalent to: `CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`.
    pub fn local_bytes(&self) -> u32 {
        self.0.local
    }

    /// Bytes of shared memory that each workgroup has when it is launched: those of the source, and those beyond that the interface declares.
    ///
    /// Equivalent to: `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES` and `sharedMemBytes` of `cuLaunchKernel` together.
    pub fn shared_bytes(&self) -> u32 {
        self.0.fixed_shared + self.0.shared
    }
}

/// A function that can be launched, and how.
pub(crate) struct Function {
    module: Module,
    raw: sys::CUfunction,
    name: String,
    buffers: usize,
    maps: Vec<TensorMap>,
    parameters: usize,
    /// How many buffers' lengths it takes.
    lengths: usize,
    workgroup: [u32; 3],
    /// Shared memory by the source, and what is allocated beside it.
    fixed_shared: u32,
    shared: u32,
    registers: u32,
    local: u32,
}

// SAFETY: the handle is one of a context's, which any thread may use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Compiles a kernel.
///
/// # Errors
/// [`Error::Compile`] for code the device does not take; [`Error::InvalidKernel`] for code that is not what the kernel declares;
/// [`Error::TooManyResources`] for workgroups larger than the code can have, and for more arguments than a function takes; what the driver
/// answers.
pub(crate) fn compile(device: &Arc<Device>, compiler: &Compiler, job: &CompileJob<'_>) -> Result<Compiled<CudaCode>> {
    let _inside = Inside::compiling()?;
    let kernel = job.kernel;
    check_size(device, kernel)?;
    let refused = |message: String| Error::Compile { kernel: kernel.name().to_string(), message, line: None };
    let no_text = || refused("its source is not what it says it is".to_string());
    let source = kernel.source();
    let load = |image: &Image<'_>| Function::load(device, kernel, image).map(|made| CudaCode(Arc::new(made)));
    match source.form() {
        SourceForm::CudaC => {
            let source = source.as_text().ok_or_else(no_text)?;
            // What could depend on a header that is edited is compiled each time.
            let is_known = compiler.knows_all_of(source);
            if let Some(stored) = job.stored.filter(|_| is_known)
                && let Some(code) = of_stored(stored, load)?
            {
                return Ok(Compiled { code, stored: StoredCode::Used });
            }
            let text = Text { kernel: kernel.name(), source, constants: kernel.constants() };
            let bytes = compiler.compile(text)?;
            let code = load(&Image::of(&bytes).map_err(refused)?).map_err(|error| compiler.explained(error))?;
            let stored = match job.stored {
                _ if !is_known => StoredCode::None,
                Some(_) => StoredCode::Damaged(bytes),
                None => StoredCode::Keep(bytes),
            };
            Ok(Compiled { code, stored })
        }
        // The driver keeps what it compiles of PTX itself.
        SourceForm::Ptx => {
            let image = Image::ptx(source.content().ok_or_else(no_text)?).map_err(refused)?;
            Ok(Compiled { code: load(&image)?, stored: StoredCode::None })
        }
        _ => {
            let image = Image::binary(source.content().ok_or_else(no_text)?).map_err(refused)?;
            Ok(Compiled { code: load(&image)?, stored: StoredCode::None })
        }
    }
}

/// Whether a function can take the arguments that the kernel cannot do without. How many lengths of buffers a function declares beside
/// them is held against the limit by the compiler.
fn check_size(device: &Device, kernel: &KernelHandle) -> Result<()> {
    let (few, many) = MOST_ARGUMENTS;
    let has_many = device.library.version >= 12_010 && device.capability >= (7, 0);
    let max = if has_many { many } else { few };
    let interface = kernel.interface();
    let words = interface.buffers.len() + tensor::WORDS * interface.tensor_maps.len();
    let requested = (WORD * words) as u64 + u64::from(interface.parameters);
    match requested <= max {
        true => Ok(()),
        false => Err(Error::TooManyResources {
            kernel: kernel.name().to_string(),
            resource: Resource::Arguments,
            requested,
            max,
        }),
    }
}

/// What was stored, as code; nothing where it is damaged.
///
/// # Errors
/// What says nothing of what was stored: the device's fault, memory that ran out, a kernel that contradicts its code.
fn of_stored(stored: &[u8], load: impl FnOnce(&Image<'_>) -> Result<CudaCode>) -> Result<Option<CudaCode>> {
    let Ok(image) = Image::of(stored) else { return Ok(None) };
    match load(&image) {
        Ok(code) => Ok(Some(code)),
        Err(Error::Compile { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

impl Function {
    fn load(device: &Arc<Device>, kernel: &KernelHandle, image: &Image<'_>) -> Result<Self> {
        let module = Module::load(device, kernel.name(), image)?;
        let _current = device.enter()?;
        let raw = find(&module, kernel.name(), image)?;
        let number = |attribute| attribute_of(device, raw, attribute);
        let interface = kernel.interface();
        let fixed_shared = number(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let mut function = Self {
            raw,
            name: kernel.name().to_string(),
            buffers: interface.buffers.len(),
            maps: interface.tensor_maps.clone(),
            parameters: interface.parameters as usize,
            lengths: interface.buffers.len(),
            workgroup: kernel.workgroup_size(),
            fixed_shared,
            shared: interface.shared.saturating_sub(fixed_shared),
            registers: number(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local: number(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            module,
        };
        function.check_workgroup(number(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?)?;
        function.check_arguments()?;
        function.allow_shared(number(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?)?;
        Ok(function)
    }

    /// Whether a workgroup has no more invocations than the code was compiled for.
    fn check_workgroup(&self, most: u32) -> Result<()> {
        let requested = self.workgroup.iter().map(|count| u64::from(*count)).fold(1, u64::saturating_mul);
        match requested <= u64::from(most) {
            true => Ok(()),
            false => Err(self.too_many(Resource::Invocations, requested, most)),
        }
    }

    fn too_many(&self, resource: Resource, requested: u64, max: u32) -> Error {
        Error::TooManyResources { kernel: self.name.clone(), resource, requested, max: u64::from(max) }
    }

    /// Finds out how many lengths it takes, where the driver says what a function takes, and checks the rest.
    fn check_arguments(&mut self) -> Result<()> {
        let Some(ask) = self.device().functions().cuFuncGetParamInfo else { return Ok(()) };
        let wanted: Vec<usize> = [WORD].repeat(self.buffers);
        let maps = [tensor::WORDS * WORD].repeat(self.maps.len());
        let parameters = Some(self.parameters).filter(|bytes| *bytes > 0);
        let given: Vec<usize> =
            wanted.iter().copied().chain(maps).chain(parameters).chain(wanted.iter().copied()).collect();
        let needed = self.buffers + self.maps.len() + usize::from(parameters.is_some());
        let mut declared = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the context is current, the function its own, and the places are ours.
            match unsafe { ask(self.raw, declared.len(), &raw mut offset, &raw mut size) } {
                status::SUCCESS => declared.push(size),
                // There is none of that number.
                status::INVALID_VALUE => break,
                code => return Err(self.device().failed("cuFuncGetParamInfo", code)),
            }
            if declared.len() > given.len() {
                break;
            }
        }
        let why = if let Some(i) = given.iter().zip(&declared).position(|(given, declared)| given != declared) {
            format!("argument {i} has {} bytes in its code, {}", declared[i], self.meant(i))
        } else if declared.len() < needed {
            let missing = self.meant(declared.len());
            format!(
                "its code takes {} arguments, at least {needed} are declared: argument {}: {missing}",
                declared.len(),
                declared.len()
            )
        } else if declared.len() > given.len() {
            format!("its code takes more than the {} arguments there are: {}", given.len(), self.meant(given.len()))
        } else {
            self.lengths = declared.len() - needed;
            return Ok(());
        };
        Err(Error::InvalidKernel { kernel: self.name.clone(), why })
    }

    /// What argument `i` of a launch is.
    fn meant(&self, i: usize) -> String {
        let maps = self.buffers + self.maps.len();
        let parameters = usize::from(self.parameters > 0);
        match i {
            i if i < self.buffers => format!("the pointer to buffer {i}, {WORD} bytes"),
            i if i < maps => format!("tensor map {}, {} bytes", i - self.buffers, tensor::WORDS * WORD),
            i if i < maps + parameters => format!("the parameters, {} bytes", self.parameters),
            i if i < maps + parameters + self.buffers => {
                format!("the length of buffer {}, {WORD} bytes", i - maps - parameters)
            }
            _ => format!("{} buffers, {} bytes of parameters, the buffers' lengths", self.buffers, self.parameters),
        }
    }

    /// Allows as much shared memory as launches allocate; `now` is what is allowed already.
    fn allow_shared(&self, now: u32) -> Result<()> {
        let device = self.device();
        let most = device.properties.limits.max_shared;
        let together = u64::from(self.fixed_shared) + u64::from(self.shared);
        if together > u64::from(most) {
            return Err(self.too_many(Resource::SharedMemory, together, most));
        }
        if self.shared <= now {
            return Ok(());
        }
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the context is current, and the function its own; the size is below 2 GiB, being within the device's limit.
        let code = unsafe { (device.functions().cuFuncSetAttribute)(self.raw, attribute, self.shared as i32) };
        match code {
            // A limit that the device does not say: the code's own need of shared memory.
            status::INVALID_VALUE => {
                Err(self.too_many(Resource::SharedMemory, together, now.saturating_add(self.fixed_shared)))
            }
            code => device.check("cuFuncSetAttribute", code),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        self.module.device()
    }

    #[inline]
    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many buffers it takes.
    #[inline]
    pub(crate) fn buffers(&self) -> usize {
        self.buffers
    }

    /// The buffers that it takes as tensors too.
    #[inline]
    pub(crate) fn maps(&self) -> &[TensorMap] {
        &self.maps
    }

    /// Bytes of parameters that it takes.
    #[inline]
    pub(crate) fn parameters(&self) -> usize {
        self.parameters
    }

    /// How many buffers' lengths it takes.
    #[inline]
    pub(crate) fn lengths(&self) -> usize {
        self.lengths
    }

    #[inline]
    pub(crate) fn workgroup(&self) -> [u32; 3] {
        self.workgroup
    }

    /// Bytes of shared memory that are allocated for each workgroup when it is launched.
    #[inline]
    pub(crate) fn shared(&self) -> u32 {
        self.shared
    }
}

/// The function of a name.
fn find(module: &Module, name: &str, image: &Image<'_>) -> Result<sys::CUfunction> {
    let (device, mut raw) = (module.device(), ptr::null_mut());
    let refused = |message: String| Error::Compile { kernel: name.to_string(), message, line: None };
    let text =
        CString::new(name).map_err(|_| refused("its name has a zero byte, which no function has".to_string()))?;
    // SAFETY: the context is current, the module its own, the name ends with a zero, and the place is ours.
    let code = unsafe { (device.functions().cuModuleGetFunction)(&raw mut raw, module.raw(), text.as_ptr()) };
    match code {
        status::SUCCESS => Ok(raw),
        status::NOT_FOUND => {
            let entries: Vec<_> = image.entries().iter().map(|entry| format!("`{entry}`")).collect();
            let known = if entries.is_empty() { "none that can be seen".to_string() } else { entries.join(", ") };
            Err(refused(format!(
                "it has no kernel `{name}`; it has: {known}. In CUDA C++ a kernel is `extern \"C\" __global__ void`"
            )))
        }
        // It was loaded, but for this function.
        status::NOT_SUPPORTED if !module.log().is_empty() => {
            let (message, line) = (module.log().to_string(), module::line(module.log()));
            Err(Error::Compile { kernel: name.to_string(), message, line })
        }
        code => Err(device.failed("cuModuleGetFunction", code)),
    }
}

fn attribute_of(device: &Device, raw: sys::CUfunction, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the context is current, the function its own, and the place is ours.
    let code = unsafe { (device.functions().cuFuncGetAttribute)(&raw mut value, attribute, raw) };
    device.check("cuFuncGetAttribute", code)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

impl fmt::Debug for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaCode")
            .field("buffers", &self.0.buffers)
            .field("parameters", &self.0.parameters)
            .field("registers", &self.registers())
            .field("local_bytes", &self.local_bytes())
            .field("shared_bytes", &self.shared_bytes())
            .finish_non_exhaustive()
    }
}
