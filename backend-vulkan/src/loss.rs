//! Whether the device is lost, and what was seen first: the same answer to every call from then on.

use crate::failure::failed;
use ash::vk;
use std::sync::OnceLock;
use trunnion_runtime_core::error::{Error, Result};

/// The device's fault, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Loss(OnceLock<Error>);

impl Loss {
    /// The fault, where there is one.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some(lost) => Err(lost.clone()),
        }
    }

    /// The error of a call that failed. A fault of the device stays; of several the first counts.
    #[cold]
    pub(crate) fn failed(&self, call: &str, result: vk::Result) -> Error {
        self.note(failed(call, result))
    }

    /// As [`failed`](Self::failed), for an error that was made already.
    #[cold]
    pub(crate) fn note(&self, error: Error) -> Error {
        if error.is_device_lost() { self.0.get_or_init(|| error).clone() } else { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_first_fault_of_the_device_is_what_every_call_answers() {
        let loss = Loss::default();
        let refused = loss.failed("vkQueueSubmit", vk::Result::ERROR_OUT_OF_HOST_MEMORY);
        assert!(!refused.is_device_lost());
        assert_eq!(loss.check(), Ok(()));
        let first = loss.failed("vkQueueSubmit", vk::Result::ERROR_DEVICE_LOST);
        let second = loss.failed("vkWaitSemaphores", vk::Result::ERROR_DEVICE_LOST);
        assert!(first.to_string().contains("vkQueueSubmit"), "{first}");
        assert_eq!((&second, loss.check()), (&first, Err(first.clone())));
    }
}
