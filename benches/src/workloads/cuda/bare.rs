//! The bare driver: one device, one stream, and what the workloads ask of them.

use std::ffi::{CString, c_void};
use std::ptr;
use trunnion_backend_cuda::cudarc::driver::sys::{self, CUresult};

/// What a call gave instead of success.
type Result<T = ()> = std::result::Result<T, String>;

/// A device in use. Everything made here is of its context and lasts as long as the process.
#[derive(Debug)]
pub struct Bare {
    stream: sys::CUstream,
}

/// A kernel.
#[derive(Debug)]
pub struct Function(sys::CUfunction);

/// Page-locked memory.
#[derive(Debug)]
pub struct Pinned(*mut c_void, usize);

fn check(call: &str, result: CUresult) -> Result {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{call}: {result:?}")) }
}

impl Bare {
    /// The first device of a driver that is there, with its primary context current on this thread.
    pub fn open() -> Result<Self> {
        let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the places are for handles, and the device is one of the driver's.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&raw mut context, 0))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            // One that does not wait for the stream without a name, as ours do not.
            check("cuStreamCreate", sys::cuStreamCreate(&raw mut stream, 1))?;
        }
        Ok(Self { stream })
    }

    /// A kernel of a text.
    pub fn function(&self, text: &str, name: &str) -> Result<Function> {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let [text, name] = [text, name].map(|text| CString::new(text).map_err(|error| error.to_string()));
        let (text, name) = (text?, name?);
        // SAFETY: the places are for handles, and the texts end with a zero.
        unsafe {
            check("cuModuleLoadData", sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()))?;
            check("cuModuleGetFunction", sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()))?;
        }
        Ok(Function(function))
    }

    /// Device memory, all zero.
    pub fn memory(&self, bytes: usize) -> Result<sys::CUdeviceptr> {
        let mut address = 0;
        // SAFETY: the place is for an address, and the memory has so many bytes.
        unsafe {
            check("cuMemAlloc", sys::cuMemAlloc_v2(&raw mut address, bytes))?;
            check("cuMemsetD8Async", sys::cuMemsetD8Async(address, 0, bytes, self.stream))?;
        }
        Ok(address)
    }

    /// Page-locked memory, all zero.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned> {
        let mut start = ptr::null_mut();
        // SAFETY: the place is for a pointer, and the memory has so many bytes.
        unsafe {
            check("cuMemHostAlloc", sys::cuMemHostAlloc(&raw mut start, bytes, 0))?;
            ptr::write_bytes(start.cast::<u8>(), 0, bytes);
        }
        Ok(Pinned(start, bytes))
    }

    /// Launches one block of a kernel that takes two buffers and a number.
    pub fn launch(&self, function: &Function, threads: u32, buffers: [sys::CUdeviceptr; 2], number: u32) -> Result {
        let ([mut first, mut second], mut number) = (buffers, number);
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut first).cast(), (&raw mut second).cast(), (&raw mut number).cast()];
        let (arguments, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the kernel takes what the arguments are, and they are there for the call.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(function.0, 1, 1, 1, threads, 1, 1, 0, self.stream, arguments, none)
        })
    }

    /// Takes memory from the driver's pool and gives it back.
    pub fn allocate_and_free(&self, bytes: usize) -> Result {
        let mut address = 0;
        // SAFETY: the place is for an address, which is given back once.
        unsafe {
            check("cuMemAllocAsync", sys::cuMemAllocAsync(&raw mut address, bytes, self.stream))?;
            check("cuMemFreeAsync", sys::cuMemFreeAsync(address, self.stream))
        }
    }

    /// Copies page-locked memory to device memory that is at least as large.
    pub fn upload(&self, to: sys::CUdeviceptr, from: &Pinned) -> Result {
        // SAFETY: both have so many bytes and last as long as the process.
        check("cuMemcpyHtoDAsync", unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.0, from.1, self.stream) })
    }

    /// Waits for all of it.
    pub fn finish(&self) -> Result {
        // SAFETY: the stream is the driver's.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
    }
}
