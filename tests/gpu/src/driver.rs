//! The driver's functions by their names, with results as numbers: a code that this program does not know is one like any other.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use libloading::Library;

/// The address of device memory.
pub(crate) type Address = u64;
/// A context, stream, event, module, function or graph.
pub(crate) type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        /// A driver that is loaded. Every method is the function of CUDA of its name.
        #[allow(non_snake_case, reason = "the names are CUDA's")]
        pub(crate) struct Driver {
            _library: Library,
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Driver {
            /// Loads the driver in a file.
            #[allow(non_snake_case, reason = "the names are CUDA's")]
            pub(crate) fn open(path: &str) -> Result<Self, String> {
                // SAFETY: whoever runs this says that the file is a driver of CUDA.
                let library = unsafe { Library::new(path) }.map_err(|error| format!("{path} does not load: {error}"))?;
                $(
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: of the type that CUDA's manual gives the function of this name.
                    let $name = *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> u32>(name) }
                        .map_err(|error| error.to_string())?;
                )*
                Ok(Self { _library: library, $($name,)* })
            }

            /// The driver, for as long as the process: it is never unloaded.
            pub(crate) fn leak(self) -> &'static Self {
                Box::leak(Box::new(self))
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuGetErrorName(u32, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDevicePrimaryCtxRetain(*mut Handle, c_int);
    cuDevicePrimaryCtxReset_v2(c_int);
    cuCtxSetCurrent(Handle);
    cuCtxSynchronize();
    cuMemAlloc_v2(*mut Address, usize);
    cuMemFree_v2(Address);
    cuMemAllocAsync(*mut Address, usize, Handle);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemHostGetDevicePointer_v2(*mut Address, *mut c_void, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Handle);
    cuMemcpyDtoH_v2(*mut c_void, Address, usize);
    cuMemsetD32_v2(Address, c_uint, usize);
    cuMemsetD32Async(Address, c_uint, usize, Handle);
    cuStreamCreate(*mut Handle, c_uint);
    cuStreamDestroy_v2(Handle);
    cuStreamQuery(Handle);
    cuStreamSynchronize(Handle);
    cuStreamWaitEvent(Handle, Handle, c_uint);
    cuStreamBeginCapture_v2(Handle, c_uint);
    cuStreamEndCapture(Handle, *mut Handle);
    cuStreamIsCapturing(Handle, *mut c_uint);
    cuEventCreate(*mut Handle, c_uint);
    cuEventRecord(Handle, Handle);
    cuEventQuery(Handle);
    cuModuleLoadData(*mut Handle, *const c_void);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
}

impl Driver {
    /// The name of a code, as the driver has it.
    pub(crate) fn name(&self, code: u32) -> String {
        let mut name = core::ptr::null();
        // SAFETY: the place is for a pointer.
        let known = unsafe { (self.cuGetErrorName)(code, &raw mut name) } == 0 && !name.is_null();
        // SAFETY: the driver gave a text that ends with a zero and stays.
        if known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { "no name".to_string() }
    }
}
