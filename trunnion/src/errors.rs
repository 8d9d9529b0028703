//! What the facade refuses: a configuration, the name of a device, a device that is not there.

use crate::error::Error;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Where a setting was read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A variable of the environment.
    Environment,
    /// A configuration file.
    File {
        /// Its path, as it was given.
        path: String,
        /// The line, from 1.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("environment"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
        }
    }
}

/// A configuration that is not valid.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A setting there is none of.
    #[error("{origin}: there is no setting `{key}`{}; there are: {}", DidYouMean(near), known.join(", "))]
    UnknownKey {
        /// Where it was read.
        origin: Origin,
        /// The name, as it was written.
        key: String,
        /// The names there are, as they would be written there.
        known: Vec<String>,
        /// The one that was probably meant.
        near: Option<String>,
    },
    /// A value the setting cannot have.
    #[error("{origin}: `{key}` cannot be `{value}`; valid: {valid}")]
    BadValue {
        /// Where it was read.
        origin: Origin,
        /// The setting, as it was written.
        key: String,
        /// The value, as it was written.
        value: String,
        /// What it can be.
        valid: String,
    },
    /// A file that is not TOML.
    #[error("{origin}: {message}")]
    Syntax {
        /// Where the parser stopped.
        origin: Origin,
        /// What it expected.
        message: String,
    },
    /// A file that was named and cannot be read.
    #[error("{path}: {message}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's message.
        message: String,
    },
}

struct DidYouMean<'a>(&'a Option<String>);
impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |near| write!(f, ", did you mean `{near}`?"))
    }
}

/// Text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no device; valid: `backend`, `backend:index` or `backend:part of the adapter's name`")]
pub struct ParseDeviceError {
    /// The text.
    pub text: String,
}

/// Why no device was opened. `Debug` prints what `Display` does, so that a `main` that returns it says what is wrong and what is valid.
#[non_exhaustive]
#[derive(Clone, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device was asked for by text that names none.
    #[error(transparent)]
    Name(#[from] ParseDeviceError),
    /// The runtime refused: [`Error::UnknownBackend`], [`Error::BackendUnavailable`], [`Error::NoDevice`].
    #[error(transparent)]
    Runtime(#[from] Error),
    /// No adapter of the backend has such a name.
    #[error("`{asked}` names no device of that backend; there are: {}", devices.join(", "))]
    NoMatch {
        /// What was asked for.
        asked: String,
        /// The backend's devices, each as its place and its adapter.
        devices: Vec<String>,
    },
    /// No backend has a device.
    #[error("there is no device{}", Reasons(unavailable))]
    NoDevices {
        /// Why the backends that could not look for devices could not.
        unavailable: Vec<Error>,
    },
}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<core::convert::Infallible> for OpenError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

struct Reasons<'a>(&'a [Error]);
impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|why| write!(f, "; {why}"))
    }
}
