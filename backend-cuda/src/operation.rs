//! What a batch asks of its stream, one call of the driver each; more only where the driver does not take what is one call elsewhere.

use crate::device::Device;
use crate::failure::status;
use crate::grid::Counted;
use crate::launch::{Arguments, Launch};
use core::ptr::{self, NonNull};
use cudarc::driver::sys;
use trunnion_runtime_core::error::Result;

use sys::CUmemorytype_enum as MemoryType;

/// One of them.
pub(crate) enum Operation {
    Launch(Launch),
    /// A launch whose counts lie in memory. It takes two turns: one to fetch the counts, and one when they are there.
    Counted(Counted),
    Transfer(Transfer),
    /// What is left of a transfer whose rows the driver takes one by one.
    Rows(Transfer),
    /// So many times this byte.
    Bytes {
        to: sys::CUdeviceptr,
        byte: u8,
        count: usize,
    },
    /// So many times this word, from an address that is a multiple of four.
    Words {
        to: sys::CUdeviceptr,
        word: u32,
        count: usize,
    },
}

/// Rows of equal length at equal distances, from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) from: End,
    pub(crate) to: End,
    /// Bytes in a row.
    pub(crate) row: usize,
    /// How many rows.
    pub(crate) rows: usize,
    /// Between the beginnings of two rows, in bytes: at least a row, where there are several.
    pub(crate) from_pitch: usize,
    pub(crate) to_pitch: usize,
}

/// Whether an operation was handed over with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All of it.
    Over,
    /// There is more of it.
    Again,
}

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Device(sys::CUdeviceptr),
    /// Page-locked memory of the host.
    Host(NonNull<u8>),
}

// SAFETY: addresses, whose bytes the device touches as whoever encoded the operation promised.
unsafe impl Send for Operation {}

impl End {
    /// The place so many bytes further on.
    pub(crate) fn after(self, bytes: usize) -> Self {
        match self {
            Self::Device(address) => Self::Device(address + bytes as u64),
            // Only the address counts.
            Self::Host(start) => Self::Host(start.map_addr(|address| address.saturating_add(bytes))),
        }
    }
}

impl Operation {
    /// Hands it to the stream, or the next part of it: a call of the driver. The context is current.
    ///
    /// # Errors
    /// What the driver answers, and of counts that are too large.
    pub(crate) fn issue(&mut self, device: &Device, stream: sys::CUstream, arguments: &Arguments) -> Result<Turn> {
        let functions = device.functions();
        match self {
            Self::Launch(launch) => launch.issue(device, stream, arguments)?,
            Self::Counted(counted) => counted.issue(device, stream, arguments)?,
            Self::Transfer(transfer) if transfer.rows == 1 => transfer.issue_row(device, stream)?,
            Self::Transfer(transfer) => {
                let transfer = *transfer;
                if !transfer.issue_all(device, stream)? {
                    *self = Self::Rows(transfer);
                    return Ok(Turn::Again);
                }
            }
            Self::Rows(rest) => {
                rest.issue_row(device, stream)?;
                if rest.rows > 1 {
                    *rest = rest.behind();
                    return Ok(Turn::Again);
                }
            }
            Self::Bytes { to, byte, count } => {
                // SAFETY: the range stays until the batch is finished, by the promise under which it was encoded.
                let code = unsafe { (functions.cuMemsetD8Async)(*to, *byte, *count, stream) };
                device.check("cuMemsetD8Async", code)?;
            }
            Self::Words { to, word, count } => {
                // SAFETY: as above.
                let code = unsafe { (functions.cuMemsetD32Async)(*to, *word, *count, stream) };
                device.check("cuMemsetD32Async", code)?;
            }
        }
        Ok(Turn::Over)
    }
}

impl Transfer {
    /// So many bytes that lie one after another.
    pub(crate) fn line(from: End, to: End, bytes: usize) -> Self {
        Self { from, to, row: bytes, rows: 1, from_pitch: bytes, to_pitch: bytes }
    }

    /// What is behind its first row.
    fn behind(self) -> Self {
        let (from, to) = (self.from.after(self.from_pitch), self.to.after(self.to_pitch));
        Self { from, to, rows: self.rows - 1, ..self }
    }

    /// Hands all rows over in one call. False where the driver does not take them so: then none was.
    fn issue_all(&self, device: &Device, stream: sys::CUstream) -> Result<bool> {
        let rectangle = self.rectangle();
        // SAFETY: all rows stay until the batch is finished, by the promise under which they were encoded.
        let code = unsafe { (device.functions().cuMemcpy2DAsync_v2)(&raw const rectangle, stream) };
        let within = matches!((self.from, self.to), (End::Device(_), End::Device(_)));
        if code == status::INVALID_VALUE && within {
            // A driver may refuse distances that are not its own within a device.
            return Ok(false);
        }
        device.check("cuMemcpy2DAsync_v2", code).map(|()| true)
    }

    /// Hands its first row over.
    fn issue_row(&self, device: &Device, stream: sys::CUstream) -> Result<()> {
        let functions = device.functions();
        match (self.from, self.to) {
            (End::Device(from), End::Device(to)) => {
                // SAFETY: the row stays until the batch is finished, by the promise under which it was encoded. So for the others.
                let code = unsafe { (functions.cuMemcpyDtoDAsync_v2)(to, from, self.row, stream) };
                device.check("cuMemcpyDtoDAsync_v2", code)
            }
            (End::Host(from), End::Device(to)) => {
                // SAFETY: as above.
                let code = unsafe { (functions.cuMemcpyHtoDAsync_v2)(to, from.as_ptr().cast(), self.row, stream) };
                device.check("cuMemcpyHtoDAsync_v2", code)
            }
            (End::Device(from), End::Host(to)) => {
                // SAFETY: as above.
                let code = unsafe { (functions.cuMemcpyDtoHAsync_v2)(to.as_ptr().cast(), from, self.row, stream) };
                device.check("cuMemcpyDtoHAsync_v2", code)
            }
            // Nothing is encoded so.
            (End::Host(_), End::Host(_)) => Ok(()),
        }
    }

    fn rectangle(&self) -> sys::CUDA_MEMCPY2D {
        let side = |end: End| match end {
            End::Device(address) => (MemoryType::CU_MEMORYTYPE_DEVICE, ptr::null_mut(), address),
            End::Host(start) => (MemoryType::CU_MEMORYTYPE_HOST, start.as_ptr(), 0),
        };
        let ((from_type, from_host, from_device), (to_type, to_host, to_device)) = (side(self.from), side(self.to));
        sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from_type,
            srcHost: from_host.cast_const().cast(),
            srcDevice: from_device,
            srcArray: ptr::null_mut(),
            srcPitch: self.from_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to_type,
            dstHost: to_host.cast(),
            dstDevice: to_device,
            dstArray: ptr::null_mut(),
            dstPitch: self.to_pitch,
            WidthInBytes: self.row,
            Height: self.rows,
        }
    }
}
