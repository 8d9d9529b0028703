//! The bare driver: one device, one stream, and what the workloads ask of them.

use std::ffi::{CString, c_void};
use std::ptr;
use trunnion_cuda_raw::{Address, Driver, Handle};

/// What a call gave instead of success.
type Result<T = ()> = std::result::Result<T, String>;

/// A device in use. Everything made here is of its context and lasts as long as the process.
#[derive(Debug)]
pub struct Bare {
    driver: &'static Driver,
    stream: Handle,
}

/// A kernel.
#[derive(Debug)]
pub struct Function(Handle);

/// Page-locked memory.
#[derive(Debug)]
pub struct Pinned(*mut c_void, usize);

impl Bare {
    /// The first device of a driver that is there, with its primary context current on this thread.
    pub fn open() -> Result<Self> {
        let driver = Driver::of_process()?;
        let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the places are for handles, and the device is one of the driver's.
        unsafe {
            driver.check("cuInit", driver.cuInit(0))?;
            driver.check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&raw mut context, 0))?;
            driver.check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))?;
            // One that does not wait for the stream without a name, as ours do not.
            driver.check("cuStreamCreate", driver.cuStreamCreate(&raw mut stream, 1))?;
        }
        Ok(Self { driver, stream })
    }

    /// A kernel of a text.
    pub fn function(&self, text: &str, name: &str) -> Result<Function> {
        let driver = self.driver;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let [text, name] = [text, name].map(|text| CString::new(text).map_err(|error| error.to_string()));
        let (text, name) = (text?, name?);
        // SAFETY: the places are for handles, and the texts end with a zero.
        unsafe {
            driver.check("cuModuleLoadData", driver.cuModuleLoadData(&raw mut module, text.as_ptr().cast()))?;
            driver
                .check("cuModuleGetFunction", driver.cuModuleGetFunction(&raw mut function, module, name.as_ptr()))?;
        }
        Ok(Function(function))
    }

    /// Device memory, all zero.
    pub fn memory(&self, bytes: usize) -> Result<Address> {
        let driver = self.driver;
        let mut address = 0;
        // SAFETY: the place is for an address, and the memory has so many bytes.
        unsafe {
            driver.check("cuMemAlloc", driver.cuMemAlloc_v2(&raw mut address, bytes))?;
            driver.check("cuMemsetD8Async", driver.cuMemsetD8Async(address, 0, bytes, self.stream))?;
        }
        Ok(address)
    }

    /// Page-locked memory, all zero.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned> {
        let driver = self.driver;
        let mut start = ptr::null_mut();
        // SAFETY: the place is for a pointer, and the memory has so many bytes.
        unsafe {
            driver.check("cuMemHostAlloc", driver.cuMemHostAlloc(&raw mut start, bytes, 0))?;
            ptr::write_bytes(start.cast::<u8>(), 0, bytes);
        }
        Ok(Pinned(start, bytes))
    }

    /// Launches one block of a kernel that takes two buffers and a number.
    pub fn launch(&self, function: &Function, threads: u32, buffers: [Address; 2], number: u32) -> Result {
        let driver = self.driver;
        let ([mut first, mut second], mut number) = (buffers, number);
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut first).cast(), (&raw mut second).cast(), (&raw mut number).cast()];
        let (arguments, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the kernel takes what the arguments are, and they are there for the call.
        driver.check("cuLaunchKernel", unsafe {
            driver.cuLaunchKernel(function.0, 1, 1, 1, threads, 1, 1, 0, self.stream, arguments, none)
        })
    }

    /// Takes memory from the driver's pool and gives it back.
    pub fn allocate_and_free(&self, bytes: usize) -> Result {
        let driver = self.driver;
        let mut address = 0;
        // SAFETY: the place is for an address, which is given back once.
        unsafe {
            driver.check("cuMemAllocAsync", driver.cuMemAllocAsync(&raw mut address, bytes, self.stream))?;
            driver.check("cuMemFreeAsync", driver.cuMemFreeAsync(address, self.stream))
        }
    }

    /// Copies page-locked memory to device memory that is at least as large.
    pub fn upload(&self, to: Address, from: &Pinned) -> Result {
        let driver = self.driver;
        // SAFETY: both have so many bytes and last as long as the process.
        driver.check("cuMemcpyHtoDAsync", unsafe { driver.cuMemcpyHtoDAsync_v2(to, from.0, from.1, self.stream) })
    }

    /// Waits for all of it.
    pub fn finish(&self) -> Result {
        let driver = self.driver;
        // SAFETY: the stream is the driver's.
        driver.check("cuStreamSynchronize", unsafe { driver.cuStreamSynchronize(self.stream) })
    }
}
