//! Whether the device is lost, and what was seen first: the same answer to every call from then on.

use std::sync::OnceLock;
use trunnion_runtime_core::error::{Error, Result};

/// The device's fault, once there is one. It may be shared between threads.
#[derive(Debug, Default)]
pub struct Loss(OnceLock<Error>);

impl Loss {
    /// The fault, where there is one.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some(lost) => Err(lost.clone()),
        }
    }

    /// The error of a call that failed. A fault of the device stays; of several the first counts.
    #[cold]
    pub fn note(&self, error: Error) -> Error {
        if error.is_device_lost() { self.0.get_or_init(|| error).clone() } else { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_of_the_device_is_what_every_call_answers() {
        let lost = |cause: &str| Error::DeviceLost { cause: cause.into() };
        let loss = Loss::default();
        let refused = Error::Driver { call: "allocate".into(), code: 1, message: "no".into() };
        assert_eq!((loss.note(refused.clone()), loss.check()), (refused, Ok(())));
        assert_eq!(loss.note(lost("first")), lost("first"));
        assert_eq!(loss.note(lost("second")), lost("first"));
        assert_eq!(loss.check(), Err(lost("first")));
    }
}
