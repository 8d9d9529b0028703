//! The first device with its primary context, and what questions have in common.

use core::ffi::{CStr, c_void};
use core::ptr;
use trunnion_cuda_raw::{Address, Driver, Handle};

/// The kernels of the questions.
const KERNELS: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("kernels.ptx"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("the text holds no zero"),
};

/// Turns of the kernel that takes time: enough to outlast what is asked of other streams meanwhile, a fraction of a second on a GPU.
const TURNS: u32 = 400_000;

/// The stream without a name.
pub(crate) const LEGACY: Handle = ptr::null_mut();

/// A device in use.
pub(crate) struct Device {
    pub(crate) driver: &'static Driver,
    module: Handle,
}

impl Device {
    /// The first device, with its context current on this thread and the kernels loaded.
    pub(crate) fn first(driver: &'static Driver) -> Result<Self, String> {
        let device = Self { driver, module: ptr::null_mut() };
        let mut context = ptr::null_mut();
        // SAFETY: the place is for a handle.
        unsafe {
            device.must("cuInit", driver.cuInit(0))?;
            device.must("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&raw mut context, 0))?;
            device.must("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))?;
        }
        Ok(Self { module: device.load(KERNELS)?, ..device })
    }

    /// What a call that has nothing to do with the question must give.
    pub(crate) fn must(&self, call: &str, code: u32) -> Result<(), String> {
        self.driver.check(call, code)
    }

    /// What loading a module gives.
    pub(crate) fn try_load(&self, text: &CStr) -> Result<Handle, u32> {
        let mut module = ptr::null_mut();
        // SAFETY: the place is for a handle, and the text ends with a zero.
        match unsafe { self.driver.cuModuleLoadData(&raw mut module, text.as_ptr().cast()) } {
            0 => Ok(module),
            code => Err(code),
        }
    }

    fn load(&self, text: &CStr) -> Result<Handle, String> {
        self.try_load(text).map_err(|code| format!("cuModuleLoadData gave {code} ({})", self.driver.name(code)))
    }

    /// What finding a kernel gives.
    pub(crate) fn find(&self, name: &CStr) -> Result<Handle, u32> {
        let mut function = ptr::null_mut();
        // SAFETY: the place is for a handle, the module is loaded, and the name ends with a zero.
        match unsafe { self.driver.cuModuleGetFunction(&raw mut function, self.module, name.as_ptr()) } {
            0 => Ok(function),
            code => Err(code),
        }
    }

    /// Device memory, all zero.
    pub(crate) fn memory(&self, words: usize) -> Result<Address, String> {
        let mut address = 0;
        // SAFETY: the place is for an address, and the memory has as many words.
        unsafe {
            self.must("cuMemAlloc", self.driver.cuMemAlloc_v2(&raw mut address, words * 4))?;
            self.must("cuMemsetD32", self.driver.cuMemsetD32_v2(address, 0, words))?;
            self.must("cuCtxSynchronize", self.driver.cuCtxSynchronize())?;
        }
        Ok(address)
    }

    /// The first word there.
    pub(crate) fn word(&self, address: Address) -> Result<u32, String> {
        let mut word = 0u32;
        // SAFETY: the place is for a word.
        let code = unsafe { self.driver.cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4) };
        self.must("cuMemcpyDtoH", code).map(|()| word)
    }

    /// A stream that does not wait for the one without a name, or one that does.
    pub(crate) fn stream(&self, is_blocking: bool) -> Result<Handle, String> {
        let mut stream = ptr::null_mut();
        // SAFETY: the place is for a handle.
        let code = unsafe { self.driver.cuStreamCreate(&raw mut stream, u32::from(!is_blocking)) };
        self.must("cuStreamCreate", code).map(|()| stream)
    }

    /// An event that keeps no time.
    pub(crate) fn event(&self) -> Result<Handle, String> {
        let mut event = ptr::null_mut();
        // SAFETY: the place is for a handle.
        let code = unsafe { self.driver.cuEventCreate(&raw mut event, 2) };
        self.must("cuEventCreate", code).map(|()| event)
    }

    /// What a launch of one block gives.
    pub(crate) fn launch(&self, kernel: &CStr, threads: u32, shared: u32, stream: Handle, address: Address) -> u32 {
        let function = match self.find(kernel) {
            Ok(function) => function,
            Err(code) => return code,
        };
        let (mut address, mut turns) = (address, TURNS);
        let mut arguments: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut turns).cast()];
        // SAFETY: the kernel takes no more than an address and a number, and both are there for the call.
        unsafe {
            self.driver.cuLaunchKernel(
                function,
                1,
                1,
                1,
                threads,
                1,
                1,
                shared,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }

    /// Keeps a stream busy for a while; the first word there becomes as much larger as this says.
    pub(crate) fn busy(&self, stream: Handle, address: Address) -> Result<u32, String> {
        self.must("cuLaunchKernel", self.launch(c"takes_time", 1, 0, stream, address)).map(|()| TURNS)
    }

    /// What a stream came to.
    pub(crate) fn end_of(&self, stream: Handle) -> u32 {
        // SAFETY: the stream is the driver's.
        unsafe { self.driver.cuStreamSynchronize(stream) }
    }
}
