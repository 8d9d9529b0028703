//! Modules: code in the driver's hands, from loading it with the log of what the driver compiles, to giving it back.

use crate::device::Device;
use crate::failure::status;
use crate::image::Image;
use crate::library::version_text;
use crate::retired::Memory;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{c_uint, c_void};
use core::ptr;
use cudarc::driver::sys;
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::error::{Error, Result};

use sys::CUjit_option_enum as Option;

/// Bytes of a log of the driver's compiler. What is longer is cut by it.
const LOG: usize = 8 << 10;

/// Code that is loaded. What is launched holds it until it is over.
pub(crate) struct Module {
    device: Arc<Device>,
    raw: sys::CUmodule,
    log: String,
}

impl Module {
    /// Loads code.
    ///
    /// # Errors
    /// [`Error::Compile`] for code that the driver refuses, with its compiler's log; [`Error::OutOfMemory`] with the code's size; what else
    /// it answers.
    pub(crate) fn load(device: &Arc<Device>, kernel: &str, image: &Image<'_>) -> Result<Self> {
        // What the code takes beside its own bytes the driver does not say.
        device.with_memory(image.size(), || Self::load_once(device, kernel, image))
    }

    fn load_once(device: &Arc<Device>, kernel: &str, image: &Image<'_>) -> Result<Self> {
        let _current = device.enter()?;
        let (mut info, mut error) = (alloc::vec![0_u8; LOG], alloc::vec![0_u8; LOG]);
        let mut options = [
            Option::CU_JIT_INFO_LOG_BUFFER,
            Option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            Option::CU_JIT_ERROR_LOG_BUFFER,
            Option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let size = ptr::without_provenance_mut(LOG);
        let mut values: [*mut c_void; 4] = [info.as_mut_ptr().cast(), size, error.as_mut_ptr().cast(), size];
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current, the image is whole and, being text, ends with a zero; the logs have the room they are said to have,
        // and each option has its value.
        let code = unsafe {
            (device.functions().cuModuleLoadDataEx)(
                &raw mut raw,
                image.pointer(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code == status::SUCCESS {
            let log = text(&info);
            if !log.is_empty() {
                log::debug!("kernel `{kernel}`: {log}");
            }
            return Ok(Self { device: device.clone(), raw, log });
        }
        Err(refused(device, kernel, image, code, text(&error)))
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn raw(&self) -> sys::CUmodule {
        self.raw
    }

    /// What the driver's compiler wrote.
    pub(crate) fn log(&self) -> &str {
        &self.log
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _inside = Inside::new();
        self.device.retire(Memory::Code(self.raw), 0);
    }
}

/// The error of code that was not loaded.
fn refused(device: &Device, kernel: &str, image: &Image<'_>, code: u32, log: String) -> Error {
    let (major, minor) = device.capability;
    let reason = match code {
        status::UNSUPPORTED_PTX_VERSION => format!(
            "it is PTX {}, newer than this driver takes, which is for CUDA {}",
            image.version().unwrap_or("of an unknown version"),
            version_text(device.library.version)
        ),
        status::NO_BINARY_FOR_GPU => {
            let meant = image.target().map_or(String::new(), |target| format!(" but {target}"));
            format!("it is not for this device, which is of compute capability {major}.{minor}{meant}")
        }
        status::INVALID_IMAGE | status::INVALID_PTX => "it is not what the driver takes".to_owned(),
        status::JIT_COMPILER_NOT_FOUND | status::JIT_COMPILATION_DISABLED => {
            "this driver does not compile PTX here; code for the hardware works".to_owned()
        }
        status::INVALID_SOURCE | status::UNSUPPORTED_DEVSIDE_SYNC => {
            "it uses what this device does not have".to_owned()
        }
        _ => return device.failed("cuModuleLoadDataEx", code),
    };
    let words = device.functions().words(code);
    let line = line(&log);
    let message = match log.is_empty() {
        true => format!("{reason}: {words}"),
        false => format!("{reason}: {words}: {log}"),
    };
    Error::Compile { kernel: kernel.to_string(), message, line }
}

/// A log up to its end.
fn text(log: &[u8]) -> String {
    let bytes: Vec<u8> = log.iter().copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

/// The first line of PTX that a log names, as `line 12`.
pub(crate) fn line(log: &str) -> core::option::Option<u32> {
    let mut words = log.split(|part: char| !part.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        if word == "line"
            && let Some(number) = words.next().and_then(|number| number.parse().ok())
        {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_a_log_names_is_found() {
        assert_eq!(line("ptxas application ptx input, line 12; error : Unknown symbol 'x'"), Some(12));
        assert_eq!(line("ptx line 3: what"), Some(3));
        assert_eq!(line("ptxas fatal   : Ptx assembly aborted due to errors"), None);
    }
}
