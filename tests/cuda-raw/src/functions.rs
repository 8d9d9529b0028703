//! The functions: each a method of CUDA's name, which gives its status.

#![allow(non_snake_case, reason = "the names are CUDA's")]

use crate::{Access, Address, Copy2D, Handle, HostFunction, MISSING, Placement};
use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use libloading::Library;

macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        /// The functions of a driver.
        #[derive(Debug)]
        pub struct Functions {
            $($name: Option<unsafe extern "C" fn($($kind),*) -> u32>,)*
        }

        impl Functions {
            /// Those that a library has.
            ///
            /// # Safety
            /// What the library has under a name is the function that CUDA's manual describes under it.
            pub(crate) unsafe fn of(library: &'static Library) -> Self {
                Self {
                    $(
                        // SAFETY: of the type that the manual gives it, by the caller's promise; the library stays.
                        $name: unsafe { library.get(concat!(stringify!($name), "\0")) }.ok().map(|function| *function),
                    )*
                }
            }

            $(
                #[doc = concat!("Equivalent to: `", stringify!($name), "`.")]
                ///
                /// # Safety
                /// As CUDA's manual says.
                #[inline]
                #[allow(clippy::too_many_arguments, reason = "they are CUDA's")]
                pub unsafe fn $name(&self, $($argument: $kind),*) -> u32 {
                    match self.$name {
                        // SAFETY: the caller's promise.
                        Some(function) => unsafe { function($($argument),*) },
                        None => MISSING,
                    }
                }
            )*
        }
    };
}

functions! {
    cuInit(flags: c_uint);
    cuGetErrorName(status: u32, name: *mut *const c_char);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, other: c_int);
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDevicePrimaryCtxReset_v2(device: c_int);
    cuCtxGetCurrent(context: *mut Handle);
    cuCtxSetCurrent(context: Handle);
    cuCtxPushCurrent_v2(context: Handle);
    cuCtxPopCurrent_v2(context: *mut Handle);
    cuCtxSynchronize();
    cuCtxEnablePeerAccess(context: Handle, flags: c_uint);
    cuCtxDisablePeerAccess(context: Handle);
    cuPointerGetAttribute(found: *mut c_void, wanted: c_uint, address: Address);
    cuMemAlloc_v2(address: *mut Address, bytes: usize);
    cuMemFree_v2(address: Address);
    cuMemAllocAsync(address: *mut Address, bytes: usize, stream: Handle);
    cuMemFreeAsync(address: Address, stream: Handle);
    cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostGetDevicePointer_v2(address: *mut Address, start: *mut c_void, flags: c_uint);
    cuMemFreeHost(start: *mut c_void);
    cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(start: *mut c_void);
    cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, bytes: usize, stream: Handle);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, bytes: usize, stream: Handle);
    cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Handle);
    cuMemcpyDtoH_v2(to: *mut c_void, from: Address, bytes: usize);
    cuMemcpy2DAsync_v2(copy: *const Copy2D, stream: Handle);
    cuMemsetD8_v2(address: Address, value: u8, bytes: usize);
    cuMemsetD8Async(address: Address, value: u8, bytes: usize, stream: Handle);
    cuMemsetD32_v2(address: Address, value: c_uint, words: usize);
    cuMemsetD32Async(address: Address, value: c_uint, words: usize, stream: Handle);
    cuMemGetAllocationGranularity(bytes: *mut usize, placement: *const Placement, option: c_uint);
    cuMemAddressReserve(address: *mut Address, bytes: usize, alignment: usize, wanted: Address, flags: c_ulonglong);
    cuMemAddressFree(address: Address, bytes: usize);
    cuMemCreate(memory: *mut c_ulonglong, bytes: usize, placement: *const Placement, flags: c_ulonglong);
    cuMemRelease(memory: c_ulonglong);
    cuMemMap(address: Address, bytes: usize, offset: usize, memory: c_ulonglong, flags: c_ulonglong);
    cuMemUnmap(address: Address, bytes: usize);
    cuMemRetainAllocationHandle(memory: *mut c_ulonglong, address: *mut c_void);
    cuMemSetAccess(address: Address, bytes: usize, access: *const Access, count: usize);
    cuStreamCreate(stream: *mut Handle, flags: c_uint);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    cuStreamBeginCapture_v2(stream: Handle, mode: c_uint);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuStreamIsCapturing(stream: Handle, status: *mut c_uint);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: c_ulonglong);
    cuGraphLaunch(exec: Handle, stream: Handle);
    cuGraphExecDestroy(exec: Handle);
    cuGraphDestroy(graph: Handle);
    cuEventCreate(event: *mut Handle, flags: c_uint);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventQuery(event: Handle);
    cuEventSynchronize(event: Handle);
    cuEventDestroy_v2(event: Handle);
    cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: *mut c_void);
    cuModuleLoadData(module: *mut Handle, image: *const c_void);
    cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    cuFuncGetParamInfo(function: Handle, index: usize, offset: *mut usize, bytes: *mut usize);
    cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int);
    cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    );
}
