//! What the driver's result codes are as errors.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use ash::vk;
use core::fmt;
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::error::{Error, OutOfMemory};

/// The error of a call that failed: a lost device is [`Error::DeviceLost`], memory that ran out [`Error::OutOfMemory`], where no size is known;
/// everything else is [`Error::Driver`]. Each names the call.
pub(crate) fn failed(call: &str, result: vk::Result) -> Error {
    match result {
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost { cause: format!("{call}: {result}") },
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            out_of_memory(0, format!("{call}: {result}"))
        }
        _ => Error::Driver { call: call.to_string(), code: i64::from(result.as_raw()), message: result.to_string() },
    }
}

fn out_of_memory(requested: u64, driver: String) -> Error {
    Error::OutOfMemory(Box::new(OutOfMemory { requested, driver: Some(driver), ..OutOfMemory::default() }))
}

/// Why there is no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A call of the driver's answered so.
    Call { call: &'static str, size: u64, result: vk::Result },
    /// The device has as much as it can have.
    Full(String),
    /// There is none of this kind: what was asked for, and what there is.
    Unfit(String),
}

impl Refusal {
    /// Whether giving memory back would help.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Call { result, .. } => matches!(
                *result,
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
                    | vk::Result::ERROR_OUT_OF_HOST_MEMORY
                    | vk::Result::ERROR_TOO_MANY_OBJECTS
                    | vk::Result::ERROR_MEMORY_MAP_FAILED
            ),
            Self::Full(_) => true,
            Self::Unfit(_) => false,
        }
    }

    /// As the error of an operation that needed `requested` bytes.
    pub(crate) fn into_error(self, requested: u64) -> Error {
        if self.is_out_of_memory() {
            return out_of_memory(requested, self.to_string());
        }
        match self {
            Self::Call { call, result, .. } => failed(call, result),
            Self::Full(why) | Self::Unfit(why) => Error::Incompatible { what: "memory".into(), why },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { call, size, result } => write!(f, "{call}, {size} bytes: {result} ({})", result.as_raw()),
            Self::Full(why) | Self::Unfit(why) => f.write_str(why),
        }
    }
}

impl From<Refusal> for DriverRefusal {
    fn from(refusal: Refusal) -> Self {
        Self { message: refusal.to_string(), out_of_memory: refusal.is_out_of_memory() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_backend_core::loss::Loss;

    #[test]
    fn the_first_call_that_saw_the_device_lost_is_named_and_no_refusal_is_a_loss() {
        let loss = Loss::default();
        let refused = loss.note(failed("vkQueueSubmit", vk::Result::ERROR_OUT_OF_HOST_MEMORY));
        assert!(!refused.is_device_lost());
        assert_eq!(loss.check(), Ok(()));
        let first = loss.note(failed("vkQueueSubmit", vk::Result::ERROR_DEVICE_LOST));
        let second = loss.note(failed("vkWaitSemaphores", vk::Result::ERROR_DEVICE_LOST));
        assert!(first.to_string().contains("vkQueueSubmit"), "{first}");
        assert_eq!((&second, loss.check()), (&first, Err(first.clone())));
    }

    #[test]
    fn a_refusal_keeps_the_call_and_its_code_whatever_it_becomes() {
        let of = |result| Refusal::Call { call: "vkAllocateMemory", size: 256, result };
        let (odd, full) = (of(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE), of(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
        let error = odd.clone().into_error(300);
        assert!(
            matches!(&error, Error::Driver { call, code: -1_000_072_003, .. } if call == "vkAllocateMemory"),
            "{error:?}"
        );
        let refusal = DriverRefusal::from(odd);
        assert!(!refusal.out_of_memory && refusal.message.contains("-1000072003"), "{refusal:?}");
        let Error::OutOfMemory(error) = full.into_error(300) else { panic!("memory ran out") };
        assert_eq!(error.requested, 300);
        assert!(error.driver.as_deref().is_some_and(|said| said.contains("vkAllocateMemory, 256 bytes")), "{error:?}");
    }
}
