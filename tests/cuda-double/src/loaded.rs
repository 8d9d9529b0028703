//! Modules as they are loaded: PTX decoded, its variables in device memory; and launches of their kernels.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;

use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::device::{CAPABILITY, MOST_THREADS, PTX_VERSION, SHARED_BYTES, SHARED_BYTES_ASKED};
use crate::driver::driver;
use crate::execute;
use crate::handles;
use crate::memory::{Access, Kind, Region};
use crate::ptx::module::{Home, Outline, words};
use crate::ptx::{Function, Module};
use crate::report::ReportKind;
use crate::work::give_back;

/// A module that is loaded. Equivalent to: `CUmodule`.
pub(crate) struct Loaded {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    pub(crate) module: Module,
    regions: Vec<Arc<Region>>,
}

/// Why a module is refused: the code, and what a compiler would write in its log.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    pub(crate) why: String,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        for region in &self.regions {
            give_back(&self.context, region);
        }
    }
}

impl Loaded {
    /// Loads a text of PTX.
    pub(crate) fn new(context: Arc<Context>, text: &str) -> Result<Arc<Self>, Refused> {
        let refuse = |code: Code, why: String| Refused { code, why };
        let syntax = |error: crate::ptx::module::SyntaxError| {
            refuse(Code::INVALID_PTX, format!("ptx line {}: {}", error.line, error.what))
        };
        let tokens = words(text).map_err(syntax)?;
        let outline = Outline::read(&tokens).map_err(syntax)?;
        if outline.version > PTX_VERSION {
            let ((major, minor), (most, least)) = (outline.version, PTX_VERSION);
            let why = format!("the text is PTX {major}.{minor}, the driver takes PTX up to {most}.{least}");
            return Err(refuse(Code::UNSUPPORTED_PTX_VERSION, why));
        }
        let most = CAPABILITY.0 * 10 + CAPABILITY.1;
        if outline.target > most {
            let why = format!("the text is for sm_{}, the device is sm_{most}", outline.target);
            return Err(refuse(Code::NO_BINARY_FOR_GPU, why));
        }
        let mut loaded = Self {
            handle: handles::fresh(),
            context,
            module: Module { functions: Vec::new(), variables: HashMap::new() },
            regions: Vec::new(),
        };
        let mut addresses = HashMap::new();
        for variable in &outline.variables {
            if matches!(variable.home, Home::Global | Home::Constant) {
                let size = (variable.size as u64).max(1);
                loaded
                    .context
                    .device
                    .take(size)
                    .map_err(|code| refuse(code, format!("no memory for {}", variable.name)))?;
                let region = driver().space.allocate(loaded.context.device.ordinal, size, Kind::Variable);
                addresses.insert(variable.name.clone(), (region.base, variable.size));
                loaded.regions.push(region);
            }
        }
        for variable in &outline.variables {
            let Some((address, size)) = addresses.get(&variable.name) else { continue };
            let mut bytes = variable.initial.clone();
            bytes.resize(*size, 0);
            for (at, name, more) in &variable.addresses {
                let target = outline.address_of(name, &addresses).ok_or_else(|| {
                    refuse(Code::INVALID_PTX, format!("ptx line {}: `{name}` is not known", variable.line))
                })?;
                bytes[*at..*at + 8].copy_from_slice(&(target + more).to_le_bytes());
            }
            loaded.initialise(*address, &bytes).map_err(|fault| refuse(fault.code, fault.why))?;
        }
        loaded.module = outline.link(&addresses);
        Ok(Arc::new(loaded))
    }

    /// Writes a variable's first value, which everything accepted later comes after.
    fn initialise(&self, address: u64, bytes: &[u8]) -> Result<(), crate::codes::Fault> {
        let (stamp, clock) = driver().host_tick();
        Access::new(&driver().space, &*self.context, stamp, &clock, "module load").write(address, bytes)
    }

    /// What a compiler would write in its log: the functions that cannot be executed, and why.
    pub(crate) fn log(&self) -> String {
        let kernels = self.module.functions.iter().filter_map(|function| {
            let defect = function.defect.as_ref()?;
            Some(format!("{}: ptx line {}: {}\n", function.name, defect.line, defect.what))
        });
        kernels.collect()
    }
}

/// A kernel of a module. Equivalent to: `CUfunction`.
pub(crate) struct Kernel {
    pub(crate) handle: usize,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) index: usize,
    /// Shared memory a launch may ask for. Equivalent to: `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
    dynamic_limit: AtomicU32,
}

impl Kernel {
    pub(crate) fn new(loaded: Arc<Loaded>, name: &str) -> Outcome<Arc<Self>> {
        let index = loaded.module.kernel(name).ok_or(Code::NOT_FOUND)?;
        if let Some((function, defect)) = loaded.module.defect_of(index) {
            let text = format!("kernel {name}: in {}, PTX line {}: {}", function.name, defect.line, defect.what);
            loaded.context.device.report(ReportKind::Unsupported, text);
            return Err(Code::NOT_SUPPORTED);
        }
        let fixed = loaded.module.functions[index].shared_bytes as u32;
        let dynamic_limit = AtomicU32::new(SHARED_BYTES.saturating_sub(fixed));
        Ok(Arc::new(Self { handle: handles::fresh(), loaded, index, dynamic_limit }))
    }

    pub(crate) fn function(&self) -> &Function {
        &self.loaded.module.functions[self.index]
    }

    pub(crate) fn most_threads(&self) -> u32 {
        self.function().most_threads.unwrap_or(MOST_THREADS)
    }

    pub(crate) fn dynamic_limit(&self) -> u32 {
        self.dynamic_limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_dynamic_limit(&self, bytes: i32) -> Outcome {
        let fixed = self.function().shared_bytes as u32;
        match u32::try_from(bytes) {
            Ok(bytes) if bytes + fixed <= SHARED_BYTES_ASKED => {
                self.dynamic_limit.store(bytes, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) is_cooperative: bool,
}

/// Blocks along each axis at most.
const MOST_BLOCKS: [u32; 3] = [0x7FFF_FFFF, 0xFFFF, 0xFFFF];
/// Threads along each axis at most.
const MOST_ALONG: [u32; 3] = [1024, 1024, 64];

impl Shape {
    /// What a launch of a kernel in this shape is refused with, if it is.
    pub(crate) fn check(&self, kernel: &Kernel) -> Outcome {
        let refuse = |code: Code, why: String| {
            let text = format!("kernel {}: {why}", kernel.function().name);
            kernel.loaded.context.device.report(ReportKind::BadLaunch, text);
            Err(code)
        };
        for axis in 0..3 {
            let (blocks, threads) = (self.grid[axis], self.block[axis]);
            if !(1..=MOST_BLOCKS[axis]).contains(&blocks) {
                let why =
                    format!("{blocks} blocks along axis {axis}: between 1 and {} are possible", MOST_BLOCKS[axis]);
                return refuse(Code::INVALID_VALUE, why);
            }
            if !(1..=MOST_ALONG[axis]).contains(&threads) {
                let why =
                    format!("{threads} threads along axis {axis}: between 1 and {} are possible", MOST_ALONG[axis]);
                return refuse(Code::INVALID_VALUE, why);
            }
        }
        let threads: u32 = self.block.iter().product();
        if threads > MOST_THREADS {
            return refuse(Code::INVALID_VALUE, format!("{threads} threads a block: {MOST_THREADS} are possible"));
        }
        if threads > kernel.most_threads() {
            let why =
                format!("{threads} threads a block: the kernel was compiled for {} at most", kernel.most_threads());
            return refuse(Code::INVALID_VALUE, why);
        }
        if let Some(needed) = kernel.function().needed_threads.filter(|needed| *needed != self.block) {
            return refuse(
                Code::INVALID_VALUE,
                format!("blocks of {:?}: the kernel was compiled for {needed:?}", self.block),
            );
        }
        if self.shared > kernel.dynamic_limit() {
            let why = format!(
                "{} bytes of dynamic shared memory beside {} declared: {} are possible, and with the attribute set {SHARED_BYTES_ASKED} together",
                self.shared,
                kernel.function().shared_bytes,
                kernel.dynamic_limit()
            );
            return refuse(Code::INVALID_VALUE, why);
        }
        let blocks: u64 = self.grid.iter().map(|blocks| u64::from(*blocks)).product();
        let resident = crate::occupancy::blocks(kernel, threads, self.shared) * crate::device::MULTIPROCESSORS;
        if self.is_cooperative && blocks > u64::from(resident) {
            let why = format!("{blocks} blocks that may wait for each other: {resident} fit the device at once");
            return refuse(Code::COOPERATIVE_LAUNCH_TOO_LARGE, why);
        }
        Ok(())
    }
}

/// A launch that was checked.
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) shape: Shape,
    pub(crate) parameters: Vec<u8>,
}

impl Launch {
    pub(crate) fn name(&self) -> &str {
        &self.kernel.function().name
    }

    /// The launch, as it is executed.
    pub(crate) fn request(&self, context: &Context) -> execute::Launch<'_> {
        execute::Launch {
            module: &self.kernel.loaded.module,
            kernel: self.kernel.index,
            grid: self.shape.grid,
            block: self.shape.block,
            dynamic_shared: self.shape.shared,
            parameters: &self.parameters,
            limit: context.device.instructions(),
            is_cooperative: self.shape.is_cooperative,
        }
    }
}
