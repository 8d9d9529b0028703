//! The functions of the driver that are called, found by name when it is opened.
//!
//! The bindings end the process for a function that is missing, and take a status that they don't know for one that they do. So the
//! functions are called through a table of this crate's own, whose results are numbers.

#![allow(non_snake_case, reason = "the names are the driver's")]

use alloc::ffi::CString;
use alloc::string::String;
use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::fmt;
use core::mem;
use core::ptr::NonNull;
use cudarc::driver::sys;

/// Declares the table: each function by the name under which the driver exports it.
macro_rules! functions {
    (
        required { $($needed:ident($($needed_type:ty),*);)* }
        optional { $($offered:ident($($offered_type:ty),*);)* }
    ) => {
        /// The driver's functions, each of which gives a status: 0, or the number of an error.
        #[derive(Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(crate) $needed: unsafe extern "C" fn($($needed_type),*) -> u32,)*
            $(pub(crate) $offered: Option<unsafe extern "C" fn($($offered_type),*) -> u32>,)*
        }

        impl Functions {
            /// The names of those without which nothing can be done.
            #[cfg(test)]
            pub(crate) const NEEDED: &[&str] = &[$(stringify!($needed)),*];

            /// Finds each function by its name.
            ///
            /// # Errors
            /// The name of the first one that is missing, of those without which nothing can be done.
            ///
            /// # Safety
            /// What is found under a name is the function that CUDA's manual describes under it.
            pub(crate) unsafe fn find(find: impl Fn(&CStr) -> Option<NonNull<c_void>>) -> Result<Self, &'static str> {
                let find = |name: &'static str| CString::new(name).ok().and_then(|name| find(&name)).ok_or(name);
                Ok(Self {
                    // SAFETY: of the type that the manual gives it, by the caller's promise; so for the others.
                    $($needed: unsafe {
                        mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($needed_type),*) -> u32>(
                            find(stringify!($needed))?,
                        )
                    },)*
                    $($offered: find(stringify!($offered)).ok().map(|found| {
                        // SAFETY: as above.
                        unsafe {
                            mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($offered_type),*) -> u32>(found)
                        }
                    }),)*
                })
            }

            /// The functions that can be missing, and whether they are there.
            pub(crate) fn offered(&self) -> impl Iterator<Item = (&'static str, bool)> {
                [$((stringify!($offered), self.$offered.is_some()),)*].into_iter()
            }
        }
    };
}

functions! {
    required {
        cuInit(c_uint);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut sys::CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
        cuDeviceTotalMem_v2(*mut usize, sys::CUdevice);
        cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
        cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
        cuDevicePrimaryCtxRelease_v2(sys::CUdevice);
        cuCtxPushCurrent_v2(sys::CUcontext);
        cuCtxPopCurrent_v2(*mut sys::CUcontext);
        cuCtxSetCurrent(sys::CUcontext);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut sys::CUdeviceptr, usize);
        cuMemFree_v2(sys::CUdeviceptr);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
        cuMemcpyDtoDAsync_v2(sys::CUdeviceptr, sys::CUdeviceptr, usize, sys::CUstream);
        cuMemcpy2DAsync_v2(*const sys::CUDA_MEMCPY2D, sys::CUstream);
        cuMemsetD8Async(sys::CUdeviceptr, u8, usize, sys::CUstream);
        cuMemsetD32Async(sys::CUdeviceptr, c_uint, usize, sys::CUstream);
        cuStreamCreateWithPriority(*mut sys::CUstream, c_uint, c_int);
        cuStreamDestroy_v2(sys::CUstream);
        cuStreamQuery(sys::CUstream);
        cuStreamSynchronize(sys::CUstream);
        cuStreamWaitEvent(sys::CUstream, sys::CUevent, c_uint);
        cuEventCreate(*mut sys::CUevent, c_uint);
        cuEventDestroy_v2(sys::CUevent);
        cuEventRecord(sys::CUevent, sys::CUstream);
        cuEventQuery(sys::CUevent);
        cuEventSynchronize(sys::CUevent);
        cuModuleLoadDataEx(
            *mut sys::CUmodule,
            *const c_void,
            c_uint,
            *mut sys::CUjit_option,
            *mut *mut c_void
        );
        cuModuleUnload(sys::CUmodule);
        cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
        cuFuncGetAttribute(*mut c_int, sys::CUfunction_attribute, sys::CUfunction);
        cuFuncSetAttribute(sys::CUfunction, sys::CUfunction_attribute, c_int);
        cuLaunchKernel(
            sys::CUfunction,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            sys::CUstream,
            *mut *mut c_void,
            *mut *mut c_void
        );
    }
    optional {
        cuGetErrorName(u32, *mut *const c_char);
        cuGetErrorString(u32, *mut *const c_char);
        cuDeviceGetUuid_v2(*mut sys::CUuuid, sys::CUdevice);
        cuDeviceGetPCIBusId(*mut c_char, c_int, sys::CUdevice);
        cuDeviceCanAccessPeer(*mut c_int, sys::CUdevice, sys::CUdevice);
        cuCtxEnablePeerAccess(sys::CUcontext, c_uint);
        cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        cuThreadExchangeStreamCaptureMode(*mut c_uint);
        cuPointerGetAttribute(*mut c_void, sys::CUpointer_attribute, sys::CUdeviceptr);
        cuMemGetAllocationGranularity(
            *mut usize,
            *const sys::CUmemAllocationProp,
            sys::CUmemAllocationGranularity_flags
        );
        cuMemAddressReserve(*mut sys::CUdeviceptr, usize, usize, sys::CUdeviceptr, c_ulonglong);
        cuMemAddressFree(sys::CUdeviceptr, usize);
        cuMemCreate(
            *mut sys::CUmemGenericAllocationHandle,
            usize,
            *const sys::CUmemAllocationProp,
            c_ulonglong
        );
        cuMemRelease(sys::CUmemGenericAllocationHandle);
        cuMemMap(sys::CUdeviceptr, usize, usize, sys::CUmemGenericAllocationHandle, c_ulonglong);
        cuMemUnmap(sys::CUdeviceptr, usize);
        cuMemSetAccess(sys::CUdeviceptr, usize, *const sys::CUmemAccessDesc, usize);
        cuMemRetainAllocationHandle(*mut sys::CUmemGenericAllocationHandle, *mut c_void);
        cuMemPoolSetAccess(sys::CUmemoryPool, *const sys::CUmemAccessDesc, usize);
        cuFuncGetParamInfo(sys::CUfunction, usize, *mut usize, *mut usize);
        cuLaunchKernelEx(*const sys::CUlaunchConfig, sys::CUfunction, *mut *mut c_void, *mut *mut c_void);
        cuTensorMapEncodeTiled(
            *mut sys::CUtensorMap,
            sys::CUtensorMapDataType,
            u32,
            *mut c_void,
            *const u64,
            *const u64,
            *const u32,
            *const u32,
            sys::CUtensorMapInterleave,
            sys::CUtensorMapSwizzle,
            sys::CUtensorMapL2promotion,
            sys::CUtensorMapFloatOOBfill
        );
    }
}

impl Functions {
    /// What the driver calls a status, and what it says of it; the number where it says nothing.
    pub(crate) fn words(&self, status: u32) -> String {
        let ask = |function: Option<unsafe extern "C" fn(u32, *mut *const c_char) -> u32>| {
            let mut text = core::ptr::null();
            // SAFETY: the place is for a pointer, which is left alone or set to a text that stays.
            let answer = unsafe { function?(status, &raw mut text) };
            if answer != 0 || text.is_null() {
                return None;
            }
            // SAFETY: as above; the text ends in a zero.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (ask(self.cuGetErrorName), ask(self.cuGetErrorString)) {
            (Some(name), Some(says)) => alloc::format!("{name} ({status}), {says}"),
            (Some(name), None) => alloc::format!("{name} ({status})"),
            _ => alloc::format!("status {status}"),
        }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.offered()).finish()
    }
}
